// Checks of fleets.

package simulate

import (
	"errors"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A member waits for answers of its fleet for that long.
const (
	tokenAnswer = 10 * time.Millisecond
	firstAnswer = time.Second // after the first question for tokens, if the fleet said how many members there are
)

// gated reports whether a rule limits the requests in flight, or holds up first attempts while the host is down.
func gated(rule policy.Rule) bool {
	c := rule.Concurrency
	return c.Enabled != policy.Off && c.Max > 0 || breaks(rule)
}

// breaks reports whether a rule has a circuit breaker.
func breaks(rule policy.Rule) bool { return rule.CircuitBreaker.Enabled == policy.On }

// checkFleet judges what the members do at a host; the lock is held, here and in all
// functions below.
func (w *world) checkFleet(h *host) {
	if len(w.plan.updates) == 0 {
		for _, c := range w.calls {
			if c.plan.host == h.id && !c.last {
				w.checkHearsay(c)
				w.checkLonger(h, c)
			}
		}
	}
	if h.scene == nil {
		return
	}
	switch s := h.scene; s.kind {
	case peace:
		w.checkPeace(h)
	case plenty:
		w.checkPlenty(h)
	case rated:
		w.checkRated(h, s)
	case blackout:
		w.checkBlackout(h, s)
	case neighbour:
		w.checkNeighbour(h, s)
	case refusedAll:
		w.checkRefused(h, s)
	}
}

// checkHearsay checks a request of a member to which the server has named neither a wait nor
// a quota. What others were told refuses no such request, and delays it by three quarters of
// its time at most.
func (w *world) checkHearsay(c *call) {
	for _, s := range w.attempts {
		if s.call.plan.member == c.plan.member && s.call.plan.host == c.plan.host && s.began <= c.returned && (s.script.told.wait > 0 || s.script.quota >= 0) {
			return
		}
	}
	var own *transport.Error
	if len(c.attempts) == 0 && errors.As(c.err, &own) && (own.Reason == transport.ReasonThrottled || own.Reason == transport.ReasonQuota) {
		w.complain(Hearsay, c, "only others were told to wait, and the request was refused: %v", c.err)
	}
	if c.plan.deadline == 0 || gated(c.rule) || c.rule.RateLimit.PerSecond > 0 {
		return
	}
	until := c.returned
	if len(c.attempts) > 0 {
		until = c.attempts[0].began
	}
	if wait := until - c.plan.at; wait > c.plan.deadline*3/4+time.Millisecond {
		w.complain(Hearsay, c, "only others were told to wait, and the request waited for %v of %v", wait, c.plan.deadline)
	}
}

// These are for how long a hold may delay a request after its time.
const (
	holdJitter = time.Second
	holdEach   = 20 * time.Millisecond // for each member
	holdRamp   = 10 * time.Second
)

// checkLonger checks that no request waits when the times are over that the server named to
// any member. It judges only hosts at which nothing else makes a request wait.
func (w *world) checkLonger(h *host, c *call) {
	rule, f := c.rule, w.plan.fleet
	if gated(rule) || rule.RateLimit.PerSecond > 0 || rule.QuotaPacing == policy.On || f.lied() {
		return
	}
	until := c.returned
	if len(c.attempts) > 0 {
		until = c.attempts[0].began
	}
	if until == c.plan.at {
		return
	}
	most := c.plan.at
	for _, s := range w.attempts {
		if s.host != h || s.call.scope() != c.scope() || s.ended > until || s.told <= 0 {
			continue
		}
		most = max(most, s.ended+s.told) // a member that hears of it late counts MaxRetryAfter from then on
	}
	slack := f.lateness() + max(holdJitter, time.Duration(len(f.members))*holdEach) + holdRamp
	if until > most+slack {
		w.complain(Longer, c, "the request waited until %v, when the last wait that the server named was over at %v", until, most)
	}
}

// waitOf returns how long a call waited for its first attempt. It is never for a call that
// made none, and ok is false if that is its own fault.
func (c *call) waitOf() (wait time.Duration, ok bool) {
	if len(c.attempts) > 0 {
		return c.attempts[0].began - c.plan.at, true
	}
	return never, c.returned < c.ends
}

// checkPeace checks that a host that is well costs no messages and no time.
func (w *world) checkPeace(h *host) {
	if w.plan.fleet.lied() {
		return
	}
	met := make(map[int]bool)
	for _, m := range w.said {
		if m.heard || m.Host != h.origin {
			continue
		}
		if m.Kind != fleetmsg.Meet || met[m.member] {
			w.complain(Asked, nil, "member %d tells of a host that is well: %v", m.member, m.Message)
		}
		met[m.member] = true
	}
	w.checkWaits(h, Asked, func(*call) time.Duration { return 0 })
}

// plentyPerSecond is a rate per second that is far away.
const plentyPerSecond = 10_000

// checkPlenty checks that a request waits for an answer for a moment only. Without an answer the first token of a member comes at a
// random time, in which the rate has one for each member.
func (w *world) checkPlenty(h *host) {
	if w.plan.fleet.lied() {
		return
	}
	first := make(map[int]time.Duration) // question of each member
	for _, m := range slices.Backward(w.said) {
		if m.Kind == fleetmsg.AskTokens {
			first[m.member] = m.at
		}
	}
	w.checkWaits(h, Answered, func(c *call) time.Duration {
		return tokenAnswer + time.Duration(len(w.plan.fleet.members))*time.Second/plentyPerSecond + max(0, first[c.plan.member]+firstAnswer-c.plan.at) // without an answer there is no burst
	})
}

// checkWaits checks that no ordinary request of a host waits for longer.
func (w *world) checkWaits(h *host, o Oracle, most func(*call) time.Duration) {
	for _, c := range w.calls {
		if c.plan.host != h.id || c.last {
			continue
		}
		if wait, ok := c.waitOf(); ok && wait > most(c) {
			w.complain(o, c, "the request waited for %v", wait)
			return
		}
	}
}

// began returns when the attempts at a host began, sorted.
func (w *world) began(h *host) (all []time.Duration) {
	for _, s := range w.attempts {
		if s.host == h && !s.call.last {
			all = append(all, s.began)
		}
	}
	slices.Sort(all)
	return all
}

// tokenLife is for how long after its time a member may use a token.
const tokenLife = time.Second

// checkRated checks that all members together keep to the rate, and use it if they can.
// Members that are cut off may send their parts beside it. A member that has never heard of
// the others uses the whole rate, and a grant that comes twice counts twice.
func (w *world) checkRated(h *host, s *scene) {
	all, f := w.began(h), w.plan.fleet
	whole := span{0, s.end + s.trip}
	perSecond, burst := s.perSecond, float64(s.burst)
	alone := float64(f.unsteady(whole))
	perSecond *= 1 + alone/float64(len(f.members))
	burst *= 1 + alone/float64(len(f.members))
	burst += alone
	for range f.forgets {
		burst += float64(s.burst) + s.perSecond/2
	}
	if f.lied() || f.doubled(whole) || f.unheard() {
		perSecond, burst = s.perSecond*float64(len(f.members)), burst*float64(len(f.members))
	}
	for i := range all {
		for j := i; j < len(all); j++ {
			if most := 1.1*(perSecond*(all[j]-all[i]).Seconds()+burst) + perSecond*tokenLife.Seconds(); float64(j-i+1) > most+1 {
				w.complain(Rated, nil, "%d requests from %v to %v; there may be %.1f", j-i+1, all[i], all[j], most)
				return
			}
		}
	}
	first, _ := slices.BinarySearch(all, s.begin)
	last, _ := slices.BinarySearch(all, s.end)
	if least := 0.75 * s.perSecond * (s.end - s.begin).Seconds(); f.steady(whole) && float64(last-first) < least {
		w.complain(Rated, nil, "%d requests from %v to %v; there should be %.1f", last-first, s.begin, s.end, least)
	}
}

// After an outage these are the time until a host that is back is used as before, and the
// longest wait then, also of a member that does not hear everything.
const (
	fleetBack = 10 * time.Second
	backWait  = time.Second
	lateWait  = 30 * time.Second
)

// checkBlackout checks that the members return after an outage.
func (w *world) checkBlackout(h *host, s *scene) {
	f := w.plan.fleet
	if f.lied() {
		return
	}
	for _, c := range w.calls {
		if c.plan.host != h.id || c.last || c.plan.at < s.end+fleetBack {
			continue
		}
		most := backWait
		if wait, _ := c.waitOf(); !f.members[c.plan.member].steady(span{s.end, c.plan.at + wait}) {
			most = lateWait
		}
		if wait, ok := c.waitOf(); ok && wait > most {
			w.complain(Returned, c, "the request waited for %v, when the host had been back for %v", wait, c.plan.at-s.end)
			return
		}
	}
}

// These bound what a member loses to the trouble of others.
const (
	strangeWait = 3 * time.Second
	strangePart = 30               // percent of the requests that wait at all
	falseWait   = 11 * time.Second // a return that was only told comes within 10 s
)

// checkNeighbour checks that members whose requests succeed are not stopped by others.
func (w *world) checkNeighbour(h *host, s *scene) {
	longest := strangeWait
	if w.plan.fleet.lied() {
		longest = falseWait
	}
	all, waited := make([]int, len(w.clients)), make([]int, len(w.clients))
	for _, c := range w.calls {
		m := c.plan.member
		if c.plan.host != h.id || c.last || slices.Contains(s.sick, m) {
			continue
		}
		wait, ok := c.waitOf()
		if !ok {
			continue
		}
		hasLess := wait == never && c.plan.deadline > 0 && c.plan.deadline < longest // time than it may have to wait
		if wait > longest && !hasLess {
			w.complain(Stopped, c, "the request waited for %v, while only others were in trouble", wait)
			return
		}
		if all[m]++; wait > s.trip {
			waited[m]++
		}
	}
	for m := range all {
		if all[m] >= 30 && waited[m]*100 > all[m]*strangePart && longest == strangeWait {
			w.complain(Stopped, nil, "%d of %d requests of member %d waited, while only others were in trouble", waited[m], all[m], m)
		}
	}
}

// checkRefused checks that a server which refuses all members gets few requests. Each member
// may send one before it hears of the hold.
func (w *world) checkRefused(h *host, s *scene) {
	f := w.plan.fleet
	if !f.steady(span{0, s.end}) {
		return
	}
	n, known := 0, never
	for _, a := range w.attempts {
		if a.host == h && a.began >= s.begin && known == never {
			known = a.ended + 10*time.Millisecond
		}
		if a.host == h && a.began > known && a.began < s.end && a.call.plan.deadline == 0 { // others may go before the end of the hold
			n++
		}
	}
	if most := len(f.members); n > most {
		w.complain(Hold, nil, "%d requests from %v to %v, when all members were to wait", n, known, s.end)
	}
}
