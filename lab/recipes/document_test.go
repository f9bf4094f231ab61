// The document has the code, the lines and the figures.

package recipes

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the code, the lines and the figures to the document")

const document = "../../docs/recipes.md"

// TestDocument: the document shows the files of this package, what the logs say, and what was
// measured. Each part begins with <!-- NAME --> and ends at an empty line outside of code.
func TestDocument(t *testing.T) {
	want := map[string]string{"latency": latencies(t)}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if _, code, ok := strings.Cut(string(text), "package recipes\n\n"); ok && !strings.HasSuffix(file, "_test.go") {
			want[file] = "```go\n" + code + "```\n"
		}
	}
	for _, s := range situations {
		want["log of "+s.name] = "```text\n" + lines(t, s) + "```\n"
	}
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	seen := 0
	got := regexp.MustCompile("(?s)<!-- ([^\n]*) -->\n(```.*?\n```\n|(?:\\|[^\n]*\n)*)").ReplaceAllStringFunc(string(text), func(part string) string {
		mark, old, _ := strings.Cut(part, "\n")
		name := strings.TrimSuffix(strings.TrimPrefix(mark, "<!-- "), " -->")
		now, ok := want[name]
		if !ok {
			return part // of another package
		}
		if seen++; without(old) == without(now) {
			return part
		}
		if !*update {
			assert.Equal(t, old, now, "%s: go -C lab test ./recipes -update writes it", name)
		}
		return mark + "\n" + now
	})
	assert.Equal(t, len(want), seen, "parts of the document")
	assert.Equal(t, strings.Count(got, "```go\n"), strings.Count(got, " -->\n```go\n"), "each block of code has a package that compiles it")
	if *update {
		require.NoError(t, os.WriteFile(document, []byte(got), 0o644))
	}
}

// without leaves out the times that have jitter, and the order that depends on them.
func without(part string) string {
	lines := strings.Split(jitter.ReplaceAllString(part, "$1…"), "\n")
	if strings.HasPrefix(part, "```text\n") {
		slices.Sort(lines)
	}
	return strings.Join(lines, "\n")
}

var jitter = regexp.MustCompile(`(?m)((?:until|delay)=|^ +)[0-9.:hms]+`)
