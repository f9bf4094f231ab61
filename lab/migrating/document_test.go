// The document has the code and the figures of the tests, and the names in its tables exist.

package migrating

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/lab/internal/document"
	"github.com/aplomb-go/aplomb/lab/internal/exports"
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

// modules has the library of each section with a table.
var modules = map[string]string{
	"go-retryablehttp": "github.com/hashicorp/go-retryablehttp",
	"rehttp":           "github.com/PuerkitoBio/rehttp",
	"failsafe-go":      "github.com/failsafe-go/failsafe-go",
	"heimdall":         "github.com/gojek/heimdall/v7",
	"resty":            "github.com/go-resty/resty/v2",
	"cenkalti/backoff": "github.com/cenkalti/backoff/v5",
}

// standard are the names in the second column that are not aplomb's. The last two are of a header field.
var standard = []string{"http.Client", "http.RoundTripper", "http.NewRequest", "slog.Logger", "Retry", "After"}

// TestNames: the names in the first column of a table belong to the library, and those
// in the second column to aplomb.
func TestNames(t *testing.T) {
	text := testkit.Must(os.ReadFile("../../docs/migrating.md"))(t)
	theirs, ours := exported(t), listedNames(t)
	span, name := regexp.MustCompile("`([^`]*)`"), regexp.MustCompile(`[A-Za-z_][\w.]*`)
	heading, rows := "", 0
	for line := range strings.Lines(string(text)) {
		if after, ok := strings.CutPrefix(line, "## "); ok {
			heading = strings.TrimSpace(after)
		}
		cells := strings.Split(line, "|")
		if theirs[heading] == nil || len(cells) != 4 {
			continue
		}
		rows++
		for _, s := range span.FindAllStringSubmatch(cells[1], -1) {
			assert.True(t, theirs[heading][s[1]], "%s: the library has no %s", heading, s[1])
		}
		for _, s := range span.FindAllStringSubmatch(cells[2], -1) {
			for _, n := range name.FindAllString(s[1], -1) {
				assert.True(t, ours[n] || slices.Contains(standard, n), "%s: aplomb has no %s", heading, n)
			}
		}
	}
	assert.GreaterOrEqual(t, rows, 50, "the document has only %d rows of options", rows)
}

// exported returns, for each section, the names that its library exports: Name and package.Name.
func exported(t *testing.T) map[string]map[string]bool {
	names := map[string]map[string]bool{"a hand-written loop": {"select": true}}
	for heading, module := range modules {
		names[heading] = map[string]bool{}
		for name := range exports.Of(t, module) {
			_, short, _ := strings.Cut(name, ".")
			names[heading][name], names[heading][short] = true, true
		}
	}
	return names
}

// listedNames returns the exported names of docs/api: package.Name, Type.Field, and the
// fields of the types that users write without their type.
func listedNames(t *testing.T) map[string]bool {
	files, err := filepath.Glob("../../docs/api/*.txt")
	require.True(t, err == nil && len(files) > 0, "%v, %v", files, err)
	names := map[string]bool{}
	listed := regexp.MustCompile(`(?m)^(?:type|func|const|var|field) (?:\(\*?(\w+)\)\.)?([\w.]+)`)
	for _, file := range files {
		text := testkit.Must(os.ReadFile(file))(t)
		base := strings.TrimSuffix(filepath.Base(file), ".txt")
		base = base[strings.LastIndex(base, "-")+1:]
		for _, m := range listed.FindAllStringSubmatch(string(text), -1) {
			names[base+"."+m[2]] = true
			names[m[2]] = true // Type.Field
			kind, field, ok := strings.Cut(m[2], ".")
			switch {
			case ok && (kind == "Rule" || base == "backoff"):
				names[field] = true
			case ok: // RateLimit.Burst and the like
				names[kind+"."+field] = true
			}
		}
	}
	return names
}
