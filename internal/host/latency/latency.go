// Package latency knows how long a host's responses took lately.
package latency

import (
	"slices"
	"sync"
	"time"
)

const (
	// A duration below lowest counts in the first bucket.
	lowest = 10 * time.Microsecond

	// buckets is the number of steps of a twentieth from lowest to two minutes. A longer
	// duration counts in the last.
	buckets = 336

	// All counts are halved when there are full samples. So the last two
	// to four thousand responses of the host count.
	full = 4096
)

// bounds are the upper bounds of the buckets, inclusive. Each is a twentieth
// above the bound before it, so a quantile is at most 5 % too high and never too
// low.
var bounds = func() (b [buckets]time.Duration) {
	d := lowest
	for i := range b {
		b[i] = d
		d += d / 20
	}
	return b
}()

// A Latency is a histogram of a host's recent latencies. Its buckets are in
// geometric progression, as in HdrHistogram and DDSketch. It takes less than 700
// bytes. The zero value is ready. All methods are safe for concurrent use.
//
// For hedging, record the time of the first attempt. If the first attempt was
// cancelled because its hedge won, record the time until then. That is less than
// the attempt would have taken, but more than the percentile, so the percentile
// stays the same. Without these samples each hedge would make the next hedge come
// sooner.
type Latency struct {
	mu     sync.Mutex // guards everything below
	total  int32
	top    int32 // no later bucket ever had a sample
	counts [buckets]uint16
}

// Record adds a sample.
func (l *Latency) Record(d time.Duration) {
	i, _ := slices.BinarySearch(bounds[:buckets-1], d) // the bound of the bucket is not below d
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[i]++
	l.top = max(l.top, int32(i))
	if l.total++; l.total >= full {
		l.forget()
	}
}

// Quantile returns a duration that the fraction q of the recent samples did not
// exceed. It is at most 5 % above the smallest such duration. So a request that
// takes longer is strictly beyond the quantile. ok is false while there are fewer
// than 2/(1−q) samples, or fewer than 20. If q is above 0.999, ok is always false.
func (l *Latency) Quantile(q float64) (d time.Duration, ok bool) {
	if !(q > 0 && q <= 0.999+1e-9) { // beyond 0.999 there can never be enough samples
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	beyond := (1 - q) * float64(l.total) // how many samples may be longer
	if l.total < 20 || beyond < 2-1e-9 {
		return 0, false
	}
	most, longer := int(beyond+1e-9), 0
	for i, n := range slices.Backward(l.counts[:l.top+1]) {
		if longer += int(n); longer > most {
			return bounds[i], true
		}
	}
	return bounds[0], true
}

// forget halves all counts; the lock is held. An odd remainder is carried to the next
// bucket. If it were dropped, the thin tail would vanish, and quantiles are about
// the tail.
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
