// Package pacing spreads requests over the quota that the server says is left.
//
//	pacing.go  the rules, and the methods for the owner of a pacing
//	quota.go   the quotas of a scope, and what responses tell of them
//	window.go  a window, over which requests are spread
package pacing

import (
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const (
	// The last part of a quota, 1 in share, is spread over the
	// rest of its window.
	share = 5

	// Slack is how far apart two named ends of the same window may be.
	// Servers name them in whole seconds.
	Slack = 1500 * time.Millisecond

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
// At most 256 scopes are kept. If there are more, a scope without waiters makes room, as [queue.Scopes] says.
//
// The zero Pacing is ready. All methods are safe for concurrent use.
type Pacing struct {
	mu     sync.Mutex           // guards everything below and every waiter in a queue
	quotas queue.Scopes[*quota] // Quiet needs no lock
}

// A Pass is Mark and Spent of the answer that let a request go. It is zero if Enter was not
// asked.
type Pass struct{ Mark, Spent uint64 }

// Quiet reports whether no quota is known. It is a single atomic load.
func (p *Pacing) Quiet() bool { return p.quotas.Quiet() }

// Note is told a quota that a response names. A zero Limit means that the response names none. Values out of range are cut to the
// range. If its Reset is zero or less, Note does nothing.
func (p *Pacing) Note(now instant.Instant, key uint64, pass Pass, n field.Quota, c Config) {
	if n.Reset <= 0 {
		return
	}
	n.Remaining = min(max(n.Remaining, 0), maxQuota)
	n.Limit = min(max(n.Limit, n.Remaining), maxQuota)
	p.mu.Lock()
	var next *queue.Waiter
	q, known := p.quotas.All()[key]
	if !known {
		q = new(quota)
	}
	if known || p.quotas.Add(key, q) {
		q.note(now, pass, n, c)
		next = q.queue.First()
	}
	p.mu.Unlock()
	next.Wake()
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
func (p *Pacing) Leave(w *queue.Waiter) {
	p.mu.Lock()
	next := w.Leave()
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
	for _, q := range p.quotas.All() {
		n += q.queue.Len()
	}
	return n
}

// Low reports whether so much of a quota is so little that requests are spread.
func Low(remaining, limit int64) bool { return remaining <= max(limit, remaining)/share }

// enter answers w and returns the waiter to wake next; the lock is held.
func (p *Pacing) enter(now instant.Instant, key uint64, w *queue.Waiter, c Config) (queue.Answer, *queue.Waiter) {
	q := p.quotas.All()[key]
	if q == nil {
		return queue.Answer{}, nil
	}
	if !q.roll(now) {
		q.queue.Leave(w)
		if q.queue.Len() == 0 {
			p.quotas.Drop(key)
		}
		return queue.Answer{}, q.queue.First()
	}
	at := q.until(now, w, c)
	if now >= at {
		q.take(now, w, c)
		q.queue.Leave(w)
		return queue.Answer{Mark: q.passed, Spent: q.spent}, q.queue.First()
	}
	if w != nil {
		q.queue.Join(w)
	}
	a := queue.Answer{Verb: queue.Wait, Ask: at}
	if at != instant.Never {
		a.Until = at
	}
	return a, nil
}
