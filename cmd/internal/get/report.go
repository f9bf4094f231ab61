// Reports as plain lines, one event each.

package get

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/terminal"
	"github.com/aplomb-go/aplomb/transport"
)

// A reporter shows the progress of all downloads.
type reporter interface {
	track(name string) tracker
	close() // when all have ended
}

// A tracker shows the progress of one download. One goroutine calls it.
type tracker interface {
	asks() // a request is sent
	note(text string)
	retry(e transport.Event)
	startsOver(text string, wait time.Duration)
	moves(text string) // to another URL
	resumed(text string)
	started(offset, total int64) // total is -1 where it is not known
	wrote(n int)
	checking()
	done(checked string)
	failed(err error, s summary)
}

// newReporter reports to stdout, and to stderr if stdout is for a file.
func newReporter(w world, plain, piped bool) reporter {
	out := w.stdout
	if piped {
		out = w.stderr
		plain = plain || w.isScreen(w.stdout) // the file would tear the bars
	}
	var r reporter = &lines{out: out, errs: w.stderr}
	if w.isScreen(out) && !plain {
		r = newBars(w, out)
	}
	if w.wrap != nil {
		r = w.wrap(r)
	}
	return r
}

// lines writes events line by line, for logs and pipes.
type lines struct {
	mu        sync.Mutex // guards both writers: whole lines only
	out, errs io.Writer
}

func (l *lines) track(name string) tracker {
	return &lineTracker{lines: l, name: name}
}

func (l *lines) close() {}

func (l *lines) say(w io.Writer, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(w, terminal.Printable(text))
}

// linePause is the time between two lines that only report progress.
const linePause = 5 * time.Second

type lineTracker struct {
	lines *lines
	name  string
	meter meter
	last  time.Time
}

func (t *lineTracker) asks() {}

func (t *lineTracker) note(text string) { t.lines.say(t.lines.out, t.name+": "+text) }

func (t *lineTracker) retry(e transport.Event) { t.note(failureOf(e) + ", " + nextTry(e.Wait)) }

func (t *lineTracker) startsOver(text string, wait time.Duration) {
	t.lines.say(t.lines.errs, problem(t.name, text)+", "+nextTry(wait))
}

func (t *lineTracker) moves(text string) { t.lines.say(t.lines.errs, problem(t.name, text)) }

func (t *lineTracker) resumed(text string) {
	t.meter.resumed()
	t.note(text + ", taken up again")
}

func (t *lineTracker) started(offset, total int64) {
	t.last = time.Now()
	t.meter.start(offset, total, t.last)
	switch {
	case offset > 0:
		t.note(fmt.Sprintf("goes on at %s of %s", sizeText(offset), sizeText(total)))
	case total >= 0:
		t.note(sizeText(total) + " to come")
	default:
		t.note("of unknown size")
	}
}

func (t *lineTracker) wrote(n int) {
	now := time.Now()
	t.meter.add(n, now)
	if now.Sub(t.last) >= linePause {
		t.last = now
		t.note(t.meter.progress(now))
	}
}

func (t *lineTracker) checking() {}

func (t *lineTracker) done(checked string) {
	t.note(t.meter.result(time.Now(), checked))
}

func (t *lineTracker) failed(err error, s summary) {
	t.lines.say(t.lines.errs, failure(t.name, err, s))
}

// problem returns a line for stderr.
func problem(name, text string) string { return "aplomb get: " + name + ": " + text }

// failure returns the line that says why a download failed and what to do.
func failure(name string, err error, s summary) string {
	text := problem(name, inShort(err))
	if s.kept == 0 {
		return text
	}
	text += fmt.Sprintf("; %s kept", sizeText(s.kept))
	status, ok := errors.AsType[*statusError](err)
	switch {
	case ok && status.refused():
		return text + " from an earlier run"
	case s.sure:
		return text + ", the same command goes on from there"
	}
	return text + ", the same command tries to go on from there"
}

