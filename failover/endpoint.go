// The state of an endpoint: whether it is down, and when a request finds out whether it is back.

package failover

import (
	"cmp"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

const (
	downAfter  = 5               // failures in a row
	silentTime = time.Second     // the shortest silence that takes an endpoint down, unless its Timeout is shorter
	probePause = time.Second     // between two requests that find out whether an endpoint is back
	riskPause  = 9 * time.Second // is added, if such a request could not go on
)

// An endpoint is an Endpoint with its state.
type endpoint struct {
	Endpoint
	base  *url.URL
	first bool

	probing atomic.Bool // a request finds out whether the endpoint is back

	mu     sync.Mutex // guards the fields below
	failed int        // requests in a row
	silent time.Time  // when the first of them began that ended in a silence
	down   bool
	due    time.Time // when the next request may find out whether the endpoint is back
}

// up reports whether the endpoint is not known to be down.
func (e *endpoint) up() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.down
}

// probe reports whether a request is the one that finds out whether the endpoint is back. If it could not go on
// from there, others go before it.
func (e *endpoint) probe(risks bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	wait := time.Until(e.due)
	if risks {
		wait += riskPause
	}
	return wait <= 0 && e.probing.CompareAndSwap(false, true)
}

// A sign is what an outcome shows of its endpoint.
type sign int

const (
	nothing  sign = iota // something else than the endpoint is at fault
	response             // the endpoint is up
	failure
	silence // nothing came until the time was over or the caller left
)

// note notes a sign. A caller may have had little time. So a silence takes the endpoint down only if it has answered
// nobody for a while.
func (e *endpoint) note(s sign, probed bool, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case s == nothing:
		return
	case s == response:
		e.failed, e.silent, e.down = 0, time.Time{}, false
		return
	case s == silence && e.silent.IsZero():
		e.silent = began
	}
	e.failed++
	if s == silence && time.Since(e.silent) < min(cmp.Or(max(e.Timeout, 0), silentTime), silentTime) {
		return
	}
	if probed || !e.down && e.failed >= downAfter {
		e.down = e.failed >= downAfter // a response may have come while a request probed
		e.due = time.Now().Add(max(probePause, time.Since(began)))
	}
}
