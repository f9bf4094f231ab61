// Package rate limits how many requests per second this client sends to a host.
//
//	rate.go    the rules, and the methods for the owner of a rate
//	bucket.go  the tokens of this client alone
package rate

import (
	"math"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A Config bounds the sends to a host. PerSecond must be positive.
type Config struct {
	PerSecond float64
	// Burst is how many sends may come at once. The default is PerSecond rounded
	// up. A request that costs more takes a full bucket.
	Burst int
}

// A Rate is a limit of sends per second, retries included, or of their costs. Requests wait for it in the queue of a
// concurrency limit, which may have no other bound. A request takes a token and a slot there at the same moment (see
// concurrency.Config).
//
// All methods are safe for concurrent use.
type Rate struct {
	mu     sync.Mutex // guards everything below; taken after the lock of a concurrency limit
	conf   Config
	tokens Tokens
}

// Tokens are the tokens of a rate. The lock of the Rate is held in each call.
type Tokens interface {
	// Set changes the rate, whose fields are complete.
	Set(now instant.Instant, c Config)
	// Take takes n tokens if they are there now. Otherwise ask is when to ask again. That is when they will be there, as far as
	// is known. queued says that the request has waited in the queue, and may be late.
	Take(now instant.Instant, n int, queued bool) (ask instant.Instant, ok bool)
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

// Set changes the configuration. Waiters take no tokens in advance, so a new rate applies to them as well when they ask.
func (r *Rate) Set(now instant.Instant, c Config) {
	c = c.withDefaults()
	r.mu.Lock()
	defer r.mu.Unlock()
	if c != r.conf {
		r.conf = c
		r.tokens.Set(now, c)
	}
}

// Take takes the tokens of a request if they are there now. queued says that the request has waited for them.
func (r *Rate) Take(now instant.Instant, cost int, queued bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.tokens.Take(now, r.conf.Tokens(cost), queued)
	return ok
}

// ReadyIn returns how long it takes until a request of a cost can go, as far as is known. The
// request is the first in its queue.
func (r *Rate) ReadyIn(now instant.Instant, cost int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens.WaitFor(now, r.conf.Tokens(cost), true)
}

// Peek estimates how long a request of a cost would wait that comes now, behind others that need so many tokens.
// It takes no token. A now in the future is allowed.
func (r *Rate) Peek(now instant.Instant, cost, others int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens.WaitFor(now, others+r.conf.Tokens(cost), false)
}

// Tokens returns how many tokens a request of a cost takes. That is a full bucket at most.
func (c Config) Tokens(cost int) int { return min(max(cost, 1), c.withDefaults().Burst) }

func (c Config) withDefaults() Config {
	if c.Burst <= 0 {
		c.Burst = int(min(math.Ceil(c.PerSecond), math.MaxInt32))
	}
	return c
}
