// The table of results. On a terminal the table is redrawn while the requests
// run. Elsewhere it is printed once at the end, after a line for each wait.

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

// A row is one fault with its results so far.
type row struct {
	fault         *fault
	plain, aplomb *result // nil: not yet
	last          string  // what the last attempt came to
	next          time.Time
}

// problems lists the results of both clients that are not as promised.
func (r *row) problems() []string {
	var list []string
	if err := r.fault.plain.check(*r.plain); err != nil {
		list = append(list, fmt.Sprintf("%s, plain client: %v", r.fault.name, err))
	}
	if _, err := r.note(); err != nil {
		list = append(list, fmt.Sprintf("%s, with aplomb: %v", r.fault.name, err))
	}
	return list
}

// note checks the result of aplomb's client and returns a remark about it.
func (r *row) note() (note, error) {
	if err := r.fault.aplomb.check(*r.aplomb); err != nil {
		return "", err
	}
	return r.fault.also(*r.aplomb)
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

const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

// These are the widths of the columns. With the time and two spaces between
// columns the table is 79 wide, so that it fits any terminal.
const (
	faultWidth    = 19
	plainWidth    = 18
	aplombWidth   = 24
	arrivalsWidth = 5
)

// A screen shows the rows. Its methods are safe for concurrent use.
type screen struct {
	out    io.Writer
	live   bool // cursor movements are understood
	colour bool

	mu    sync.Mutex // guards all below, and the rows
	rows  []*row
	drawn int // lines of the table that is on the terminal
}

func newScreen(out io.Writer, rows []*row) *screen {
	live := false
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		live = err == nil && info.Mode()&fs.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return &screen{out: out, rows: rows, live: live, colour: live && os.Getenv("NO_COLOR") == ""}
}

func (s *screen) printf(format string, args ...any) {
	fmt.Fprintf(s.out, format, args...)
}

// update changes a row.
func (s *screen) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// ended notes the end of an attempt of aplomb's client.
func (s *screen) ended(r *row, e transport.AttemptEnd) {
	if e.Reason != transport.ReasonRetry {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.Err != nil:
		r.last = strings.TrimPrefix(inShort(e.Err), "connection ")
	case e.RetryAfter > 0:
		r.last = fmt.Sprintf("%d (%v)", e.Status, e.RetryAfter)
	default:
		r.last = strconv.Itoa(e.Status)
	}
	r.next = time.Now().Add(e.Delay)
	if !s.live {
		s.printf("%s: %s\n", r.fault.name, r.progress())
	}
}

// start draws the table ten times a second. The returned function stops that
// and draws the table for the last time.
func (s *screen) start() (stop func()) {
	ticker := time.NewTicker(100 * time.Millisecond)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer ticker.Stop()
		for {
			s.draw(false)
			select {
			case <-ticker.C:
			case <-end:
				s.draw(true)
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// draw writes the table over the previous table. It writes in one go, so that
// the screen does not flicker.
func (s *screen) draw(last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live && !last {
		return
	}
	lines := s.lines()
	text := strings.Join(lines, "\n") + "\n\n"
	if !s.live {
		fmt.Fprint(s.out, "\n"+text)
		return
	}
	if s.drawn > 0 {
		// Move up, go to the beginning of the line, and clear everything below.
		text = fmt.Sprintf("\x1b[%dA\r\x1b[J", s.drawn) + text
	}
	s.drawn = len(lines) + 1
	if !last {
		// A wrapped line on a narrow terminal would make "up" too short, so
		// wrapping is off. The last table may wrap, because nothing is drawn
		// over it.
		text = "\x1b[?7l" + text + "\x1b[?7h"
	}
	fmt.Fprint(s.out, text)
}

// lines lays the table out.
func (s *screen) lines() []string {
	header := cell("fault", faultWidth) + cell("plain client", plainWidth) +
		cell("with aplomb", aplombWidth) + cell("sent", arrivalsWidth) + "time"
	lines := []string{s.paint(bold, header)}
	for _, r := range s.rows {
		lines = append(lines, strings.TrimRight(s.line(r), " "))
	}
	return lines
}

func (s *screen) line(r *row) string {
	plain := s.paint(dim, cell("…", plainWidth))
	arrivals, took := cell("", arrivalsWidth), ""
	if r.plain != nil {
		plain = s.plainCell(r)
	}
	aplomb := s.paint(dim, cell(r.progress(), aplombWidth))
	if r.aplomb != nil {
		aplomb, took = s.aplombCell(r), seconds(r.aplomb.took)
	}
	if r.plain != nil && r.aplomb != nil {
		arrivals = cell(fmt.Sprintf("%d / %d", len(r.plain.arrivals), len(r.aplomb.arrivals)), arrivalsWidth)
	}
	return cell(r.fault.name, faultWidth) + plain + aplomb + arrivals + took
}

// plainCell returns the result of the plain client, in the colour of its kind
// of failure.
func (s *screen) plainCell(r *row) string {
	colour := yellow
	if r.plain.err != nil {
		colour = red
	}
	return s.judged(r.plain, r.fault.plain.check(*r.plain), r.plain.String(), colour, plainWidth)
}

// aplombCell returns the result of aplomb's client. It is green if it is as
// promised, even if the promise is a failure.
func (s *screen) aplombCell(r *row) string {
	said, err := r.note()
	return s.judged(r.aplomb, err, r.aplomb.String()+", "+said, green, aplombWidth)
}

func (s *screen) judged(r *result, problem error, text, colour string, width int) string {
	switch {
	case problem == nil:
		return s.paint(colour, cell(text, width))
	case errors.Is(r.err, context.Canceled) && !errors.Is(r.err, errTooLong):
		return s.paint(dim, cell("interrupted", width))
	}
	return s.paint(red, cell("NOT AS PROMISED: "+r.String(), width))
}

// progress says why aplomb's client is waiting.
func (r *row) progress() string {
	if wait := time.Until(r.next); wait > 0 {
		return r.last + ", waiting " + seconds(wait)
	}
	return "…"
}

func (s *screen) paint(colour, text string) string {
	if !s.colour {
		return text
	}
	return colour + text + "\x1b[0m"
}

// cell pads or cuts a text to the column's width.
func cell(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		text = string(runes[:width-1]) + "…"
	}
	return fmt.Sprintf("%-*s  ", width, text)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
