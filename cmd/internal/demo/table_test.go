package demo

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/transport"
)

// TestTableFitsATerminal: the table is at most 80 columns wide, however long the texts.
func TestTableFitsATerminal(t *testing.T) {
	bad := result{err: errors.New(strings.Repeat("an unexpected error ", 10)),
		took: 18 * time.Second, arrivals: make([]arrival, 6)}
	var rows []*row
	for i := range faults {
		rows = append(rows, &row{fault: &faults[i], plain: bad, aplomb: bad})
	}
	for _, line := range table(rows) {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 80, "columns: %s", line)
	}
}

// TestPromisedTextsFit: no text that a reader should see is cut.
func TestPromisedTextsFit(t *testing.T) {
	texts := map[string]int{
		inShort(syscall.ECONNREFUSED):                         plainWidth,
		inShort(syscall.ECONNRESET):                           plainWidth,
		fmt.Sprintf("503, %v", transport.ReasonNotIdempotent): aplombWidth,
		"200, same body twice":                                aplombWidth,
		"200, sent after 1.5 s":                               aplombWidth,
	}
	for i := range faults {
		texts[faults[i].name] = faultWidth
	}
	for text, width := range texts {
		assert.Equal(t, text, strings.TrimRight(cell(text, width), " "), "does not fit %d columns", width)
	}
}
