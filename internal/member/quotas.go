// Quotas that several members use.

package member

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const (
	// deafTime is how long a fleet is not believed that spoke of a quota and was wrong.
	deafTime = 10 * time.Second

	// slack is how far apart two named ends of the same window may be. Servers name them in whole seconds.
	slack = 1500 * time.Millisecond

	maxUnits = 8              // of a scope
	maxReset = 24 * time.Hour // a longer window is cut to that
	sweep    = time.Second    // the least time between two searches for quotas that are over
)

// quotas are those of which a fleet has said that others use them, too. A quota that this member alone is told stays with its
// pacing. The rules:
//
//   - Requests are spread as by the pacing, but each member goes as if all others sent as many.
//   - A response to this member is believed. The word of others on the same window can only lower the rest.
//   - A request waits for half of its time at most.
//   - If a request succeeds and its response names no quota, the fleet is not believed for 10 s from the last such success, or until
//     a response names a quota.
//
// At most 256 scopes are kept.
type quotas struct {
	n atomic.Int32 // len(scopes), to be read without the lock

	mu     sync.Mutex // the lock, if a comment says that it is held; guards the fields below and every waiter in a queue
	scopes map[uint64]*quota
	deaf   instant.Instant // the fleet is not believed before this time
	swept  instant.Instant
}

// A quota is that of a scope, in some units.
type quota struct {
	windows []*window
	queue   queue.Queue
}

// A window is a quota until its reset, as far as it is known.
type window struct {
	unit        string
	end         instant.Instant
	left, limit int64
	members     int             // that use it
	heard       instant.Instant // when the fleet spoke of it first
	own         bool            // a response to this member named it
	price       int64           // of the last request that passed; 0: there was none
	last        instant.Instant // when it passed, or when the window was named
	next        instant.Instant // when the next request may go, if they are spread
}

// of returns the window of a unit, or nil.
func (q *quota) of(unit string) *window {
	if i := slices.IndexFunc(q.windows, func(v *window) bool { return v.unit == unit }); i >= 0 {
		return q.windows[i]
	}
	return nil
}

// heard notes a quota that the fleet says so many members use. It reports false if the fleet is not believed, or if there is no room.
func (s *quotas) heard(now instant.Instant, scope uint64, n field.Quota, members int, longest time.Duration) bool {
	s.mu.Lock()
	var next *queue.Waiter
	defer func() { s.mu.Unlock(); next.Wake() }()
	s.tidy(now)
	q := s.scopes[scope]
	if now < s.deaf || q == nil && len(s.scopes) >= queue.MaxScopes {
		return false
	}
	if q == nil {
		q = &quota{}
		s.scopes[scope] = q
		s.n.Store(int32(len(s.scopes)))
	}
	end := instant.After(now, min(n.Reset, maxReset))
	v, before := q.of(n.Unit), int64(0)
	if v == nil {
		if len(q.windows) >= maxUnits {
			return false
		}
		v = &window{unit: n.Unit}
		q.windows = append(q.windows, v)
	}
	switch {
	case now >= v.end:
		*v = window{unit: n.Unit, end: end, left: n.Remaining, limit: max(n.Limit, n.Remaining), heard: now, last: now}
	case end >= v.end.Add(-slack) && end <= v.end.Add(slack):
		before, v.left, v.limit = v.left, min(v.left, n.Remaining), max(v.limit, n.Limit)
	case end < v.end || now < v.end.Add(-slack):
		return false // of an earlier window, or of one that cannot have begun
	}
	v.members = members
	v.pace(now, before, longest)
	next = q.queue.First()
	return true
}

// named notes the quotas that a response to a request of this member names.
func (s *quotas) named(now instant.Instant, scope uint64, sent instant.Instant, all []field.Quota, success bool, longest time.Duration) {
	s.mu.Lock()
	var next *queue.Waiter
	defer func() { s.mu.Unlock(); next.Wake() }()
	for _, n := range all {
		if n.Reset > 0 {
			s.deaf = 0
		}
	}
	q, wrong := s.scopes[scope], false
	if q == nil {
		q = &quota{}
	}
	for _, n := range all {
		v, end := q.of(n.Unit), instant.After(now, min(n.Reset, maxReset))
		if v == nil || n.Reset <= 0 || now >= v.end {
			continue
		}
		if end < v.end.Add(-slack) || end > v.end.Add(slack) {
			v.members, v.next = 1, 0 // another window, of which the fleet has said nothing
		}
		before := v.left
		v.end, v.left, v.limit, v.own = end, n.Remaining, max(n.Limit, n.Remaining), true
		v.pace(now, before, longest)
	}
	for _, v := range q.windows {
		names := func(n field.Quota) bool { return n.Unit == v.unit }
		if success && !v.own && sent > v.heard && now < v.end && !slices.ContainsFunc(all, names) {
			v.end, wrong = now, true
		}
	}
	if success && len(all) == 0 && (wrong || now < s.deaf) {
		s.deaf = now.Add(deafTime)
	}
	next = q.queue.First()
}

