// Package exports says which names a module exports, for the tests of documents that name them.
package exports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Module returns what go list knows of a required module, such as its Dir or its Version.
func Module(t *testing.T, what, module string) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{."+what+"}}", module).Output()
	require.NoError(t, err, module)
	return strings.TrimSpace(string(out))
}

// Of returns the exported names of a module's packages as package.Name, with
// fields and methods as if they were the package's own. It leaves out internal packages,
// examples and tests.
func Of(t *testing.T, module string) map[string]bool {
	names := map[string]bool{}
	root := Module(t, "Dir", module)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && slices.Contains([]string{"internal", "examples", "example", "testdata", "test"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		add := func(list ...*ast.Ident) {
			for _, name := range list {
				if name.IsExported() {
					names[file.Name.Name+"."+name.Name] = true
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(n.Name)
				return false
			case *ast.TypeSpec:
				add(n.Name)
			case *ast.ValueSpec:
				add(n.Names...)
			case *ast.Field:
				add(n.Names...)
			}
			return true
		})
		return nil
	})
	require.True(t, err == nil && len(names) > 0, "%s: %d, %v", module, len(names), err)
	return names
}
