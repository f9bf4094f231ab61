// The tables of docs/clients.md and README.md.

package clients

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of docs/clients.md and README.md")

const (
	tableStart = "<!-- make clients UPDATE=1: %s -->\n"
	tableEnd   = "<!-- end -->\n"
)

// checkTable compares the rows that a test made with a table of a file. If some tests did not
// run, their rows are empty. With -update it writes the table.
func checkTable(t *testing.T, file, name, head string, rows []string) {
	t.Helper()
	if t.Failed() {
		return
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	start := fmt.Sprintf(tableStart, name)
	before, rest, ok := strings.Cut(string(text), start)
	require.True(t, ok, "%s lacks %q", file, start)
	table, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "%s lacks %q", file, tableEnd)
	if slices.Contains(rows, "") {
		for _, row := range rows {
			assert.Contains(t, table, row)
		}
		return
	}
	want := head + strings.Join(rows, "")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+start+want+tableEnd+after), 0o644))
		return
	}
	assert.Equal(t, want, table, "make clients UPDATE=1 writes the table")
}
