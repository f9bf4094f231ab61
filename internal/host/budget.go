// May one more retry be sent, given how many requests there were?

package host

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A BudgetConfig says how many retries and hedges a host may be sent. Zero
// fields take the defaults; a negative Ratio or PerSecond turns that part off,
// and both negative the budget itself.
type BudgetConfig struct {
	// Ratio is how many retries each request earns. Default 0.2.
	Ratio float64
	// PerSecond is how many retries each second earns, so that a quiet client
	// keeps all of its retries. Default 3.
	PerSecond float64
	// Window is the time within which PerSecond earns a whole Burst. Default
	// 10 s.
	Window time.Duration
	// Burst is how many retries can be saved up, and so sent at once. Default
	// PerSecond × Window, or 10 where PerSecond is off; at least 1.
	Burst float64
}

// A Budget bounds the retries and hedges to one host over time, as in Google's
// SRE book (Handling Overload) and in Finagle's RetryBudget: without one, a
// client that sends everything up to six times makes an outage six times worse.
//
// The rule: in every window of time, of any length and anywhere,
//
//	retries ≤ Ratio × requests in it + PerSecond × its length + Burst
//
// where retries are those taken and not refunded in the window. It is a token
// bucket of size Burst, into which each request puts Ratio and each second
// PerSecond. Proof: used, the empty part of the bucket, is never below 0 nor
// above Burst. From a window's begin to its end it therefore grows by at most
// Burst; it grows by one per retry and shrinks by at most what the window's
// requests and seconds put in. No bucket lets more pass that keeps the rule in
// every window. Credit cannot pile up beyond Burst, which time alone restores
// within Window: nothing older than that is remembered.
//
// Requests are counted without looking at the clock and put into the bucket
// when a retry is asked for. This changes nothing: while nobody takes, used
// only shrinks, down to 0, and max(0, max(0, used−a)−b) = max(0, used−a−b), so
// one late settlement ends where many early ones would.
//
// A retry is taken before its back-off and sent after it; what is bounded in
// every window is the taking. Counted from the Budget's first use, the sends
// are bounded as well.
//
// The zero Budget is ready and full. All methods are safe for concurrent use.
type Budget struct {
	// requests counts for ever; how many are new is found by comparison, so
	// that counting is a single atomic addition.
	requests atomic.Uint64

	mu      sync.Mutex // guards what follows
	settled uint64     // requests that are in the bucket
	at      time.Duration
	used    int64 // in units; 0 is a full bucket
}

// unit is one retry. Billionths make the usual ratios exact, and a rate per
// second times nanoseconds comes out in units: sums of them do not drift.
const unit = 1_000_000_000

// Request counts a request, a first try. It is one atomic addition.
func (b *Budget) Request() { b.requests.Add(1) }

// CountTo is for an owner who counts requests already, and has the lowest 40
// bits of that count: it counts what is missing to total. Totals that overtake
// each other do no harm.
func (b *Budget) CountTo(total uint64) {
	for {
		n := b.requests.Load()
		missing := int64((total-n)<<24) >> 24
		if missing <= 0 || b.requests.CompareAndSwap(n, n+uint64(missing)) {
			return
		}
	}
}

// Take reserves one retry or hedge and reports whether there was one left. It
// is asked last, for a retry that would otherwise happen, and before the sleep.
func (b *Budget) Take(now time.Duration, c BudgetConfig) bool {
	c = c.withDefaults()
	if c.off() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(now, c)
	if b.used+unit > c.size() {
		return false
	}
	b.used += unit
	return true
}

// Refund gives back what Take reserved, for a retry that is not sent after all.
func (b *Budget) Refund() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(0, b.used-unit)
}

// Left returns how many retries could be sent at once: +Inf where the budget is
// off.
func (b *Budget) Left(now time.Duration, c BudgetConfig) float64 {
	c = c.withDefaults()
	if c.off() {
		return math.Inf(1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(now, c)
	return max(0, float64(c.size()-b.used)/unit)
}

// settle puts into the bucket what requests and time have earned since the last
// settlement; b.mu is held. Rounding goes down: never more than was earned.
func (b *Budget) settle(now time.Duration, c BudgetConfig) {
	n := b.requests.Load()
	b.earn(float64(n-b.settled) * math.Round(max(c.Ratio, 0)*unit))
	b.settled = n
	if now > b.at { // concurrent callers may bring their times out of order
		b.earn(float64(now-b.at) * max(c.PerSecond, 0))
		b.at = now
	}
	b.used = min(b.used, c.size()) // the size may be smaller than it was
}

func (b *Budget) earn(units float64) {
	if units >= float64(b.used) {
		b.used = 0
		return
	}
	b.used -= int64(units)
}

func (c BudgetConfig) withDefaults() BudgetConfig {
	if c.Ratio == 0 {
		c.Ratio = 0.2
	}
	if c.PerSecond == 0 {
		c.PerSecond = 3
	}
	if c.Window <= 0 {
		c.Window = 10 * time.Second
	}
	if c.Burst <= 0 {
		c.Burst = 10
		if c.PerSecond > 0 {
			c.Burst = c.PerSecond * c.Window.Seconds()
		}
	}
	return c
}

// off reports whether nothing limits retries.
func (c BudgetConfig) off() bool { return c.Ratio < 0 && c.PerSecond < 0 }

// size returns the size of the bucket in units.
func (c BudgetConfig) size() int64 {
	return int64(min(max(c.Burst, 1), 1e6) * unit)
}
