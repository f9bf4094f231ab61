// Checks of connections.

package simulate

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A host opens this many lanes at once at most, and one more for each laneEach.
const (
	lanesAtOnce = 5
	laneEach    = 4 * time.Second
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
	for _, own := range []error{policy.ErrAttemptTimeout, transport.ErrStalled, transport.ErrOutrun, context.DeadlineExceeded} {
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
			return s.conn != nil && s.conn.addr.String() == e.Addr && s.conn.pool.lane == e.Lane
		}
		if !told(c.attempts[e.Number-1]) && !(hedged && slices.ContainsFunc(c.attempts, told)) {
			w.complain(Told, c, "the Trace was told that attempt %d went over %s of lane %d", e.Number, e.Addr, e.Lane)
		}
	}
}

// checkWires judges a scene about connections.
func (w *world) checkWires(h *host, s *scene) {
	if s.kind == overload {
		w.checkOverload(h, s)
		return
	}
	for _, c := range w.calls {
		if c.plan.host != h.id || c.last || c.plan.role != ordinary || c.plan.method != http.MethodGet {
			continue
		}
		w.checkDetour(c, s)
	}
	if s.percent == 100 { // the host stays if others are well
		w.checkSick(h)
	}
}

// checkSick checks that a host leaves a lane whose connections are all sick, and that retries
// leave another lane that does no better. The host stays if such failures are not in a row, or if
// the retries did no better.
func (w *world) checkSick(h *host) {
	answered := slices.DeleteFunc(slices.Clone(w.attempts), func(a *attempt) bool { return a.host != h || a.status == 0 || a.call.last })
	slices.SortStableFunc(answered, func(a, b *attempt) int { return cmp.Compare(a.ended, b.ended) })
	first, lane, again := 0, 0, 0
	for _, a := range answered {
		c := a.call.plan
		switch bad := a.conn.is(sick) && a.status != http.StatusOK; {
		case a.number == 1 && (!bad || a.lane != lane):
			first, lane = 0, a.lane
		case !bad:
			again = 0
		case c.role != ordinary || c.method != http.MethodGet:
		case a.number == 1:
			first++
		default:
			first, again = 0, again+1
		}
		if n := max(first, again); n > sickMost {
			w.complain(Another, nil, "%d requests in a row went over connections that were sick since %v", n, a.conn.dooms().turns)
			return
		}
	}
}

// sickMost is how many requests in a row may go over sick connections.
const sickMost = 12

// checkDetour checks that a request of a scene meets a bad connection at most once for
// each strike, and only until the strike is noticed. Over HTTP/1 it may meet one in each of
// two lanes, if not all connections have died.
func (w *world) checkDetour(c *call, s *scene) {
	after := never // since the first attempt after the last strike before the end of the call
	for at := s.begin; at < s.end && at < c.returned; at += strikeEach {
		after = c.plan.at - w.firstAfter(c.attempts[0].host, at)
	}
	noticed := s.timeout + s.trip + 2*dialTime
	retry := 200*time.Millisecond + s.trip
	if c.attempts[0].host.wires.untold {
		retry += s.trip // the first attempt over a new lane shows by its response that there is a connection
	}
	slow, most := 0, 0
	for _, a := range c.attempts {
		if a.conn.is(dies) && a.ended-a.began > s.trip+2*dialTime {
			slow++
		}
	}
	switch {
	case s.percent < 100 && !c.attempts[0].host.http2:
		most = 2 // something comes over a lane of HTTP/1 although its idle connections have died
	case after < noticed || s.percent < 100:
		most = 1
	}
	switch {
	case s.deadline && slow > 0:
		if most == 0 {
			w.complain(Another, c, "the request met a dead connection %v after it had died", after)
		}
	case c.attempts[0].host.wires.fate == sick && c.detours(): // see checkOne
	case c.resp == nil || c.resp.StatusCode != http.StatusOK:
		w.complain(Another, c, "the request failed, although other connections were well: %s", c.outcome())
	case slow > most:
		w.complain(Another, c, "%d slow attempts %v after the connections had died; there may be %d", slow, after, most)
	case c.returned-c.plan.at > time.Duration(max(1, most))*(s.timeout+retry):
		w.complain(Another, c, "the request took %v, with timeouts of %v", c.returned-c.plan.at, s.timeout)
	}
}

// firstAfter returns when the first attempt at a host began after a time.
func (w *world) firstAfter(h *host, at time.Duration) time.Duration {
	for _, s := range w.attempts {
		if s.host == h && s.began >= at {
			return s.began
		}
	}
	return never
}

// overloadMost is how many connections of HTTP/2 an overload of 4 s may cost.
const overloadMost = 6

// checkOverload checks that a host that is slow for a while gets few connections.
func (w *world) checkOverload(h *host, s *scene) {
	n := 0
	for _, at := range w.dials[h] {
		if at >= s.begin && at < s.end+s.timeout {
			n++
		}
	}
	if h.http2 && n > overloadMost {
		w.complain(Few, nil, "an overload of %v cost %d connections", s.end-s.begin, n)
	}
}
