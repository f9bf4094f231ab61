// Questions for tokens of the rate of a host.

package member

import (
	"math/rand/v2"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// Ask asks the fleet for the tokens that requests wait for. A request that is alone may be refused because the member's own part of
// the rate is small. If it asked for nothing, the member would never learn that the fleet is back.
func (h *host) Ask(now, by instant.Instant, alone bool) {
	if !h.tokens.mayAsk(now) {
		return
	}
	waiting := h.waiting()
	if alone {
		waiting = max(waiting, 1)
	}
	if h.tokens.share(now, h.member.members()) {
		h.wake()
	}
	if q, ok := h.tokens.ask(now, waiting, h.member.answerTime(now, by), rand.Float64()); ok {
		m := q.message(fleetmsg.AskTokens, h.rule.Load().unit)
		m.Wait, m.Spent = q.silence, float64(q.spent)
		h.tell(m)
	}
}

// message returns a message about tokens.
func (q question) message(k fleetmsg.Kind, unit string) fleetmsg.Message {
	return fleetmsg.Message{Kind: k, Unit: unit, PerSecond: q.rate.PerSecond, Burst: float64(q.rate.Burst), Amount: float64(q.want)}
}

// waiting returns how many tokens the requests that wait can use now. Tokens that wait with them for a slot would be lost to the other
// members.
func (h *host) waiting() int {
	g := h.made().State()
	if free := g.Limit - g.InFlight; free < g.Waiting+g.ForRate {
		return max(1, free)
	}
	return g.Cost
}

// wake wakes who waits for the rate.
func (h *host) wake() {
	if limiter := h.made(); limiter != nil {
		limiter.WakeFirst()
	}
}

// hearTokens takes the answer of the fleet.
func (h *host) hearTokens(now instant.Instant, m fleetmsg.Message) {
	if m.Unit == h.rule.Load().unit {
		h.tokens.grant(now, wholeInt(m.Amount), now.Add(m.First), m.Every, now.Add(m.Wait))
		h.wake()
	}
}

// giveBack gives the tokens that were not used back to the fleet.
func (h *host) giveBack() {
	if q := h.tokens.giveBack(h.member.clock.Now()); q.want > 0 {
		h.tell(q.message(fleetmsg.Unused, h.rule.Load().unit))
	}
}
