// The quota of a scope in a window.

package pacing

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A quota is the record of the window of a scope.
type quota struct {
	end     instant.Instant // when the window ends
	length  time.Duration   // the longest time to the end that the server named
	left    int64
	limit   int64
	next    instant.Instant // when the next request may go, if the requests are spread
	guessed bool            // the server did not name this window
	passed  uint64          // the last mark; it counts on from Pacing.passed, so that no mark comes twice
	asked   uint64          // the mark of the latest request whose response is known
	members int             // of a fleet that use the quota in this window; 0 counts as 1
	named   bool            // a response to this member named this window
	heard   bool            // a fleet said that less is left than this member knew
	since   uint64          // passed when the fleet named the window
	queue   queue.Queue
}

// note takes in a response; the lock is held.
func (q *quota) note(now, end instant.Instant, mark uint64, remaining, limit int64, members int, c Config) {
	mark = min(mark, q.passed)
	before, newest := q.left, mark > q.asked
	same := now < q.end && !q.guessed && end <= q.end.Add(slack) && end >= q.end.Add(-slack)
	if newest {
		remaining = max(0, remaining-int64(q.passed-mark))
		q.asked = mark
	}
	hearsay := q.hearsay()
	switch {
	case same && newest:
		q.left, q.limit, q.heard = remaining, limit, false
		q.length = max(q.length, end.Sub(now))
	case same:
		q.heard = q.heard || members > 0 && remaining < q.left
		q.left, q.limit = min(q.left, remaining), max(q.limit, limit)
		q.length = max(q.length, end.Sub(now))
	case now < q.end && q.guessed && !newest:
		// The window was guessed. The server did not count all requests that
		// passed in it meanwhile.
		q.left, q.limit = min(q.left, remaining), limit
		q.end, q.next, q.guessed = end, 0, false
		q.length = max(q.length, end.Sub(now))
		q.begin(members)
	case now < q.end && !newest && (members > 0 || !hearsay) && (end < q.end || now < q.end.Add(-slack)):
		return // a late response of an earlier window, or of a window that cannot have begun
	default:
		// The response names another window.
		q.end, q.length, q.left, q.limit, q.members = end, end.Sub(now), remaining, limit, members
		q.next, q.guessed = 0, false
		q.begin(members)
	}
	q.named = q.named || members == 0
	q.pace(now, before, c)
}

// begin notes who named a window first.
func (q *quota) begin(members int) {
	q.named, q.heard = members == 0, members > 0
	if q.heard {
		q.since = q.passed
	}
}

// hearsay reports whether only a fleet named the window.
func (q *quota) hearsay() bool { return q.heard && !q.named }

// slowed reports whether requests may have to wait for longer because of a fleet.
func (q *quota) slowed() bool { return q.heard || q.members > 1 && q.left > 0 }

// until returns until when w has to wait. It waits for half of its time at most for the
// word of a fleet, so that the fleet fails no request.
func (q *quota) until(w *queue.Waiter) instant.Instant {
	if w != nil && q.slowed() && w.By > 0 && w.By <= min(q.next, q.end) {
		return w.Half()
	}
	return q.next
}

// maxWait returns the longest wait between two requests.
func (q *quota) maxWait(c Config) time.Duration {
	if q.slowed() {
		return min(c.maxWait(), queue.MaxHeard)
	}
	return c.maxWait()
}

// pace computes when the next request may go; the lock is held.
func (q *quota) pace(now instant.Instant, before int64, c Config) {
	switch {
	case q.left > 0: // more may be left than when q.next was computed
		q.next = min(q.next, instant.After(now, q.gap(now, c)))
	case before > 0 || q.next <= now:
		q.next = min(q.end, instant.After(now, q.maxWait(c)))
	}
}

// gap returns the time between requests that would use up the quota just at the end
// of the window.
func (q *quota) gap(now instant.Instant, c Config) time.Duration {
	each := q.end.Sub(now) / time.Duration(q.left+1)
	if q.members > 1 {
		each = min(each, instant.Forever/time.Duration(q.members)) * time.Duration(q.members)
	}
	return min(each, q.maxWait(c))
}

// roll begins the next window if the present one is over, and reports whether a
// window is running; the lock is held.
func (q *quota) roll(now instant.Instant) bool {
	switch {
	case now < q.end:
		return true
	case q.guessed || now.Sub(q.end) >= q.length:
		return false
	}
	q.end = q.end.Add(q.length)
	q.left, q.next, q.guessed, q.members, q.heard = q.limit, 0, true, 0, q.hearsay()
	return true
}

// passes reports whether another request may go, and counts it; the lock is held.
func (q *quota) passes(now instant.Instant, w *queue.Waiter, c Config) bool {
	plenty := q.left > q.limit/share
	if !plenty && now < q.until(w) {
		return false
	}
	q.passed++
	q.left = max(0, q.left-1)
	if !plenty {
		q.next = instant.After(now, q.gap(now, c))
	}
	return true
}
