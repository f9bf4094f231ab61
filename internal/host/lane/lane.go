// Package lane knows the lanes of a host: over which connections its attempts go.
package lane

import (
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A Lane is a pool of connections to a host. The first lane of a host is the base
// transport itself, which other hosts share. Further lanes belong to one host. The nil
// Lane is a first lane of which nothing is known. A Lane is safe for concurrent use.
//
// net/http dials once for each request that finds no connection, also over HTTP/2. So one
// attempt seeks the first connection of a new lane, and the others wait for it. If it finds
// none, it goes over the lane that the host has, and the next attempt tries the new lane later.
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

	heard   atomic.Int64    // when something came over it last; 0: never
	proven  atomic.Bool     // it has brought a good response
	doubted atomic.Bool     // the last that is known of its connections is a failure
	stale   atomic.Int64    // see Stale
	silent  atomic.Int64    // since when it was silent when Silent last said so, plus one; 0: never
	open    atomic.Bool     // it has had a connection
	born    instant.Instant // when it was opened; 0: the first

	mu      sync.Mutex      // guards the fields below
	seeking chan struct{}   // closed when the attempt that seeks a connection is done; nil: none does
	missed  int             // attempts in a row that found none
	due     instant.Instant // when the next may try
}

// New returns a lane that has no connection.
func New(base http.RoundTripper) *Lane { return &Lane{Base: base} }

// retryAfter is the time after the first attempt that found no connection on a new lane
// until the next may try. It doubles each time, up to most.
const retryAfter = time.Second

// An Entry says what an attempt does that wants to take a lane.
type Entry uint8

const (
	Go   Entry = iota // takes it, because it has a connection
	Seek              // seeks its first connection, and must call Connected, Missed or Quit
	Wait              // waits for the attempt that does
	Shut              // takes another lane, because an attempt found no connection just before
)

// Enter says what an attempt does that wants to take the lane. An attempt that waits asks again
// when the channel is closed.
func (l *Lane) Enter(now instant.Instant) (Entry, <-chan struct{}) {
	if l.IsOpen() {
		return Go, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.seeking != nil:
		return Wait, l.seeking
	case now < l.due:
		return Shut, nil
	}
	l.seeking = make(chan struct{})
	return Seek, nil
}

// IsOpen reports whether attempts may take the lane at once.
func (l *Lane) IsOpen() bool { return l == nil || l.Number == 0 || l.open.Load() }

// Connected notes that the lane has a connection.
func (l *Lane) Connected() {
	if l == nil || l.open.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed, l.due = 0, 0
	l.open.Store(true)
	l.quit()
}

// Missed notes that the attempt which sought a connection has found none.
func (l *Lane) Missed(now instant.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seeking != nil {
		l.due = now.Add(min(retryAfter<<min(l.missed, 10), most))
		l.missed++
	}
	l.quit()
}

// Dialled notes that a dial has ended well. If the attempt for which it began does not wait for
// it any more, the next attempt finds the connection.
func (l *Lane) Dialled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = 0
}

// Quit notes that the attempt which was to seek a connection does not.
func (l *Lane) Quit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quit()
}

// quit lets the attempts go that wait; the lock is held.
func (l *Lane) quit() {
	if l.seeking != nil {
		close(l.seeking)
		l.seeking = nil
	}
}

// unused returns for how long nothing came over the lane.
func (l *Lane) unused(now instant.Instant) time.Duration { return now.Sub(max(l.Heard(), l.born)) }

// rest makes the lane one without a connection again. It reports whether it had any.
func (l *Lane) rest() bool { return l.Number > 0 && l.open.Swap(false) }

// hasMissed reports whether the last attempt that sought a connection has found none.
func (l *Lane) hasMissed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.missed > 0
}

// Doubt notes that the lane did worse than another.
func (l *Lane) Doubt() { l.doubted.Store(true) }

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

// Refreshed ends that state, because the connections that were idle then are closed.
func (l *Lane) Refreshed(since instant.Instant) { l.stale.CompareAndSwap(int64(since), 0) }

// Silent reports whether nothing came over the lane since then. It says so once, until something
// comes.
func (l *Lane) Silent(since instant.Instant) bool {
	return l.Heard() == since && l.silent.Swap(int64(since)+1) != int64(since)+1
}

// alive reports whether something came over the lane since then.
func (l *Lane) alive(since instant.Instant) bool { return l != nil && l.Heard() > since }

// Hear notes that something came over the lane, so its connections are not dead.
func (l *Lane) Hear(now instant.Instant) { l.heard.Store(int64(max(now, 1))) }

// A Response is what the lanes of a host hear of a response.
type Response struct {
	From    *Lane
	Major   int // version of HTTP
	Verdict Verdict
	Instead Instead
	Addr    netip.Addr // of the server; zero: not known
}

// A Verdict is what a response says about its connection.
type Verdict uint8

const (
	Good Verdict = iota // it needs no retry
	Sick                // the server says that it cannot
	Bad                 // another response that calls for a retry
)

// An Instead says why an attempt was sent over the spare.
type Instead uint8

const (
	Not    Instead = iota // it was not
	OfSick                // several 5xx over the current lane
	OfBad                 // another failure, after which one good response moves the host
)
