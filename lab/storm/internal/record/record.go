// Package record keeps the events of a run and computes its figures.
package record

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Step is the width of a sample.
const Step = 100 * time.Millisecond

// A Sample has the events of one Step.
type Sample struct {
	Begun int // requests that the clients began
	Sends int // attempts begun by the clients
	Good  int // requests that succeeded
	Lost  int // requests that were given up
	Busy  int // the most requests in progress at the server; negative: not reported
	Ops   int // operations of the fleet's backend
}

// A Run is the course of one strategy. Times count from the beginning. A single
// goroutine fills it.
type Run struct {
	Name   string
	Words  string // the rule as a person would say it
	Aplomb bool   // the clients use aplomb
	// Coordinated means that the clients know of each other's failures.
	Coordinated bool
	// Stop, Resume and End are when the server is frozen, resumed, and no
	// longer watched. Rate is the rate of requests to a healthy server.
	Stop, Resume, End time.Duration
	Rate              float64
	ServerLimit       int
	// Files is how many files the server may open, if that is known. A server that
	// has this many connections takes no new ones.
	Files int

	Samples []Sample
	// SentFrozen is the number of attempts that began while the server was frozen.
	// Sent is the number of all attempts.
	SentFrozen, Sent int
	// Open is the number of requests that were neither answered nor given up at
	// the end.
	Open int

	// Latency has every success, with the time from the call to the response.
	Latency []Latency

	// Others are the figures of further runs of the same strategy. See Median.
	Others []Figures
}

// A Latency is one request that succeeded.
type Latency struct{ Began, Took uint32 } // in ms

// NewRun returns an empty run.
func NewRun(end time.Duration) *Run {
	r := &Run{End: end, Samples: make([]Sample, end/Step+1)}
	for i := range r.Samples {
		r.Samples[i].Busy = -1
	}
	return r
}

// At returns the sample of a time.
func (r *Run) At(now time.Duration) *Sample {
	return &r.Samples[max(0, min(int(now/Step), len(r.Samples)-1))]
}

// Send notes an attempt.
func (r *Run) Send(now time.Duration) {
	r.At(now).Sends++
	r.Sent++
	if now >= r.Stop && now < r.Resume {
		r.SentFrozen++
	}
}

// Success notes a request that was answered.
func (r *Run) Success(began, now time.Duration) {
	r.At(now).Good++
	r.Latency = append(r.Latency, Latency{ms(began), ms(now - began)})
}

func ms(d time.Duration) uint32 { return uint32(d / time.Millisecond) }

// Busy notes how many requests are in progress at the server.
func (r *Run) Busy(now time.Duration, n int) {
	if s := r.At(now); n > s.Busy {
		s.Busy = n
	}
}

// A Part has the events of a run that one process saw in some of the steps.
type Part struct {
	Steps            []int
	Samples          []Sample // of these steps
	Latency          []Latency
	SentFrozen, Sent int
	Open             int
}

// Take returns the events that the run has so far, and forgets them.
func (r *Run) Take() Part {
	p := Part{Latency: r.Latency, SentFrozen: r.SentFrozen, Sent: r.Sent, Open: r.Open}
	none := Sample{Busy: -1}
	for i, s := range r.Samples {
		if s != none {
			p.Steps, p.Samples = append(p.Steps, i), append(p.Samples, s)
			r.Samples[i] = none
		}
	}
	r.Latency, r.SentFrozen, r.Sent, r.Open = nil, 0, 0, 0
	return p
}

// Add adds the events of a part.
func (r *Run) Add(p Part) {
	for i, step := range p.Steps {
		s, add := &r.Samples[step], p.Samples[i]
		s.Begun += add.Begun
		s.Sends += add.Sends
		s.Good += add.Good
		s.Lost += add.Lost
		s.Ops += add.Ops
	}
	r.Latency = append(r.Latency, p.Latency...)
	r.SentFrozen, r.Sent, r.Open = r.SentFrozen+p.SentFrozen, r.Sent+p.Sent, r.Open+p.Open
}

// Exhausted returns when the server had used up its files, to within a few that it needs
// for itself. It returns a negative time if it never had.
func (r *Run) Exhausted() time.Duration {
	const itsOwn = 50
	for i, s := range r.Samples {
		if r.Files > 0 && s.Busy >= r.Files-itsOwn {
			return time.Duration(i) * Step
		}
	}
	return -1
}

