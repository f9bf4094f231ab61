// Reports as plain lines, one event each.

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8/decor"

	"github.com/aplomb-go/aplomb/transport"
)

// A reporter shows the progress of all downloads.
type reporter interface {
	track(name string) tracker
	close() // when all have ended
}

// A tracker shows the progress of one download. One goroutine calls it.
type tracker interface {
	note(text string)
	retry(e transport.Event)
	resumed(e transport.Event)
	started(offset, total int64) // total is -1 where it is not known
	wrote(n int)
	checking()
	done(checked string)
	failed(err error, kept int64)
}

func newReporter(w world, plain bool) reporter {
	var r reporter = &lines{stdout: w.stdout, stderr: w.stderr}
	if w.terminal && !plain {
		r = newBars(w)
	}
	if w.wrap != nil {
		r = w.wrap(r)
	}
	return r
}

// lines writes events line by line, for logs and pipes.
type lines struct {
	mu             sync.Mutex // guards both writers: whole lines only
	stdout, stderr io.Writer
}

func (l *lines) track(name string) tracker {
	return &lineTracker{lines: l, name: name}
}

func (l *lines) close() {}

// linePause is the time between two lines that only report progress.
const linePause = 5 * time.Second

type lineTracker struct {
	lines *lines
	name  string
	meter meter
	last  time.Time
}

func (t *lineTracker) note(text string) {
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	fmt.Fprintf(t.lines.stdout, "%s: %s\n", t.name, text)
}

func (t *lineTracker) retry(e transport.Event) { t.note(retryText(e)) }

func (t *lineTracker) resumed(e transport.Event) {
	t.meter.resumed()
	t.note(fmt.Sprintf("cut off at %s (%s), taken up again", size(t.meter.at()), inShort(e.Err)))
}

func (t *lineTracker) started(offset, total int64) {
	t.last = time.Now()
	t.meter.start(offset, total, t.last)
	switch {
	case offset > 0:
		t.note(fmt.Sprintf("goes on at %s of %s", size(offset), size(total)))
	case total >= 0:
		t.note(size(total) + " to come")
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

func (t *lineTracker) failed(err error, kept int64) {
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	fmt.Fprintln(t.lines.stderr, failure(t.name, err, kept))
}

// failure returns the line that says why a download failed and what to do.
func failure(name string, err error, kept int64) string {
	text := "fetch: " + name + ": " + inShort(err)
	switch {
	case errors.Is(err, errAltered):
		text += "; thrown away"
	case kept > 0:
		text += fmt.Sprintf("; %s kept, the same command goes on from there", size(kept))
	}
	return text
}

func retryText(e transport.Event) string {
	why := fmt.Sprintf("the server answered %d", e.Status)
	if e.Err != nil {
		why = inShort(e.Err)
	}
	return fmt.Sprintf("%s, next try in %v", why, e.Wait.Round(100*time.Millisecond))
}

func size(n int64) string {
	if n < 0 {
		return "unknown"
	}
	if n < 1024 {
		return counted(int(n), "byte")
	}
	return fmt.Sprintf("% .1f", decor.SizeB1024(n))
}

// A meter counts one download. It can be read at the same time.
type meter struct {
	mu            sync.Mutex // guards everything below
	offset, total int64      // where this run began; what is to become of it
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

// at returns how many bytes of the file are here.
func (m *meter) at() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.offset + m.got
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
	at := m.at()
	parts := []string{size(at)}
	if m.total > 0 {
		parts[0] = fmt.Sprintf("%d %% of %s", 100*at/m.total, size(m.total))
	}
	parts = append(parts, size(perSecond)+"/s")
	if left >= 0 {
		parts = append(parts, fmt.Sprintf("%v left", left))
	}
	return joined(append(parts, m.resumesText())...)
}

// result returns a line about a successful download.
func (m *meter) result(now time.Time, checked string) string {
	text := "done: " + size(m.at())
	if m.offset > 0 {
		text += fmt.Sprintf(", %s of it now", size(m.got))
	}
	if d := now.Sub(m.began); d >= 100*time.Millisecond {
		text += fmt.Sprintf(", in %v, %s/s", d.Round(100*time.Millisecond), size(int64(float64(m.got)/d.Seconds())))
	}
	if checked != "" {
		checked += " agrees"
	}
	return joined(text, m.resumesText(), checked)
}

// joined joins the parts that are not empty.
func joined(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p != "" && b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p)
	}
	return b.String()
}
