package report

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// A chart is a value over time: a panel for each run, all on the same scale. Positions
// are shares of the panel's width and height, from 0 to 1 and from the lower left.
type chart struct {
	name, about string
	log         bool
	top         float64 // the highest value
	level       float64 // a value that is marked in all panels; 0: none
	panels      []panel
	span        time.Duration // the time that a panel shows
	stop, woken float64       // when the server is frozen and resumed
	times       []tick
	values      []tick
}

// A panel shows a run.
type panel struct {
	run    *record.Run
	ours   bool      // it has aplomb's colour
	curves [][]point // breaks lie between them
}

type point struct{ x, y float64 }

// A tick is a mark of an axis.
type tick struct {
	at   float64
	text string
}

// A value is the content of a chart.
type value struct {
	name, about string
	log         bool
	each        int // how many samples make a point
	of          func(record.Sample) int
	level       func(*record.Run) float64
	only        func(*record.Run) bool // nil: all runs
}

// perSecond is how many samples make a second.
const perSecond = int(time.Second / record.Step)

// succeeded is the value of the first chart, which shows the finding.
var succeeded = value{
	name: "Requests that succeed, per second", each: perSecond,
	of:    func(s record.Sample) int { return s.Good },
	level: func(r *record.Run) float64 { return r.Rate },
}

// inProgress shows the reason.
var inProgress = value{
	name: "Requests in progress at the server", log: true, each: 1,
	about: "The server is quick up to the marked limit. With every request beyond it, all requests take longer, and then the clients have left before their responses come. The axis is logarithmic.",
	of:    func(s record.Sample) int { return s.Busy },
	level: func(r *record.Run) float64 { return float64(r.ServerLimit) },
}

// further are the values of the other charts.
var further = []value{
	{
		name: "Arrivals: requests that the server takes up, per second", log: true, each: perSecond,
		about: "Requests that were sent during the freeze wait in the server's sockets. They arrive at the resume.",
		of:    func(s record.Sample) int { return s.Arrived },
	},
	{
		name: "Attempts: requests that the clients send, per second", log: true, each: perSecond,
		about: "The clients send them whether or not the server is there to take them up.",
		of:    func(s record.Sample) int { return s.Sends },
	},
	{
		name: "Requests that wait for the gate", log: true, each: 1,
		of:   func(s record.Sample) int { return s.Waiting },
		only: gated,
	},
	{
		name: "The gate's limit", log: true, each: 1,
		of:    func(s record.Sample) int { return s.Limit },
		level: func(r *record.Run) float64 { return float64(r.ServerLimit) },
		only:  gated,
	},
}

func gated(r *record.Run) bool {
	for _, s := range r.Samples {
		if s.Limit > 0 {
			return true
		}
	}
	return false
}

// newChart draws a value of the runs. It returns nil if no run has the value.
func newChart(v value, runs []*record.Run) *chart {
	first := runs[0]
	c := &chart{
		name: v.name, about: v.about, log: v.log, span: first.End,
		stop: share(first.Stop, first.End), woken: share(first.Resume, first.End),
	}
	if v.level != nil {
		c.level = v.level(first)
		c.top = c.level
	}
	// If all strategies are aplomb's, those that are coordinated have its colour.
	allOurs := !slices.ContainsFunc(runs, func(r *record.Run) bool { return !r.Aplomb })
	var all [][][]sample
	for _, r := range runs {
		if v.only != nil && !v.only(r) {
			continue
		}
		curves := samples(v, r)
		for _, curve := range curves {
			for _, s := range curve {
				c.top = max(c.top, s.value)
			}
		}
		all = append(all, curves)
		c.panels = append(c.panels, panel{run: r, ours: r.Aplomb && (r.Coordinated || !allOurs)})
	}
	if len(c.panels) == 0 {
		return nil
	}
	c.top *= 1.05
	if c.log {
		c.top = max(c.top, 10)
	}
	for i, curves := range all {
		for _, curve := range curves {
			var points []point
			for _, s := range curve {
				points = append(points, point{share(s.at, c.span), c.y(s.value)})
			}
			c.panels[i].curves = append(c.panels[i].curves, points)
		}
	}
	c.times, c.values = c.timeTicks(first), c.valueTicks()
	return c
}

func share(d, of time.Duration) float64 { return float64(d) / float64(of) }

// A sample is a value at a time.
type sample struct {
	at    time.Duration
	value float64
}

// samples returns the curves of a value. A new curve begins where the value was unknown
// for a while. Of several neighbours the highest is kept, so that there are some thousand
// at most.
func samples(v value, r *record.Run) (curves [][]sample) {
	const most, gap = 1000, 5
	each := v.each
	mean := 1.
	if v.each > 1 {
		mean = float64(perSecond) / float64(v.each)
	}
	thin := 1 + len(r.Samples)/each/most
	var curve []sample
	unknown := 0
	for from := 0; from+each <= len(r.Samples); from += each * thin {
		best, known := 0, false
		for at := from; at+each <= min(from+each*thin, len(r.Samples)); at += each {
			sum := 0
			for _, s := range r.Samples[at : at+each] {
				n := v.of(s)
				sum += max(n, 0)
				known = known || n >= 0
			}
			best = max(best, sum)
		}
		if !known {
			unknown++
			continue
		}
		if unknown*thin > gap && curve != nil {
			curves, curve = append(curves, curve), nil
		}
		unknown = 0
		middle := time.Duration(2*from+each*thin) * record.Step / 2
		curve = append(curve, sample{middle, float64(best) * mean})
	}
	if curve != nil {
		curves = append(curves, curve)
	}
	return curves
}

// zeroBand is the share of a logarithmic axis between 0 and 1. So 0 has a place of its
// own, and is not drawn as 1.
const zeroBand = 0.17

// y returns the height of a value.
func (c *chart) y(v float64) float64 {
	switch {
	case !c.log:
		return v / c.top
	case v < 1:
		return v * zeroBand
	}
	return zeroBand + (1-zeroBand)*math.Log(v)/math.Log(c.top)
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

// valueTicks marks zero and the level, or zero and some powers of ten.
func (c *chart) valueTicks() []tick {
	list := []tick{{0, "0"}}
	if !c.log {
		if c.level > 0 {
			list = append(list, tick{c.y(c.level), short(math.Round(c.level))})
		}
		return list
	}
	step := 10.
	if c.top > 1e3 {
		step = 100
	}
	for at := 1.; at <= c.top; at *= step {
		list = append(list, tick{c.y(at), short(at)})
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