// Figures sum up a run.
type Figures struct {
	SentFrozen int
	SentLate   int           // of these, the attempts from 3 s after the stop on
	Peak       int           // the most requests in progress at the server after the resume
	Recovered  time.Duration // after the resume; negative: not within the run
	Lost, Open int
	P50, P99   time.Duration // of requests begun after the recovery; 0: there were none
	Sent       int
	LastGood   float64 // successes per second in the last 10 s, as a share of the rate
	// OpsPeace and OpsStorm are operations of the fleet's backend per request, before the
	// stop, and from the stop until 10 s after the resume.
	OpsPeace, OpsStorm float64
}

const (
	window  = 2 * time.Second // the rate is measured over this time
	steady  = 5 * time.Second // the rate has to stay healthy for this time
	healthy = 0.95

	late = 3 * time.Second // by then the first attempts to a frozen server have timed out
)

// Figures computes the figures of the run.
func (r *Run) Figures() Figures {
	f := Figures{SentFrozen: r.SentFrozen, Open: r.Open, Sent: r.Sent, Recovered: -1}
	f.Peak = r.peak()
	for _, s := range r.Samples {
		f.Lost += s.Lost
	}
	for at := r.Resume; at+steady+window <= r.End; at += Step {
		if r.holds(at) {
			f.Recovered = at - r.Resume
			break
		}
	}
	for at := r.Stop + late; at < r.Resume; at += Step {
		f.SentLate += r.At(at).Sends
	}
	last := min(10*time.Second, r.End-r.Resume)
	f.LastGood = float64(r.goodIn(r.End-last, r.End)) / (r.Rate * last.Seconds())
	f.OpsPeace, f.OpsStorm = r.ops(0, r.Stop), r.ops(r.Stop, r.Resume+last)
	f.P50, f.P99 = r.latency(f.Recovered)
	return f
}

// Median returns the medians of the figures over this run and the others. Each
// figure is taken by itself. A run that did not recover counts as the longest.
func (r *Run) Median() Figures {
	all := append([]Figures{r.Figures()}, r.Others...)
	count := func(of func(Figures) int) int { return middle(all, of) }
	m := Figures{
		SentFrozen: count(func(f Figures) int { return f.SentFrozen }),
		SentLate:   count(func(f Figures) int { return f.SentLate }),
		Peak:       count(func(f Figures) int { return f.Peak }),
		Lost:       count(func(f Figures) int { return f.Lost }),
		Open:       count(func(f Figures) int { return f.Open }),
		Sent:       count(func(f Figures) int { return f.Sent }),
		P50:        middle(all, func(f Figures) time.Duration { return f.P50 }),
		P99:        middle(all, func(f Figures) time.Duration { return f.P99 }),
		LastGood:   middle(all, func(f Figures) float64 { return f.LastGood }),
		OpsPeace:   middle(all, func(f Figures) float64 { return f.OpsPeace }),
		OpsStorm:   middle(all, func(f Figures) float64 { return f.OpsStorm }),
	}
	// As an unsigned number, the -1 of a run that did not recover is the highest.
	m.Recovered = time.Duration(middle(all, func(f Figures) uint64 { return uint64(f.Recovered) }))
	return m
}

func middle[T cmp.Ordered](all []Figures, of func(Figures) T) T {
	list := make([]T, len(all))
	for i, f := range all {
		list[i] = of(f)
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// holds reports whether the rate is healthy in the window from at on, and in all
// windows that begin in the seconds after it.
func (r *Run) holds(at time.Duration) bool {
	for from := at; from <= at+steady; from += time.Second {
		if float64(r.goodIn(from, from+window)) < healthy*r.Rate*window.Seconds() {
			return false
		}
	}
	return true
}

// ops returns the operations of the fleet's backend per request.
func (r *Run) ops(from, to time.Duration) float64 {
	begun, ops := 0, 0
	for _, s := range r.Samples[from/Step : to/Step] {
		begun, ops = begun+s.Begun, ops+s.Ops
	}
	return float64(ops) / float64(max(1, begun))
}

func (r *Run) goodIn(from, to time.Duration) (n int) {
	for _, s := range r.Samples[from/Step : to/Step] {
		n += s.Good
	}
	return n
}

// peak returns the most requests in progress after the resume.
func (r *Run) peak() (peak int) {
	for _, s := range r.Samples[r.Resume/Step:] {
		peak = max(peak, s.Busy)
	}
	return peak
}

func (r *Run) latency(recovered time.Duration) (p50, p99 time.Duration) {
	if recovered < 0 {
		return 0, 0
	}
	var took []uint32
	for _, l := range r.Latency {
		if l.Began >= ms(r.Resume+recovered) {
			took = append(took, l.Took)
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	at := func(q float64) time.Duration {
		return time.Duration(took[int(math.Ceil(q*float64(len(took))))-1]) * time.Millisecond
	}
	return at(0.5), at(0.99)
}
