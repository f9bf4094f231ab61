// What is counted, and the figures.

package literature

import (
	"math"
	"slices"
	"sync"
	"time"
)

const step = 100 * time.Millisecond

// A Record has the events of the runs of one setting with one kind of client.
type Record struct {
	mu      sync.Mutex
	samples []sample
	took    []time.Duration // by the requests that were answered
	lasts   []time.Duration // when the last request of each run ended
	runs    int
}

// A sample has the events of one step, in all runs.
type sample struct {
	begun    int // requests
	attempts int // that reached the server
	good     int // requests that were answered
	answered int // requests begun in this step that were answered, now or later
}

func (c *Record) add(at time.Duration, f func(*sample)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.at(at))
}

func (c *Record) at(at time.Duration) *sample {
	i := int(at / step)
	for len(c.samples) <= i {
		c.samples = append(c.samples, sample{})
	}
	return &c.samples[i]
}

func (c *Record) ended(began, now time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.lasts) <= c.runs {
		c.lasts = append(c.lasts, 0)
	}
	c.lasts[c.runs] = now
	if ok {
		c.at(now).good++
		c.at(began).answered++
		c.took = append(c.took, now-began)
	}
}

// Last is when the last request of a run ended, in the mean of all runs, in milliseconds.
func (c *Record) Last() float64 {
	var sum time.Duration
	for _, d := range c.lasts {
		sum += d
	}
	return sum.Seconds() * 1000 / float64(len(c.lasts))
}

// Percentile is the time in milliseconds that p percent of the answered requests took at most.
func (c *Record) Percentile(p float64) float64 {
	slices.Sort(c.took)
	return c.took[int(float64(len(c.took)-1)*p/100)].Seconds() * 1000
}

// sum adds the samples of a span up. A zero To means the end.
func (c *Record) sum(s Span) (total sample) {
	for i, x := range c.samples {
		if at := time.Duration(i) * step; at >= s.From && (s.To == 0 || at < s.To) {
			total.begun += x.begun
			total.attempts += x.attempts
			total.good += x.good
			total.answered += x.answered
		}
	}
	return total
}

// A Figure is one of the figures of a cell.
type Figure int

// These are the figures.
const (
	Load    Figure = iota // attempts per request
	Success               // percent of the requests that were answered
	Outage                // attempts per request while nothing succeeds, or NaN
	Back                  // seconds from the end of the trigger until the usual rate is back, +Inf for never, or NaN
	Lost                  // requests that were not answered, or NaN
	Time                  // Model.Time, or NaN
	figures
)

// Figures are indexed by Figure.
type Figures [figures]float64

func (m *Model) figures(s Setting, c *Record) (f Figures) {
	all := c.sum(Span{})
	f[Load] = float64(all.attempts) / float64(all.begun)
	f[Success] = 100 * float64(all.answered) / float64(all.begun)
	for i := Outage; i < figures; i++ {
		f[i] = math.NaN()
	}
	if s.Dead != (Span{}) {
		dead := c.sum(s.Dead)
		f[Outage] = float64(dead.attempts) / float64(dead.begun)
	}
	if s.Trigger != (Span{}) {
		f[Back] = c.back(s, m.Closed)
	}
	if m.Counted {
		f[Lost] = float64(all.begun - all.answered)
	}
	if m.Time != nil {
		f[Time] = m.Time(c)
	}
	return f
}

// back returns how many seconds after the trigger the usual rate is back for good. From then on
// each window of five seconds has at least 95 % of the usual answers for the requests that begin
// in it. Clients in a closed loop begin less while the server is away, so 85 % of the usual requests
// count for them, which chance alone does not take away.
func (c *Record) back(s Setting, closed bool) float64 {
	const window, watched = 5 * time.Second, 10 * time.Second
	var begun float64 // the usual requests of a window
	share := func(s Span) float64 {
		x := c.sum(s)
		return float64(x.good) / max(begun, float64(x.begun))
	}
	usual := 0.95 * min(1, share(Span{s.Trigger.From / 2, s.Trigger.From}))
	if closed {
		before := Span{s.Trigger.From / 2, s.Trigger.From}
		begun = 0.9 * float64(c.sum(before).begun) * float64(window) / float64(before.To-before.From)
	}
	back := s.Trigger.To
	for at := back; at+window <= s.Length; at += step {
		if share(Span{at, at + window}) < usual {
			back = at + step
		}
	}
	if back+watched > s.Length {
		return math.Inf(1)
	}
	return (back - s.Trigger.To).Seconds()
}
