// Package rate limits how many requests per second this client sends to a host.
//
//	rate.go   the rate of this client
//	fleet.go  tokens of a rate that the members of a fleet share
package rate

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const (
	// ahead is how long before its time the first waiter takes its token.
	// Timers are late by up to about a millisecond. If each waiter set its timer
	// only when the waiter before it went, no more than a thousand per second
	// would go without a burst.
	ahead = 10 * time.Millisecond
)

// A Config bounds the sends to a host. PerSecond must be positive.
type Config struct {
	PerSecond float64
	// Burst is how many sends may come at once. The default is PerSecond rounded
	// up. A request that costs more takes a full bucket.
	Burst int
}

// A Rate is a limit of sends per second, retries included, or of their costs. It is a token bucket
// from golang.org/x/time/rate, which is used without its sleeps.
//
// If the host has a concurrency limit, one queue serves both limits, so that a request takes
// token and slot at the same moment (see limiter.Config). Otherwise requests wait in
// the queue of the Rate.
//
// All methods are safe for concurrent use.
type Rate struct {
	askAt atomic.Int64 // no question for the fleet's tokens before this time; written with the lock

	turns sync.Mutex // guards the queue and every waiter in it; taken after the lock of a concurrency limit, and before mu
	queue queue.Queue

	mu     sync.Mutex // the lock, if a comment says that it is held; guards everything below; taken last
	lim    *xrate.Limiter
	conf   Config
	part   int     // of the burst that is this member's own
	shared *shared // nil: the tokens do not come from a fleet
}

// New returns a limit with a full bucket.
func New(c Config) *Rate {
	c = c.withDefaults()
	return &Rate{lim: xrate.NewLimiter(xrate.Limit(c.PerSecond), c.Burst), conf: c, part: c.Burst}
}

// clockTime returns now as x/time needs it. The date does not matter.
func clockTime(now instant.Instant) time.Time { return time.Time{}.Add(now.Since()) }

// Set changes the configuration.
func (r *Rate) Set(now instant.Instant, c Config) {
	c = c.withDefaults()
	defer r.WakeFirst() // when mu is unlocked
	r.mu.Lock()
	defer r.mu.Unlock()
	if c == r.conf {
		return
	}
	if c.PerSecond != r.conf.PerSecond {
		r.forget(now)
	}
	r.conf = c
	r.limit(now)
}

// Enter asks for a token. With Go, Until is when to send, which is now or at
// most 10 ms later. With Wait the request joins the queue. It asks again with
// the same w, or calls Leave. A request with a nil w does not wait and joins no
// queue. Enter never answers Refuse. Waiters take no tokens in advance, so a new
// rate applies to them as well.
func (r *Rate) Enter(now instant.Instant, w *queue.Waiter) (a queue.Answer) {
	r.turns.Lock()
	var next *queue.Waiter
	if !r.queue.Turn(w) {
		a = queue.Answer{Verb: queue.Wait, Ask: instant.Never}
		if !w.Waits() {
			a.Until = instant.After(now, r.WaitFor(now, r.queue.Cost()+r.Tokens(w.Costs())))
		}
	} else if at, ask, ok := r.reserve(now, w.Costs()); ok {
		r.queue.Leave(w)
		a, next = queue.Answer{Until: at}, r.queue.First()
	} else {
		a = queue.Answer{Verb: queue.Wait, Ask: ask, Until: at}
	}
	if a.Verb == queue.Wait && w != nil {
		r.queue.Join(w)
	}
	r.turns.Unlock()
	next.Wake()
	return a
}

// Tokens returns how many tokens a request of a cost takes. That is a full bucket at most.
func (r *Rate) Tokens(cost int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conf.tokens(cost)
}

