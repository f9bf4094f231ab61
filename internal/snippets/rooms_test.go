package snippets

import (
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
