// How long do answers of this host take, lately?

package host

import (
	"sort"
	"sync"
	"time"
)

const (
	// latencyFloor and latencyTop are what is told apart; everything outside
	// counts as the first and the last bucket.
	latencyFloor = 10 * time.Microsecond
	latencyTop   = 2 * time.Minute

	// latencyBuckets is as many as it takes from the one to the other in steps
	// of a twentieth.
	latencyBuckets = 336

	// latencyForget is how many samples there are when all counts are halved:
	// the host's last two to four thousand answers are what "lately" means.
	latencyForget = 4096
)

// latencyBounds are the upper bounds of the buckets, inclusive: each a
// twentieth above the one before, so that a quantile is at most 5 % too high
// and never too low.
var latencyBounds = func() (b [latencyBuckets]time.Duration) {
	d := latencyFloor
	for i := range b {
		b[i] = d
		d += d / 20
	}
	return b
}()

// A Latency is a histogram of a host's recent latencies with buckets in
// geometric progression, as in HdrHistogram and DDSketch. It takes less than
// 700 bytes. The zero value is ready. All methods are safe for concurrent use.
//
// For hedging, the time of the first send is what has to be recorded, and for
// one that was cancelled because its hedge won, the time until then. That is
// less than it would have taken, but more than the percentile, so the
// percentile stays where it is; without these samples each hedge would make
// the next come sooner.
type Latency struct {
	mu     sync.Mutex // guards what follows
	total  int32
	counts [latencyBuckets]uint16
}

// Record adds a sample.
func (l *Latency) Record(d time.Duration) {
	i := min(latencyBucket(d), latencyBuckets-1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[i]++
	if l.total++; l.total >= latencyForget {
		l.forget()
	}
}

// Quantile returns a duration that the fraction q of the recent samples did not
// exceed, at most 5 % above the smallest such duration: who waits for longer is
// strictly beyond the quantile. ok is false while there are fewer than
// 2/(1−q) samples, at least 20, as always for q above 0.999.
func (l *Latency) Quantile(q float64) (d time.Duration, ok bool) {
	if !(q > 0 && q <= 0.999+1e-9) { // beyond that there can never be enough samples
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	beyond := (1 - q) * float64(l.total) // how many may be longer
	if l.total < 20 || beyond < 2-1e-9 {
		return 0, false
	}
	longer := 0
	for i := latencyBuckets - 1; i > 0; i-- {
		longer += int(l.counts[i])
		if float64(longer) > beyond+1e-9 {
			return latencyBounds[i], true
		}
	}
	return latencyBounds[0], true
}

// Samples returns how many samples count at present.
func (l *Latency) Samples() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.total)
}

// forget halves all counts; l.mu is held. What does not divide is carried to
// the next bucket: dropped, it would take the thin tail with it, which is what
// quantiles are about.
func (l *Latency) forget() {
	var total, carry int32
	for i, n := range l.counts {
		carry += int32(n)
		l.counts[i] = uint16(carry / 2)
		total += carry / 2
		carry %= 2
	}
	l.total = total
}

// latencyBucket returns the first bucket whose bound is not below d.
func latencyBucket(d time.Duration) int {
	return sort.Search(latencyBuckets, func(i int) bool { return latencyBounds[i] >= d })
}
