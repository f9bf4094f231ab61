// The document has the code and the figures of the tests.

package migrating

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/lab/internal/document"
)

var update = flag.Bool("update", false, "write the code and the table of changes to the document")

// TestDocument: the document shows every function of this package as it is compiled, and
// the table as it is measured.
func TestDocument(t *testing.T) {
	want := map[string]string{"changes": changesTable(t)}
	for name, source := range functions(t) {
		want["func "+name] = "```go\n" + source + "\n```\n"
	}
	assert.Empty(t, document.Compare(t, "../../docs/migrating.md", want, *update, func(old, now string) bool { return old == now }))
}

// functions returns the sources of this package's functions, without tests.
func functions(t *testing.T) map[string]string {
	files := testkit.Must(filepath.Glob("*.go"))(t)
	sources := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source := testkit.Must(os.ReadFile(file))(t)
		set := token.NewFileSet()
		parsed := testkit.Must(parser.ParseFile(set, file, source, 0))(t)
		for _, declaration := range parsed.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				sources[f.Name.Name] = string(source[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset])
			}
		}
	}
	return sources
}
