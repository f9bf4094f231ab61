// Package budget limits how many retries are sent per request.
package budget

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// window is the time within which PerSecond earns a whole Burst.
const window = 10 * time.Second

// A Config says how many retries and hedges a host may be sent. Zero
// fields take the defaults. A negative Ratio or PerSecond turns that part off. If
// both are negative, the budget is off.
type Config struct {
	// Ratio is how many retries each request earns. The default is 0.2.
	Ratio float64
	// PerSecond is how many retries each second earns, so that a quiet client
	// keeps all of its retries. The default is 3.
	PerSecond float64
	// Burst is how many retries can be saved up, and so be sent at once. The
	// default is what a window of PerSecond earns, or 10 if PerSecond is off. It is at least 1.
	Burst float64
	// Rests says that retries do not help: the last 20 in a row have failed.
	Rests bool
	// Requests is how many requests began. The owner counts them, and only the lowest 40 bits
	// matter. Totals that arrive out of order do no harm.
	Requests uint64

	// Complete fills in the fields below, too.
	off     bool    // nothing limits retries
	earned  float64 // by a request, in units
	rate    float64 // by a nanosecond, in units
	size    int64   // of the bucket, in units; 0: Complete was not called
	members int     // that share the budget; 0: one

	restEarned    float64 // by a request while the budget rests, in units
	restPerSecond float64 // by a second of it
}

// A Budget bounds the retries and hedges to a host over time, as in Google's
// SRE book (Handling Overload) and in Finagle's RetryBudget. A client without a
// budget that sends everything up to six times makes an outage six times worse.
//
// # The rule
//
// In every window of time, of any length and anywhere,
//
//	retries ≤ Ratio × requests in it + PerSecond × its length + Burst
//
// where retries are those that belong to the window and were not released. The
// Budget is a token bucket of size Burst. Each request puts Ratio into the bucket,
// and each second puts PerSecond into it.
//
// Proof. Let used be the empty part of the bucket. It is never below 0 and never
// above Burst, so it grows by at most Burst in a window. It grows by a unit per
// retry. It shrinks by at most the amount that the requests and seconds of the
// window put in. No other bucket lets more pass and keeps the rule in every window.
// Credit cannot pile up beyond Burst, which time alone restores within the window.
// Nothing older than that is remembered.
//
// # Later retries
//
// A retry is reserved before its wait. If the server named the wait, the retry belongs to the
// window in which it will be sent. So its unit is taken from the bucket at that time. Until then the
// Budget plans with it: a retry is only reserved if the bucket will have a unit for it and for all
// retries that are planned after it, even if no further request comes. Without this, a server that
// names the same end of a wait to many requests would get all of their retries in one moment. A
// back-off spreads the retries by itself, so they belong to the window before it. Otherwise the
// requests that come during the back-off would earn nothing for them.
//
// # Late settlement
//
// Requests are counted without a look at the clock. They are put into the bucket
// when a retry is asked for. This changes nothing. While nobody takes, used only
// shrinks, down to 0, and max(0, max(0, used−a)−b) = max(0, used−a−b). So a late
// settlement ends at the same value as many early settlements. If planned retries were due
// since the last settlement, all requests are put in before them. Then used is never less
// than with the true order.
//
// # Release
//
// A retry that is not sent is released. By then requests and time may already have
// put its unit back. If the release put the unit back once more, callers that give
// up late would let others send again more than the rule allows. So the used part
// is a queue of retries. Earned units repay the oldest retry first. A release
// returns only the part that is still owed for its own retry.
//
// Proof that the rule holds. The debts of different retries are different parts of
// the queue. Suppose that older retries are released within a window. Their debts
// were owed at its begin, so they were part of used at that time. So the retries
// that were taken in the window are at most Burst, plus the units that were earned
// in it, plus the units that were released of those retries.
//
// # Rest
//
// When 20 retries in a row have failed, and no attempt has succeeded meanwhile, retries do not
// help. The owner says so in the Config. Then the Budget rests until the next success of any
// attempt. While it rests, a retry
// needs room in a second bucket, too. That bucket has the size 1 and is empty when the rest
// begins. Each request puts 0.02 into it, and each minute puts 1, or what Ratio and PerSecond
// are if they are less. So within a rest, in every window,
//
//	retries ≤ requests in it / 50 + its length in minutes + 1
//
// Proof. A retry of a rest is taken from both buckets. The second bucket is a token bucket like the
// first, so the proof above holds for it, with its own figures. The first bucket
// neither knows nor needs to know of the rest. So the rule above holds in every window, whether
// the Budget rests in it, all the time, or again and again.
//
// # Fewer settings
//
// If a config makes the bucket smaller, what is used stays used. Otherwise a fleet whose size
// is told to be 100 and then 1 again would have forgotten its retries.
//
// The zero Budget is ready and full. All methods are safe for concurrent use.
type Budget struct {
	mu       sync.Mutex // guards everything below, and every Charge in the queue
	requests uint64     // that are in the bucket; never goes back
	at       instant.Instant
	used     int64     // in units; 0 is a full bucket
	oldest   *Charge   // the first in a ring of all debts; nil if used is 0
	planned  []*Charge // not taken from the bucket yet, from the first to the last

	rests  bool
	rested int64   // what the bucket of the rest has, in units
	last   *Charge // the last retry that was taken from it
}

