// Checks of the figures of a scene.

package simulate

import (
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

// checkInnocent checks that refusals at random delay no request that is not refused itself.
func (w *world) checkInnocent(h *host, s *scene) {
	waits := w.waitsOf(h, s, func(c *call) bool { return !c.anyAttempt(func(s *attempt) bool { return s.status == 429 }) })
	if n := len(waits); n > 0 && waits[n-1] > s.trip {
		w.complain(Innocent, nil, "a request that was not refused waited for %v, with %d %% refused", waits[n-1], s.percent)
	}
}
