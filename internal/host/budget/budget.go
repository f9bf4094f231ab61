// Package budget counts how many retries and hedges a host may be sent.
package budget

import (
	"cmp"
	"math"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/outage"
)

// make outages chose these figures.
const (
	// Window is the time whose PerSecond can be saved up, and that of which the rate of requests is the mean.
	Window = 10 * time.Second

	// paid is how many retries a retry that succeeds pays for while others wait. With 2, the requests are lost that still wait
	// when the last new request has come, because their own successes pay for too few.
	paid = 3

	// The first request in a line asks for its retry after this time at the latest. Requests and the successes of others earn
	// retries at any time, and a rule without PerSecond names no time at all.
	again = time.Second
)

// A Config says how many retries and hedges a host may be sent. Zero
// fields take the defaults. A negative Ratio or PerSecond turns that part off. If
// both are negative, the budget is off.
type Config struct {
	// Ratio is how many retries each request earns. The default is 0.2.
	Ratio float64
	// PerSecond is how many retries each second earns, so that a quiet client
	// keeps all of its retries. The default is 3. Ten seconds of it can be saved up, and at least 1.
	PerSecond float64
	// Requests is how many requests began. The owner counts them, and only the lowest 40 bits
	// matter. Totals that arrive out of order do no harm.
	Requests uint64
}

// Complete returns the config with all its defaults.
func (c Config) Complete() Config {
	c.Ratio, c.PerSecond = cmp.Or(c.Ratio, 0.2), cmp.Or(c.PerSecond, 3)
	return c
}

// Off reports whether nothing limits retries.
func (c *Config) Off() bool { return c.Ratio < 0 && c.PerSecond < 0 }

// size returns how many retries can be saved up.
func (c *Config) size() float64 { return max(c.PerSecond*Window.Seconds(), 1) }

// A Budget bounds the retries and hedges to a host, as in Google's SRE book (Handling Overload), in
// Finagle's RetryBudget and in gRPC (A6). It is a token bucket. Its owner guards it with a lock, and calls Settle before
// it asks. The zero Budget is ready and full.
//
// # The rule
//
// In every window of time, of any length and anywhere,
//
//	retries ≤ Ratio × requests in it + PerSecond × its length + 3 × retries that succeed in it + 10 s of PerSecond
//
// The last is at least 1. The requests that come back after an outage do not count (see package line). If the bucket is empty,
// they borrow, up to a second bucket of the same size.
//
// Proof. Let used be the empty part of the bucket. A retry that counts is only taken if used is at most the size
// of the bucket after it. So used is never above the size when such a retry has been taken, and never below 0. It grows by 1 for
// each retry of the window, and shrinks by at most the amount that requests, seconds and successes put in.
//
// Successes pay only if they outweigh the failures, of which ten are remembered. Without this, a server that refuses
// half of its load would be sent a retry for each refusal.
//
// Requests are counted without a look at the clock, and are put into the bucket when a retry is asked for. This changes nothing:
// while nobody takes, used only shrinks, and max(0, max(0, used−a)−b) = max(0, used−a−b).
type Budget struct {
	at       instant.Instant
	requests uint64  // that are in the bucket
	used     float64 // 0: a full bucket
	puts     uint64  // how often something was put into the bucket
	failures int     // that no success has outweighed

	marked instant.Instant // when the rate was last measured
	began  uint64          // the requests until then
	rate   float64         // requests per second before that
}

// Settle puts the earnings of requests and time into the bucket. waits says that requests wait, so that the rate is not lower
// than before. Concurrent callers may bring their times out of order.
func (b *Budget) Settle(now instant.Instant, waits bool, c *Config) {
	n := max(0, int64((c.Requests-b.requests)<<24)>>24)
	b.requests += uint64(n)
	now = max(now, b.at)
	b.put(float64(n)*max(c.Ratio, 0) + now.Sub(b.at).Seconds()*max(c.PerSecond, 0))
	b.at = now
	if now.Sub(b.marked) < Window {
		return
	}
	if rate := b.mean(); rate > b.rate || !waits {
		b.rate = rate
	}
	b.marked, b.began = now, b.requests
}

// put puts n into the bucket. What does not fit is lost.
func (b *Budget) put(n float64) {
	if n > 0 {
		b.used = max(0, b.used-n)
		b.puts++
	}
}

// mean returns the rate of requests since it was last measured.
func (b *Budget) mean() float64 {
	return float64(b.requests-b.began) / max(b.at.Sub(b.marked), Window).Seconds()
}

// Rate returns how many requests per second there were.
func (b *Budget) Rate() float64 { return max(b.rate, b.mean()) }

// Left returns how many retries may go at once. It is +Inf if the budget is off.
func (b *Budget) Left(c *Config) float64 {
	if c.Off() {
		return math.Inf(1)
	}
	return max(0, c.size()-b.used)
}

// Next returns when to ask for a retry again: now if a retry is left, or when time alone has earned it, if that is soon.
func (b *Budget) Next(now instant.Instant, c *Config) instant.Instant {
	short := b.used + 1 - c.size()
	if c.Off() || short <= 0 {
		return now
	}
	wait := min(short/max(c.PerSecond, 1e-9), again.Seconds())
	return instant.After(now, time.Duration(math.Ceil(wait*1e9)))
}

// A Token stands for a retry that was taken. The zero Token stands for none.
type Token uint64

// Take takes a retry, or borrows it. If the second bucket is empty, too, there is no token.
func (b *Budget) Take(c *Config) Token {
	if b.used+1 > 2*c.size() {
		return 0
	}
	b.used++
	return Token(b.puts + 1)
}

// GiveBack gives back the token of a retry that is not sent. If anything was put into the bucket since, that may have been lost
// without this retry, so the retry stays taken.
func (b *Budget) GiveBack(t Token) {
	if t == Token(b.puts+1) {
		b.used--
	}
}

// Succeeded notes a success. pays says that it is that of a retry, and that others wait.
func (b *Budget) Succeeded(pays bool) {
	switch {
	case b.failures > 0:
		b.failures--
	case pays:
		b.put(paid)
	}
}

// Failed notes a failure.
func (b *Budget) Failed() { b.failures = min(b.failures+1, outage.Row) }

// Failing reports whether the next success has to outweigh a failure.
func (b *Budget) Failing() bool { return b.failures > 0 }
