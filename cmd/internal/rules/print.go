// Texts that fit a terminal of 80 columns.

package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/aplomb-go/aplomb/internal/terminal"
)

const columns = 80

// line prints a line. Some texts come from a server or from a file, so it makes them
// printable.
func line(w io.Writer, texts ...any) {
	text := strings.TrimSuffix(fmt.Sprintln(texts...), "\n")
	_, _ = fmt.Fprintln(w, terminal.Printable(text))
}

// printJSON prints a value as JSON.
func printJSON(w io.Writer, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	_, _ = w.Write(terminal.JSON(b.Bytes()))
}

// complain prints an error to the standard error.
func complain(w world, err error) {
	_, _ = fmt.Fprintln(w.stderr, "aplomb rules: "+terminal.Error(err))
}

// row prints a row of the table of settings. A text that is too long for its column
// goes on below.
func row(w io.Writer, key string, keys int, value string, values int, source string) {
	from := columns - 2 - keys - 2 - values - 2
	left, right := broken(value, values), broken(source, max(from, 1))
	for i := range max(len(left), len(right)) {
		cell := func(column []string) string {
			if i < len(column) {
				return column[i]
			}
			return ""
		}
		line(w, strings.TrimRight(fmt.Sprintf("  %-*s  %-*s  %s", keys, cell([]string{key}), values, cell(left), cell(right)), " "))
	}
}

// wrap prints a text in lines, with an indent.
func wrap(w io.Writer, indent, text string) {
	for _, part := range broken(text, columns-len(indent)) {
		line(w, indent+part)
	}
}

// broken breaks a text into lines of so many characters, at spaces and after commas
// if possible. It looks only at the line to come, because a text may name thousands of
// hosts.
func broken(text string, width int) []string {
	var lines []string
	for {
		head := first(text, width+1)
		end := len(first(head, width))
		if end == len(head) { // the rest fits
			return append(lines, text)
		}
		at := strings.LastIndexByte(head, ' ')
		if at <= 0 {
			at = strings.LastIndexByte(head[:len(head)-1], ',') + 1
		}
		if at <= 0 {
			at = end
		}
		lines = append(lines, strings.TrimRight(text[:at], " "))
		text = strings.TrimLeft(text[at:], " ")
	}
}

// first returns the first n characters of a text, or the whole text if there are fewer.
func first(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}
