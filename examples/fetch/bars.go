// Bars on a terminal: one for each download that has begun.

package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/aplomb-go/aplomb/transport"
)

// bars draws to stdout. It prints errors after the last bar, because stderr is
// most likely the same terminal and a line in between would tear the bars.
type bars struct {
	progress *mpb.Progress
	stderr   io.Writer

	mu     sync.Mutex // guards errors
	errors []string
}

func newBars(w world) *bars {
	return &bars{
		progress: mpb.New(mpb.WithOutput(w.stdout), mpb.WithAutoRefresh(), mpb.PopCompletedMode()),
		stderr:   w.stderr,
	}
}

func (b *bars) track(name string) tracker {
	return &barTracker{bars: b, name: name}
}

func (b *bars) close() {
	b.progress.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.errors {
		fmt.Fprintln(b.stderr, line)
	}
}

type barTracker struct {
	bars  *bars
	name  string
	meter meter
	bar   *mpb.Bar // nil until there is something to show

	mu     sync.Mutex // guards status, which the drawing goroutine reads
	status string
}

// These are the widths of a name and a bar. A bar becomes shorter if the
// terminal is narrow.
const (
	nameWidth = 24
	barWidth  = 30
)

// show makes the bar if there is none yet. Its total is set later, so that the
// bar is complete when the download is finished and not when the last byte has
// arrived.
func (t *barTracker) show() {
	if t.bar != nil {
		return
	}
	t.bar = t.bars.progress.New(0, mpb.BarStyle().Lbound("").Rbound("").Filler("━").Tip("━").Padding("─").Refiller("═"),
		mpb.BarFillerTrim(),
		mpb.PrependDecorators(
			decor.Name(runewidth.Truncate(t.name, nameWidth, "…"), decor.WCSyncSpaceR),
			decor.Any(t.amount, decor.WCSyncSpaceR),
		),
		mpb.AppendDecorators(
			decor.Any(t.pace, decor.WC{C: decor.DextraSpace}),
			decor.Any(t.state, decor.WC{C: decor.DextraSpace}),
		),
		mpb.BarWidth(barWidth),
	)
}

func (t *barTracker) amount(s decor.Statistics) string {
	if s.Total <= 0 {
		return size(s.Current)
	}
	return fmt.Sprintf("%3d %% of %s", 100*s.Current/s.Total, size(s.Total))
}

func (t *barTracker) pace(s decor.Statistics) string {
	if s.Completed || s.Aborted {
		return ""
	}
	perSecond, left := t.meter.pace(time.Now())
	switch {
	case perSecond == 0:
		return ""
	case left < 0:
		return size(perSecond) + "/s"
	}
	return fmt.Sprintf("%s/s, %v left", size(perSecond), left)
}

func (t *barTracker) state(decor.Statistics) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return joined(t.meter.resumesText(), t.status)
}

func (t *barTracker) setStatus(s string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status = s
}

// note writes above the bars.
func (t *barTracker) note(text string) {
	_, _ = fmt.Fprintf(t.bars.progress, "%s: %s\n", t.name, text)
}

func (t *barTracker) retry(e transport.Event) {
	t.show()
	t.setStatus(retryText(e))
}

func (t *barTracker) resumed(transport.Event) { t.meter.resumed() }

func (t *barTracker) started(offset, total int64) {
	t.show()
	t.setStatus("")
	t.meter.start(offset, total, time.Now())
	t.bar.SetTotal(total, false)
	t.bar.SetCurrent(offset)
	t.bar.SetRefill(offset)
}

func (t *barTracker) wrote(n int) {
	t.meter.add(n, time.Now())
	t.bar.IncrBy(n)
}

func (t *barTracker) checking() { t.setStatus("checking") }

func (t *barTracker) done(checked string) {
	t.setStatus("done")
	if checked != "" {
		t.setStatus(checked + " agrees")
	}
	t.bar.SetTotal(-1, true)
}

func (t *barTracker) failed(err error, kept int64) {
	t.setStatus("failed")
	if errors.Is(err, errInterrupted) {
		t.setStatus("interrupted")
	}
	if t.bar != nil {
		t.bar.Abort(false)
	}
	t.bars.mu.Lock()
	defer t.bars.mu.Unlock()
	t.bars.errors = append(t.bars.errors, failure(t.name, err, kept))
}
