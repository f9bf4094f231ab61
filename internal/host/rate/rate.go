// Package rate limits how many requests per second this client sends to a host.
//
//	rate.go    which request goes, and when the others ask again
//	bucket.go  the tokens of this client alone
package rate

import (
	"math"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A Config bounds the sends to a host. PerSecond must be positive.
type Config struct {
	PerSecond float64
	// Burst is how many sends may come at once. The default is PerSecond rounded
	// up. A request that costs more takes a full bucket.
	Burst int
}

// A Rate is a limit of sends per second, retries included, or of their costs.
//
// If the host has a concurrency limit, one queue serves both limits, so that a request takes
// token and slot at the same moment (see concurrency.Config). Otherwise requests wait in
// the queue of the Rate.
//
// All methods are safe for concurrent use.
type Rate struct {
	mu     sync.Mutex // guards everything below and every waiter in the queue; taken after the lock of a concurrency limit
	queue  queue.Queue
	conf   Config
	tokens Tokens
}

// Tokens are the tokens of a rate. The lock of the Rate is held in each call.
type Tokens interface {
	// Set changes the rate, whose fields are complete.
	Set(now instant.Instant, c Config)
	// Take takes n tokens if they are there now. Otherwise ask is when to ask again. That is when they will be there, as far as
	// is known.
	Take(now instant.Instant, n int) (ask instant.Instant, ok bool)
	// WaitFor returns how long it takes until there are n tokens, as far as is known. first says that the first waiter asks.
	WaitFor(now instant.Instant, n int, first bool) time.Duration
}

// New returns a limit with a full bucket, or with tokens that come from a fleet.
func New(c Config, fleet Tokens) *Rate {
	c = c.withDefaults()
	if fleet == nil {
		fleet = new(Bucket)
	}
	fleet.Set(0, c)
	return &Rate{conf: c, tokens: fleet}
}

// Set changes the configuration.
func (r *Rate) Set(now instant.Instant, c Config) {
	c = c.withDefaults()
	r.mu.Lock()
	if c != r.conf {
		r.conf = c
		r.tokens.Set(now, c)
	}
	r.mu.Unlock()
	r.WakeFirst()
}

// Enter asks for a token. With Wait the request joins the queue. It asks again with
// the same w, or calls Leave. A request with a nil w does not wait and joins no
// queue. Waiters take no tokens in advance, so a new
// rate applies to them as well.
func (r *Rate) Enter(now instant.Instant, w *queue.Waiter) queue.Answer {
	r.mu.Lock()
	a, next := r.enter(now, w)
	r.mu.Unlock()
	next.Wake()
	return a
}

// enter answers w and returns the waiter to wake next; the lock is held.
func (r *Rate) enter(now instant.Instant, w *queue.Waiter) (a queue.Answer, next *queue.Waiter) {
	a.Verb, a.Ask = queue.Wait, instant.Never
	if n := r.conf.Tokens(w.Costs()); r.queue.Turn(w) {
		ask, ok := r.tokens.Take(now, n)
		if ok {
			r.queue.Leave(w)
			return queue.Answer{}, r.queue.First()
		}
		a.Ask, a.Until = ask, ask
	} else if !w.Waits() {
		a.Until = instant.After(now, r.tokens.WaitFor(now, r.queue.Cost()+n, false))
	}
	if w != nil {
		r.queue.Join(w)
	}
	return a, nil
}

// Leave takes w out of the queue.
func (r *Rate) Leave(w *queue.Waiter) {
	r.mu.Lock()
	next := r.queue.Leave(w)
	r.mu.Unlock()
	next.Wake()
}

// Waiting returns how many tokens the requests in the queue need.
func (r *Rate) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.Cost()
}

// Queue returns how many requests wait.
func (r *Rate) Queue() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.Len()
}

// WakeFirst wakes the first waiter after the rate has changed.
func (r *Rate) WakeFirst() {
	r.mu.Lock()
	next := r.queue.First()
	r.mu.Unlock()
	next.Wake()
}

// Take takes the tokens of a request if they are there now.
func (r *Rate) Take(now instant.Instant, cost int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.tokens.Take(now, r.conf.Tokens(cost))
	return ok
}

// ReadyIn returns how long it takes until a request of a cost can go, as far as is known. The
// request is the first in its queue.
func (r *Rate) ReadyIn(now instant.Instant, cost int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens.WaitFor(now, r.conf.Tokens(cost), true)
}

// Peek estimates how long a request that comes now and needs n tokens would wait behind the
// waiters. It takes no token. A now in the future is allowed.
func (r *Rate) Peek(now instant.Instant, n int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens.WaitFor(now, r.queue.Cost()+n, false)
}

// Tokens returns how many tokens a request of a cost takes. That is a full bucket at most.
func (c Config) Tokens(cost int) int { return min(max(cost, 1), c.withDefaults().Burst) }

func (c Config) withDefaults() Config {
	if c.Burst <= 0 {
		c.Burst = int(min(math.Ceil(c.PerSecond), math.MaxInt32))
	}
	return c
}