// A Charge is the cost of a retry. The owner passes it to Release if the retry is
// not sent, and forgets it otherwise.
type Charge struct {
	at         instant.Instant // to which the retry belongs
	owed       int64           // in units; 0 means planned, repaid or released, and not in the ring
	prev, next *Charge         // in the ring, from the oldest to the newest
}

// noCharge is the charge of a budget that is off. It is never changed.
var noCharge = new(Charge)

// unit is the cost of a retry. In billionths the usual ratios are exact. A rate per
// second times nanoseconds gives units, so sums of them do not drift.
const unit = 1_000_000_000

// Take reserves a retry or hedge that belongs to a time, now or later. It returns nil if none is left then. Take
// is the last question before a retry, and comes before the wait.
func (b *Budget) Take(now, at instant.Instant, c Config) *Charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.settle(now, &c); c.off {
		return noCharge
	}
	i, _ := slices.BinarySearchFunc(b.planned, at, func(c *Charge, at instant.Instant) int { return cmp.Compare(c.at, at) })
	used, last := float64(b.used), now
	for j := range len(b.planned) + 1 { // the planned retries, and this one
		next := at
		switch {
		case j < i:
			next = b.planned[j].at
		case j > i:
			next = b.planned[j-1].at
		}
		used = max(0, used-float64(next-last)*c.rate) + unit
		if last = next; j >= i && used > float64(c.size) {
			return nil
		}
	}
	taken := &Charge{at: at}
	if b.rests {
		if b.rested < unit {
			return nil
		}
		b.rested, b.last = b.rested-unit, taken
	}
	b.planned = slices.Insert(b.planned, i, taken)
	b.settle(now, &c) // it may be due
	return taken
}

// Release gives back a retry that is not sent after all, except for the part that
// was earned back meanwhile. A second Release of the same retry returns nothing.
func (b *Budget) Release(now instant.Instant, c Config, taken *Charge) {
	if taken == noCharge {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(now, &c)
	if taken == b.last { // the bucket of the rest has room for one retry, so older ones are repaid
		b.rested, b.last = unit, nil
	}
	b.planned = slices.DeleteFunc(b.planned, func(c *Charge) bool { return c == taken })
	b.used -= taken.owed
	b.forgive(taken)
}

// Left returns how many retries could be sent at once. It is +Inf if the budget is
// off.
func (b *Budget) Left(now instant.Instant, c Config) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.settle(now, &c); c.off {
		return math.Inf(1)
	}
	room := float64(c.size - b.used)
	left := room
	for _, p := range b.planned {
		room -= unit
		left = min(left, room+float64(p.at-now)*c.rate)
	}
	if b.rests {
		left = min(left, float64(b.rested))
	}
	return max(0, left/unit)
}

