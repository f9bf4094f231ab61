// Checks of the figures of a scene.

package simulate

import (
	"cmp"
	"slices"
	"time"
)

// waitsOf returns how long the calls of the scene that keep allows waited for their first
// attempt, sorted.
func (w *world) waitsOf(h *host, s *scene, keep func(*call) bool) (waits []time.Duration) {
	for _, c := range w.calls {
		if c.plan.host != h.id || c.last || c.plan.at < s.begin || !keep(c) {
			continue
		}
		if len(c.attempts) > 0 {
			waits = append(waits, c.attempts[0].began-c.plan.at)
		} else {
			waits = append(waits, never)
		}
	}
	slices.Sort(waits)
	return waits
}

// These are the rules of Cooldown about a used-up quota. Two probes doubt the first
// refusal, and there is no third probe. A success adds 1 to the doubt, and a refusal takes 2
// away. Without doubt a hold stands at once.
const (
	inARow      = 3 // refusals one after another
	mostDoubt   = 12
	leastDoubt  = 4 // responses of the same moment may count in any order
	refusalCost = 2
)

// checkInnocent checks that refusals at random hardly delay the requests that are not
// refused themselves. Requests that a confirmed hold kept waiting do not count.
func (w *world) checkInnocent(h *host, s *scene) {
	confirmed := w.confirmed(h, s)
	waits := w.waitsOf(h, s, func(c *call) bool {
		held := slices.ContainsFunc(confirmed, func(p span) bool { return p.from <= c.plan.at && c.plan.at < p.until })
		return !held && !c.anyAttempt(func(s *attempt) bool { return s.status == 429 })
	})
	n := len(waits)
	if n < 100 {
		return // a shortened story says nothing about percentiles
	}
	if p95 := waits[n*95/100]; p95 > 10*s.trip {
		w.complain(Innocent, nil, "a twentieth of the requests that were not refused waited for %v or more, with %d %% refused", p95, s.percent)
	}
}

// confirmed returns the times of the holds that the refusals have confirmed. Each time goes
// from the first response of a row to the end of the return, with the jitter and the ramp.
func (w *world) confirmed(h *host, s *scene) (holds []span) {
	var attempts []*attempt
	for _, a := range w.attempts {
		if a.host == h && a.ended < never {
			attempts = append(attempts, a)
		}
	}
	hold := func(from time.Duration, last *attempt) {
		holds = append(holds, span{from, last.ended + last.told + min(last.told/2, time.Second) + 10*s.trip})
	}
	slices.SortStableFunc(attempts, func(a, b *attempt) int { return cmp.Compare(a.ended, b.ended) })
	doubt := mostDoubt
	for _, a := range attempts {
		if a.status != 429 {
			doubt = min(doubt+1, mostDoubt)
			continue
		}
		if doubt = max(0, doubt-refusalCost); doubt < leastDoubt {
			hold(a.ended, a)
		}
	}
	slices.SortStableFunc(attempts, func(a, b *attempt) int { return cmp.Compare(a.began, b.began) })
	var first, last *attempt
	row := 0
	for _, a := range attempts {
		switch {
		case a.status != 429:
			if row > 0 && a.began > last.ended { // a success that was under way says nothing
				row = 0
			}
			continue
		case row == 0:
			row, first, last = 1, a, a
		case a.began >= last.ended: // it was sent although the refusals before it were known
			row++
		}
		if a.ended > last.ended {
			last = a
		}
		if row >= inARow {
			hold(first.ended, last)
		}
	}
	return holds
}
