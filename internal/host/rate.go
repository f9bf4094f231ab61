// How many requests per second may this client send?

package host

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// rateCut is what a 429 leaves of the rate: the factor of CUBIC (RFC 9438
	// §4.6), which AWS's adaptive mode uses as well.
	rateCut = 0.7

	// rateCutGap is the least time from one cut to the next: with one request at
	// a time each 429 would else be a flight of its own.
	rateCutGap = 100 * time.Millisecond

	// rateRecovery is the time that successes need to bring the rate from
	// nothing back to what is configured.
	rateRecovery = 30 * time.Second

	// rateFloor, per second, and rateFloorShare of the configured rate, the
	// lower of the two, bound the cuts.
	rateFloor      = 0.5
	rateFloorShare = 0.1

	// rateAhead is how long before its time the first in line takes its token.
	// Timers are late by up to a millisecond or so: were each to start only when
	// the one before it went, no more than a thousand per second would go
	// without a burst.
	rateAhead = 10 * time.Millisecond

	// rateSample is the time over which the real rate is measured; a sample
	// that took rateStale says that there was a pause, and nothing about the
	// rate.
	rateSample = 500 * time.Millisecond
	rateStale  = 2 * time.Second
)

// A RateConfig bounds the sends to a host. PerSecond must be positive.
type RateConfig struct {
	PerSecond float64
	// Burst is how many sends may come at once. Default PerSecond rounded up.
	Burst int
	// Adaptive makes a 429 lower the rate and successes raise it again.
	Adaptive bool
}

// A Rate is a limit of sends per second, retries included: a token bucket,
// golang.org/x/time/rate without its sleeps. In adaptive mode a 429 sets the
// rate to 0.7 of what it was, or of what was really sent if that is less, at
// most once per flight and per 100 ms, and what was saved up is gone; successes
// raise it evenly, from nothing to the configured rate in 30 s.
//
// Times are time.Time here, since x/time has it so. All methods are safe for
// concurrent use.
type Rate struct {
	lim *rate.Limiter

	turns sync.Mutex // guards the queue and every waiter in it; taken before mu
	queue queue

	mu      sync.Mutex // guards what follows
	conf    RateConfig
	current float64   // per second
	cut     time.Time // the last 429 that lowered the rate
	raised  time.Time // until when successes have been credited

	sample   time.Time // when this sample of the real rate began
	sent     int       // in it
	measured float64   // per second, smoothed; zero when not known
}

// NewRate returns a limit with a full bucket.
func NewRate(c RateConfig) *Rate {
	c = c.withDefaults()
	return &Rate{
		lim:     rate.NewLimiter(rate.Limit(c.PerSecond), c.Burst),
		conf:    c,
		current: c.PerSecond,
	}
}

// Set changes the configuration. What was lowered by a 429 stays lowered.
func (r *Rate) Set(now time.Time, c RateConfig) {
	c = c.withDefaults()
	defer r.tell() // with mu free
	r.mu.Lock()
	defer r.mu.Unlock()
	if c == r.conf {
		return
	}
	lowered := r.current < r.conf.PerSecond
	r.conf = c
	if !c.Adaptive || !lowered {
		r.current = c.PerSecond
	}
	r.apply(now, min(r.current, c.PerSecond))
	r.lim.SetBurstAt(now, c.Burst)
}

// Enter asks for a place, which is at the same time now and, for x/time, at. A
// nil w is for a request that will not wait its turn: it takes no place in the
// line. One that has to wait asks again with the same w, or leaves. The answer
// is never Refuse; with Go, Until is when to go, now or at most 10 ms later.
// Those who wait for longer take no tokens in advance: when the rate changes,
// it changes for them as well.
func (r *Rate) Enter(now time.Duration, at time.Time, w *Waiter) (a Answer) {
	r.turns.Lock()
	var next *Waiter
	switch wait := r.tokens(at, 1); {
	case r.queue.turn(w) && wait <= rateAhead+time.Microsecond:
		wait = r.lim.ReserveN(at, 1).DelayFrom(at).Round(time.Microsecond) // its floats lose a nanosecond
		r.count(at)
		r.queue.leave(w)
		a, next = Answer{Until: after(now, wait)}, r.queue.first
	case r.queue.turn(w):
		a = Answer{Verb: Wait, Ask: after(now, (wait - rateAhead).Truncate(time.Microsecond)), Until: after(now, wait)}
	default:
		a = Answer{Verb: Wait, Ask: Never}
		if w == nil || w.in == nil {
			a.Until = after(now, r.behind(at))
		}
	}
	if a.Verb == Wait && w != nil {
		r.queue.join(w)
	}
	r.turns.Unlock()
	next.wake()
	return a
}

