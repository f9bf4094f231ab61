// Package snippets compiles the Go code in the documentation.
package snippets

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the module's directory, relative to this one.
const root = "../.."

// A snippet is one block of Go code in a Markdown file.
type snippet struct {
	file string // as errors name it
	line int    // of the code's first line, from 1
	code string
}

// snippetsOf returns the blocks of a Markdown text that are marked as Go.
func snippetsOf(file, text string) (all []snippet) {
	var fence string // the one that is open
	var s *snippet   // nil: a block that is no Go
	for i, line := range strings.SplitAfter(text, "\n") {
		trimmed := strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t>")
		marks := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`~"))]
		switch {
		case fence == "" && len(marks) >= 3:
			fence = marks
			if lang, _, _ := strings.Cut(strings.TrimSpace(trimmed[len(marks):]), " "); lang == "go" || lang == "golang" {
				s = &snippet{file: file, line: i + 2}
			}
		case fence != "" && strings.HasPrefix(marks, fence) && trimmed == marks:
			if s != nil {
				all = append(all, *s)
			}
			fence, s = "", nil
		case s != nil:
			s.code += line
		}
	}
	return all
}

// packages are the packages that a snippet without imports may use.
var packages = map[string]string{
	"classify": "github.com/aplomb-go/aplomb/classify", "debug": "github.com/aplomb-go/aplomb/debug", "failover": "github.com/aplomb-go/aplomb/failover", "policy": "github.com/aplomb-go/aplomb/policy",
	"transport": "github.com/aplomb-go/aplomb/transport", "profile": "github.com/aplomb-go/aplomb/policy/profile",
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "io": "io", "log": "log", "maps": "maps",
	"os": "os", "slog": "log/slog", "strings": "strings", "sync": "sync", "time": "time", "url": "net/url",
}

// program returns a snippet as a complete file. It adds a package clause, the
// imports and a function around statements if they are missing.
func (s snippet) program() string {
	at := fmt.Sprintf("//line %s:%d\n", s.file, s.line)
	parse := func(src string) (*ast.File, error) {
		return parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	}
	if f, err := parse(s.code); err == nil || f != nil && f.Name != nil && f.Name.Name != "_" && f.Name.Name != "" {
		return at + s.code
	}
	code := at + s.code
	f, err := parse("package snippet\n" + code)
	if err != nil {
		code = "func _() {\n" + code + "\n}"
		f, err = parse("package snippet\n" + code)
	}
	if err != nil || len(f.Imports) > 0 {
		return "package snippet\n" + code // the compiler says what is wrong with it
	}
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				names[x.Name] = true
			}
		}
		return true
	})
	imports := ""
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if path := packages[name]; path != "" {
			imports += fmt.Sprintf("import %q\n", path)
		}
	}
	return "package snippet\n" + imports + code
}

// check type-checks snippets within the module, as if each of them were a
// package. It writes nothing into the tree and needs no network.
func check(t *testing.T, all []snippet) (output string, err error) {
	t.Helper()
	dir, abs := t.TempDir(), mustAbs(t, ".")
	replace := map[string]string{}
	args := []string{"list", "-export", "-overlay", filepath.Join(dir, "overlay.json")}
	for i, s := range all {
		name := fmt.Sprintf("snippet%d", i)
		file := filepath.Join(dir, name+".go")
		require.NoError(t, os.WriteFile(file, []byte(s.program()), 0o600))
		replace[filepath.Join(abs, name, "main.go")] = file
		args = append(args, "./"+name)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(args[3], text, 0o600))
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	return abs
}

// others says where the snippets of a document are compiled that need another module.
var others = map[string]string{
	"migrating.md": "lab/migrating",
	"fleet.md":     "fleet",
	"recipes.md":   "lab/recipes, e2e/recipes and clients",
}

// Every Go snippet of the README and of docs compiles. The one that uses the module otel is
// compiled in lab/metrics.
func TestSnippetsCompile(t *testing.T) {
	files := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	more, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	var all []snippet
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if others[filepath.Base(file)] != "" {
			continue
		}
		all = append(all, snippetsOf(filepath.Base(file), string(text))...)
	}
	all = slices.DeleteFunc(all, func(s snippet) bool { return strings.Contains(s.code, "/aplomb/otel\"") })
	require.NotEmpty(t, all, "the README has snippets")
	out, err := check(t, all)
	assert.NoError(t, err, out)
}

// The sections that show how something is done have an example or a test that also runs.
func TestExamplesOfDocumentsRun(t *testing.T) {
	for _, section := range []struct{ page, title, runs string }{
		{"README.md", "The first program", "transport/example_readme_test.go"},
		{"docs/settings.md", "Timeouts", "transport/example_readme_test.go"},
		{"docs/settings.md", "POST APIs", "transport/example_readme_test.go"},
		{"docs/observability.md", "Why a request failed or was slow", "transport/example_readme_test.go"},
		{"docs/testing.md", "", "faults/testing_test.go"},
	} {
		text, runs := readPage(t, filepath.Join(root, section.page)), readPage(t, filepath.Join(root, section.runs))
		if section.title != "" {
			_, rest, found := strings.Cut(text, "\n## "+section.title+"\n")
			require.True(t, found, section.title)
			text, _, _ = strings.Cut(rest, "\n## ")
		}
		all := snippetsOf(section.page, text)
		require.NotEmpty(t, all, section.title)
		for _, s := range all {
			if _, code, found := strings.Cut(s.code, "\n)\n\n"); found {
				s.code = code // without its imports
			}
			assert.Contains(t, runs, "\n\n"+s.code, "%s, %s: the example that runs is another", section.page, section.title)
		}
	}
}

// A snippet that does not compile is reported with its line. All forms of a
// snippet are read.
func TestSnippetsAreFound(t *testing.T) {
	const text = "# Title\n" +
		"```\nnot go\n```\n" +
		"```go\npackage main\n\nfunc main() {}\n```\n" +
		"```sh\n```go\n```\n" +
		"- a list\n\n  ```go\n  func f() *http.Request { return nil }\n  ```\n" +
		"~~~ go\nfmt.Println(\"a statement\")\n~~~\n" +
		"```golang\nt, err := transport.New(transport.Config{})\n```\n" +
		"```go\nimport \"fmt\"\n\nfunc g() { fmt.Println(undefined) }\n```\n" +
		"```go\nthis is no Go\n```\n"
	all := snippetsOf("doc.md", text)
	require.Len(t, all, 6)
	for i, fault := range []string{"", "", "", "doc.md:22: declared and not used: t", "doc.md:27: undefined: undefined", "doc.md:30:"} {
		out, err := check(t, all[i:i+1])
		if fault == "" {
			assert.NoError(t, err, "%s%s", out, all[i].code)
			continue
		}
		assert.Error(t, err, all[i].code)
		assert.Contains(t, out, fault)
	}
}
