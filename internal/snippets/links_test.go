package snippets

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
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
