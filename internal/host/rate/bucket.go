// The tokens of this client alone.

package rate

import (
	"math"
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// lateness is how late a request may take the tokens that it has waited for, without a loss to those in the queue behind it. Timers
// are late by up to about a millisecond. If a full bucket lost what comes until then, no more than a thousand per second would go
// without a burst. If nobody has waited, nothing of the kind is lost.
const lateness = 10 * time.Millisecond

// A Bucket is a token bucket of this client alone. The first Set fills it. It is that of golang.org/x/time/rate, which is used
// without its sleeps.
type Bucket struct {
	limiter *xrate.Limiter
	due     instant.Instant // when the tokens come that Take had not; 0: not known
}

// Set changes the rate.
func (b *Bucket) Set(now instant.Instant, c Config) {
	if b.limiter == nil {
		b.limiter = xrate.NewLimiter(xrate.Limit(c.PerSecond), c.Burst)
	}
	b.limiter.SetLimitAt(clockTime(now), xrate.Limit(c.PerSecond))
	b.limiter.SetBurstAt(clockTime(now), c.Burst)
	b.due = 0
}

// clockTime returns now as x/time needs it. The date does not matter.
func clockTime(now instant.Instant) time.Time { return time.Time{}.Add(now.Since()) }

// taken returns when tokens are taken that are wanted now: for a request that is a little late, when they were due.
func (b *Bucket) taken(now instant.Instant) instant.Instant {
	if late := now.Sub(b.due); b.due == 0 || late < 0 || late > lateness {
		return now
	}
	return b.due
}

// Take takes tokens, as Tokens says.
func (b *Bucket) Take(now instant.Instant, n int, queued bool) (ask instant.Instant, ok bool) {
	if !queued {
		b.due = 0
	}
	if wait := b.WaitFor(now, n, true); wait > 0 {
		b.due = instant.After(now, wait)
		return b.due, false
	}
	b.Owe(now, n)
	return 0, true
}

// Owe takes tokens that may not be there yet.
func (b *Bucket) Owe(now instant.Instant, n int) {
	for at, full := clockTime(b.taken(now)), b.limiter.Burst(); n > 0; n -= full {
		_ = b.limiter.ReserveN(at, min(n, full)) // it refuses more than a full bucket
	}
}

// Cut takes all tokens but so many.
func (b *Bucket) Cut(now instant.Instant, most float64) {
	if b.limiter.TokensAt(clockTime(now)) <= most {
		return
	}
	limit, full := b.limiter.Limit(), b.limiter.Burst()
	empty := clockTime(now).Add(-time.Duration(most / float64(limit) * float64(time.Second)))
	b.limiter, b.due = xrate.NewLimiter(limit, full), 0
	b.limiter.AllowN(empty, full)
}

// WaitFor returns how long it takes until there are n tokens. Less than a microsecond is nothing, because floats are not exact.
func (b *Bucket) WaitFor(now instant.Instant, n int, _ bool) time.Duration {
	at := b.taken(now)
	missing := max(0, float64(n)-b.limiter.TokensAt(clockTime(at)))
	ns := missing/float64(b.limiter.Limit())*float64(time.Second) - float64(now.Sub(at))
	switch {
	case ns < float64(time.Microsecond):
		return 0
	case ns >= math.MaxInt64:
		return instant.Forever
	}
	return time.Duration(math.Ceil(ns))
}
