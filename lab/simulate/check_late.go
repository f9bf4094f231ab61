// Checks of hedges, and of those that go beside attempts that hang.

package simulate

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

// An attempt hangs after this time at least, and not before there were so many successes.
const (
	hangsLeast   = 250 * time.Millisecond
	successes    = 100
	thriceAsLong = 3
)

// checkHedge judges an attempt that arrives while another of its call is under way; the lock is
// held, here and in all functions below.
func (w *world) checkHedge(s *attempt) {
	c := s.call
	var beside []*attempt
	for _, other := range c.attempts[:s.number-1] {
		if other.ended == never && other.req.Context().Err() == nil {
			beside = append(beside, other)
		}
	}
	if len(beside) == 0 || w.plan.nested {
		return
	}
	has, late := c.hedges(s.host)
	switch {
	case s.number != 2 && (late || c.returned == never): // a request for the rest of a body has hedges of its own
		w.complain(Beside, c, "attempt %d began beside another; a hedge is the second attempt", s.number)
	case !has:
		w.complain(Beside, c, "a hedge, and no rule has hedges")
	case c.plan.sending == 2, c.plan.upgrade, c.plan.shape > inMemory:
		w.complain(Beside, c, "a hedge of a request that cannot be sent twice at once")
	case c.plan.method != "" && c.plan.method != http.MethodGet && c.plan.method != http.MethodHead && c.plan.sending != 1 && c.written().Idempotent == nil, !c.idempotent():
		w.complain(Beside, c, "a hedge of a %s for which nobody vouches", c.plan.method)
	case late:
		w.checkHang(s, beside[0])
	}
}

// hedges reports whether the call may have hedges, and whether they are late hedges alone.
func (c *call) hedges(h *host) (has, late bool) {
	has, late = hedges(c.rule)
	if own, lateOwn := hedges(c.world.plan.ruleOf(h.id, c.plan.at)); own {
		return true, lateOwn && (late || !has)
	}
	return has, late
}

// checkHang checks that the first attempt hung when a late hedge began beside it.
func (w *world) checkHang(s, first *attempt) {
	known, least := 0, hangsLeast
	for _, a := range w.attempts {
		if a.host == s.host && a.status > 0 && a.ended <= s.set && a.call.plan.member == s.call.plan.member {
			known++
		}
	}
	if h := s.host.scene; h != nil && h.kind == hanging {
		least = max(least, thriceAsLong*h.trip)
	}
	switch waited := s.set - first.set; {
	case known < successes:
		w.complain(Beside, s.call, "a late hedge, when the host had given %d responses", known)
	case waited < least:
		w.complain(Beside, s.call, "a late hedge after %v; no attempt hangs before %v", waited, least)
	}
}

// checkOutrun checks that a hedge cuts no attempt whose response comes first. A late hedge ends the
// first attempt only by a response. If the first had one that was discarded, it is not under way.
func (w *world) checkOutrun(s *attempt) {
	c := s.call
	_, late := c.hedges(s.host)
	if !late || s.number != 1 || !errors.Is(s.cause, transport.ErrOutrun) || s.status > 0 && s.ended < s.cut {
		return
	}
	for _, other := range c.attempts {
		if other != s && other.status > 0 && other.ended <= s.cut {
			return
		}
	}
	w.complain(Cut, c, "a late hedge without a response cut the first attempt")
}

// unhedged reports whether a hook that was told of a late hedge panicked, so that the hedge did not go. The
// Trace was told its beginning and its end.
func (c *call) unhedged() bool {
	_, late := hedges(c.rule)
	return late && c.panicked != nil && c.plan.hook == "trace" && c.begun == c.ended && c.begun == len(c.attempts)+1
}

// checkLate judges the scene in which attempts hang. Each GET gets its response as soon as a late
// hedge brings it, or as its own slow attempt does.
func (w *world) checkLate(h *host, s *scene) {
	most := max(hangsLeast, thriceAsLong*(s.trip+dialTime)) + 2*dialTime + s.trip
	switch {
	case s.slowly > 0:
		most = s.slow + 2*dialTime
	case h.wires.untold:
		// The first attempt over a new lane shows by its response that there is a connection. If that
		// request is lost, the attempts of others and their hedges wait for the lane for 1 s each.
		if most += s.trip; s.lost > 0 {
			most += 2 * time.Second
		}
	}
	before := 0
	for _, c := range w.calls {
		if c.plan.host != h.id || c.last || c.plan.method != http.MethodGet {
			continue
		}
		w.checkPair(c)
		if c.plan.at < s.begin {
			before++
		}
		if before < successes {
			continue // a shortened story says nothing about attempts that hang
		}
		switch {
		case c.resp == nil || c.resp.StatusCode != http.StatusOK:
			w.complain(Another, c, "the request failed, although a late hedge would have been answered: %s", c.outcome())
		case c.returned-c.plan.at > most:
			w.complain(Another, c, "the request took %v beside attempts that hang; it may take %v", c.returned-c.plan.at, most)
		case h.http2 && s.percent == 100 && w.isNoticed(h, c.plan.at, most) && len(c.attempts) > 1:
			w.complain(Another, c, "the request met a dead connection, although a late hedge was answered before")
		}
	}
}

// isNoticed reports whether the last strike of a host before a time was noticed by then, and the next
// is far away. A GET that began after the strike notices it within a time.
func (w *world) isNoticed(h *host, at, within time.Duration) bool {
	last := never
	for _, strike := range h.wires.strikes {
		switch {
		case strike <= at:
			last = strike
		case strike <= at+within:
			return false
		}
	}
	return slices.ContainsFunc(w.attempts, func(a *attempt) bool {
		return a.host == h && a.call.plan.method == http.MethodGet && last <= a.began && a.began < at-within
	})
}

// checkPair checks that a late hedge takes another connection, and that the first response counts.
func (w *world) checkPair(c *call) {
	if len(c.attempts) < 2 || !c.attempts[1].hedge {
		return
	}
	first, hedge := c.attempts[0], c.attempts[1]
	switch {
	case hedge.conn != nil && hedge.conn == first.conn:
		w.complain(Beside, c, "the hedge went over connection %d of lane %d, as the first attempt did", hedge.conn.id, hedge.lane)
	case c.served == hedge && first.succeeded() && first.ended < hedge.ended:
		w.complain(Beside, c, "the response of the hedge counts, which came %v later", hedge.ended-first.ended)
	}
}