// Leave gives up the place of w in the line.
func (r *Rate) Leave(w *Waiter) {
	r.turns.Lock()
	next := r.queue.leave(w)
	r.turns.Unlock()
	next.wake()
}

// tell wakes the first in line after the rate has changed.
func (r *Rate) tell() {
	r.turns.Lock()
	next := r.queue.first
	r.turns.Unlock()
	next.wake()
}

// Take takes a place if there is one now.
func (r *Rate) Take(now time.Time) bool {
	if !r.lim.AllowN(now, 1) {
		return false
	}
	r.count(now)
	return true
}

// Peek estimates how long a request that came at that time, now or later,
// would wait behind those in line, without taking a place.
func (r *Rate) Peek(at time.Time) time.Duration {
	r.turns.Lock()
	defer r.turns.Unlock()
	return r.behind(at)
}

// behind returns how long the next in line after all there are would wait;
// r.turns is held.
func (r *Rate) behind(at time.Time) time.Duration { return r.tokens(at, r.queue.n+1) }

// tokens returns how long it takes until there are that many.
func (r *Rate) tokens(at time.Time, n int) time.Duration {
	missing := float64(n) - r.lim.TokensAt(at)
	if missing <= 0 {
		return 0
	}
	ns := math.Ceil(missing / float64(r.lim.Limit()) * float64(time.Second))
	if ns >= float64(Never) {
		return Never
	}
	return time.Duration(ns)
}

// Throttled is told of a 429 to a request that was sent at that time. Those
// sent before the last one that lowered the rate are of the same flight.
func (r *Rate) Throttled(now, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.conf.Adaptive || !r.cut.IsZero() && (!sent.After(r.cut) || now.Sub(r.cut) < rateCutGap) {
		return
	}
	// What was saved up is what the server refuses: left there, the burst
	// would go on after the cut, and bring the next.
	if saved := int(r.lim.TokensAt(now)); saved > 0 {
		r.lim.AllowN(now, saved)
	}
	base := r.current
	if r.measured > 0 {
		base = min(base, r.measured)
	}
	r.cut, r.raised = now, now
	// After an Update the rate may be below the new floor.
	r.apply(now, min(r.current, max(base*rateCut, min(rateFloor, r.conf.PerSecond*rateFloorShare))))
}

// Succeeded is told of a success, which raises a rate that was lowered. Only
// time in which requests succeed counts.
func (r *Rate) Succeeded(now time.Time) {
	if r.raise(now) {
		r.tell()
	}
}

func (r *Rate) raise(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current >= r.conf.PerSecond || !now.After(r.raised) {
		return false
	}
	passed := min(now.Sub(r.raised), time.Second)
	r.raised = now
	r.apply(now, min(r.conf.PerSecond, r.current+r.conf.PerSecond*float64(passed)/float64(rateRecovery)))
	return true
}

// PerSecond returns the present rate.
func (r *Rate) PerSecond() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

func (r *Rate) apply(now time.Time, perSecond float64) {
	r.current = perSecond
	r.lim.SetLimitAt(now, rate.Limit(perSecond))
}

// count measures what is really sent: lowering a limit far above it would
// change nothing.
func (r *Rate) count(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.conf.Adaptive {
		return
	}
	switch passed := now.Sub(r.sample); {
	case passed >= rateStale:
		r.measured, r.sent, r.sample = 0, 0, now
	case passed >= rateSample:
		perSecond := float64(r.sent) / passed.Seconds()
		if r.measured > 0 {
			perSecond = 0.8*perSecond + 0.2*r.measured
		}
		r.measured, r.sent, r.sample = perSecond, 0, now
	}
	r.sent++
}

func (c RateConfig) withDefaults() RateConfig {
	if c.Burst <= 0 {
		c.Burst = int(min(max(math.Ceil(c.PerSecond), 1), math.MaxInt32))
	}
	return c
}
