package snippets

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

var (
	markdownLink = regexp.MustCompile(`(?:\]\(|src="|srcset=")([^\s)"]+)`)
	absoluteLink = regexp.MustCompile(`aplomb-go/aplomb/(?:blob/)?main/([\w./#-]+\w)`)
	namedPage    = regexp.MustCompile(`(?m)(?:^|[\s"(])((?:docs|lab|tools)/[\w./-]+\.(?:md|svg|json|yml))\b`)
	codeBlock    = regexp.MustCompile("(?ms)^```.*?^```$")
)

// Each link of a document leads to a file of the repository and to a heading, and each
// document that a comment names is there. Links to other sites are not followed.
func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	wants := func(path string) bool {
		return slices.Contains([]string{".md", ".go", ".yml", ".json"}, filepath.Ext(path)) || filepath.Base(path) == "Makefile"
	}
	require.NoError(t, testkit.Files(root, wants, func(path, text string) {
		check := func(pattern *regexp.Regexp, text, dir string) {
			for _, link := range pattern.FindAllStringSubmatch(text, -1) {
				if !strings.Contains(link[1], "://") {
					links++
					assert.NoError(t, follow(path, dir, link[1]), path)
				}
			}
		}
		check(absoluteLink, text, root)
		if filepath.Ext(path) == ".md" {
			check(markdownLink, codeBlock.ReplaceAllString(text, ""), filepath.Dir(path))
		} else {
			check(namedPage, text, root)
		}
	}))
	assert.Greater(t, links, 200)
}

// follow returns why a link of a file leads nowhere. dir is what its path is relative to.
func follow(file, dir, link string) error {
	path, anchor, _ := strings.Cut(link, "#")
	target := file
	if path != "" {
		target = filepath.Join(dir, path)
	}
	if !exists(target) {
		return fmt.Errorf("the link %s leads to no file", link)
	}
	if anchor == "" || filepath.Ext(target) != ".md" {
		return nil
	}
	text, err := os.ReadFile(target)
	if err == nil && !slices.Contains(anchors(string(text)), anchor) {
		err = fmt.Errorf("the link %s leads to no heading", link)
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// anchors returns the anchors of the headings of a document, as GitHub makes them.
func anchors(text string) (all []string) {
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		title := strings.TrimSpace(strings.TrimLeft(line, "#"))
		if fenced || !strings.HasPrefix(line, "#") {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, title)
		name := anchor
		for i := 1; slices.Contains(all, name); i++ {
			name = fmt.Sprintf("%s-%d", anchor, i)
		}
		all = append(all, name)
	}
	return all
}

// The documents of users have at most so many words. maxProse are those outside of tables and
// code. maxWay are those of README, a recipe, and the longest page that the recipe links to. The
// README has its own bounds.
const (
	maxWords = 20_000
	maxProse = 8_000
	maxWay   = 4_500

	maxReadme      = 950
	maxReadmeLines = 110
	maxReadmeWidth = 120
)

// The README and the pages of docs stay short, together and on the way of a reader who
// needs a recipe.
func TestWords(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	words, prose := map[string]int{}, 0
	t.Logf("%6s %6s", "words", "prose")
	for _, page := range append([]string{filepath.Join(root, "README.md")}, pages...) {
		text := readPage(t, page)
		name, out := filepath.Base(page), len(strings.Fields(proseOf(text)))
		words[name] = len(strings.Fields(text))
		words["in all"] += words[name]
		prose += out
		t.Logf("%6d %6d %s", words[name], out, name)
	}
	t.Logf("%6d %6d in all", words["in all"], prose)
	assert.LessOrEqual(t, words["in all"], maxWords)
	assert.LessOrEqual(t, prose, maxProse)

	lines := strings.Split(strings.TrimSpace(readPage(t, filepath.Join(root, "README.md"))), "\n")
	assert.LessOrEqual(t, words["README.md"], maxReadme)
	assert.LessOrEqual(t, len(lines), maxReadmeLines)
	for _, line := range lines {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")), maxReadmeWidth, line)
	}

	_, recipes, _ := strings.Cut(readPage(t, filepath.Join(root, "docs", "recipes.md")), "\n## ")
	for recipe := range strings.SplitSeq(recipes, "\n## ") {
		title, _, _ := strings.Cut(recipe, "\n")
		way, longest := words["README.md"]+len(strings.Fields(recipe)), 0
		for _, link := range regexp.MustCompile(`\]\(([\w-]+\.md)`).FindAllStringSubmatch(recipe, -1) {
			longest = max(longest, words[link[1]])
		}
		t.Logf("%6d the way to: %s", way+longest, title)
		assert.LessOrEqual(t, way+longest, maxWay, title)
	}
}

// At most one sentence in a hundred is longer than 30 words. An item of a list is a paragraph.
func TestSentencesAreShort(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	sentences, long := 0, []string{}
	for _, page := range append([]string{filepath.Join(root, "README.md"), filepath.Join(root, "SECURITY.md")}, pages...) {
		text := markdownLink.ReplaceAllString(proseOf(readPage(t, page)), "")
		text = regexp.MustCompile(`(?m)^ *(-|\d+\.|#+|<!--) `).ReplaceAllString(text, "\n\n")
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			for _, s := range regexp.MustCompile(`[.!?](\s+|$)`).Split(strings.TrimSpace(paragraph), -1) {
				words := len(regexp.MustCompile(`[A-Za-z][A-Za-z'-]*`).FindAllString(s, -1))
				if words > 0 {
					sentences++
				}
				if words > 30 {
					long = append(long, s)
				}
			}
		}
	}
	t.Logf("%d of %d sentences are long: %q", len(long), sentences, long)
	assert.LessOrEqual(t, 100*len(long), sentences, strings.Join(long, "\n"))
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// proseOf returns a document without its tables and its code.
func proseOf(text string) string {
	return regexp.MustCompile(`(?m)^(\||    ).*$`).ReplaceAllString(codeBlock.ReplaceAllString(text, ""), "")
}

// The tables of docs/settings.md have each field of a Rule and of a Config once, and mark ten.
func TestSettingsAreComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "settings.md"))
	require.NoError(t, err)
	_, tables, found := strings.Cut(string(text), "\n## All settings\n")
	require.True(t, found)
	tables, _, _ = strings.Cut(tables, "\n## ")
	var shown []string
	for _, row := range regexp.MustCompile("(?m)^\\| (?:★ )?(`.*?`) \\|").FindAllStringSubmatch(tables, -1) {
		shown = append(shown, strings.Split(strings.Trim(row[1], "`"), "`, `")...)
	}
	fields := fieldsOf(reflect.TypeFor[policy.Rule]())
	for i := range reflect.TypeFor[transport.Config]().NumField() {
		fields = append(fields, reflect.TypeFor[transport.Config]().Field(i).Name)
	}
	assert.ElementsMatch(t, fields, shown)
	assert.Equal(t, 10, strings.Count(tables, "| ★ "))
}

