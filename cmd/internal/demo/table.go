// The table of results, which is printed at the end, after a line for each wait.

package demo

import (
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

// A row is one fault with its results.
type row struct {
	fault         *fault
	plain, aplomb result
}

// problems lists the results of both clients that are not as promised.
func (r *row) problems() []string {
	var list []string
	if err := r.fault.plain.check(r.plain); err != nil {
		list = append(list, fmt.Sprintf("%s, plain client: %v", r.fault.name, err))
	}
	if _, err := r.note(); err != nil {
		list = append(list, fmt.Sprintf("%s, with aplomb: %v", r.fault.name, err))
	}
	return list
}

// note checks the result of aplomb's client and returns a remark about it.
func (r *row) note() (note, error) {
	if err := r.fault.aplomb.check(r.aplomb); err != nil {
		return "", err
	}
	return r.fault.also(r.aplomb)
}

// String returns the status, or the error in few words.
func (r result) String() string {
	if r.err == nil {
		return strconv.Itoa(r.status)
	}
	return inShort(r.err)
}

// inShort names the usual failures of a connection as they are called everywhere. Of
// other errors it returns the innermost.
func inShort(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset"
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// waiting says why aplomb's client waits, and for how long.
func waiting(e transport.AttemptEnd) string {
	why := strconv.Itoa(e.Status)
	switch {
	case e.Err != nil:
		why = inShort(e.Err)
	case e.RetryAfter > 0:
		why += fmt.Sprintf(" (%v)", e.RetryAfter)
	}
	return why + ", waiting " + seconds(e.Delay)
}

// These are the widths of the columns. With the time and two spaces between
// columns the table is 79 wide, so that it fits any terminal.
const (
	faultWidth    = 19
	plainWidth    = 18
	aplombWidth   = 24
	arrivalsWidth = 5
)

// table lays the table out.
func table(rows []*row) (lines []string) {
	lines = append(lines, cell("fault", faultWidth)+cell("plain client", plainWidth)+
		cell("with aplomb", aplombWidth)+cell("sent", arrivalsWidth)+"time")
	for _, r := range rows {
		said, err := r.note()
		lines = append(lines, cell(r.fault.name, faultWidth)+
			judged(r.plain, r.fault.plain.check(r.plain), "", plainWidth)+
			judged(r.aplomb, err, ", "+said, aplombWidth)+
			cell(fmt.Sprintf("%d / %d", len(r.plain.arrivals), len(r.aplomb.arrivals)), arrivalsWidth)+
			seconds(r.aplomb.took))
	}
	return lines
}

// judged shows a result, with more of it if it is as promised.
func judged(r result, problem error, more string, width int) string {
	if problem != nil {
		return cell("NOT AS PROMISED: "+r.String(), width)
	}
	return cell(r.String()+more, width)
}

// cell pads or cuts a text to the column's width.
func cell(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		text = string(runes[:width-1]) + "…"
	}
	return fmt.Sprintf("%-*s  ", width, text)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
