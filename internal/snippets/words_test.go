package snippets

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The documents of users have at most so many words. maxProse are those outside of tables and
// code. maxWay are those of README, a recipe, and the longest page that the recipe links to.
const (
	maxWords = 20_000
	maxProse = 10_500
	maxWay   = 5_000
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
