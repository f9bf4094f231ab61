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

	"github.com/aplomb-go/aplomb/lab/internal/document"
)

var update = flag.Bool("update", false, "write the code, the lines and the figures to the document")

// TestDocument: the document shows the files of this package, what the logs say, and what was
// measured.
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
	others := document.Compare(t, "../../docs/recipes.md", want, *update, func(old, now string) bool { return without(old) == without(now) })
	for _, name := range others {
		assert.DirExists(t, "../../"+name, "a part of no package")
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
