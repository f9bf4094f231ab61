// Which request of a scope goes, during a hold and after it.

package cooldown

import (
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// undecided reports whether the hold is in doubt and a response may still end it.
func (h *hold) undecided(now instant.Instant) bool {
	return h.doubt >= minDoubt && now < h.named() && (h.probes < maxProbes || now < h.probeAt)
}

// probe reports whether a request may be let go before the time that the server
// named, and counts it as a probe.
func (h *hold) probe(now instant.Instant) bool {
	if h.doubt < minDoubt || h.probes >= maxProbes || now < h.probeAt {
		return false
	}
	h.probes++
	h.probeAt = instant.After(now, probeWait)
	return true
}

// refusing returns the time that the server named if requests are refused now,
// else zero.
func (h *hold) refusing(now instant.Instant) (named instant.Instant) {
	for i := range h.own {
		if now < h.own[i].refuse && !h.undecided(now) {
			named = max(named, h.own[i].named)
		}
	}
	return named
}

// opens returns when the hold is over for w. The jitter takes at most half of the
// time from the named end to the deadline of w. What only the fleet was told takes at
// most three quarters of the time that w had when it came. If it would take more, w goes
// after half of that time. If a success has ended the hold, there is no named end and no
// jitter.
func (h *hold) opens(w *queue.Waiter) instant.Instant {
	named, own := h.named(), h.ownEnd()
	if w == nil || named == 0 || w.By <= own {
		return h.open
	}
	if named > max(own, w.Late()) {
		return min(h.open, max(own, w.Half()))
	}
	return min(h.open, named.Add(w.By.Sub(named)/2), h.latest(w))
}

// latest returns when w goes whatever comes before it. What only the fleet was told takes three
// quarters of its time at most, with the ramp.
func (h *hold) latest(w *queue.Waiter) instant.Instant {
	if own := h.ownEnd(); w != nil && w.By > 0 && h.heardEnd() > own {
		return max(own, w.Late())
	}
	return instant.Never
}

// over reports whether the ramp has ended.
func (h *hold) over(now instant.Instant) bool { return now >= instant.After(h.open, rampTime) }

// forgotten reports whether nothing has to be remembered any more.
func (h *hold) forgotten(now instant.Instant) bool {
	return h.over(now) && now >= h.deaf && h.queue.Len() == 0
}

// passes reports whether w may go now, and uses up its turn in the ramp.
func (h *hold) passes(now instant.Instant, w *queue.Waiter) bool {
	switch own := h.opens(w); {
	case h.over(now) || now >= h.latest(w):
		return true
	case own < h.open && now >= own:
		return true // its deadline leaves no time to wait for longer
	case now < h.named():
		return w != nil && h.queue.Turn(w) && h.probe(now)
	case now < h.open || !h.queue.Turn(w):
		return false
	case now >= h.next:
		// Turns that nobody used are not saved up. A turn that was used a little
		// late does not delay the next turn.
		if h.next = h.next.Add(rampStep); h.next <= now {
			h.next = now.Add(rampStep)
		}
		return true
	case h.credits > 0:
		h.credits--
		return true
	}
	return false
}

// wait puts w in the queue and tells it when to ask again.
func (h *hold) wait(now instant.Instant, w *queue.Waiter) queue.Answer {
	h.join(w)
	// A waiter that is not first is woken when its turn comes. The end of the
	// ramp is for the case that a waiter before it neither asks nor leaves.
	a := queue.Answer{Verb: queue.Wait, Ask: instant.After(h.open, rampTime), Until: h.named()}
	if now < h.open {
		a.Open = h.open
	}
	first := h.queue.Turn(w)
	if first {
		a.Ask = max(h.open, min(h.next, a.Ask))
		if now >= h.open {
			a.Until = a.Ask
		}
	}
	if own := h.opens(w); own < h.open {
		a.Ask, a.Until = own, min(a.Until, own)
	}
	if w == nil && now < h.named() && h.named() > h.ownEnd() { // its deadline is not known, and may end what only the fleet was told
		a.Until = min(a.Until, h.ownEnd())
	}
	if h.undecided(now) {
		a.Until = 0
		if first {
			a.Ask = min(a.Ask, h.probeAt)
		}
	}
	if h.freeAt > 0 && h.freeAt < a.Until {
		a.Until, a.Open = h.freeAt, h.freeAt
	}
	if h.freeAt > 0 && first {
		a.Ask = min(a.Ask, h.freeAt)
	}
	if latest := h.latest(w); latest < a.Ask {
		a.Ask, a.Until = latest, min(a.Until, latest)
	}
	if w != nil {
		w.Told = a.Ask
	}
	return a
}

// join puts w in the queue. If w is nil or in the queue already, join does nothing.
func (h *hold) join(w *queue.Waiter) {
	if w == nil || h.queue.Has(w) {
		return
	}
	h.queue.Join(w)
	if w.By <= 0 {
		return
	}
	if h.dated == nil {
		h.dated = new(queue.Deadlines)
	}
	h.dated.Add(w)
}

// leave takes w out of the queue. If w was first, leave returns the new first
// waiter.
func (h *hold) leave(w *queue.Waiter) (next *queue.Waiter) {
	if w != nil && h.queue.Has(w) && w.By > 0 {
		h.dated.Remove(w)
	}
	return h.queue.Leave(w)
}

// hurried returns the waiter with the nearest deadline if it has to ask before the
// time that it was told. Either the hold has become longer, and the server now lets
// it go only after its deadline, or the hold has become shorter. All other waiters
// have later deadlines. So they need no news before this waiter goes or leaves.
func (h *hold) hurried() *queue.Waiter {
	w := h.dated.Nearest()
	if w == nil {
		return nil
	}
	if own := h.opens(w); w.By <= h.ownEnd() || own < h.open && own < w.Told {
		return w
	}
	return nil
}
