// Package news remembers which conditions of a host last, so that the beginning and the
// end of each are told once. It also counts the lines that the log has of them and of single requests.
package news

import (
	"maps"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A Condition keeps requests from a host, or the host is short of something.
type Condition uint8

// The conditions have no type, because package transport has its own for its users.
const (
	Down        = iota // its attempts fail in a row
	Held               // the server asked the requests of a scope to wait
	NoRetries          // retries wait for long, because the budget is used up
	LowQuota           // a fifth or less is left of a quota
	Crowded            // requests wait for long for a slot
	RateLimited        // requests wait for long for the rate
	Pool               // requests take another pool of connections, which does not last
)

// A Key names a condition.
type Key struct {
	Condition Condition
	Scope     uint64 // 0 if it does not differ by scope
}

// A Cause is the response or the error that caused a change. It is zero if it is not known.
type Cause struct {
	Status int
	Err    error // without secrets
	Addr   string
}

// A Change says that a condition began and lasts, or that it is over.
type Change struct {
	Key
	Cause
	Over    bool
	Since   instant.Instant
	Until   instant.Instant // not over before this time; 0: not known
	Fleet   bool            // a fleet told of it
	Waiting int             // requests at the limit
	Room    int             // how many requests go
	Pool    int             // the number of the pool that requests take now
}

const (
	// most is how many conditions are kept: as many as a host has scopes, and some more.
	most = 2*queue.MaxScopes + 8
	// tells is how many changes a goroutine tells at most. It is that of a request, the hook may be slow,
	// and changes may come for ever.
	tells = 8
	// lines is how many lines the log has about the changes of a host within linesTime, and as many about single requests.
	lines     = 6
	linesTime = time.Minute
)

// News are the conditions of a host. The zero News is ready. All methods are safe for
// concurrent use.
type News struct {
	busy atomic.Bool // a condition lasts, is to be told or is not in the log; it is read without the lock

	mu      sync.Mutex // guards everything below; nothing is told while it is held
	lasting map[Key]Change
	next    instant.Instant // the earliest Until
	failure Cause           // of the last attempt that failed
	queue   []func()        // the changes to be told, in order; a hook that blocks for ever loses the rest
	telling bool            // a goroutine is telling it

	changes  quota  // of the lines about changes
	requests quota  // of the lines about single requests
	leftOut  int    // lines about requests since the last of them in the log
	unlogged bool   // a change got no line, so a line has to tell the lasting conditions
	left     Change // the last such change, or that before it if it is of the pools alone
}

// A quota is how many lines the log may have.
type quota struct {
	taken int
	at    [lines]instant.Instant // when the last of them were taken, in a ring
}

// take takes a line of the present minute, if any is left.
func (q *quota) take(now instant.Instant) bool {
	oldest := &q.at[q.taken%lines]
	if q.taken >= lines && now.Sub(*oldest) < linesTime {
		return false
	}
	*oldest = now
	q.taken++
	return true
}

// Quiet reports whether nothing lasts, all was told, and the log has all changes.
// It is a single atomic load.
func (n *News) Quiet() bool { return n == nil || !n.busy.Load() }

// count makes Quiet right again; the lock is held.
func (n *News) count() { n.busy.Store(len(n.lasting) > 0 || len(n.queue) > 0 || n.unlogged) }

// Begin notes that a condition lasts. If that is new, it calls tell. All beginnings and ends
// are told in their order, one at a time. So tell may be called by a goroutine that tells
// something else at the moment, and Begin does not wait for that.
func (n *News) Begin(c Change, tell func()) {
	n.mu.Lock()
	if old, lasts := n.lasting[c.Key]; lasts {
		c.Since = old.Since
	} else if len(n.lasting) < most && len(n.queue) < most {
		n.queue = append(n.queue, tell)
	} else {
		n.mu.Unlock()
		return
	}
	if n.lasting == nil {
		n.lasting = make(map[Key]Change)
	}
	n.lasting[c.Key] = c
	n.next = min(n.next, c.Until)
	n.tell()
}

// End notes that a condition is over. If it lasted until now, it calls tell as Begin does.
func (n *News) End(k Key, tell func()) {
	n.mu.Lock()
	if _, lasts := n.lasting[k]; lasts {
		delete(n.lasting, k)
		n.queue = append(n.queue, tell) // at most 2*most: Begin bounds both lasting and the queue
	}
	n.tell()
}

// tell tells the queued changes, and gives the lock back. After several changes, and after a panic of whoever
// is told, it leaves the rest to the next call.
func (n *News) tell() {
	defer n.mu.Unlock()
	n.count()
	if n.telling {
		return
	}
	n.telling = true
	defer func() {
		n.telling = false
		n.count()
	}()
	for i := 0; i < tells && len(n.queue) > 0; i++ {
		tell := n.queue[0]
		n.queue = slices.Delete(n.queue, 0, 1)
		func() {
			n.mu.Unlock()
			defer n.mu.Lock()
			tell()
		}()
	}
}

// TakeLine reports whether the log gets a line about a change. If a change got none, the next
// line tells the lasting conditions.
func (n *News) TakeLine(now instant.Instant, c Change) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.unlogged && n.changes.take(now) {
		return true
	}
	if !n.unlogged || c.Condition != Pool {
		n.left = c
	}
	n.unlogged = true
	n.count()
	return false
}

