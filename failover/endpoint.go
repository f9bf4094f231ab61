// The state of an endpoint: whether it is down, and when a request finds out whether it is back.

package failover

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	downAfter  = 5               // failures in a row
	silentTime = time.Second     // the shortest silence that takes an endpoint down, unless its Timeout is shorter
	probePause = time.Second     // between two requests that find out whether an endpoint is back
	maxNames   = 64              // that Notify hears, and their bytes
	riskPause  = 9 * time.Second // is added, if such a request could not go on
)

// An endpoint is an Endpoint with its state.
type endpoint struct {
	Endpoint
	base *url.URL

	down    atomic.Bool
	probing atomic.Bool // a request finds out whether the endpoint is back

	mu      sync.Mutex // guards the fields below, and changes of down
	failed  int        // requests in a row
	silent  time.Time  // when the first of them began that ended in a silence
	due     time.Time  // when the next request may find out whether the endpoint is back
	why     error      // it is down because of it
	kept    []string   // the names that keep requests here
	heard   int        // of them by Notify
	told    bool       // Notify has heard that it is down
	telling bool       // a goroutine calls Notify
}

// up reports whether the endpoint is not known to be down.
func (e *endpoint) up() bool { return !e.down.Load() }

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

// note notes what an outcome shows of its endpoint. A request ends in a silence if its time is over or its caller
// leaves. The caller may have had little time. So a silence takes the endpoint down only if that has answered nobody
// for a while.
func (c *call) note(o *outcome, probed bool, began time.Time) {
	kind, text := classify.ErrorTypeOf(o.err), transport.SafeError(o.err, o.req.URL)
	silent := kind == classify.ErrorTimeout || kind == classify.ErrorCanceled || c.req.Context().Err() != nil
	e := o.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case o.resp != nil && !slices.Contains([]int{502, 503, 504}, o.resp.StatusCode):
		e.failed, e.silent, e.why = 0, time.Time{}, nil
		e.down.Store(false)
		return
	case o.resp == nil && (kind == "" || o.broken.Load()),
		kind == classify.ErrorProtocol && classify.Default(classify.Outcome{Err: o.err}) == classify.Final:
		return // something else is at fault
	case o.resp != nil:
		text = fmt.Sprint(o.resp.StatusCode, " ", http.StatusText(o.resp.StatusCode))
	case silent && e.silent.IsZero():
		e.silent = began
	}
	e.failed++
	if silent && time.Since(e.silent) < min(cmp.Or(max(e.Timeout, 0), silentTime), silentTime) {
		return
	}
	if e.failed >= downAfter && (probed || e.up()) { // if a request probed, another may have had a response since
		e.down.Store(true)
		e.why, e.due = errors.New(text), time.Now().Add(max(probePause, time.Since(began)))
	}
}

// keep notes the names that keep a request here.
func (e *endpoint) keep(names []string, query url.Values) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		if values, ok := query[name]; ok && cmp.Or(values...) == "" || len(name) > maxNames ||
			strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
			name = "?"
		}
		if len(e.kept) < maxNames && !slices.ContainsFunc(e.kept, func(known string) bool { return strings.EqualFold(known, name) }) {
			e.kept = append(e.kept, name)
		}
	}
}

// tell calls Notify for all that it has not heard. If a goroutine is doing so, that will go on with it.
func (e *endpoint) tell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.Notify != nil && !e.telling && (e.told != e.down.Load() || e.heard < len(e.kept)) {
		why := e.why
		if e.told == e.down.Load() {
			why = &policy.FieldError{Field: e.kept[e.heard], Err: errors.New("keeps requests with " + e.URL + ", because an Allow lacks it")}
			e.heard++
		}
		e.told, e.telling = e.down.Load(), true
		func() {
			e.mu.Unlock()
			defer func() { e.mu.Lock(); e.telling = false }() // also after a panic
			e.Notify(!e.told, why)
		}()
	}
}
