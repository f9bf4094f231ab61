// Package outage knows whether a host without a gate is down, for requests that can go to
// another host instead.
package outage

import (
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/latency"
)

const (
	failRun  = 5                // failures in a row mean that the host is down
	tryEvery = time.Second      // the time between two requests that try a host that is down
	spared   = 30 * time.Second // a request that must not be repeated tries the host if no other came for so long
)

// An Outage counts the failures of a host in a row. The zero Outage is ready. All methods
// are safe for concurrent use.
type Outage struct {
	mu    sync.Mutex // guards everything below
	row   int
	down  bool
	since instant.Instant // when the first of the failures in a row was noted
	next  instant.Instant // when the next request may try the host
	came  instant.Instant // when a request that may be repeated came last, or another tried the host

	usual latency.Latency // how long successes take; has a lock of its own
}

// Failed notes a failure. sure means that the host itself has said that it is down.
func (o *Outage) Failed(now instant.Instant, sure bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.row++; o.row == 1 {
		o.since = now
	}
	if !o.down && (sure || o.row >= failRun) {
		o.down, o.came, o.next = true, now, instant.After(now, tryEvery)
	}
}

// Expired notes that the caller of a request left the host so much time and no more. That is a
// failure of the host if half of its successes took less, or if it had none.
func (o *Outage) Expired(now instant.Instant, took time.Duration) {
	if usual, _ := o.usual.Median(); took >= usual {
		o.Failed(now, false)
	}
}

// Succeeded notes a success, which ends the outage, and how long it took. 0 means that nobody
// knows.
func (o *Outage) Succeeded(took time.Duration) {
	if took > 0 {
		o.usual.Record(took)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.row, o.down = 0, false
}

// Down reports whether the host is down. A nil Outage was never told of a failure.
func (o *Outage) Down() bool {
	if o == nil {
		return false
	}
	_, down := o.Since()
	return down
}

// Since returns when the first of the failures in a row was noted, and whether the host is down.
func (o *Outage) Since() (since instant.Instant, down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since, o.down
}

// Try reports whether a request may go to the host: always if the host is not down, and
// otherwise one request per second. again means that the request may be repeated. Others
// are spared, and so are all while a wait lasts that the host asked for.
func (o *Outage) Try(now instant.Instant, again, waits bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.down:
		return true
	case waits && again:
		o.came = now
		return false
	case waits, o.spares(now, o.came, again), now < o.next:
		return false
	}
	o.next = instant.After(now, tryEvery)
	return true
}

// Spares reports whether a request keeps away from a host whose gate has been closed since a
// time. A request does if it must not be repeated, as long as others will try the host.
func (o *Outage) Spares(now, since instant.Instant, again bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.spares(now, since, again)
}

// spares is Spares; the lock is held.
func (o *Outage) spares(now, since instant.Instant, again bool) bool {
	if !again && now.Sub(max(o.came, since)) < spared {
		return true
	}
	o.came = now
	return false
}
