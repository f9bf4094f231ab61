// Those who wait in one line, and how they come back.

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
	// ceiling times the former rate of requests is the fastest pace of those who come back. With the new requests
	// that is at most four times the rate in any second.
	ceiling = 2.95

	// The window grows while retries take at most slow times as long as the fastest. Without this bound it grows until
	// a server with spare capacity for a fifth of its load fails again.
	slow = 2

	// After a timeout, a success lets the window grow by a growth-th part of a request. If it grows as fast as before,
	// the server fails again and again, and 100 Transports never come back.
	growth = 0.1
)

// A scope is the requests that wait for the same thing. The lock of the Line guards it.
//
// # The return
//
// When an outage ends, those who wait go at a pace: within ten seconds, or as fast as requests came before. The pace is at most
// ceiling times as fast, so that a host that is back is not sent all at once what piled up.
//
// A server may be back and hardly bear its load. So as in TCP (RFC 5681), a window bounds how many of those who left the line are
// under way. It begins with 1, and each success doubles it as long as the server answers as fast as before. An attempt that gets no
// answer in time halves it: the server may still be busy with it. From then on it grows slowly, until the line is empty. A window
// below 1 makes the next wait for several times as long as the last took, but not for longer than between two probes.
type scope struct {
	outage.Outage
	queues [2]queue.Queue // who has failed once at most, and the others

	joined, most int             // since the line was empty: how many came, and its longest length
	from         instant.Instant // when the first of them came
	leftAt       instant.Instant // when somebody left to make an attempt
	away         int             // those who left, and whose attempts are under way

	window  float64         // how many of them may be; 0: there is no bound
	wary    bool            // an attempt got no answer in time, and the line has not been empty since
	cut     instant.Instant // an attempt from before this time does not halve the window
	fastest time.Duration   // retry since the outage, and
	took    time.Duration   // the last
}

// waits reports whether somebody waits.
func (s *scope) waits() bool { return s.length() > 0 }

func (s *scope) length() int { return s.queues[0].Len() + s.queues[1].Len() }

// first returns who is next, or nil.
func (s *scope) first() *queue.Waiter { return cmp.Or(s.queues[0].First(), s.queues[1].First()) }

// queueOf returns the queue of a request.
func queueOf(p *Place) int {
	if p.Sent > 1 {
		return 1
	}
	return 0
}

// isFree reports whether a request needs no token of the budget.
func (s *scope) isFree(p *Place) bool { return p.Sent == 0 || p.Failed < s.Ended() }

// isTurn reports whether nobody is before a request, which may be in the line or not.
func (s *scope) isTurn(p *Place, w *queue.Waiter) bool {
	if w.Waits() {
		return s.first() == w
	}
	return s.queues[0].Len() == 0 && (queueOf(p) == 0 || s.queues[1].Len() == 0)
}

// join puts a request at the end of its queue.
func (s *scope) join(now instant.Instant, p *Place, w *queue.Waiter) {
	s.queues[queueOf(p)].Join(w)
	if s.joined++; s.joined == 1 {
		s.from = now
	}
	s.most = max(s.most, s.length())
}

// emptied notes that the line may be empty now.
func (s *scope) emptied() {
	if s.waits() {
		return
	}
	s.joined, s.most, s.window, s.wary = 0, 0, 0, false
}

// patience returns how long the first who waits does so in all, or w if nobody waits.
func (s *scope) patience(w *queue.Waiter) time.Duration {
	if first := s.first(); first != nil {
		w = first
	}
	if w == nil || w.By == 0 {
		return instant.Forever
	}
	return w.By.Sub(w.From)
}

// returns reports whether requests may come that failed before the end of the last outage. Those who were told the same time come
// within a second after it.
func (s *scope) returns(now instant.Instant) bool {
	return s.Ended() > 0 && now.Sub(s.Ended()) < budget.Window
}

// due returns when the pace lets a request go. rate is that of requests.
func (s *scope) due(now instant.Instant, p *Place, rate float64, c *Config) instant.Instant {
	if p.Sent == 0 && !s.waits() {
		return now
	}
	joins := float64(s.joined) / max(now.Sub(s.from).Seconds(), 1)
	pace := max(float64(s.most)/budget.Window.Seconds(), rate)
	if c.Breaker {
		pace += rate // new requests join the line, which would never be empty
	}
	pace = max(min(pace, ceiling*max(rate, joins)), c.Budget.PerSecond)
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
	if f.Late && !s.Down() && f.Began >= s.cut && s.waits() {
		s.wary, s.cut, s.took = true, now, now.Sub(f.Began)
		s.window = max(cmp.Or(s.window, float64(max(s.away, 1)))/2, min(1, s.took.Seconds()/outage.LongestGap.Seconds()))
	}
	return s.Failed(now, f.Began, f.Wait)
}
