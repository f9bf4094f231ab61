package profile_test

import (
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

	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/policy/rulefile"
)

// docs/profiles.md has every profile in its table. The comments of the functions name their
// sources, and the days on which they were read.
func TestDocumentIsComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "profiles.md"))
	require.NoError(t, err)
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, row[1])
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(profile.All())), rows)
	for name, doc := range comments(t) {
		assert.NotEmpty(t, links(doc), name)
		assert.Regexp(t, `read on \d{4}-\d\d-\d\d`, doc, "%s: when were the sources read?", name)
	}
}

// The rules in docs/profiles.md can be loaded.
func TestDocumentedRulesLoad(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "profiles.md"))
	require.NoError(t, err)
	_, block, found := strings.Cut(string(text), "```json\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	_, hosts, err := rulefile.Load(strings.NewReader(block), rulefile.Names{})
	require.NoError(t, err)
	assert.Equal(t, 4, hosts["api.github.com"].Attempts)
	assert.NotNil(t, hosts["api.github.com"].Scope, "the profile's")
}

func links(text string) []string {
	all := regexp.MustCompile(`https://[^\s<>()]+`).FindAllString(text, -1)
	for i, link := range all {
		all[i] = strings.TrimRight(link, ".,")
	}
	return all
}

// comments returns the comments of the functions that return a profile, by the name of
// the profile.
func comments(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	names := map[string]string{} // by function
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.IsExported() {
				docs[fn.Name.Name] = fn.Doc.Text()
				if fn.Name.Name == "All" {
					ast.Inspect(fn, func(n ast.Node) bool {
						if pair, ok := n.(*ast.KeyValueExpr); ok {
							names[pair.Value.(*ast.CallExpr).Fun.(*ast.Ident).Name] = strings.Trim(pair.Key.(*ast.BasicLit).Value, `"`)
						}
						return true
					})
				}
			}
		}
	}
	delete(docs, "All")
	byName := map[string]string{}
	for fn, doc := range docs {
		require.NotEmpty(t, names[fn], "%s is not in All", fn)
		byName[names[fn]] = doc
	}
	return byName
}
