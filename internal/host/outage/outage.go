// Package outage knows whether a host without a gate is down, for requests that can go to
// another host instead.
package outage

import (
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const (
	failRun  = 5           // failures in a row mean that the host is down
	tryEvery = time.Second // the time between two requests that try a host that is down
)

// An Outage counts the failures of a host in a row. The zero Outage is ready. All methods
// are safe for concurrent use.
type Outage struct {
	mu   sync.Mutex // guards everything below
	row  int
	down bool
	next instant.Instant // when the next request may try the host
}

// Failed notes a failure. sure means that the host itself has said that it is down.
func (o *Outage) Failed(now instant.Instant, sure bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.row++
	if !o.down && (sure || o.row >= failRun) {
		o.down, o.next = true, instant.After(now, tryEvery)
	}
}

// Succeeded notes a success, which ends the outage.
func (o *Outage) Succeeded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.row, o.down = 0, false
}

// Down reports whether the host is down.
func (o *Outage) Down() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.down
}

// Try reports whether a request may go to the host: always if the host is not down, and
// otherwise one request per second.
func (o *Outage) Try(now instant.Instant) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.down:
		return true
	case now < o.next:
		return false
	}
	o.next = instant.After(now, tryEvery)
	return true
}
