// Checks of connections.

package simulate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A host opens this many lanes at once at most, and one more for each laneEach.
const (
	lanesAtOnce = 2
	laneEach    = 10 * time.Second
)

// checkLanes checks that lanes are opened seldom; the lock is held, here and in all
// functions below.
func (w *world) checkLanes(h *host) {
	opened := w.lanes[h]
	for i := range opened {
		for j := i; j < len(opened); j++ {
			if most := lanesAtOnce + int((opened[j]-opened[i])/laneEach); j-i+1 > most {
				w.complain(Few, nil, "%d lanes from %v to %v; there may be %d", j-i+1, opened[i], opened[j], most)
				return
			}
		}
	}
}

// checkCut checks that nothing but its own time, its caller or a response that outran it
// ended an attempt that was under way.
func (w *world) checkCut(s *attempt) {
	c, b := s.call, s.body
	if s.cut == never || s.cut >= c.ends || s.exited || c.panicked != nil || c.exited {
		return
	}
	if c.plan.appetite == closesMeanwhile && s.cut >= c.returned+c.plan.pause {
		return // Close ends a reconnect as well
	}
	for _, own := range []error{policy.ErrAttemptTimeout, transport.ErrStalled, transport.ErrOutrun, resume.ErrLate, context.DeadlineExceeded} {
		if errors.Is(s.cause, own) {
			return
		}
	}
	if s.cut < s.ended || s.cut == s.ended && s.err != nil && errors.Is(s.err, s.cause) {
		w.complain(Cut, c, "attempt %d was under way and ended by %v", s.number, s.cause)
		return
	}
	if b == nil || c.served != s || !c.closed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	failed := b.failure()
	if failed != nil && errors.Is(failed, s.cause) || !b.ended && failed == nil && s.script.end != overcounts && s.script.end != explodes && b.closedAt > s.cut {
		w.complain(Cut, c, "the response of attempt %d was being read and ended by %v", s.number, s.cause)
	}
}

// checkTold checks the connections of which the Trace was told. The server numbers attempts
// as they arrive. An attempt may arrive later than its hedge, so the two may change numbers.
func (w *world) checkTold(c *call) {
	hedged := slices.ContainsFunc(c.events, func(e event) bool { return e.Reason == transport.ReasonHedged })
	for _, e := range c.events {
		if e.Addr == "" || e.Offset > 0 || e.at > c.returned || e.Number < 1 || e.Number > len(c.attempts) || w.plan.nested {
			continue
		}
		told := func(s *attempt) bool {
			return s.conn != nil && s.conn.addr.String() == e.Addr && s.conn.pool.lane == e.Pool
		}
		if !told(c.attempts[e.Number-1]) && !(hedged && slices.ContainsFunc(c.attempts, told)) {
			w.complain(Told, c, "the Trace was told that attempt %d went over %s of lane %d", e.Number, e.Addr, e.Pool)
		}
	}
}
