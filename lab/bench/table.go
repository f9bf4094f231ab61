// Tables, and how they are printed.

package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A table answers one question.
type table struct {
	heads []string
	rows  [][]string
	note  string // printed below the table
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// markdown prints the table. Tables that are not too wide are padded, so that
// they can be read in a terminal as well.
func (t *table) markdown(out io.Writer) {
	widths := t.widths()
	line := func(cells []string) {
		fmt.Fprint(out, "|")
		for i, cell := range cells {
			fmt.Fprintf(out, " %s%s |", cell, strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))))
		}
		fmt.Fprintln(out)
	}
	line(t.heads)
	fmt.Fprint(out, "|")
	for i, w := range widths {
		rule := strings.Repeat("-", max(w, 2))
		if i > 0 {
			rule = rule[1:] + ":" // figures are aligned to the right
		}
		fmt.Fprintf(out, " %s |", rule)
	}
	fmt.Fprintln(out)
	for _, row := range t.rows {
		line(row)
	}
	if t.note != "" {
		fmt.Fprintf(out, "\n%s\n", t.note)
	}
}

// widest is how wide a table may become by padding.
const widest = 160

// widths returns the width of each column, zeros for a table that is not padded.
func (t *table) widths() []int {
	widths, sum := make([]int, len(t.heads)), 0
	for i, head := range t.heads {
		widths[i] = utf8.RuneCountInString(head)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		sum += widths[i]
	}
	if sum > widest {
		return make([]int, len(t.heads))
	}
	return widths
}
