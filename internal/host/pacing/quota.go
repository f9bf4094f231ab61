// The quotas of a scope, and each in its window.

package pacing

import (
	"slices"
	"time"

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

// worth returns how much the quota is missed if it is dropped: 0 if its windows are over, 1 if they
// are not, and 2 if somebody waits.
func (q *quota) worth(now instant.Instant) queue.Worth {
	w := queue.Worth{End: q.end()}
	switch {
	case q.queue.Len() > 0:
		w.Class = 2
	case now < w.End:
		w.Class = 1
	}
	return w
}

// roll begins the next window of each unit if the present window is over, and reports whether any
// window is running.
func (q *quota) roll(now instant.Instant) (running bool) {
	for _, v := range q.windows {
		running = v.roll(now) || running
	}
	return running
}

// passes reports whether w may go, and counts it.
func (q *quota) passes(now instant.Instant, w *queue.Waiter, c Config) bool {
	if !q.queue.Turn(w) || now < q.until(now, w, c) {
		return false
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

// until returns when w, which is the first, may go as far as is known.
func (q *quota) until(now instant.Instant, w *queue.Waiter, c Config) (at instant.Instant) {
	for _, v := range q.windows {
		at = max(at, v.until(now, w, c))
	}
	return at
}

// A window is a quota until its reset, as far as it is known. The lock of its Pacing guards it.
type window struct {
	unit    string
	end     instant.Instant // when the window ends
	length  time.Duration   // the longest time to the end that the server named
	left    int64
	limit   int64
	price   int64           // of the last request that passed; 0: there was none
	last    instant.Instant // when it passed, or when the window was named
	next    instant.Instant // when the next request may go, if the requests are spread
	guessed bool            // the server did not name this window
	asked   uint64          // the mark of the latest request whose response is known
}

// note takes in a response.
func (v *window) note(now instant.Instant, q *quota, pass Pass, n Named, c Config) {
	end := instant.After(now, min(n.Reset, maxReset))
	mark := min(pass.Mark, q.passed)
	before, newest := v.left, mark > v.asked
	same := now < v.end && !v.guessed && end <= v.end.Add(slack) && end >= v.end.Add(-slack)
	remaining, limit := n.Remaining, n.Limit
	if newest {
		remaining = max(0, remaining-v.taken(q, mark, pass.Spent))
		v.asked = mark
	}
	switch {
	case same && newest:
		v.left, v.limit = remaining, limit
	case same:
		v.left, v.limit = min(v.left, remaining), max(v.limit, limit)
	case now < v.end && v.guessed && !newest:
		// The window was guessed. The server did not count all requests that
		// passed in it meanwhile.
		v.left, v.limit = min(v.left, remaining), limit
		v.end, v.next, v.guessed = end, 0, false
	case now < v.end && !newest && (end < v.end || now < v.end.Add(-slack)):
		return // a late response of an earlier window, or of a window that cannot have begun
	default:
		// The response names another window.
		v.end, v.length, v.left, v.limit = end, 0, remaining, limit
		v.next, v.last, v.guessed = 0, now, false
	}
	v.length = max(v.length, end.Sub(now))
	v.pace(now, before, c)
}

// taken returns how much of the quota the requests took that passed after a request.
func (v *window) taken(q *quota, mark, spent uint64) int64 {
	if v.unit == "" {
		return int64(min(q.passed-mark, maxQuota))
	}
	return int64(min(q.spent-min(spent, q.spent), maxQuota))
}

// count returns how much a request of a cost takes from the quota.
func (v *window) count(cost int) int64 {
	if v.unit == "" {
		return 1
	}
	return max(1, min(int64(cost), v.limit))
}

// plenty reports whether a request that takes n need not wait.
func (v *window) plenty(n int64) bool { return v.left > v.limit/share && v.left >= n }

// until returns until when w has to wait.
func (v *window) until(now instant.Instant, w *queue.Waiter, c Config) instant.Instant {
	n := v.count(w.Costs())
	if now >= v.end || v.plenty(n) {
		return now
	}
	next := v.next
	if n > max(v.left, 1) {
		next = max(next, instant.After(v.last, c.maxWait()))
	}
	return min(next, v.end)
}

// take counts a request that goes.
func (v *window) take(now instant.Instant, cost int, c Config) {
	plenty := v.left > v.limit/share
	v.price, v.last = v.count(cost), now
	v.left = max(0, v.left-v.price)
	if !plenty {
		v.next = instant.After(now, v.gap(now, c))
	}
}

// pace computes when the next request may go.
func (v *window) pace(now instant.Instant, before int64, c Config) {
	switch {
	case v.left > 0: // more may be left than when v.next was computed
		v.next = min(v.next, instant.After(now, v.gap(now, c)))
	case before > 0 || v.next <= now:
		v.next = min(v.end, instant.After(now, c.maxWait()))
	}
}

// gap returns the time after the last request with which requests like it would use up the
// quota just at the end of the window.
func (v *window) gap(now instant.Instant, c Config) time.Duration {
	price := max(v.price, 1)
	each := v.end.Sub(now) / time.Duration(v.left+price)
	return min(min(each, instant.Forever/time.Duration(price))*time.Duration(price), c.maxWait())
}

// roll begins the next window if the present window is over, and reports whether a
// window is running.
func (v *window) roll(now instant.Instant) bool {
	switch {
	case now < v.end:
		return true
	case v.guessed || now.Sub(v.end) >= v.length:
		return false
	}
	v.end = v.end.Add(v.length)
	v.left, v.next, v.last, v.guessed = v.limit, 0, now, true
	return true
}
