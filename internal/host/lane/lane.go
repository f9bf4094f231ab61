// Package lane knows the lanes of a host: over which connections its attempts go.
package lane

import (
	"net/http"
	"sync/atomic"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A Lane is a pool of connections to a host. The first lane of a host is the base
// transport itself, which other hosts share. Further lanes belong to one host. The nil
// Lane is a first lane of which nothing is known. A Lane is safe for concurrent use.
type Lane struct {
	Number int               // counts the lanes of the host; 0: the first
	Base   http.RoundTripper // sends the attempts; nil: the base transport itself

	// Ways is the number of addresses that the name had when the lane last dialled. It is
	// 0 if that is not known.
	Ways atomic.Int32

	// Room is the number of connections that the lane may have, and Conns the number that
	// it has. Both are 0 if nothing bounds them.
	Room  int
	Conns atomic.Int32

	heard   atomic.Int64 // when something came over it last; 0: never
	proven  atomic.Bool  // it has brought a good response
	doubted atomic.Bool  // the last that is known of it is a failure
	stale   atomic.Int64 // see Stale

	// net/http dials once for each request that finds no connection, also over HTTP/2. So
	// one attempt goes ahead on a new lane, and the others wait for its connection.
	ahead     atomic.Bool
	connected atomic.Bool
	ready     chan struct{} // closed when connected is true; nil: of the first lane
	swept     int64         // heard at the last Sweep; guarded by the lock of the Lanes
}

// New returns a lane that is not connected.
func New(base http.RoundTripper) *Lane {
	return &Lane{Base: base, ready: make(chan struct{})}
}

// Ahead reports whether the caller's attempt is the first on a lane that is not connected.
// The attempt then makes the connection. It must call Connected when it has it, and when
// it has failed.
func (l *Lane) Ahead() bool { return l.ahead.CompareAndSwap(false, true) }

// Ready returns the channel for which the other attempts wait. It is closed when the lane
// is connected.
func (l *Lane) Ready() <-chan struct{} { return l.ready }

// Doubt notes that the lane did worse than another.
func (l *Lane) Doubt() { l.doubted.Store(true) }

// IsConnected reports whether attempts need not wait.
func (l *Lane) IsConnected() bool { return l == nil || l.ready == nil || l.connected.Load() }

// Connected lets the attempts go that wait.
func (l *Lane) Connected() {
	if l != nil && l.ready != nil && l.connected.CompareAndSwap(false, true) {
		close(l.ready)
	}
}

// Many reports whether the name had several addresses when the lane last dialled.
func (l *Lane) Many() bool { return l != nil && l.Ways.Load() > 1 }

// Heard returns when something came over the lane last, or 0 if nothing ever did.
func (l *Lane) Heard() instant.Instant {
	if l == nil {
		return 0
	}
	return instant.Instant(l.heard.Load())
}

// Stale returns when the lane was silent, if there can be no other lane. Its idle connections
// are to be closed before the next attempt. Otherwise it returns 0.
func (l *Lane) Stale() instant.Instant {
	if l == nil {
		return 0
	}
	return instant.Instant(l.stale.Load())
}

// Refresh ends that state. It reports whether the caller is the one to close the connections.
func (l *Lane) Refresh() bool { return l.stale.Swap(0) != 0 }

// alive reports whether something came over the lane since then.
func (l *Lane) alive(since instant.Instant) bool { return l != nil && l.Heard() > since }

// Hear notes that something came over the lane, so its connections are not dead.
func (l *Lane) Hear(now instant.Instant) { l.heard.Store(int64(max(now, 1))) }