// Next returns when time alone has earned a retry: not before it, because planned retries may come
// first. It is 0 if that is not known, or if time earns none.
func (b *Budget) Next(now instant.Instant, c Config) instant.Instant {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(now, &c)
	wait := float64(b.used+unit-c.size) / c.rate
	if b.rests {
		wait = max(wait, float64(unit-b.rested)/c.restPerSecond)
	}
	if !(wait > 0 && wait < math.MaxInt64) { // not a number if one is left and time earns none
		return 0
	}
	return instant.After(now, time.Duration(math.Ceil(wait)))
}

// settle completes the config if it is not complete, and puts into the bucket what requests
// and time have earned since the last settlement; the lock is held. It rounds down, so that no
// more is put in than was earned.
func (b *Budget) settle(now instant.Instant, c *Config) {
	if c.size == 0 {
		*c = c.Complete()
	}
	requests := max(0, int64((c.Requests-b.requests)<<24)>>24)
	b.requests += uint64(requests)
	switch {
	case c.Rests != b.rests:
		b.rests, b.rested, b.last = c.Rests, 0, nil
	case c.Rests:
		b.rested = min(unit, b.rested+int64(float64(requests)*c.restEarned+float64(max(now, b.at)-b.at)*c.restPerSecond))
	}
	b.earn(float64(requests) * c.earned)
	due := 0
	for ; due < len(b.planned) && b.planned[due].at <= now; due++ {
		p := b.planned[due]
		b.pass(p.at, c)
		b.used += unit
		p.owed = unit
		if b.oldest == nil {
			b.oldest, p.prev = p, p
		}
		p.prev, p.next = b.oldest.prev, b.oldest // at the end of the ring
		p.prev.next, p.next.prev = p, p
	}
	b.planned = slices.Delete(b.planned, 0, due)
	b.pass(now, c)
}

// pass puts into the bucket what the time until now has earned; the lock is held. Concurrent callers
// may bring their times out of order.
func (b *Budget) pass(now instant.Instant, c *Config) {
	now = max(now, b.at)
	b.earn(float64(now-b.at) * c.rate)
	b.at = now
}

// earn repays the oldest retries first; the lock is held.
func (b *Budget) earn(units float64) {
	left := int64(min(units, float64(b.used)))
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

// forgive takes a retry out of the ring if it is in the ring; the lock is held.
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

// ForMember returns the part of a complete config that falls to each of so many members. A
// member keeps what its own requests earn, and can save up 10 retries of it. The members share
// what time earns, also in a rest.
func (c Config) ForMember(members int) Config {
	if c.members = max(members, 1); c.PerSecond > 0 {
		c.PerSecond /= float64(c.members)
		c.Burst = max(c.Burst/float64(c.members), min(c.Burst, 10))
	}
	return c.Complete()
}

// Complete returns the config with all its defaults. Callers that ask a Budget often
// pass it a complete config, so that the defaults are not found anew each time.
func (c Config) Complete() Config {
	if c.Ratio == 0 {
		c.Ratio = 0.2
	}
	if c.PerSecond == 0 {
		c.PerSecond = 3
	}
	if c.Burst <= 0 {
		c.Burst = 10
		if c.PerSecond > 0 {
			c.Burst = c.PerSecond * window.Seconds()
		}
	}
	c.off = c.Ratio < 0 && c.PerSecond < 0
	c.earned = math.Round(max(c.Ratio, 0) * unit)
	c.rate = max(c.PerSecond, 0)
	c.size = int64(min(max(c.Burst, 1), 1e6) * unit)
	c.restEarned = min(c.earned, unit/50)
	c.restPerSecond = min(c.rate, 1/(60*float64(max(c.members, 1))))
	return c
}