// pace computes when the next request may go, after something new is known of the window, of which so much was left before.
func (v *window) pace(now instant.Instant, before int64, longest time.Duration) {
	switch at := instant.After(now, v.gap(now, longest)); {
	case v.left > 0: // more may be left than when v.next was computed
		v.next = min(v.next, at)
	case before > 0 || v.next <= now:
		v.next = at
	}
}

// gap returns the time after the last request with which the members use up the quota just at the end of the window, if all go on
// with requests like it.
func (v *window) gap(now instant.Instant, longest time.Duration) time.Duration {
	rest, price := v.end.Sub(now), max(v.price, 1)
	each := float64(rest) / float64(v.left+price) * float64(price) * float64(v.members)
	return min(time.Duration(min(each, float64(rest))), longest)
}

// count returns how much a request of a cost takes.
func (v *window) count(cost int) int64 {
	if v.unit == "" {
		return 1
	}
	return max(1, min(int64(cost), v.limit))
}

// free reports whether a request that takes n need not wait.
func (v *window) free(now instant.Instant, n int64) bool {
	return now >= v.end || v.left >= n && !pacing.Low(v.left, v.limit)
}

// until returns when a request of a cost may go.
func (q *quota) until(now instant.Instant, cost int, longest time.Duration) (at instant.Instant) {
	for _, v := range q.windows {
		n, next := v.count(cost), v.next
		if v.free(now, n) {
			continue
		}
		if n > max(v.left, 1) {
			next = max(next, instant.After(v.last, longest))
		}
		at = max(at, min(next, v.end))
	}
	return at
}

// enter asks for a request to pass. With Wait it joins the queue of its scope.
func (s *quotas) enter(now instant.Instant, scope uint64, w *queue.Waiter, longest time.Duration) queue.Answer {
	s.mu.Lock()
	var next *queue.Waiter
	defer func() { s.mu.Unlock(); next.Wake() }()
	s.tidy(now)
	q := s.scopes[scope]
	if q == nil {
		return queue.Answer{}
	}
	half, at := beforeEnd(w, 2), instant.Never
	if q.queue.Turn(w) {
		at = q.until(now, w.Costs(), longest)
	}
	if now < at && now < half {
		q.queue.Join(w)
		return queue.Answer{Verb: queue.Wait, Ask: min(at, half)}
	}
	for _, v := range q.windows {
		low := pacing.Low(v.left, v.limit)
		v.price, v.last = v.count(w.Costs()), now
		if v.left = max(0, v.left-v.price); low {
			v.next = instant.After(now, v.gap(now, longest))
		}
	}
	q.queue.Leave(w)
	next = q.queue.First()
	return queue.Answer{}
}

// has reports whether a request waits for a quota.
func (s *quotas) has(scope uint64, w *queue.Waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.scopes[scope]
	return q != nil && q.queue.Has(w)
}

// leave takes a request out of its queue, and reports whether it was there.
func (s *quotas) leave(scope uint64, w *queue.Waiter) bool {
	s.mu.Lock()
	var next *queue.Waiter
	defer func() { s.mu.Unlock(); next.Wake() }()
	q := s.scopes[scope]
	if q == nil || !q.queue.Has(w) {
		return false
	}
	next = q.queue.Leave(w)
	return true
}

// tidy drops the quotas that are over and for which nobody waits, once a second at most; the lock is held.
func (s *quotas) tidy(now instant.Instant) {
	if now.Sub(s.swept) < sweep {
		return
	}
	s.swept = now
	for scope, q := range s.scopes {
		over := !slices.ContainsFunc(q.windows, func(v *window) bool { return now < v.end })
		if over && q.queue.Len() == 0 {
			delete(s.scopes, scope)
		}
	}
	s.n.Store(int32(len(s.scopes)))
}
