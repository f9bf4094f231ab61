package report

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// A chart has the requests that succeed over time: a panel for each run, all on the same
// scale. Positions are shares of the panel's width and height, from 0 to 1 and from the
// lower left.
type chart struct {
	top         float64 // the highest rate
	usual       float64 // the rate of a healthy server, which is marked in all panels
	panels      []panel
	span        time.Duration // the time that a panel shows
	stop, woken float64       // when the server is frozen and resumed
	times       []tick
}

// A panel shows a run.
type panel struct {
	run   *record.Run
	ours  bool // it has aplomb's colour
	curve []point
}

type point struct{ x, y float64 }

// A tick is a mark of an axis.
type tick struct {
	at   float64
	text string
}

// perSecond is how many samples make a second, and a point of a curve.
const perSecond = int(time.Second / record.Step)

// newChart draws the runs.
func newChart(runs []*record.Run) *chart {
	first := runs[0]
	c := &chart{
		top: first.Rate, usual: first.Rate, span: first.End,
		stop: share(first.Stop, first.End), woken: share(first.Resume, first.End),
	}
	for _, r := range runs {
		for _, s := range samples(r) {
			c.top = max(c.top, s.rate)
		}
	}
	c.top *= 1.05
	// If all strategies are aplomb's, those that are coordinated have its colour.
	allOurs := !slices.ContainsFunc(runs, func(r *record.Run) bool { return !r.Aplomb })
	for _, r := range runs {
		p := panel{run: r, ours: r.Aplomb && (r.Coordinated || !allOurs)}
		for _, s := range samples(r) {
			p.curve = append(p.curve, point{share(s.at, c.span), s.rate / c.top})
		}
		c.panels = append(c.panels, p)
	}
	c.times = c.timeTicks(first)
	return c
}

func share(d, of time.Duration) float64 { return float64(d) / float64(of) }

// A sample is the rate of successes at a time.
type sample struct {
	at   time.Duration
	rate float64
}

// samples returns the curve of a run. Of several neighbours the highest is kept, so that
// there are some thousand at most.
func samples(r *record.Run) (curve []sample) {
	const most = 1000
	step := perSecond * (1 + len(r.Samples)/perSecond/most)
	for from := 0; from+perSecond <= len(r.Samples); from += step {
		best := 0
		for at := from; at+perSecond <= min(from+step, len(r.Samples)); at += perSecond {
			sum := 0
			for _, s := range r.Samples[at : at+perSecond] {
				sum += s.Good
			}
			best = max(best, sum)
		}
		curve = append(curve, sample{time.Duration(2*from+step) * record.Step / 2, float64(best)})
	}
	return curve
}

// timeTicks counts from the resume.
func (c *chart) timeTicks(r *record.Run) (list []tick) {
	after := (r.End - r.Resume).Seconds()
	step := 1.
	for _, s := range []float64{2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000} {
		if step < 0.16*r.End.Seconds() {
			step = s
		}
	}
	for at := step; at <= after; at += step {
		t := tick{share(r.Resume+time.Duration(at*float64(time.Second)), c.span), "+" + short(at)}
		if at == step {
			t.text += " s"
		}
		list = append(list, t)
	}
	return list
}

// short writes a number with k and M.
func short(x float64) string {
	unit := ""
	switch {
	case x >= 1e6:
		x, unit = x/1e6, "M"
	case x >= 1e4:
		x, unit = x/1e3, "k"
	}
	return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64) + unit
}
