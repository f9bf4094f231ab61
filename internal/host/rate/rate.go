// Package rate limits how many requests per second this client sends to a host.
package rate

import (
	"math"
	"sync"
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
// token and slot at the same moment (see concurrency.Config). Otherwise requests wait in
// the queue of the Rate.
//
// All methods are safe for concurrent use.
type Rate struct {
	turns sync.Mutex // guards the queue and every waiter in it; taken after the lock of a concurrency limit, and before mu
	queue queue.Queue

	mu     sync.Mutex // the lock, if a comment says that it is held; guards everything below; taken last
	conf   Config
	tokens Tokens
}

// Tokens are the tokens of a rate. The lock of the Rate is held in each call.
type Tokens interface {
	// Set changes the rate, whose fields are complete.
	Set(now instant.Instant, c Config)
	// Take takes n tokens and returns when to use them, which is within ahead. If they are not there by then, ok is false, at is
	// when they will be there as far as is known, and ask is when to ask again.
	Take(now instant.Instant, ahead time.Duration, n int) (at, ask instant.Instant, ok bool)
	// WaitFor returns how long it takes until there are n tokens, as far as is known. first says that the first waiter asks.
	WaitFor(now instant.Instant, n int, first bool) time.Duration
}

// New returns a limit with a full bucket, or with tokens that come from a fleet.
func New(c Config, fleet Tokens) *Rate {
	c = c.withDefaults()
	r := &Rate{conf: c, tokens: NewBucket(c)}
	if fleet != nil {
		r.tokens = fleet
		fleet.Set(0, c)
	}
	return r
}

// Set changes the configuration.
func (r *Rate) Set(now instant.Instant, c Config) {
	c = c.withDefaults()
	defer r.WakeFirst() // when mu is unlocked
	r.mu.Lock()
	defer r.mu.Unlock()
	if c != r.conf {
		r.conf = c
		r.tokens.Set(now, c)
	}
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
	} else if at, ask, ok := r.reserve(now, ahead, w.Costs()); ok {
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

// reserve takes the tokens of a request, as Tokens.Take does.
func (r *Rate) reserve(now instant.Instant, ahead time.Duration, cost int) (at, ask instant.Instant, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens.Take(now, ahead, r.conf.tokens(cost))
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
	_, _, ok := r.reserve(now, 0, cost)
	return ok
}

// ReadyIn returns how long it takes until a request of a cost can go, as far as is known. The
// request is the first in its queue.
func (r *Rate) ReadyIn(now instant.Instant, cost int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens.WaitFor(now, r.conf.tokens(cost), true)
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
	return r.tokens.WaitFor(now, n, false)
}

// A Bucket is a token bucket of this client alone.
type Bucket struct{ Limiter *xrate.Limiter }

// NewBucket returns a full bucket of a complete Config.
func NewBucket(c Config) Bucket {
	return Bucket{xrate.NewLimiter(xrate.Limit(c.PerSecond), c.Burst)}
}

// clockTime returns now as x/time needs it. The date does not matter.
func clockTime(now instant.Instant) time.Time { return time.Time{}.Add(now.Since()) }

// Set changes the rate.
func (b Bucket) Set(now instant.Instant, c Config) {
	b.Limiter.SetLimitAt(clockTime(now), xrate.Limit(c.PerSecond))
	b.Limiter.SetBurstAt(clockTime(now), c.Burst)
}

// Take takes tokens, as Tokens says.
func (b Bucket) Take(now instant.Instant, ahead time.Duration, n int) (at, ask instant.Instant, ok bool) {
	if wait := b.WaitFor(now, n, true); wait > ahead+time.Microsecond { // x/time's floats lose a nanosecond
		return instant.After(now, wait), instant.After(now, (wait - ahead).Truncate(time.Microsecond)), false
	}
	from := clockTime(now)
	wait := b.Limiter.ReserveN(from, n).DelayFrom(from)
	return instant.After(now, wait.Round(time.Microsecond)), 0, true
}

// WaitFor returns how long it takes until there are n tokens.
func (b Bucket) WaitFor(now instant.Instant, n int, _ bool) time.Duration {
	missing := max(0, float64(n)-b.Limiter.TokensAt(clockTime(now)))
	ns := math.Ceil(missing / float64(b.Limiter.Limit()) * float64(time.Second))
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
