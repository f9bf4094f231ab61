// Quotas that several members use.

package member

import (
	"slices"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const (
	// deafTime is how long a fleet is not believed that spoke of a quota and was wrong.
	deafTime = 10 * time.Second

	maxUnits = 8           // of a scope
	sweep    = time.Second // the least time between two searches for quotas that are over
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
// At most 256 scopes are kept. If there are more, a scope without waiters makes room, as [queue.Scopes] says.
type quotas struct {
	mu     sync.Mutex // the lock, if a comment says that it is held; guards the fields below and every waiter in a queue
	scopes queue.Scopes[*quota]
	deaf   instant.Instant // the fleet is not believed before this time
	swept  instant.Instant
}

// A quota is that of a scope, in some units.
type quota struct {
	windows []*window
	queue   queue.Queue
}

// A window is that of a unit.
type window struct {
	pacing.Window
	heard instant.Instant // when the fleet spoke of it first
	own   bool            // a response to this member named it
}

// of returns the window of a unit, or nil.
func (q *quota) of(unit string) *window {
	if i := slices.IndexFunc(q.windows, func(v *window) bool { return v.Unit == unit }); i >= 0 {
		return q.windows[i]
	}
	return nil
}

// Spare is for [queue.Scopes].
func (q *quota) Spare() (end instant.Instant, ok bool) {
	for _, v := range q.windows {
		end = max(end, v.End)
	}
	return end, q.queue.Len() == 0
}

// heard notes a quota that the fleet says so many members use. It reports false if the fleet is not believed, or if there is no room.
func (s *quotas) heard(now instant.Instant, scope uint64, n field.Quota, members int, c pacing.Config) bool {
	s.mu.Lock()
	var next *queue.Waiter
	defer func() { s.mu.Unlock(); next.Wake() }()
	s.tidy(now)
	if now < s.deaf {
		return false
	}
	q, known := s.scopes.All()[scope]
	if !known {
		if q = new(quota); !s.scopes.Add(scope, q) {
			return false
		}
	}
	end := pacing.EndOf(now, n)
	v, before := q.of(n.Unit), int64(0)
	if v == nil {
		if len(q.windows) >= maxUnits {
			return false
		}
		v = &window{}
		q.windows = append(q.windows, v)
	}
	switch {
	case now >= v.End:
		*v = window{Window: pacing.Window{Unit: n.Unit}, heard: now}
		v.Begin(now, end, n.Remaining, max(n.Limit, n.Remaining))
	case v.EndsAt(end):
		before, v.Left, v.Limit = v.Left, min(v.Left, n.Remaining), max(v.Limit, n.Limit)
	case end < v.End || now < v.End.Add(-pacing.Slack):
		return false // of an earlier window, or of one that cannot have begun
	}
	v.Others = int64(members - 1)
	v.Pace(now, before, c)
	next = q.queue.First()
	return true
}

// named notes the quotas that a response to a request of this member names.
func (s *quotas) named(now instant.Instant, scope uint64, sent instant.Instant, all []field.Quota, success bool, c pacing.Config) {
	s.mu.Lock()
	var next *queue.Waiter
	defer func() { s.mu.Unlock(); next.Wake() }()
	for _, n := range all {
		if n.Reset > 0 {
			s.deaf = 0
		}
	}
	q, wrong := s.scopes.All()[scope], false
	if q == nil {
		q = &quota{}
	}
	for _, n := range all {
		v, end := q.of(n.Unit), pacing.EndOf(now, n)
		if v == nil || n.Reset <= 0 || now >= v.End {
			continue
		}
		before := v.Left
		if v.own = true; v.EndsAt(end) {
			v.End, v.Left, v.Limit = end, n.Remaining, max(n.Limit, n.Remaining)
		} else {
			v.Others = 0 // of another window the fleet has said nothing
			v.Begin(now, end, n.Remaining, max(n.Limit, n.Remaining))
		}
		v.Pace(now, before, c)
	}
	for _, v := range q.windows {
		names := func(n field.Quota) bool { return n.Unit == v.Unit }
		if success && !v.own && sent > v.heard && now < v.End && !slices.ContainsFunc(all, names) {
			v.End, wrong = now, true
		}
	}
	if success && len(all) == 0 && (wrong || now < s.deaf) {
		s.deaf = now.Add(deafTime)
	}
	next = q.queue.First()
}

// enter asks for a request to pass. With Wait it joins the queue of its scope.
func (s *quotas) enter(now instant.Instant, scope uint64, w *queue.Waiter, c pacing.Config) queue.Answer {
	s.mu.Lock()
	var next *queue.Waiter
	defer func() { s.mu.Unlock(); next.Wake() }()
	s.tidy(now)
	q := s.scopes.All()[scope]
	if q == nil {
		return queue.Answer{}
	}
	half, at := beforeEnd(w, 2), instant.Never
	if q.queue.Turn(w) {
		at = now
		for _, v := range q.windows {
			at = max(at, v.Until(now, w.Costs(), c))
		}
	}
	if now < at && now < half {
		q.queue.Join(w)
		return queue.Answer{Verb: queue.Wait, Ask: min(at, half)}
	}
	for _, v := range q.windows {
		v.Take(now, w.Costs(), c)
	}
	q.queue.Leave(w)
	next = q.queue.First()
	return queue.Answer{}
}

// has reports whether a request waits for a quota.
func (s *quotas) has(scope uint64, w *queue.Waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.scopes.All()[scope]
	return q != nil && q.queue.Has(w)
}

// leave takes a request out of its queue, and reports whether it was there.
func (s *quotas) leave(scope uint64, w *queue.Waiter) bool {
	s.mu.Lock()
	var next *queue.Waiter
	defer func() { s.mu.Unlock(); next.Wake() }()
	q := s.scopes.All()[scope]
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
	for scope, q := range s.scopes.All() {
		if end, ok := q.Spare(); ok && now >= end {
			s.scopes.Drop(scope)
		}
	}
}
