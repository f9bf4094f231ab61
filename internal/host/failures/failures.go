// Package failures counts the failures of a host in a row. It is what a Transport knows of a host
// that fails, besides the limiter's own opinion: whether the host is down without a concurrency limit, and whether
// retries help.
package failures

import (
	"sync"
	"sync/atomic"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const (
	// downAfter is how many failures in a row mean that the host is down.
	downAfter = 5
	// helplessAfter is how many failures of retries in a row mean that retries do not help.
	helplessAfter = 20
)

// A Run counts the attempts that failed since the last success. The zero Run is ready. All methods
// are safe for concurrent use.
type Run struct {
	some atomic.Bool // there is a failure, to be read without the lock

	mu      sync.Mutex // guards everything below
	n       int
	retries int             // that failed
	since   instant.Instant // when the first of the n began
}

// Failed notes the failure of an attempt that began at a time.
func (r *Run) Failed(began instant.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n == 1 {
		r.since = began
	}
	r.some.Store(true)
}

// RetryFailed notes that a retry did not help. The owner does not call it if the server asked for a
// wait, because that is an answer.
func (r *Run) RetryFailed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retries++
	r.some.Store(true)
}

// Succeeded notes the success of an attempt, be it a retry or not. Without a failure before it,
// it is a single atomic load.
func (r *Run) Succeeded() {
	if !r.some.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n, r.retries = 0, 0
	r.some.Store(false)
}

// Down reports whether the last five attempts failed, and when the first failure in a row began.
func (r *Run) Down() (since instant.Instant, down bool) {
	if !r.some.Load() {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since, r.n >= downAfter
}

// Helpless reports whether the last 20 retries failed.
func (r *Run) Helpless() bool {
	if !r.some.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retries >= helplessAfter
}
