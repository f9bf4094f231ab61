// Package tally counts the events of a Transport by host, for the page of package debug and
// for the metrics of aplomb proxy.
package tally

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/transport"
)

// MaxHosts is how many hosts a Tally counts. A further host takes the place of the host
// without an event for the longest time.
const MaxHosts = 1024

// Counts are the counts of a host. Times are in seconds.
type Counts struct {
	Kinds     map[string]uint64  `json:"kinds"`     // attempts, by why they were made
	Outcomes  map[string]uint64  `json:"outcomes"`  // attempts, by status or kind of error
	Decisions map[string]uint64  `json:"decisions"` // events, by reason
	Queued    map[string]float64 `json:"queued"`    // time in queues, by limit
	Taken     float64            `json:"taken"`     // time of attempts, to the header of the response
	Waited    float64            `json:"waited"`    // time of waits before retries
	Failing   uint64             `json:"failing"`   // attempts without success, since the last success
	Failed    uint64             `json:"failed"`    // requests that ended with an error, a 429 or a 5xx

	latest time.Time
}

// Retries returns how many attempts were not the first of their request.
func (c *Counts) Retries() (n uint64) {
	for kind, of := range c.Kinds {
		if kind != transport.KindFirst.String() {
			n += of
		}
	}
	return n
}

// A Tally has the counts of all hosts. It is safe for concurrent use. Make it with New.
type Tally struct {
	mu    sync.Mutex // guards the hosts and their counts
	hosts map[string]*Counts
}

// New returns a Tally without counts.
func New() *Tally { return &Tally{hosts: map[string]*Counts{}} }

// Add counts an event: the decision at the host of its request, and the attempt at the endpoint
// that it went to.
func (t *Tally) Add(e *transport.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := e.Response == nil || e.Status >= 500 || e.Status == http.StatusTooManyRequests
	t.of(e.Host, e.Time).addDecision(e, failed)
	t.of(Endpoint(e), e.Time).addAttempt(e, failed)
}

// Endpoint returns the scheme and host of the endpoint that an attempt went to.
func Endpoint(e *transport.Event) string { return cmp.Or(e.Alternate, e.Host) }

// of returns the counts of a host that has an event now; the lock is held.
func (t *Tally) of(host string, now time.Time) *Counts {
	c := t.hosts[host]
	if c == nil {
		if len(t.hosts) >= MaxHosts {
			t.forget()
		}
		c = &Counts{Kinds: map[string]uint64{}, Outcomes: map[string]uint64{}, Decisions: map[string]uint64{}, Queued: map[string]float64{}}
		t.hosts[host] = c
	}
	c.latest = now
	return c
}

// forget forgets the host without an event for the longest time; the lock is held.
func (t *Tally) forget() {
	oldest := ""
	for name, c := range t.hosts {
		if oldest == "" || c.latest.Before(t.hosts[oldest].latest) {
			oldest = name
		}
	}
	delete(t.hosts, oldest)
}

// All returns a copy of all counts by host.
func (t *Tally) All() map[string]Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]Counts, len(t.hosts))
	for host, c := range t.hosts {
		all[host] = c.clone()
	}
	return all
}

func (c *Counts) addDecision(e *transport.Event, failed bool) {
	c.Decisions[e.Reason.String()]++
	c.Waited += e.Wait.Seconds()
	if failed && Last(e.Reason) && e.Reason != transport.ReasonCanceled {
		c.Failed++
	}
}

func (c *Counts) addAttempt(e *transport.Event, failed bool) {
	c.Queued["cooldown"] += e.Queued.Cooldown.Seconds()
	c.Queued["pacing"] += e.Queued.Pacing.Seconds()
	c.Queued["gate"] += e.Queued.Gate.Seconds()
	c.Queued["rate"] += e.Queued.Rate.Seconds()
	if e.Kind == transport.KindNone {
		return // not the outcome of an attempt
	}
	c.Kinds[e.Kind.String()]++
	c.Outcomes[Outcome(e)]++
	c.Taken += e.Duration.Seconds()
	switch {
	case !failed:
		c.Failing = 0
	case e.Reason != transport.ReasonOutrun && e.Reason != transport.ReasonCanceled:
		c.Failing++
	}
}

// Last reports whether a reason ends a request.
func Last(r transport.Reason) bool {
	switch r {
	case transport.ReasonRetry, transport.ReasonResume, transport.ReasonHedged, transport.ReasonOutrun:
		return false
	}
	return true
}

func (c *Counts) clone() Counts {
	copied := *c
	copied.Kinds, copied.Outcomes, copied.Decisions = maps.Clone(c.Kinds), maps.Clone(c.Outcomes), maps.Clone(c.Decisions)
	copied.Queued = maps.Clone(c.Queued)
	return copied
}

// Outcome names the outcome of an attempt in a word: the status, or the kind of the error.
// The word can be a label of a metric.
func Outcome(e *transport.Event) string {
	if e.Response != nil {
		return fmt.Sprint(e.Status)
	}
	return KindOf(e.Err)
}

// KindOf names the kind of an error in a word.
func KindOf(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, transport.ErrCooldown), errors.Is(err, transport.ErrGateFull), errors.Is(err, transport.ErrOverDeadline):
		return "not_sent"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	}
	return classify.KindOf(err).String()
}
