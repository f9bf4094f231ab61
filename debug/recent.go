package debug

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

const (
	maxRecent = 100         // decisions that are kept, and as many changes of hosts
	together  = time.Second // decisions within it that are the same are one row
	flapping  = time.Minute // changes of a host within it that are alike are one row
)

// counted is the part of a row that stands for one or more things that were alike.
type counted struct {
	Time  time.Time `json:"time"`  // of the latest
	Count int       `json:"count"` // how many were alike
	since time.Time // of the first
}

func once(at time.Time) counted { return counted{Time: at, Count: 1, since: at} }

func (c *counted) head() *counted { return c }

// A row is what a list of the page has. It knows which other rows are like it.
type row[T any] interface {
	*T
	head() *counted
	same(*T) bool
}

// put appends a row. If a row of the list says the same and began within the time, the new
// row replaces it and counts for both.
func put[T any, P row[T]](all []T, n T, within time.Duration) []T {
	h := P(&n).head()
	for i := len(all) - 1; i >= 0; i-- {
		old := P(&all[i])
		if was := old.head(); old.same(&n) && h.Time.Sub(was.since) < within {
			h.Count, h.since = was.Count+1, was.since
			all = slices.Delete(all, i, i+1)
			break
		}
	}
	if len(all) == maxRecent {
		all = slices.Delete(all, 0, 1)
	}
	return append(all, n)
}

// A decision is a row of the page. Paths and the texts of errors can be secret, so it has
// neither.
type decision struct {
	counted
	Method  string `json:"method"`
	Host    string `json:"host"`
	Kind    string `json:"kind"`
	Number  int    `json:"number"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Addr    string `json:"addr,omitempty"`
	Slow    bool   `json:"slow"`            // a success that took long, whatever for
	Limit   string `json:"limit,omitempty"` // for which it waited longest

	// These are seconds, of the latest.
	RetryAfter float64 `json:"retry_after"` // that the server asked for
	Delay      float64 `json:"delay"`       // until the next attempt
	Waited     float64 `json:"waited"`      // for limits
	Took       float64 `json:"took"`
}

// same reports whether two decisions can be one row.
func (d *decision) same(o *decision) bool {
	a, b := *d, *o
	a.counted, a.RetryAfter, a.Delay, a.Waited, a.Took = b.counted, b.RetryAfter, b.Delay, b.Waited, b.Took
	return a == b
}

// recent keeps the last decisions. Its zero value is ready to use.
type recent struct {
	mu      sync.Mutex // guards the fields below
	rows    []decision // oldest first
	changes []change   // oldest first
}

// attempt keeps the decision about an attempt, unless there was nothing to decide about a success that was not slow.
func (r *recent) attempt(e *transport.AttemptEnd, slow bool) {
	quiet := !slow && e.Number <= 1 && e.Kind != transport.AttemptResume && e.Reason == transport.ReasonFinal && e.Err == nil
	if quiet && e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden {
		return
	}
	r.add(e.Request, decision{
		Host: e.Host, Kind: string(e.Kind), Number: e.Number, Outcome: outcome(e.Response, e.Err), Reason: string(e.Reason), Addr: e.Addr,
		Slow: slow, Limit: nameOf(e.WaitedFor), RetryAfter: e.RetryAfter.Seconds(), Delay: e.Delay.Seconds(), Waited: e.Waited.Seconds(), Took: e.Duration.Seconds(),
	})
}

// request keeps the end of a request that was not sent, or not sent again after all.
func (r *recent) request(e *transport.RequestEnd) {
	if all := transport.HistoryOf(e.Response, e.Err).Attempts; e.Attempts > 0 && (len(all) == 0 || all[len(all)-1].Reason != transport.ReasonRetry) {
		return
	}
	r.add(e.Request, decision{
		Host: e.Host, Number: e.Attempts, Outcome: outcome(e.Response, e.Err), Reason: string(e.Reason), Waited: e.Waited.Seconds(),
	})
}

// body keeps the end of a body that failed.
func (r *recent) body(e *transport.BodyEnd) {
	r.add(e.Request, decision{
		Host: e.Host, Kind: "body", Outcome: kindOf(e.Err), Reason: string(cmp.Or(transport.ReasonOf(nil, e.Err), transport.ReasonNotResumable)),
	})
}

// add keeps what was decided about a request.
func (r *recent) add(req *http.Request, d decision) {
	d.counted, d.Method = once(time.Now()), method(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = put(r.rows, d, together)
}

// all returns the changes of the hosts and the decisions, oldest first.
func (r *recent) all() ([]change, []decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]change{}, r.changes...), append([]decision{}, r.rows...)
}

// A change is a host that does worse or better.
type change struct {
	counted
	Reason string `json:"reason"`
	Better bool   `json:"better"`
	Text   string `json:"text"` // of the latest, with the host

	host string
}

// same reports whether two changes can be one row.
func (c *change) same(o *change) bool {
	return c.host == o.host && c.Reason == o.Reason && c.Better == o.Better
}

// change keeps the change of a host. The kind of its error stands for the error.
func (r *recent) change(_ context.Context, c transport.HostChange) {
	if c.Err != nil {
		c.Err = errors.New(strings.ReplaceAll(kindOf(c.Err), "_", " "))
	}
	n := change{counted: once(time.Now()), Reason: nameOf(c.Reason), Better: c.Over, Text: c.String(), host: c.Host}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = put(r.changes, n, flapping)
}

// method returns the method of a request. A caller can put anything into an unknown method.
func method(req *http.Request) string {
	switch req.Method {
	case "":
		return http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, "QUERY", "PROPFIND":
		return req.Method
	}
	return "another method"
}
