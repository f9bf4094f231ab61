package debug

import (
	"container/list"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"syscall"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/transport"
)

// maxCounted is how many hosts are counted. A further host takes the place of the host without
// an event for the longest time.
const maxCounted = 1024

// counts are the counts of a host. Times are in seconds.
type counts struct {
	Kinds    map[string]uint64  `json:"kinds"`    // attempts, by why they were made
	Outcomes map[string]uint64  `json:"outcomes"` // attempts, by status or kind of error
	Queued   map[string]float64 `json:"queued"`   // time in queues, by limit
	Waited   float64            `json:"waited"`   // time of waits before retries
	Failed   uint64             `json:"failed"`   // requests that ended with an error, a 429 or a 5xx

	host string
}

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
	order list.List                // of *counts; the host with the latest event is the first
}

// add counts an event at the host of its request.
func (t *tally) add(e *transport.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(e.Host).add(e)
}

// of returns the counts of a host that has an event now; the lock is held.
func (t *tally) of(host string) *counts {
	if at := t.hosts[host]; at != nil {
		t.order.MoveToFront(at)
		return at.Value.(*counts)
	}
	if len(t.hosts) >= maxCounted {
		delete(t.hosts, t.order.Remove(t.order.Back()).(*counts).host)
	}
	c := &counts{Kinds: map[string]uint64{}, Outcomes: map[string]uint64{}, Queued: map[string]float64{}, host: host}
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

func (c *counts) add(e *transport.Event) {
	failed := e.Response == nil || e.Status >= 500 || e.Status == http.StatusTooManyRequests
	c.Waited += e.Delay.Seconds()
	if failed && last(e.Reason) && e.Reason != transport.ReasonCanceled {
		c.Failed++
	}
	c.Queued[string(transport.ReasonThrottled)] += e.Queued.Cooldown.Seconds()
	c.Queued[string(transport.ReasonQuota)] += e.Queued.Pacing.Seconds()
	c.Queued[string(transport.ReasonConcurrency)] += e.Queued.Gate.Seconds()
	c.Queued[string(transport.ReasonRateLimit)] += e.Queued.Rate.Seconds()
	if e.Kind == "" {
		return // not the outcome of an attempt
	}
	c.Kinds[string(e.Kind)]++
	c.Outcomes[outcome(e)]++
}

// last reports whether a reason ends a request.
func last(r transport.Reason) bool {
	switch r {
	case transport.ReasonRetry, transport.ReasonOutrun:
		return false
	}
	return true
}

func (c *counts) clone() counts {
	copied := *c
	copied.Kinds, copied.Outcomes, copied.Queued = maps.Clone(c.Kinds), maps.Clone(c.Outcomes), maps.Clone(c.Queued)
	return copied
}

// outcome names the outcome of an attempt in a word: the status, or the kind of the error.
func outcome(e *transport.Event) string {
	if e.Response != nil {
		return fmt.Sprint(e.Status)
	}
	return kindOf(e.Err)
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
