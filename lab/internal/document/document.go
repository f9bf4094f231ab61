// Package document compares the parts of a document with what the tests of a package say.
package document

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// marked is a part of a document. It begins with <!-- NAME --> and ends at an empty line outside of code.
var marked = regexp.MustCompile("(?s)<!-- ([^\n]*) -->\n(```.*?\n```\n|(?:\\|[^\n]*\n)*)")

// Compare compares the parts of a document with those that it should have, or writes them to the document. same reports
// whether two texts of a part differ only by chance. Compare returns the names of the other parts.
func Compare(t *testing.T, path string, want map[string]string, update bool, same func(old, now string) bool) (others []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	seen := map[string]bool{}
	got := marked.ReplaceAllStringFunc(string(text), func(part string) string {
		mark, old, _ := strings.Cut(part, "\n")
		name := strings.TrimSuffix(strings.TrimPrefix(mark, "<!-- "), " -->")
		now, ok := want[name]
		seen[name] = true
		if !ok {
			others = append(others, name)
		}
		if !ok || same(old, now) {
			return part
		}
		if !update {
			assert.Equal(t, now, old, "%s: the flag -update writes it", name)
		}
		return mark + "\n" + now
	})
	for name := range want {
		assert.True(t, seen[name], "%s lacks <!-- %s -->", path, name)
	}
	assert.Equal(t, strings.Count(got, "```go\n"), strings.Count(got, " -->\n```go\n"), "each block of code has a package that compiles it")
	if update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o666))
	}
	return others
}
