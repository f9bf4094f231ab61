// The tables of ../README.md.

package literature

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/aplomb-go/aplomb/lab/storm/internal/report"
)

// A key names a cell.
type key struct{ model, setting, arm string }

// The tables stand between these lines.
const (
	tableStart = "<!-- make storm-literature writes this -->\n"
	tableEnd   = "<!-- end -->\n"
)

// tables writes the section of the document.
func tables(cells map[key]Figures) string {
	var b strings.Builder
	for _, m := range Models() {
		_, _ = fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| client |", m.Name, report.Wrap(m.About+" ([source]("+m.Source+"))", "", 120))
		for _, s := range m.Settings {
			b.WriteString(" " + s.Name + " |")
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(m.Settings)) + "\n")
		for _, a := range m.arms() {
			b.WriteString("| " + a.Name + " |")
			for _, s := range m.Settings {
				b.WriteString(" " + m.cell(cells[key{m.Name, s.Name, a.Name}]) + " |")
			}
			b.WriteString("\n")
		}
		for i, note := range m.notes() {
			if i == 0 {
				b.WriteString("\n")
			}
			b.WriteString(report.Wrap("- "+note, "  ", 120) + "\n")
		}
	}
	b.WriteString("\n")
	return b.String()
}

// notes are what stands below the table.
func (m *Model) notes() (all []string) {
	for _, w := range m.Why {
		all = append(all, w.Text)
	}
	return append(all, m.Notes...)
}

// formats say how a figure stands in a cell.
var formats = [figures]string{
	Load:    "%.2f",
	Success: "%.1f %%",
	Outage:  "%.2f while down",
	Back:    "back after %.1f s",
	Lost:    "%.0f lost",
}

// cell writes the figures that there are.
func (m *Model) cell(f Figures) string {
	var parts []string
	for i, x := range f {
		switch {
		case math.IsInf(x, 1):
			parts = append(parts, "never back")
		case !math.IsNaN(x) && Figure(i) == Time:
			parts = append(parts, words(x))
		case !math.IsNaN(x):
			parts = append(parts, fmt.Sprintf(formats[i], x))
		}
	}
	return strings.Join(parts, ", ")
}

// parse reads the cells of a document.
func parse(text string) map[key]Figures {
	cells := map[key]Figures{}
	for _, m := range Models() {
		_, section, _ := strings.Cut(text, "\n### "+m.Name+"\n")
		for _, a := range m.arms() {
			_, row, _ := strings.Cut(section, "\n| "+a.Name+" |")
			row, _, _ = strings.Cut(row, " |\n")
			texts := strings.Split(strings.TrimPrefix(row, " "), " | ")
			for i, s := range m.Settings {
				if i < len(texts) {
					cells[key{m.Name, s.Name, a.Name}] = m.figuresIn(s, texts[i])
				}
			}
		}
	}
	return cells
}

// figuresIn is the reverse of cell.
func (m *Model) figuresIn(s Setting, cell string) (f Figures) {
	parts := strings.Split(cell, ", ")
	has := [figures]bool{true, true, s.Dead.To > 0, s.Trigger.To > 0, m.Counted, m.Time != nil}
	for i := range f {
		if f[i] = math.NaN(); len(parts) == 0 || !has[i] {
			continue
		}
		f[i] = number(parts[0])
		if Figure(i) == Time && !strings.HasSuffix(parts[0], " ms") {
			f[i] *= 1000
		}
		parts = parts[1:]
	}
	return f
}

// number returns the first number of a text, and +Inf if there is none.
func number(text string) float64 {
	for _, word := range strings.Fields(text) {
		if x, err := strconv.ParseFloat(word, 64); err == nil {
			return x
		}
	}
	return math.Inf(1)
}

// words says a time of so many milliseconds.
func words(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f s", ms/1000)
}
