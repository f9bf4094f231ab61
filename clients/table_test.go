// The tables of docs/clients.md.

package clients

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of docs/clients.md")

const (
	tableFile  = "../docs/clients.md"
	tableStart = "<!-- make clients UPDATE=1: %s -->\n"
	tableEnd   = "<!-- end -->\n"
)

// checkTable compares a table of docs/clients.md with the text that a test made. With -update
// it writes the table.
func checkTable(t *testing.T, name, want string) {
	t.Helper()
	if t.Failed() {
		return
	}
	text, err := os.ReadFile(tableFile)
	require.NoError(t, err)
	start := fmt.Sprintf(tableStart, name)
	before, rest, ok := strings.Cut(string(text), start)
	require.True(t, ok, "%s lacks %q", tableFile, start)
	table, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "%s lacks %q", tableFile, tableEnd)
	if *update {
		require.NoError(t, os.WriteFile(tableFile, []byte(before+start+want+tableEnd+after), 0o644))
		return
	}
	assert.Equal(t, want, table, "make clients UPDATE=1 writes the table")
}
