package debug

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/transport"
)

// maxCounted is how many hosts are counted. A further host takes the place of the host that had no
// request for the longest time.
const maxCounted = 1024

// counts are the counts of a host.
type counts struct {
	Kinds    map[string]uint64 `json:"kinds"`    // attempts, by why they were made
	Outcomes map[string]uint64 `json:"outcomes"` // attempts, by status or kind of error
	Waited   map[string]times  `json:"waited"`   // before retries and for limits, by reason
	Took     times             `json:"took"`     // successes, from the send until their headers
	Slow     uint64            `json:"slow"`     // successes that took long, whatever for
	Failed   uint64            `json:"failed"`   // requests that ended with an error, a 429 or a 5xx

	host string
}

// times are how long some things took, in seconds.
type times struct {
	N   uint64  `json:"n"`
	Sum float64 `json:"sum"`
}

func (t *times) add(d time.Duration) {
	if d > 0 {
		t.N++
		t.Sum += d.Seconds()
	}
}

// A success is slow if it took slowest with its waits for limits, and slowFactor times as long as the successes of
// its host so far took without such waits, of which there are slowAfter or more. It is also slow if it waited longWait.
const (
	slowest    = 100 * time.Millisecond
	slowFactor = 5
	slowAfter  = 10
	longWait   = time.Second
)

// retries returns how many attempts were not the first of their request.
func (c *counts) retries() (n uint64) {
	for kind, of := range c.Kinds {
		if kind != string(transport.AttemptFirst) {
			n += of
		}
	}
	return n
}

// A tally has the counts of all hosts. Its zero value is ready to use.
type tally struct {
	mu    sync.Mutex               // guards the hosts and their counts
	hosts map[string]*list.Element // of order
	order list.List                // of *counts; the host with the latest request is the first
}

// attempt counts an attempt at the host of its request. It reports whether it is a slow success.
func (t *tally) attempt(e *transport.AttemptEnd) (slow bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of(e.Host)
	why := transport.ReasonRetry   // the back-off, or
	if 2*e.RetryAfter >= e.Delay { // the wait of the server, and a jitter that is not longer
		why = transport.ReasonThrottled
	}
	c.waited(why, e.Delay)
	c.waited(e.WaitedFor, e.Waited)
	c.Kinds[string(e.Kind)]++
	c.Outcomes[outcome(e.Response, e.Err)]++
	if isFailure(e.Response) {
		return false
	}
	took := e.Waited + e.Duration
	compared := c.Took.N >= slowAfter && took.Seconds()*float64(c.Took.N) >= slowFactor*c.Took.Sum
	if slow = e.Waited >= longWait || took >= slowest && compared; slow {
		c.Slow++
	}
	c.Took.add(e.Duration)
	return slow
}

// request counts the end of a request.
func (t *tally) request(e *transport.RequestEnd) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of(e.Host)
	if e.Attempts == 0 {
		c.waited(e.Reason, e.Waited)
	}
	if isFailure(e.Response) && e.Reason != transport.ReasonCanceled {
		c.Failed++
	}
}

// body counts a body that ended with an error.
func (t *tally) body(e *transport.BodyEnd) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.of(e.Host); !errors.Is(e.Err, context.Canceled) {
		c.Failed++
	}
}

// of returns the counts of a host that has a request now; the lock is held.
func (t *tally) of(host string) *counts {
	if at := t.hosts[host]; at != nil {
		t.order.MoveToFront(at)
		return at.Value.(*counts)
	}
	if len(t.hosts) >= maxCounted {
		delete(t.hosts, t.order.Remove(t.order.Back()).(*counts).host)
	}
	c := &counts{Kinds: map[string]uint64{}, Outcomes: map[string]uint64{}, Waited: map[string]times{}, host: host}
	if t.hosts == nil {
		t.hosts = map[string]*list.Element{}
	}
	t.hosts[host] = t.order.PushFront(c)
	return c
}

// all returns a copy of all counts by host.
func (t *tally) all() map[string]counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]counts, len(t.hosts))
	for host, at := range t.hosts {
		all[host] = at.Value.(*counts).clone()
	}
	return all
}

// waited counts a wait, unless there was none.
func (c *counts) waited(why transport.Reason, d time.Duration) {
	if d > 0 {
		name := nameOf(why)
		t := c.Waited[name]
		t.add(d)
		c.Waited[name] = t
	}
}

// nameOf names what made requests wait, or what became of a host. A host that is down has no circuit if its rule has
// no CircuitBreaker.
func nameOf(r transport.Reason) string {
	if r == transport.ReasonCircuitOpen {
		return "down"
	}
	return string(r)
}

// isFailure reports whether the server has failed.
func isFailure(resp *http.Response) bool {
	return resp == nil || resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
}

func (c *counts) clone() counts {
	copied := *c
	copied.Kinds, copied.Outcomes, copied.Waited = maps.Clone(c.Kinds), maps.Clone(c.Outcomes), maps.Clone(c.Waited)
	return copied
}

// outcome names an outcome in a word: the status, or the kind of the error.
func outcome(resp *http.Response, err error) string {
	if resp != nil {
		return strconv.Itoa(resp.StatusCode)
	}
	return kindOf(err)
}

// kindOf names the kind of an error in a word.
func kindOf(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, transport.ErrNotSent):
		return "not_sent"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	}
	return string(classify.ErrorTypeOf(err))
}
