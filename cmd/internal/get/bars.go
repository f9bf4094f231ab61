// Bars on a terminal, for each download that has begun.

package get

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/terminal"
	"github.com/aplomb-go/aplomb/transport"
)

// bars draws a frame, which has a line for each download under way. Everything that
// is to stay is printed above the frame.
//
// Between two drawings the cursor is at the beginning of the frame. If the user
// makes the window smaller, some terminals wrap the lines of the frame and others
// cut them. In both cases the cursor stays at the beginning, so the next drawing
// replaces all of the frame. A frame takes at most half of the screen, so that it
// still fits when its lines are wrapped.
type bars struct {
	out, errs io.Writer
	size      func() (width, height int)
	oneScreen bool // errs is a terminal, most likely the same

	mu     sync.Mutex // guards everything below, the trackers' states, and the terminal
	queued int        // downloads that have not begun
	rows   []*barTracker
	drawn  bool // there is a frame

	stop    chan struct{}
	stopped chan struct{}
}

// drawPause is the time between two drawings.
const drawPause = 150 * time.Millisecond

// newBars starts a goroutine that draws until close.
func newBars(w world, out io.Writer) *bars {
	b := &bars{
		out: out, errs: w.stderr,
		size:      func() (int, int) { return w.screen(out) },
		oneScreen: w.isScreen(w.stderr),
		stop:      make(chan struct{}),
		stopped:   make(chan struct{}),
	}
	go b.drawAll()
	return b
}

func (b *bars) drawAll() {
	defer close(b.stopped)
	tick := time.NewTicker(drawPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.mu.Lock()
			b.draw()
			b.mu.Unlock()
		case <-b.stop:
			return
		}
	}
}

func (b *bars) close() {
	close(b.stop)
	<-b.stopped
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows, b.queued = nil, 0
	b.draw()
}

// eraseFrame erases from the cursor, which is at the beginning of a line, to the
// end of the screen. It does so in two steps. If tmux is told to erase a whole
// screen, it copies the screen to its history first.
const eraseFrame = "\r\x1b[2K\x1b[C\x1b[J\r"

// draw replaces the frame. The size is asked for each time, because a window may
// change; the lock is held.
func (b *bars) draw() {
	width, height := b.size()
	if width <= 0 || height <= 0 {
		width, height = 80, 24 // it told its size at first
	}
	now := time.Now()
	var rows []row
	for _, t := range b.rows {
		rows = append(rows, t.row(now))
	}
	lines := frame(rows, b.queued, width, height)
	text := ""
	if b.drawn {
		text = eraseFrame
	}
	b.drawn = len(lines) > 0
	text += strings.Join(lines, "\n")
	if n := len(lines); n > 1 {
		text += fmt.Sprintf("\x1b[%dA", n-1) // up to the first line
	}
	if b.drawn {
		text += "\r"
	}
	if text != "" {
		fmt.Fprint(b.out, text) // in a single write, so that nothing flickers
	}
}

// say prints a line above the frame; the lock is held.
func (b *bars) say(w io.Writer, text string) {
	if b.drawn {
		fmt.Fprint(b.out, eraseFrame)
		b.drawn = false
	}
	fmt.Fprintln(w, terminal.Printable(text))
	b.draw()
}

func (b *bars) track(name string) tracker {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queued++
	return &barTracker{bars: b, name: name}
}

// A barTracker has a row in the frame from its first request to its end.
type barTracker struct {
	bars  *bars
	name  string
	meter meter

	// The mutex of bars guards these.
	begun, running bool
	status         string
	next           time.Time // when the next attempt begins, if why is not empty
	why            string
}

// row returns the tracker's row; the lock is held.
func (t *barTracker) row(now time.Time) row {
	r := row{name: t.name, status: t.status, why: t.why, next: t.next.Sub(now), resumes: t.meter.resumesText()}
	if t.running {
		r.at, r.earlier, r.total = t.meter.at()
		r.started = true
		r.rate, r.left = t.meter.pace(now)
	}
	return r
}

// change changes the tracker under the lock.
func (t *barTracker) change(f func()) {
	t.bars.mu.Lock()
	defer t.bars.mu.Unlock()
	if !t.begun {
		t.begun = true
		t.bars.queued--
		t.bars.rows = append(t.bars.rows, t)
	}
	f()
}

func (t *barTracker) asks() {
	t.change(func() { t.status, t.why = "asks the server", "" })
}

func (t *barTracker) note(text string) {
	t.change(func() { t.bars.say(t.bars.out, t.name+": "+text) })
}

func (t *barTracker) retry(e transport.Event) {
	t.change(func() { t.why, t.next = failureOf(e), time.Now().Add(e.Wait) })
}

func (t *barTracker) startsOver(text string, wait time.Duration) {
	t.change(func() {
		t.why, t.next = text, time.Now().Add(wait)
		t.bars.say(t.bars.errs, problem(t.name, text))
	})
}

func (t *barTracker) moves(text string) {
	t.change(func() {
		t.running, t.why = false, ""
		t.bars.say(t.bars.errs, problem(t.name, text))
	})
}

func (t *barTracker) resumed(string) {
	t.meter.resumed()
	t.change(func() { t.status, t.why = "", "" })
}

func (t *barTracker) started(offset, total int64) {
	t.meter.start(offset, total, time.Now())
	t.change(func() { t.running, t.status, t.why = true, "", "" })
}

func (t *barTracker) wrote(n int) { t.meter.add(n, time.Now()) }

func (t *barTracker) checking() { t.change(func() { t.status = "checking" }) }

func (t *barTracker) done(checked string) {
	t.end(func() { t.bars.say(t.bars.out, t.name+": "+t.meter.result(time.Now(), checked)) })
}

// failed prints the error at once. If errors go elsewhere, the terminal shows at
// least that there was an error.
func (t *barTracker) failed(err error, s summary) {
	t.end(func() {
		if !t.bars.oneScreen {
			word := "failed"
			if errors.Is(err, errInterrupted) {
				word = "interrupted"
			}
			t.bars.say(t.bars.out, t.name+": "+word)
		}
		t.bars.say(t.bars.errs, failure(t.name, err, s))
	})
}

// end removes the row and prints the result.
func (t *barTracker) end(f func()) {
	t.change(func() {
		t.bars.rows = slices.DeleteFunc(t.bars.rows, func(other *barTracker) bool { return other == t })
		f()
	})
}