// TakeState reports whether the log gets a line about the lasting conditions, because a change got none. It
// returns them all. If there are none, it returns the last change that got no line, as over: a log may not take
// the lines of the ends.
func (n *News) TakeState(now instant.Instant) (all []Change, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.unlogged || !n.changes.take(now) {
		return nil, false
	}
	n.unlogged = false
	n.count()
	if len(n.lasting) == 0 {
		n.left.Over, n.left.Until = true, 0
		return []Change{n.left}, true
	}
	all = slices.Collect(maps.Values(n.lasting))
	sort.Slice(all, func(i, j int) bool {
		a, b := &all[i], &all[j]
		return a.Condition < b.Condition || a.Condition == b.Condition && a.Since < b.Since
	})
	return all, true
}

// TellRest tells the changes that others have left.
func (n *News) TellRest() {
	n.mu.Lock()
	n.tell()
}

// Tell calls tell in its turn, as Begin does.
func (n *News) Tell(tell func()) {
	n.mu.Lock()
	if len(n.queue) < most {
		n.queue = append(n.queue, tell)
	}
	n.tell()
}

// TakeRequestLine reports whether the log gets a line about a single request, and how many such lines were left out
// before it.
func (n *News) TakeRequestLine(now instant.Instant) (leftOut int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.requests.take(now) {
		n.leftOut++
		return 0, false
	}
	leftOut, n.leftOut = n.leftOut, 0
	return leftOut, true
}

// Failed notes the failure of an attempt, which may be the cause of a later change.
func (n *News) Failed(c Cause) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failure = c
}

// Failure returns the last failure.
func (n *News) Failure() Cause {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}

// Lasts returns a condition, and whether it lasts.
func (n *News) Lasts(k Key) (c Change, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok = n.lasting[k]
	return c, ok
}

// LastsAnywhere reports whether a condition lasts, in whatever scope.
func (n *News) LastsAnywhere(c ...Condition) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range n.lasting {
		if slices.Contains(c, k.Condition) {
			return true
		}
	}
	return false
}

// Due returns the conditions that may be over: own, and those whose time has come.
func (n *News) Due(now instant.Instant, own Key) (all []Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now < n.next {
		if c, ok := n.lasting[own]; ok {
			all = append(all, c)
		}
		return all
	}
	n.next = instant.Never
	for k, c := range n.lasting {
		if k == own || now >= c.Until {
			all = append(all, c)
		}
		n.next = min(n.next, c.Until)
	}
	return all
}