// fieldsOf returns the exported fields of a struct, with those of its groups.
func fieldsOf(group reflect.Type) (all []string) {
	for i := range group.NumField() {
		field := group.Field(i)
		if field.Type.Kind() != reflect.Struct {
			if field.IsExported() {
				all = append(all, field.Name)
			}
			continue
		}
		for _, name := range fieldsOf(field.Type) {
			all = append(all, field.Name+"."+name)
		}
	}
	return all
}

// The packages import only what CONTRIBUTING.md says.
func TestRooms(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command:", err)
	}
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "Imports only go down this list")
	require.True(t, found)
	_, list, _ = strings.Cut(list, "```\n")
	list, _, _ = strings.Cut(list, "```\n")
	checked := 0
	for line := range strings.Lines(list) {
		names := strings.Split(strings.TrimSpace(line), " ─▶ ")
		for i, from := range names[:len(names)-1] {
			if strings.Contains(from, ",") {
				continue // they stand above the rooms
			}
			may := strings.Split(strings.Join(names[i+1:], ", "), ", ")
			for _, imported := range importsOf(t, goTool, from) {
				assert.True(t, slices.ContainsFunc(may, func(m string) bool {
					below, all := strings.CutSuffix(m, "/...")
					return imported == m || all && strings.HasPrefix(imported, below+"/")
				}), "%s imports %s", from, imported)
				checked++
			}
		}
	}
	assert.Greater(t, checked, 50)
}

// importsOf returns the packages of this module that a package imports, as CONTRIBUTING.md
// names them.
func importsOf(t *testing.T, goTool, name string) (all []string) {
	dir := "../" + name
	if _, err := os.Stat(dir); err != nil {
		dir = "../../" + name
	}
	out, err := exec.Command(goTool, "list", "-f", "{{range .Imports}}{{.}}\n{{end}}", dir).Output()
	require.NoError(t, err)
	for p := range strings.Lines(string(out)) {
		p = strings.TrimSpace(p)
		if rest, own := strings.CutPrefix(p, "github.com/aplomb-go/aplomb/"); own {
			all = append(all, strings.TrimPrefix(path.Clean(rest), "internal/"))
		}
	}
	return all
}

// TestSizes: no file of the library has more than 450 lines, no function more than 60, and no type that
// is not exported more than 25 methods or 20 fields.
func TestSizes(t *testing.T) {
	others := []string{".git", "testdata", "examples", "lab", "clients", "e2e", "tools"}
	methods, files := map[string]int{}, 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains(others, e.Name()):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files++
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		require.NoError(t, err)
		assert.LessOrEqual(t, set.Position(f.FileEnd).Line-1, 450, "lines of %s", path)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				lines := set.Position(n.End()).Line - set.Position(n.Pos()).Line + 1
				assert.LessOrEqual(t, lines, 60, "lines of %s in %s", n.Name.Name, path)
				if name := receiverOf(n); name != "" && !ast.IsExported(name) {
					methods[filepath.Dir(path)+"."+name]++
				}
			case *ast.TypeSpec:
				if of, ok := n.Type.(*ast.StructType); ok && !n.Name.IsExported() {
					assert.LessOrEqual(t, of.Fields.NumFields(), 20, "fields of %s in %s", n.Name.Name, path)
				}
			}
			return true
		})
		return nil
	}))
	for name, n := range methods {
		assert.LessOrEqual(t, n, 25, "methods of %s", name)
	}
	assert.Greater(t, files, 150)
}

// receiverOf returns the type of a method, and "" for a function.
func receiverOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	of := fn.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.IndexExpr:
		return fmt.Sprint(of.X)
	}
	return ""
}
