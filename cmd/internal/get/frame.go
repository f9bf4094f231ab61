// The text of the bars for a width.

package get

import (
	"fmt"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/aplomb-go/aplomb/internal/terminal"
)

// A row is what a bar shows at a moment.
type row struct {
	name               string
	started            bool  // there is a response, so the numbers below count
	at, earlier, total int64 // in bytes; total is -1 if it is not known
	rate               int64 // bytes per second
	left               time.Duration
	resumes            string
	status             string        // such as "checking"
	why                string        // why there is a wait for the next try
	next               time.Duration // that wait
}

// These are the widths of columns.
const (
	nameWidth = 24
	barLeast  = 8
	barMost   = 30
	paceWidth = 26 // "1023.9 KiB/s, 59m59s left", so that a bar keeps its length
)

// frame returns the lines for a screen. Each line is narrower than the screen,
// because some terminals wrap a line that fills the last column. If there are more
// lines than half of the screen has, the last line counts the others. queued downloads have no row.
func frame(rows []row, queued, width, height int) []string {
	width--
	if len(rows)+queued == 0 || width < 1 {
		return nil
	}
	most := max(height/2, 1)
	if len(rows) > most || queued > 0 && len(rows) == most {
		queued += len(rows) - (most - 1)
		rows = rows[:most-1]
	}
	c := columnsOf(rows, width)
	var lines []string
	for _, r := range rows {
		lines = append(lines, runewidth.Truncate(terminal.Printable(r.text(c)), width, "…"))
	}
	if queued > 0 {
		lines = append(lines, runewidth.Truncate(fmt.Sprintf("… and %d more", queued), width, ""))
	}
	return lines
}

// columns are the widths that all rows of a frame share. detail says how much of
// the pace there is room for.
type columns struct {
	width, name, amount, bar, detail int
}

// columnsOf leaves out the bar first, and then the details of the pace.
func columnsOf(rows []row, width int) columns {
	c := columns{width: width}
	for _, r := range rows {
		c.name = max(c.name, min(runewidth.StringWidth(r.name), nameWidth))
		c.amount = max(c.amount, runewidth.StringWidth(r.amount()))
	}
	c.name = min(c.name, max(width/4, 4))
	for c.detail = details; c.detail > 0; c.detail-- {
		tail := 0
		for _, r := range rows {
			tail = max(tail, runewidth.StringWidth(r.pace(c.detail)))
		}
		room := width - c.name - c.amount - len("  ")
		if c.detail == details {
			c.bar = min(room-max(tail, paceWidth)-len(" "), barMost)
		}
		if c.bar < barLeast {
			c.bar = 0
		}
		if c.bar > 0 || tail <= room {
			break
		}
	}
	return c
}

// text returns the line of a row. It may be too long. The beginning is the most
// important part.
func (r row) text(c columns) string {
	if r.why != "" {
		return r.waitText(c)
	}
	columns := []string{runewidth.FillRight(runewidth.Truncate(r.name, c.name, "…"), c.name)}
	if r.started {
		columns = append(columns, runewidth.FillRight(r.amount(), c.amount))
		if c.bar > 0 {
			columns = append(columns, r.bar(c.bar))
		}
	}
	return strings.TrimRight(strings.Join(append(columns, r.pace(c.detail)), " "), " ")
}

// waitText begins with the time, because the reason may be long. If there is no
// room for the name and the time, the name is left out.
func (r row) waitText(c columns) string {
	text := "next try now"
	if seconds := (r.next + time.Second - 1).Truncate(time.Second); seconds > 0 {
		text = fmt.Sprintf("next try in %v", seconds)
	}
	if c.name+len(" ")+len(text) <= c.width {
		text = runewidth.FillRight(runewidth.Truncate(r.name, c.name, "…"), c.name) + " " + text
	}
	return text + ": " + r.why
}

func (r row) amount() string {
	switch {
	case !r.started:
		return ""
	case r.total <= 0:
		return sizeText(r.at)
	}
	return fmt.Sprintf("%3d %% of %s", percent(r.at, r.total), sizeText(r.total))
}

// bar returns a bar in which the bytes of an earlier run look different.
func (r row) bar(width int) string {
	if r.total <= 0 {
		return strings.Repeat("─", width)
	}
	part := func(n int64) int { return min(int(float64(width)*(float64(n)/float64(r.total))), width) }
	earlier, here := part(r.earlier), part(r.at)
	return strings.Repeat("═", earlier) + strings.Repeat("━", here-earlier) + strings.Repeat("─", width-here)
}

// details is the number of details that pace can show.
const details = 3

// pace returns the rate, the time left and the number of resumes, as many of these
// as detail says.
func (r row) pace(detail int) string {
	if r.status != "" || r.why != "" || !r.started {
		return r.status
	}
	var parts [details]string
	if r.rate > 0 {
		parts[0] = sizeText(r.rate) + "/s"
	}
	if r.left >= 0 && r.rate > 0 {
		parts[1] = fmt.Sprintf("%v left", r.left)
	}
	parts[2] = r.resumes
	return joined(parts[:detail]...)
}