// failureOf says why a request is sent again.
func failureOf(e transport.Event) string {
	if e.Err != nil {
		return inShort(e.Err)
	}
	return fmt.Sprintf("the server answered %d", e.Status)
}

func nextTry(wait time.Duration) string {
	return fmt.Sprintf("next try in %v", wait.Round(100*time.Millisecond))
}

func sizeText(n int64) string {
	if n < 0 {
		return "unknown"
	}
	if n < 1024 {
		return counted(int(n), "byte")
	}
	x, unit := float64(n)/1024, 0
	for x >= 1023.95 && unit < 3 { // this would be printed as 1024.0
		x, unit = x/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", x, "KMGT"[unit])
}

// A meter counts one download. It can be read at the same time.
type meter struct {
	mu            sync.Mutex // guards everything below
	offset, total int64      // where this run began, and the size of the whole file
	got           int64      // in this run
	resumes       int
	began         time.Time

	rate    float64   // bytes per second, as it is now
	pending int64     // bytes since then that rate does not contain
	since   time.Time // then
}

func (m *meter) start(offset, total int64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offset, m.total, m.began, m.since = offset, total, now, now
	m.got, m.pending, m.rate = 0, 0, 0 // a download may start over
}

func (m *meter) add(n int, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got += int64(n)
	m.pending += int64(n)
	m.fold(now)
}

// fold adds the recent bytes to the rate. Within three seconds the rate forgets
// two thirds of its past.
func (m *meter) fold(now time.Time) {
	dt := now.Sub(m.since).Seconds()
	if dt < 0.5 || m.began.IsZero() {
		return
	}
	weight := 1 - math.Exp(-dt/3)
	if m.rate == 0 {
		weight = 1
	}
	m.rate += weight * (float64(m.pending)/dt - m.rate)
	m.pending, m.since = 0, now
}

func (m *meter) resumed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resumes++
}

// at returns the number of bytes that are here, the number of those from an earlier
// run, and the size of the file.
func (m *meter) at() (here, earlier, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.offset + m.got, m.offset, m.total
}

// resumesText returns "" if there were no resumes.
func (m *meter) resumesText() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resumes == 0 {
		return ""
	}
	return counted(m.resumes, "resume")
}

// pace returns the rate and the time left at this rate. The time is negative if
// it is unknown.
func (m *meter) pace(now time.Time) (perSecond int64, left time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fold(now)
	missing := m.total - m.offset - m.got
	if m.total < 0 || m.rate < 1 || float64(missing)/m.rate > 1e6 {
		return int64(m.rate), -1
	}
	return int64(m.rate), time.Duration(float64(missing) / m.rate * float64(time.Second)).Round(time.Second)
}

// progress returns a line about a running download.
func (m *meter) progress(now time.Time) string {
	perSecond, left := m.pace(now)
	at, _, total := m.at()
	parts := []string{sizeText(at)}
	if total > 0 {
		parts[0] = fmt.Sprintf("%d %% of %s", percent(at, total), sizeText(total))
	}
	parts = append(parts, sizeText(perSecond)+"/s")
	if left >= 0 {
		parts = append(parts, fmt.Sprintf("%v left", left))
	}
	return joined(append(parts, m.resumesText())...)
}

// result returns a line about a successful download.
func (m *meter) result(now time.Time, checked string) string {
	at, _, _ := m.at()
	text := "done: " + sizeText(at)
	if m.offset > 0 {
		text += fmt.Sprintf(", %s of it now", sizeText(m.got))
	}
	if d := now.Sub(m.began); d >= 100*time.Millisecond {
		text += fmt.Sprintf(", in %v, %s/s", d.Round(100*time.Millisecond), sizeText(int64(float64(m.got)/d.Seconds())))
	}
	if checked != "" {
		checked += " agrees"
	}
	return joined(text, m.resumesText(), checked)
}

// percent rounds down, so that 100 % means all. Floating-point numbers do not
// overflow.
func percent(n, total int64) int { return int(100 * (float64(n) / float64(total))) }

// joined joins the parts that are not empty.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}