// reserve takes the tokens of a request and returns when to use them, which is in 10 ms at
// most. If they are not there by then, ok is false, at is when they will be there as far as is
// known, and ask is when to ask again.
func (r *Rate) reserve(now instant.Instant, cost int) (at, ask instant.Instant, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.conf.tokens(cost)
	if at, ask, got, shared := r.reserveLeased(now, ahead, n); shared {
		return at, ask, got
	}
	some := min(n, r.part)
	wait := waitFor(r.lim, now, some)
	if wait > ahead+time.Microsecond {
		return r.orAnswer(now, wait), r.orAnswer(now, (wait - ahead).Truncate(time.Microsecond)), false
	}
	from := clockTime(now)
	wait = r.lim.ReserveN(from, some).DelayFrom(from).Round(time.Microsecond) // x/time's floats lose a nanosecond
	r.owe(now, n-some)
	r.shared.count(n)
	return instant.After(now, wait), ask, true
}

// owe takes tokens that are not there yet; the lock is held. A member of a fleet
// that does not answer has a part of the bucket only, and waits for the rest of
// what it took afterwards.
func (r *Rate) owe(now instant.Instant, n int) {
	for n > 0 {
		some := min(n, r.part)
		r.lim.ReserveN(clockTime(now), some)
		n -= some
	}
}

// Leave takes w out of the queue.
func (r *Rate) Leave(w *queue.Waiter) {
	r.turns.Lock()
	next := r.queue.Leave(w)
	r.turns.Unlock()
	next.Wake()
}

// Waiting returns how many tokens the requests in the queue need.
func (r *Rate) Waiting() int {
	r.turns.Lock()
	defer r.turns.Unlock()
	return r.queue.Cost()
}

// Queue returns how many requests wait.
func (r *Rate) Queue() int {
	r.turns.Lock()
	defer r.turns.Unlock()
	return r.queue.Len()
}

// WakeFirst wakes the first waiter after the rate has changed.
func (r *Rate) WakeFirst() {
	r.turns.Lock()
	next := r.queue.First()
	r.turns.Unlock()
	next.Wake()
}

// Take takes the tokens of a request if they are there now.
func (r *Rate) Take(now instant.Instant, cost int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.conf.tokens(cost)
	if _, _, got, shared := r.reserveLeased(now, 0, n); shared {
		return got
	}
	some := min(n, r.part)
	if !r.lim.AllowN(clockTime(now), some) {
		return false
	}
	r.owe(now, n-some)
	r.shared.count(n)
	return true
}

// ReadyIn returns how long it takes until a request of a cost can go, as far as is known. The
// request is the first in its queue.
func (r *Rate) ReadyIn(now instant.Instant, cost int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.conf.tokens(cost)
	if wait, shared := r.leased(now, n, true); shared {
		return wait
	}
	return r.orAnswer(now, waitFor(r.lim, now, min(n, r.part))).Sub(now)
}

// Peek estimates how long a request that comes now would wait behind the
// waiters. It takes no token. A now in the future is allowed.
func (r *Rate) Peek(now instant.Instant, cost int) time.Duration {
	r.turns.Lock()
	defer r.turns.Unlock()
	return r.WaitFor(now, r.queue.Cost()+r.Tokens(cost))
}

// WaitFor returns how long it takes until there are n tokens, as far as is known.
func (r *Rate) WaitFor(now instant.Instant, n int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait, shared := r.leased(now, n, false); shared {
		return wait
	}
	return r.orAnswer(now, waitFor(r.lim, now, n)).Sub(now)
}

// waitFor returns how long it takes until a limiter has n tokens.
func waitFor(lim *xrate.Limiter, now instant.Instant, n int) time.Duration {
	missing := max(0, float64(n)-lim.TokensAt(clockTime(now)))
	ns := math.Ceil(missing / float64(lim.Limit()) * float64(time.Second))
	if ns >= float64(instant.Forever) {
		return instant.Forever
	}
	return time.Duration(ns)
}

// Bucket returns how many tokens a full bucket has.
func (c Config) Bucket() int { return c.withDefaults().Burst }

// tokens returns how many tokens a request of a cost takes from a complete Config.
func (c Config) tokens(cost int) int { return min(max(cost, 1), c.Burst) }

func (c Config) withDefaults() Config {
	if c.Burst <= 0 {
		c.Burst = int(min(math.Ceil(c.PerSecond), math.MaxInt32))
	}
	return c
}
