// The counts for the debug page and the metrics.

package proxy

import (
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

// maxRecent is how many events the debug page shows.
const maxRecent = 20

// buckets are the bounds of the durations of requests, in seconds.
var buckets = [...]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// stats counts requests, attempts and responses. There are as many hosts as upstreams, so
// its size is bounded.
type stats struct {
	started time.Time

	mu        sync.Mutex // guards the fields below
	hosts     map[string]*counts
	responses map[int]uint64 // by status
	cut       uint64         // responses with a cut body
	durations [len(buckets) + 1]uint64
	seconds   float64
	recent    []occurrence // oldest first
}

// counts are the counts of a host.
type counts struct {
	Kinds     map[string]uint64  `json:"kinds"`     // attempts, by why they were made
	Outcomes  map[string]uint64  `json:"outcomes"`  // attempts, by status or kind of error
	Decisions map[string]uint64  `json:"decisions"` // events, by reason
	Queued    map[string]float64 `json:"queued"`    // seconds in queues, by limit
	Taken     float64            `json:"taken"`     // seconds of attempts, to the header of the response
	Waited    float64            `json:"waited"`    // seconds of waits before retries
	Failing   uint64             `json:"failing"`   // attempts without success, since the last success
}

// An occurrence is an event on the debug page. Paths and the texts of errors can be
// secret, so it has neither.
type occurrence struct {
	Time    time.Time `json:"time"`
	Method  string    `json:"method"`
	Host    string    `json:"host"`
	Kind    string    `json:"kind"`
	Number  int       `json:"number"`
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason"`
	Wait    float64   `json:"wait"` // seconds
}

func newStats() *stats {
	return &stats{started: time.Now(), hosts: map[string]*counts{}, responses: map[int]uint64{}}
}

// trace returns the Trace that feeds s.
func (s *stats) trace() *transport.Trace { return &transport.Trace{Event: s.event} }

// event counts an event. The debug page shows it, unless it is a success at the first
// attempt.
func (s *stats) event(e transport.Event) {
	outcome := outcomeOf(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.hosts[e.Host]
	if c == nil {
		c = &counts{Kinds: map[string]uint64{}, Outcomes: map[string]uint64{}, Decisions: map[string]uint64{}, Queued: map[string]float64{}}
		s.hosts[e.Host] = c
	}
	c.add(e, outcome)
	if e.Number <= 1 && e.Reason == transport.ReasonFinal && e.Err == nil {
		return
	}
	if len(s.recent) == maxRecent {
		s.recent = append(s.recent[:0], s.recent[1:]...)
	}
	s.recent = append(s.recent, occurrence{
		Time: e.Time, Method: e.Request.Method, Host: e.Host, Kind: e.Kind.String(), Number: e.Number,
		Outcome: outcome, Reason: e.Reason.String(), Wait: e.Wait.Seconds(),
	})
}

// add counts an event.
func (c *counts) add(e transport.Event, outcome string) {
	c.Decisions[e.Reason.String()]++
	c.Waited += e.Wait.Seconds()
	c.Queued["cooldown"] += e.Queued.Cooldown.Seconds()
	c.Queued["pacing"] += e.Queued.Pacing.Seconds()
	c.Queued["gate"] += e.Queued.Gate.Seconds()
	c.Queued["rate"] += e.Queued.Rate.Seconds()
	if e.Kind == transport.KindNone {
		return // not the outcome of an attempt
	}
	c.Kinds[e.Kind.String()]++
	c.Outcomes[outcome]++
	c.Taken += e.Duration.Seconds()
	switch {
	case e.Response != nil && e.Status < 500 && e.Status != http.StatusTooManyRequests:
		c.Failing = 0
	case e.Reason != transport.ReasonOutrun && e.Reason != transport.ReasonCanceled:
		c.Failing++
	}
}

// clone returns a copy.
func (c *counts) clone() counts {
	copied := *c
	copied.Kinds, copied.Outcomes, copied.Decisions = maps.Clone(c.Kinds), maps.Clone(c.Outcomes), maps.Clone(c.Decisions)
	copied.Queued = maps.Clone(c.Queued)
	return copied
}

// outcomeOf names the outcome of an attempt in a word.
func outcomeOf(e transport.Event) string {
	if e.Response != nil {
		return fmt.Sprint(e.Status)
	}
	return kindOf(e.Err)
}

// kindOf names an error in a word that can be a label of a metric.
func kindOf(err error) string {
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

// responded counts a response to a client.
func (s *stats) responded(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responses[status]++
}

// served counts a request that is done. whole is false if the body of its response was
// cut.
func (s *stats) served(d time.Duration, whole bool) {
	i := 0
	for i < len(buckets) && d.Seconds() > buckets[i] {
		i++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durations[i]++
	s.seconds += d.Seconds()
	if !whole {
		s.cut++
	}
}

// counted is a copy of the counts at a moment.
type counted struct {
	Hosts     map[string]counts `json:"-"`
	Responses map[int]uint64    `json:"responses"`
	Cut       uint64            `json:"cut"`
	Recent    []occurrence      `json:"recent"`

	durations [len(buckets) + 1]uint64
	seconds   float64
}

func (s *stats) now() counted {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := counted{
		Hosts:     map[string]counts{},
		Responses: maps.Clone(s.responses),
		Cut:       s.cut,
		Recent:    append([]occurrence{}, s.recent...),
		durations: s.durations,
		seconds:   s.seconds,
	}
	for host, h := range s.hosts {
		c.Hosts[host] = h.clone()
	}
	return c
}
