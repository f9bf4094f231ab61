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
// A retry that is not sent is refunded. By then requests and time may have put
// its unit back already. If the refund put it back once more, callers who give
// up late would let others send again what the rule has counted. So the used
// part is a queue of retries, of which what is earned repays the oldest first,
// and a refund returns only what is still owed for its own retry. Proof that
// the rule survives: the debts of different retries are different parts of the
// queue. What refunds of older retries return within a window was thus owed at
// its begin, so it is a part of used at that time, and the retries that were
// taken in the window are still at most Burst plus what was earned in it plus
// what was refunded of them.
//
// The zero Budget is ready and full. All methods are safe for concurrent use.
type Budget struct {
	// requests counts for ever; how many are new is found by comparison, so
	// that counting is a single atomic addition.
	requests atomic.Uint64

	mu      sync.Mutex // guards what follows and every Charge in the queue
	settled uint64     // requests that are in the bucket
	at      time.Duration
	used    int64   // in units; 0 is a full bucket
	oldest  *Charge // the first of a ring of all that is owed, nil when used is 0
}

// A Charge is what one retry took from a Budget. Its owner hands it back to
// Release if the retry is not sent, and forgets it otherwise.
type Charge struct {
	owed       int64   // in units; 0: repaid or refunded, and not in the ring
	prev, next *Charge // in the ring, from the oldest to the newest and round
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

// Take reserves one retry or hedge, and returns nil if none is left. It is
// asked last, for a retry that would otherwise happen, and before the sleep.
func (b *Budget) Take(now time.Duration, c BudgetConfig) *Charge {
	c = c.withDefaults()
	if c.off() {
		return &Charge{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(now, c)
	if b.used+unit > c.size() {
		return nil
	}
	b.used += unit
	return b.owe()
}

// Release gives back what Take reserved, for a retry that is not sent after all:
// as much of it as was not earned back meanwhile. A second Release of the same
// retry returns nothing.
func (b *Budget) Release(now time.Duration, c BudgetConfig, taken *Charge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(now, c.withDefaults())
	b.used -= taken.owed
	b.forgive(taken)
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
	b.earn(float64(b.used - c.size())) // the size may be smaller than it was
}

// earn repays the oldest retries first; b.mu is held.
func (b *Budget) earn(units float64) {
	if units <= 0 {
		return
	}
	left := b.used
	if units < float64(left) {
		left = int64(units)
	}
	b.used -= left
	for left > 0 {
		c := b.oldest
		part := min(left, c.owed)
		left -= part
		if c.owed -= part; c.owed == 0 {
			b.forgive(c)
		}
	}
}

// owe puts a new retry at the end of the ring; b.mu is held.
func (b *Budget) owe() *Charge {
	c := &Charge{owed: unit}
	if b.oldest == nil {
		c.prev, c.next = c, c
		b.oldest = c
		return c
	}
	c.prev, c.next = b.oldest.prev, b.oldest
	c.prev.next, c.next.prev = c, c
	return c
}

// forgive takes a retry out of the ring, if it is in it; b.mu is held.
func (b *Budget) forgive(c *Charge) {
	c.owed = 0
	if c.next == nil {
		return
	}
	switch {
	case c.next == c:
		b.oldest = nil
	case b.oldest == c:
		b.oldest = c.next
	}
	c.prev.next, c.next.prev = c.next, c.prev
	c.prev, c.next = nil, nil
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
