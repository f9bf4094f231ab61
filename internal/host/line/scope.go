// The requests that wait for the same thing, and how they come back.

package line

import (
	"cmp"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/outage"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// make outages chose these figures.
const (
	// ceiling times the former rate of requests is the fastest pace of those that come back. Together with the new requests
	// that is at most four times the rate in any second.
	ceiling = 2.95

	// The window grows while retries take at most slow times as long as the fastest. Without this bound it grows until
	// a server with spare capacity for a fifth of its load fails again.
	slow = 2

	// After a timeout, the successes of a whole round let the window grow by so much. If it grows as fast as before, the server
	// fails again and again, and 100 Transports never come back.
	growth = 0.1
)

// A scope is the requests that wait for the same thing. The lock of the Line guards it.
//
// # The return
//
// When an outage ends, the requests in the line go at a pace. It empties the line within ten seconds, or is as fast as requests
// came before. With a circuit breaker, new requests join the line, so their rate is added. The pace is at most ceiling times the
// rate at which requests came before or joined the line, so that the host is not sent everything at once.
//
// A server may be back and hardly bear its load. So as in TCP (RFC 5681), a window bounds how many requests that have left the line
// are under way. It begins with 1, and each success adds 1, so that it doubles in each round, as long as the server answers as fast
// as before. An attempt that gets no answer in time halves it, because the server may still be busy with it. From then on the
// window grows slowly, until the line is empty. If the window is below 1, the next request waits for several times as long as the
// last took, but not for longer than between two probes.
type scope struct {
	outage.Outage
	queues [2]queue.Queue // the requests that have failed once at most, and the others

	joined, most int             // since the line was empty: how many requests came, and its longest length
	from         instant.Instant // when the first of them came
	leftAt       instant.Instant // when a request left the line to make an attempt
	away         int             // how many attempts of requests that left the line are under way

	window  float64         // how many may be; 0: there is no bound
	wary    bool            // an attempt got no answer in time, and the line has not been empty since
	cut     instant.Instant // an attempt from before this time does not halve the window
	fastest time.Duration   // the time of the fastest success since the outage
	took    time.Duration   // the time of the last attempt
}

// waits reports whether a request waits.
func (s *scope) waits() bool { return s.first() != nil }

// first returns the waiter that is next, or nil.
func (s *scope) first() *queue.Waiter { return cmp.Or(s.queues[0].First(), s.queues[1].First()) }

// queue returns the index of the queue of a request.
func (p *Place) queue() int { return min(max(p.Sent-1, 0), 1) }

// isFree reports whether a request needs no token of the budget.
func (s *scope) isFree(p *Place) bool { return p.Sent == 0 || p.Failed < s.Ended }

// isTurn reports whether nobody is before a request, which may be in the line or not.
func (s *scope) isTurn(p *Place, w *queue.Waiter) bool {
	if w.Waits() {
		return s.first() == w
	}
	return s.queues[0].Len() == 0 && (p.queue() == 0 || s.queues[1].Len() == 0)
}

// join puts a request at the end of its queue.
func (s *scope) join(now instant.Instant, p *Place, w *queue.Waiter) {
	s.queues[p.queue()].Join(w)
	if s.joined++; s.joined == 1 {
		s.from = now
	}
	s.most = max(s.most, s.queues[0].Len()+s.queues[1].Len())
}

// emptied notes that the line may be empty now.
func (s *scope) emptied() {
	if s.waits() {
		return
	}
	s.joined, s.most, s.window, s.wary = 0, 0, 0, false
}

// patience returns how long the first in the line waits in all. If the line is empty, that is w.
func (s *scope) patience(w *queue.Waiter) time.Duration {
	if w = cmp.Or(s.first(), w); w == nil || w.By == 0 {
		return instant.Forever
	}
	return w.By.Sub(w.From)
}

// due returns when the pace lets a request go. rate is that of requests.
func (s *scope) due(now instant.Instant, p *Place, rate float64, c *Config) instant.Instant {
	if p.Sent == 0 && !s.waits() {
		return now
	}
	joins := float64(s.joined) / max(now.Sub(s.from).Seconds(), 1)
	pace := max(float64(s.most)/budget.Window.Seconds(), rate)
	usual := max(rate, joins)
	if c.Breaker {
		pace += usual // new requests join the line, which would never be empty
	}
	pace = max(min(pace, ceiling*usual), c.Budget.PerSecond)
	return instant.After(s.leftAt, time.Duration(min(float64(time.Second)/pace, float64(budget.Window))))
}

// room returns when the window lets the next go.
func (s *scope) room(now instant.Instant) instant.Instant {
	switch {
	case s.window == 0:
		return now
	case float64(s.away) >= max(1, s.window):
		return instant.Never
	case s.window < 1:
		return instant.After(s.leftAt, time.Duration(min(float64(s.took)/s.window, float64(outage.LongestGap))))
	}
	return now
}

// succeeded notes a success, and reports whether it ends an outage.
func (s *scope) succeeded(now instant.Instant, v Success) (ends bool) {
	if ends = s.Succeeded(now); ends {
		s.window, s.cut, s.leftAt, s.fastest = min(cmp.Or(s.window, 1), 1), now, 0, 0
	}
	if s.window == 0 || !v.Retry && !v.Left || !s.waits() {
		return ends
	}
	s.took = max(now.Sub(v.Began), 1)
	s.fastest = min(cmp.Or(s.fastest, s.took), s.took)
	switch {
	case float64(s.away)+1 < s.window: // it is not used up
	case s.wary:
		s.window += growth * min(s.window, 1/s.window)
	case s.took <= slow*s.fastest:
		s.window += min(s.window, 1)
	}
	return ends
}

// failed notes a failure, and reports whether an outage begins.
func (s *scope) failed(now instant.Instant, f Failure) (begins bool) {
	if f.Late && !s.Down && f.Began >= s.cut && s.waits() {
		s.wary, s.cut, s.took = true, now, now.Sub(f.Began)
		s.window = max(cmp.Or(s.window, float64(max(s.away, 1)))/2, min(1, s.took.Seconds()/outage.LongestGap.Seconds()))
	}
	return s.Failed(now, f.Began, f.Wait)
}
