// Package pacing spreads requests over the quota that the server says is left.
//
//	pacing.go  the rules, and the methods for the owner of a pacing
//	quota.go   the quotas of a scope, and each in its window
package pacing

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const (
	// The last part of a quota, 1 in share, is spread over the
	// rest of its window.
	share = 5

	// slack is how far apart two named ends of the same window may be.
	// Servers name them in whole seconds.
	slack = 1500 * time.Millisecond

	// Larger values from a server are cut to these.
	maxReset = 24 * time.Hour
	maxQuota = 1 << 40
)

// A Config bounds pacing.
type Config struct {
	// MaxWait is the longest time between two requests, even if the quota
	// is used up until much later. So a wrong header cannot stop a host for
	// longer. The default is 1 min. A negative MaxWait means no bound.
	MaxWait time.Duration
}

// A Pacing spreads requests over the quota that the server says is left (RateLimit
// of the IETF draft, X-RateLimit-Remaining and -Reset), for each scope by itself.
// The rules:
//
//   - While more than a fifth of the quota is left, no request waits. From then on
//     the remaining requests are spread evenly over the rest of the window. If
//     none is left, the next request goes at the end of the window.
//   - The response to the request that passed last is believed, whatever was known
//     before. Requests that have passed since are subtracted. So a wrong response
//     counts until the next response.
//   - Responses overtake each other. The response to an earlier request can only
//     lower the quota of the same window. If it names another window, it is
//     ignored, unless the known window is about to end.
//   - Each request that passes in a window lowers the quota by 1, or by its cost if the unit
//     of the quota is not requests. If it costs more than is left, it waits for the end of the
//     window, or for MaxWait after the request before it. Then it goes, although the server
//     may refuse it. A cost above the limit counts as the limit.
//   - A scope may have quotas in 8 units. Each has a window of its own, which only a response
//     that names this unit corrects. A request waits for all of them.
//   - When a window ends, another window like it is assumed until a response tells.
//     After a second window without a response nothing is known.
//
// At most 256 scopes are kept. The scope whose window ended or ends first goes first. A
// scope with waiters does not go.
//
// The zero Pacing is ready. All methods are safe for concurrent use.
type Pacing struct {
	n atomic.Int32 // len(quotas), to be read without the lock

	mu     sync.Mutex // guards everything below and every waiter in a queue
	quotas map[uint64]*quota
	kept   *kept // nil: there was no quota
}

// kept is the state of a pacing once there was a quota.
type kept struct {
	spares queue.Spares // the scopes that make room for others
	passed uint64       // the largest passed of a quota that was dropped
}

// A Pass is Mark and Spent of the answer that let a request go. It is zero if Enter was not
// asked.
type Pass struct{ Mark, Spent uint64 }

// A Named is a quota as a response names it: Remaining of Limit are left until Reset from
// now. A zero Limit means that the response names none. An empty Unit means requests. Values
// out of range are cut to the range.
type Named struct {
	Unit             string
	Remaining, Limit int64
	Reset            time.Duration
}

// Quiet reports whether no quota is known. It is a single atomic load.
func (p *Pacing) Quiet() bool { return p.n.Load() == 0 }

// Note is told a quota that a response names. If its Reset is zero or less, Note does nothing.
func (p *Pacing) Note(now instant.Instant, key uint64, pass Pass, n Named, c Config) {
	if n.Reset <= 0 {
		return
	}
	p.mu.Lock()
	next := p.take(now, key, pass, n, c)
	p.mu.Unlock()
	next.Wake()
}

// take takes in a quota for Note, and returns the waiter to wake next; the lock is held.
func (p *Pacing) take(now instant.Instant, key uint64, pass Pass, n Named, c Config) *queue.Waiter {
	n.Remaining = min(max(n.Remaining, 0), maxQuota)
	n.Limit = min(max(n.Limit, n.Remaining), maxQuota)
	q := p.quotaFor(now, key)
	if q == nil {
		return nil
	}
	v := q.window(n.Unit)
	if v == nil {
		return nil
	}
	v.note(now, q, pass, n, c)
	p.kept.spares.Note(key, q.worth(now))
	return q.queue.First()
}

// Enter asks for a request to pass. With Wait the request joins the queue of its
// scope. It asks again with the same w, or calls Leave. A request with a nil w
// does not wait and joins no queue. Enter never answers Refuse.
func (p *Pacing) Enter(now instant.Instant, key uint64, w *queue.Waiter, c Config) queue.Answer {
	p.mu.Lock()
	a, next := p.enter(now, key, w, c)
	p.mu.Unlock()
	next.Wake()
	return a
}

// Leave takes w out of its queue.
func (p *Pacing) Leave(key uint64, w *queue.Waiter) {
	p.mu.Lock()
	var next *queue.Waiter
	if q := p.quotas[key]; q != nil {
		next = q.queue.Leave(w)
	}
	p.mu.Unlock()
	next.Wake()
}

// Waiting returns how many requests wait in the queues of all scopes. A nil Pacing has none.
func (p *Pacing) Waiting() (n int) {
	if p == nil || p.Quiet() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.quotas {
		n += q.queue.Len()
	}
	return n
}

// Low reports whether so much of a quota is so little that requests are spread.
func Low(remaining, limit int64) bool { return remaining <= max(limit, remaining)/share }

// enter answers w and returns the waiter to wake next; the lock is held.
func (p *Pacing) enter(now instant.Instant, key uint64, w *queue.Waiter, c Config) (queue.Answer, *queue.Waiter) {
	q := p.quotas[key]
	if q == nil {
		return queue.Answer{}, nil
	}
	if !q.roll(now) {
		q.queue.Leave(w)
		if q.queue.Len() == 0 {
			p.drop(key)
		}
		return queue.Answer{}, q.queue.First()
	}
	if q.passes(now, w, c) {
		q.queue.Leave(w)
		return queue.Answer{Mark: q.passed, Spent: q.spent}, q.queue.First()
	}
	if w != nil {
		q.queue.Join(w)
	}
	if q.queue.Turn(w) {
		at := q.until(now, w, c)
		return queue.Answer{Verb: queue.Wait, Ask: at, Until: at}, nil
	}
	return queue.Answer{Verb: queue.Wait, Ask: instant.Never}, nil
}

// quotaFor returns the quota of a scope, and makes it if there is none; the lock is
// held. It returns nil if there is no room.
func (p *Pacing) quotaFor(now instant.Instant, key uint64) *quota {
	if q := p.quotas[key]; q != nil {
		return q
	}
	if len(p.quotas) >= queue.MaxScopes {
		victim, found := queue.Spare(&p.kept.spares, now, p.quotas, 2, func(q *quota) queue.Worth { return q.worth(now) })
		if !found {
			return nil
		}
		p.drop(victim)
	}
	if p.quotas == nil {
		p.quotas, p.kept = make(map[uint64]*quota), cmp.Or(p.kept, new(kept))
	}
	q := &quota{passed: p.kept.passed, from: p.kept.passed}
	p.quotas[key] = q
	p.n.Store(int32(len(p.quotas)))
	return q
}

// drop forgets the quota of a scope; the lock is held.
func (p *Pacing) drop(key uint64) {
	p.kept.passed = max(p.kept.passed, p.quotas[key].passed)
	delete(p.quotas, key)
	if len(p.quotas) == 0 {
		p.quotas = nil
	}
	p.n.Store(int32(len(p.quotas)))
}

func (c Config) maxWait() time.Duration { return instant.Bound(c.MaxWait) }
