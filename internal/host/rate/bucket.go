// The tokens of this client alone.

package rate

import (
	"math"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// lateness is how late a request may take the tokens that it waits for, without a loss of those that come meanwhile. Timers are
// late by up to about a millisecond. If a full bucket lost what comes until then, no more than a thousand per second would go
// without a burst.
const lateness = 10 * time.Millisecond

// A Bucket is a token bucket of this client alone. The first Set fills it.
type Bucket struct {
	conf   Config  // complete
	tokens float64 // at the time at; below 0 if some are owed
	at     instant.Instant
	due    instant.Instant // when the tokens come that Take had not; 0: not known
}

// Set changes the rate.
func (b *Bucket) Set(now instant.Instant, c Config) {
	if b.conf == (Config{}) {
		*b = Bucket{conf: c, tokens: float64(c.Burst)}
	}
	b.tokens, b.at, b.due, b.conf = b.have(now), now, 0, c
}

// have returns how many tokens there are. A bucket that is full gets no more.
func (b *Bucket) have(now instant.Instant) float64 {
	have := b.tokens + b.conf.PerSecond*now.Sub(b.at).Seconds()
	if late := now.Sub(b.due); b.due == 0 || late < 0 || late > lateness {
		return min(have, float64(b.conf.Burst))
	}
	return have
}

// Take takes tokens, as Tokens says.
func (b *Bucket) Take(now instant.Instant, n int) (ask instant.Instant, ok bool) {
	if wait := b.WaitFor(now, n, true); wait > 0 {
		b.due = instant.After(now, wait)
		return b.due, false
	}
	b.tokens, b.at = b.have(now)-float64(n), now
	return 0, true
}

// Owe takes tokens that are not there yet.
func (b *Bucket) Owe(n int) { b.tokens -= float64(n) }

// Cut takes all tokens but so many.
func (b *Bucket) Cut(now instant.Instant, most float64) {
	b.tokens, b.at, b.due = min(b.have(now), most), now, 0
}

// WaitFor returns how long it takes until there are n tokens. Less than a microsecond is nothing, because floats are not exact.
func (b *Bucket) WaitFor(now instant.Instant, n int, _ bool) time.Duration {
	ns := max(0, float64(n)-b.have(now)) / b.conf.PerSecond * float64(time.Second)
	switch {
	case ns < float64(time.Microsecond):
		return 0
	case ns >= math.MaxInt64:
		return instant.Forever
	}
	return time.Duration(math.Ceil(ns))
}
