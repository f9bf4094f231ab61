// The quotas of a scope.

package pacing

import (
	"slices"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// maxUnits bounds the windows of a scope.
const maxUnits = 8

// A quota is the record of a scope, with a window for each unit. A request waits for all of
// them, in a single queue.
type quota struct {
	windows []*window
	passed  uint64 // the last mark; it counts on from kept.passed, so that no mark comes twice
	from    uint64 // passed when the scope came
	spent   uint64 // the cost of all requests that passed
	queue   queue.Queue
}

// window returns the window of a unit, and makes it if there is none. It returns nil if there
// are too many units.
func (q *quota) window(unit string) *window {
	if i := slices.IndexFunc(q.windows, func(v *window) bool { return v.unit == unit }); i >= 0 {
		return q.windows[i]
	}
	if len(q.windows) >= maxUnits {
		return nil
	}
	v := &window{unit: unit, asked: q.from}
	q.windows = append(q.windows, v)
	return v
}

// end returns when the last of the windows ends or ended.
func (q *quota) end() (end instant.Instant) {
	for _, v := range q.windows {
		end = max(end, v.end)
	}
	return end
}

// worth returns how much the quota is missed if it is dropped: 0 if its windows are over, 1 if only
// a fleet named them, 2 if this member was told of them, and 3 if somebody waits.
func (q *quota) worth(now instant.Instant) queue.Worth {
	w := queue.Worth{Class: 2, End: q.end()}
	switch {
	case q.queue.Len() > 0:
		w.Class = 3
	case now >= w.End:
		w.Class = 0
	case q.hearsay():
		w.Class = 1
	}
	return w
}

// overtaking returns when a waiter that is not the first looks whether it overtakes. A fleet
// may speak while it waits, which wakes only the first.
func overtaking(now instant.Instant, w *queue.Waiter) instant.Instant {
	if w != nil && w.By > 0 {
		for _, at := range []instant.Instant{w.Half(), w.Late()} {
			if now < at {
				return at
			}
		}
	}
	return instant.Never
}

// overtakes reports whether w goes before its turn, because it has waited for long enough for
// the word of a fleet, and nothing else holds it.
func (q *quota) overtakes(now instant.Instant, w *queue.Waiter) bool {
	if w == nil || w.By <= 0 || now < w.Half() {
		return false
	}
	slowed := false
	for _, v := range q.windows {
		switch {
		case v.slowed():
			slowed = true
		case now < v.end && !v.plenty(v.count(w.Costs())):
			return false
		}
	}
	return slowed
}

// hearsay reports whether only a fleet named the windows.
func (q *quota) hearsay() bool {
	for _, v := range q.windows {
		if !v.hearsay() {
			return false
		}
	}
	return true
}

// roll begins the next window of each unit if the present one is over, and reports whether any
// window is running.
func (q *quota) roll(now instant.Instant) (running bool) {
	for _, v := range q.windows {
		running = v.roll(now) || running
	}
	return running
}

// passes reports whether w may go, and counts it.
func (q *quota) passes(now instant.Instant, w *queue.Waiter, c Config) bool {
	turn := q.queue.Turn(w)
	for _, v := range q.windows {
		if now < v.until(now, w, turn, c) {
			return false
		}
	}
	q.passed++
	q.spent += uint64(w.Costs())
	for _, v := range q.windows {
		if now < v.end {
			v.take(now, w.Costs(), c)
		}
	}
	return true
}

// until returns when w, which is the first, may go as far as is known, and whether
// it may be sooner for a fleet's word.
func (q *quota) until(now instant.Instant, w *queue.Waiter, c Config) (at instant.Instant, slowed bool) {
	at = now
	for _, v := range q.windows {
		if own := v.until(now, w, true, c); own > now {
			at, slowed = max(at, own), slowed || v.slowed()
		}
	}
	return at, slowed
}
