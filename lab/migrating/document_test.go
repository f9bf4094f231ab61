// The document has the code and the figures of the tests.

package migrating

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the code and the table of changes to the document")

const document = "../../docs/migrating.md"

// TestDocument: the document shows every function of this package as it is compiled, and
// the table as it is measured.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	code := functions(t)
	want := map[string]string{"changes": changesTable(t)}
	for name, source := range code {
		want["func "+name] = "```go\n" + source + "\n```\n"
	}
	// A marked part begins with <!-- NAME --> and ends at an empty line outside of code.
	marked := regexp.MustCompile("(?s)<!-- ([^\n]*) -->\n(```go\n.*?\n```\n|(?:\\|[^\n]*\n)*)")
	seen := map[string]bool{}
	got := marked.ReplaceAllFunc(text, func(part []byte) []byte {
		name := string(marked.FindSubmatch(part)[1])
		seen[name] = true
		if _, ok := want[name]; !ok {
			t.Errorf("the document has a part that is not in the code: %s", name)
			return part
		}
		return []byte("<!-- " + name + " -->\n" + want[name])
	})
	for _, name := range slices.Sorted(maps.Keys(want)) {
		assert.True(t, seen[name], "the document lacks <!-- %s -->", name)
	}
	assert.Equal(t, len(code), bytes.Count(text, []byte("```go\n")), "functions, and blocks of code in the document")
	if *update {
		require.NoError(t, os.WriteFile(document, got, 0o666))
		return
	}
	assert.True(t, bytes.Equal(got, text), "%s differs from the code or from what was measured; go -C lab/migrating test . -update writes it", document)
}

// functions returns the sources of this package's functions, without tests.
func functions(t *testing.T) map[string]string {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	sources := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, source, 0)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				sources[f.Name.Name] = string(source[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset])
			}
		}
	}
	return sources
}
