// The quotas of a scope, and what responses tell of them.

package pacing

import (
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// maxUnits bounds the windows of a scope.
const maxUnits = 8

// A quota is the record of a scope, with a window for each unit. A request waits for all of
// them, in a single queue.
type quota struct {
	windows []*window
	passed  uint64 // the last mark
	spent   uint64 // the cost of all requests that passed
	queue   queue.Queue
}

// window returns the window of a unit, and makes it if there is none. It returns nil if there
// are too many units.
func (q *quota) window(unit string) *window {
	if i := slices.IndexFunc(q.windows, func(v *window) bool { return v.Unit == unit }); i >= 0 {
		return q.windows[i]
	}
	if len(q.windows) >= maxUnits {
		return nil
	}
	v := &window{Window: Window{Unit: unit}}
	q.windows = append(q.windows, v)
	return v
}

// Spare is for [queue.Scopes].
func (q *quota) Spare() (end instant.Instant, ok bool) {
	for _, v := range q.windows {
		end = max(end, v.End)
	}
	return end, q.queue.Len() == 0
}

// roll begins the next window of each unit if the present window is over, and reports whether any
// window is running.
func (q *quota) roll(now instant.Instant) (running bool) {
	for _, v := range q.windows {
		running = v.roll(now) || running
	}
	return running
}

// until returns when w may go as far as is known, or Never if somebody is before it.
func (q *quota) until(now instant.Instant, w *queue.Waiter, c Config) (at instant.Instant) {
	if !q.queue.Turn(w) {
		return instant.Never
	}
	for _, v := range q.windows {
		at = max(at, v.Until(now, w.Costs(), c))
	}
	return at
}

// take counts w, which goes.
func (q *quota) take(now instant.Instant, w *queue.Waiter, c Config) {
	q.passed++
	q.spent += uint64(w.Costs())
	for _, v := range q.windows {
		if now < v.End {
			v.Take(now, w.Costs(), c)
		}
	}
}

// A window is a Window and what is known of the responses that named it. The lock of its Pacing guards it.
type window struct {
	Window
	length  time.Duration // the longest time to the end that the server named
	guessed bool          // the server did not name this window
	asked   uint64        // the mark of the latest request whose response is known
}

// note takes in a response.
func (q *quota) note(now instant.Instant, pass Pass, n field.Quota, c Config) {
	v := q.window(n.Unit)
	if v == nil {
		return
	}
	end := EndOf(now, n)
	mark := min(pass.Mark, q.passed)
	before, newest := v.Left, mark > v.asked
	same := now < v.End && !v.guessed && v.EndsAt(end)
	remaining, limit := n.Remaining, n.Limit
	if newest {
		remaining = max(0, remaining-v.taken(q, mark, pass.Spent))
		v.asked = mark
	}
	switch {
	case same && newest:
		v.Left, v.Limit = remaining, limit
	case same:
		v.Left, v.Limit = min(v.Left, remaining), max(v.Limit, limit)
	case now < v.End && v.guessed && !newest:
		// The window was guessed. The server did not count all requests that
		// passed in it meanwhile.
		v.Left, v.Limit = min(v.Left, remaining), limit
		v.End, v.next, v.guessed = end, 0, false
	case now < v.End && !newest && (end < v.End || now < v.End.Add(-Slack)):
		return // a late response of an earlier window, or of a window that cannot have begun
	default:
		// The response names another window.
		v.Begin(now, end, remaining, limit)
		v.length, v.guessed = 0, false
	}
	v.length = max(v.length, end.Sub(now))
	v.Pace(now, before, c)
}

// taken returns how much of the quota the requests took that passed after a request.
func (v *window) taken(q *quota, mark, spent uint64) int64 {
	if v.Unit == "" {
		return int64(min(q.passed-mark, maxQuota))
	}
	return int64(min(q.spent-min(spent, q.spent), maxQuota))
}

// roll begins the next window if the present window is over, and reports whether a
// window is running.
func (v *window) roll(now instant.Instant) bool {
	switch {
	case now < v.End:
		return true
	case v.guessed || now.Sub(v.End) >= v.length:
		return false
	}
	v.Begin(now, v.End.Add(v.length), v.Limit, v.Limit)
	v.guessed = true
	return true
}
