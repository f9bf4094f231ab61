// The check that no request waits for a host that has nothing to do.

package simulate

import (
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// longestIdle is for how long a concurrency limit may hold a request back although its host has nothing
// to do. A slot that was lost comes back within a second.
const longestIdle = 1500 * time.Millisecond

// breakerIdle is the same with a circuit breaker, which lets a probe go every 5 s, and fleetIdle in a fleet, whose members share the probes.
const (
	breakerIdle = 5*time.Second + longestIdle
	fleetIdle   = 20*time.Second + longestIdle
)

// checkIdle checks that no request waits at the limiter while its host has nothing to do. It
// judges only hosts at which nothing else makes a first attempt wait.
func (w *world) checkIdle(h *host) {
	rule := h.rule.Or(policy.Defaults())
	if !gated(rule) || rule.Concurrency.FailFast == policy.On || rule.CircuitBreaker.FailFast == policy.On || rule.RateLimit.PerSecond > 0 || rule.QuotaPacing == policy.On || len(w.plan.updates) > 0 {
		return
	}
	longest := longestIdle
	if breaks(rule) {
		longest = breakerIdle
	}
	if w.plan.fleet != nil {
		longest = fleetIdle
	}
	if w.plan.fleet.lied() {
		longest += 2 * time.Minute // for an outage that was made up
		if rule.ShareRetryAfter == policy.On {
			longest += 2 * max(rule.MaxRetryAfter, 0) // and its jitter
			if rule.MaxRetryAfter < 0 {
				longest += 2 * time.Hour
			}
		}
	}
	var busy []span
	for _, s := range w.attempts {
		if s.host != h {
			continue
		}
		if s.told > 0 && rule.ShareRetryAfter == policy.On {
			return
		}
		busy = append(busy, s.work()...)
		if breaks(rule) { // the next probe goes a gap after the failure of the last attempt, however slow its upload was
			busy = append(busy, span{s.began, s.ended})
		}
	}
	busy = merged(busy)
	for _, c := range w.calls {
		if c.plan.host != h.id || c.last {
			continue
		}
		until := c.returned
		if len(c.attempts) > 0 {
			until = c.attempts[0].began
		}
		if at, idle := longestGap(busy, span{c.plan.at, until}); idle > longest {
			w.complain(Room, c, "the request waited when the host had nothing to do for %v from %v on", idle, at)
		}
	}
}

// work returns the times in which the server works on the attempt. It does not work while
// the caller supplies a piece of the request's body, nor for the body of an event stream.
// Any other body counts until it has ended, because a concurrency limit does not see whether the server
// or the reader is slow.
func (s *attempt) work() (all []span) {
	from := s.began
	for _, r := range s.supplied {
		all = append(all, span{from, r.from})
		from = r.until
	}
	all = append(all, span{from, max(from, s.ended)})
	if b := s.body; b != nil && s.status < 500 && !s.events {
		b.mu.Lock()
		defer b.mu.Unlock()
		until := b.over
		if b.began < b.closedAt && b.readEnd < never { // a Read that the Close did not end
			until = max(until, b.readEnd)
		}
		all = append(all, span{s.ended, until})
	}
	return all
}

// longestGap returns the longest time within a span in which no other span lies. The spans
// must be sorted and apart.
func longestGap(busy []span, within span) (at, gap time.Duration) {
	from := within.from
	look := func(until time.Duration) {
		if until = min(until, within.until); until-from > gap {
			at, gap = from, until-from
		}
	}
	for _, b := range busy {
		if b.until <= from {
			continue
		}
		look(b.from)
		if from = max(from, b.until); from >= within.until {
			return at, gap
		}
	}
	look(within.until)
	return at, gap
}
