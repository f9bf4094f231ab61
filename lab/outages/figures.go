package outages

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// A figure is one of those of a play. Times are in seconds.
type figure int

const (
	requests figure = iota
	lost
	attempts // that reached the server
	down     // of these, while the server was down
	peak     // the most attempts in a second after the outage
	done     // after the outage, until all requests from before its end are over
	back     // after the outage, until the 99th percentile of the time of a request is as before, or +Inf
	mean     // time of the requests that are not lost
	slowest  // of them
	count
)

// heads stand above the figures in the table.
var heads = [count]string{"requests", "lost", "attempts", "while down", "peak/s after", "done after", "back after", "mean", "slowest"}

// figures are indexed by figure. They are 0 if the story has no outage to measure them.
type figures [count]float64

func (p *play) figures() (f figures) {
	f[requests], f[attempts], f[down] = float64(len(p.results)), float64(p.server.seen), float64(p.server.down)
	for _, r := range p.results {
		if !r.ok {
			f[lost]++
			continue
		}
		f[mean] += r.took.Seconds()
		f[slowest] = max(f[slowest], r.took.Seconds())
	}
	f[mean] /= max(1, f[requests]-f[lost])
	if p.until > 0 && p.every == 0 {
		f[peak] = busiest(p.server.arrivals[min(len(p.server.arrivals), int(p.until/step)):])
		f[done], f[back] = p.done().Seconds(), p.back()
	}
	return f
}

// busiest returns the most arrivals in any second.
func busiest(of []int) float64 {
	const second = int(time.Second / step)
	sum, most := 0, 0
	for i, x := range of {
		if sum += x; i >= second {
			sum -= of[i-second]
		}
		most = max(most, sum)
	}
	return float64(most)
}

func (p *play) done() (last time.Duration) {
	for _, r := range p.results {
		if r.began < p.until {
			last = max(last, r.began+r.took-p.until)
		}
	}
	return last
}

// back looks at the requests that begin in the same second. A lost request takes for ever.
func (p *play) back() float64 {
	seconds := map[int][]time.Duration{} // after the outage
	var before []time.Duration
	for _, r := range p.results {
		if !r.ok {
			r.took = math.MaxInt64 / 4
		}
		if r.began >= p.until {
			i := int((r.began - p.until) / time.Second)
			seconds[i] = append(seconds[i], r.took)
		} else if r.began < p.from-time.Second {
			before = append(before, r.took)
		}
	}
	usual, back, last := p99(before), 0, 0
	for i, took := range seconds {
		last = max(last, i)
		if p99(took) > 2*usual+50*time.Millisecond {
			back = max(back, i+1)
		}
	}
	if back > last && back > 1 {
		return math.Inf(1)
	}
	return float64(back)
}

// p99 returns the 99th percentile.
func p99(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)*99/100]
}

// A row of the table.
type row struct {
	*story
	client
	figures
}

func markdown(out io.Writer, rows []*row) {
	_, _ = fmt.Fprintf(out, "| story | client | %s |\n|---|---|%s\n", strings.Join(heads[:], " | "), strings.Repeat("--:|", len(heads)))
	for _, r := range rows {
		_, _ = fmt.Fprintf(out, "| %s | %s |", r.story.name, r.client.name)
		for i, x := range r.figures {
			switch {
			case math.IsInf(x, 1):
				_, _ = fmt.Fprint(out, " never |")
			case x == 0 && figure(i) > lost:
				_, _ = fmt.Fprint(out, " |")
			case figure(i) < done:
				_, _ = fmt.Fprintf(out, " %.0f |", x)
			default:
				_, _ = fmt.Fprintf(out, " %.2f s |", x)
			}
		}
		_, _ = fmt.Fprintln(out)
	}
}
