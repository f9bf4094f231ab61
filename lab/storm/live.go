// The display while the experiment runs.

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// A live shows the progress.
type live interface {
	// show is called every so often.
	show(now time.Duration, stage string)
	every() time.Duration
}

// newLive returns curves on a terminal, and lines otherwise.
func newLive(w io.Writer, sc model.Scenario, campaigns []*campaign) live {
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return &curves{w: w, sc: sc, campaigns: campaigns, size: func() (int, int, error) { return term.GetSize(int(f.Fd())) }}
		}
	}
	return &lines{w: w, sc: sc, campaigns: campaigns}
}

// successes returns how many requests succeeded in each part of the run until now.
func (c *campaign) successes(now, part time.Duration) (list []float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int(part / record.Step)
	for from := 0; from+n <= int(now/record.Step) && from+n <= len(c.run.Samples); from += n {
		sum := 0
		for _, s := range c.run.Samples[from : from+n] {
			sum += s.Good
		}
		list = append(list, float64(sum)/part.Seconds())
	}
	return list
}

// lines writes a line every 5 s.
type lines struct {
	w         io.Writer
	sc        model.Scenario
	campaigns []*campaign
	begun     bool
}

func (l *lines) every() time.Duration { return 5 * time.Second }

func (l *lines) show(now time.Duration, stage string) {
	if !l.begun {
		_, _ = fmt.Fprintln(l.w, "Requests that succeed, per second:")
		l.begun = true
	}
	text := fmt.Sprintf("%3.0f of %.0f s, %s:", now.Seconds(), l.sc.End().Seconds(), stage)
	for _, c := range l.campaigns {
		rates := c.successes(now, time.Second)
		rate := 0.
		if n := min(len(rates), 5); n > 0 {
			for _, r := range rates[len(rates)-n:] {
				rate += r / float64(n)
			}
		}
		text += fmt.Sprintf(" %s %.0f", c.strategy.Key, rate)
	}
	_, _ = fmt.Fprintln(l.w, text)
}

// curves draws a line for each strategy, again and again in the same place.
type curves struct {
	w         io.Writer
	sc        model.Scenario
	campaigns []*campaign
	size      func() (width, height int, err error)
	drawn     int // lines on the screen
}

func (l *curves) every() time.Duration { return 500 * time.Millisecond }

func (l *curves) show(now time.Duration, stage string) {
	width, height, err := l.size()
	if err != nil || width < 20 {
		width = 80
	}
	rows := l.draw(now, stage, width-1)
	if len(rows) >= height && height > 1 {
		rows = rows[:height-1] // the cursor cannot go back beyond the screen
	}
	var b strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.drawn)
	}
	for _, r := range rows {
		b.WriteString("\r" + r + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	l.drawn = len(rows)
	_, _ = io.WriteString(l.w, b.String())
}

// draw returns the lines: when the server is frozen and resumed, a line for each
// strategy, and the time. A character is some seconds of the run.
func (l *curves) draw(now time.Duration, stage string, width int) (rows []string) {
	const figure = len(" 9999/s")
	names := 0
	for _, c := range l.campaigns {
		names = max(names, utf8.RuneCountInString(c.strategy.Name))
	}
	names = min(names, max(8, width-figure-20))
	room := max(5, width-names-1-figure)
	seconds := time.Second
	part := max(seconds, (l.sc.End()/time.Duration(room) + seconds - 1).Truncate(seconds))
	at := func(d time.Duration) int { return int(d / part) }
	scale := []rune(strings.Repeat(" ", at(l.sc.End())+12))
	copy(scale[at(l.sc.Stop()):], []rune("│frozen"))
	copy(scale[at(l.sc.Resume()):], []rune("│resumed"))
	rows = append(rows, cut(strings.Repeat(" ", names+1)+strings.TrimRight(string(scale), " "), width))
	for _, c := range l.campaigns {
		rates := c.successes(now, part)
		last := ""
		if recent := c.successes(now, seconds); len(recent) > 0 {
			last = fmt.Sprintf("%.0f/s", recent[len(recent)-1])
		}
		line := sparkline(rates, c.run.Rate)
		rows = append(rows, cut(fmt.Sprintf("%s %s%s%*s", pad(c.strategy.Name, names), line,
			strings.Repeat(" ", max(0, room-utf8.RuneCountInString(line))), figure, last), width))
	}
	return append(rows, cut(fmt.Sprintf("%.0f of %.0f s: %s", now.Seconds(), l.sc.End().Seconds(), stage), width))
}

// sparkline draws a bar for each value. The usual value fills half of the height, and
// nothing at all is a dot.
func sparkline(values []float64, usual float64) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range values {
		if v <= 0 {
			b.WriteRune('·')
			continue
		}
		b.WriteRune(bars[max(0, min(int(v/usual*4-0.5), len(bars)-1))])
	}
	return b.String()
}

// pad cuts or fills a text to so many columns.
func pad(s string, columns int) string {
	s = cut(s, columns)
	return s + strings.Repeat(" ", columns-utf8.RuneCountInString(s))
}

func cut(s string, columns int) string {
	if r := []rune(s); len(r) > columns {
		return string(r[:columns])
	}
	return s
}
