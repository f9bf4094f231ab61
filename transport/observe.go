// Telling the hooks of a Trace about a request, its attempts and its body.

package transport

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// traces returns the observers of a call: first that of the Transport, then that of the
// request. Each may be nil.
func (c *call) traces() [2]*Trace {
	all := [2]*Trace{c.t.trace}
	if c.options != nil {
		all[1] = c.options.trace
	}
	return all
}

// hasHooks reports whether a trace has a hook for requests.
func (c *call) hasHooks() bool {
	all := c.traces()
	return all[0].hasHooks() || all[1].hasHooks()
}

// requestStart calls the hooks RequestStart. If a hook panics, the request's body is
// closed.
func (x *retrier) requestStart() {
	started := false
	defer attempt.CloseBodyUnless(&started, x.Req)
	ctx := x.Req.Context()
	for _, t := range x.traces() {
		if t != nil {
			ctx = callStart(t.RequestStart, ctx, x.Req)
		}
	}
	x.spanned, started = ctx, true
}

// requestEnd calls the hooks RequestEnd.
func (x *retrier) requestEnd(began time.Time, resp *http.Response, err error) {
	bodied, told := x.observeBody(resp), false
	defer closeUnless(x.Ctx, &told, resp)
	e := RequestEnd{
		Request: x.Req, Host: x.HostName(), Response: resp, Err: err,
		Reason: x.reason, Duration: time.Since(began),
		Attempts: x.sent, Waited: x.waited, BodyFollows: bodied,
	}
	for _, t := range x.traces() {
		if t != nil && t.RequestEnd != nil {
			t.RequestEnd(x.spanned, e)
		}
	}
	told = true
}

// watchAttempt makes the hooks observe an attempt, if there are hooks for attempts. It reports
// whether somebody wants to know the address: the hooks AttemptEnd, or all observers if it is a retry.
func (x *retrier) watchAttempt(a *try) (asksAddress bool) {
	observed := x.t.logger != nil
	for _, t := range x.traces() {
		if t == nil {
			continue
		}
		observed = true
		a.Watched = a.Watched || t.AttemptStart != nil
		if t.AttemptEnd != nil {
			a.told = a.Ctx
		}
	}
	return a.told != nil || x.sent > 1 && observed
}

// attemptDeadline returns when nobody waits for the headers of an attempt any more that starts now.
// Another attempt may read the caller's own body meanwhile, or has read it.
func (c *call) attemptDeadline(a *try) time.Time {
	until, _ := c.Ctx.Deadline()
	body := cmp.Or(a.Body, c.Req.Body)
	after := a.Timeouts.After
	timed := after > 0 && (body == nil || body == http.NoBody || replay.SmallInMemory(body))
	if end := c.Registry.TimeOf(a.SentAt).Add(after); timed && (until.IsZero() || end.Before(until)) {
		return end
	}
	return until
}

// tellStart calls the hooks AttemptStart. header is the attempt's own.
func (c *call) tellStart(a *try, header http.Header) {
	about := AttemptStart{
		Request: c.Req, Host: c.HostName(), Header: header, Number: a.Number, Kind: AttemptKind(a.Kind),
		Offset: a.offset, Start: c.Registry.TimeOf(a.SentAt), Deadline: c.attemptDeadline(a),
	}
	for _, t := range c.traces() {
		if t != nil {
			a.Ctx = callStart(t.AttemptStart, a.Ctx, about)
		}
	}
	if a.told != nil {
		a.told = a.Ctx
	}
}

// tellEnd calls the hooks AttemptEnd with the context told, once.
func (c *call) tellEnd(told *context.Context, resp *http.Response, a Attempt) {
	ctx := *told
	*told = nil
	a.Err = withoutSecrets(a.Err, c.Req.URL)
	e := AttemptEnd{Request: c.Req, Host: c.HostName(), Response: resp, Attempt: a}
	for _, t := range c.traces() {
		if t != nil && t.AttemptEnd != nil {
			t.AttemptEnd(ctx, e)
		}
	}
}

// tellUndecided calls the hooks AttemptEnd for an attempt about which nothing was decided, because
// the base transport or a function of the user's panicked.
func (x *retrier) tellUndecided(told *context.Context, o *attempt.Outcome) {
	if *told == nil {
		return
	}
	d := decision{err: o.Err}
	if o.Err == attempt.ErrOutrun {
		d.reason = ReasonOutrun
	}
	x.tellEnd(told, o.Resp, x.attemptOf(o, &d))
}

// observeBody makes the body of a response tell its end. It reports whether it does.
func (x *retrier) observeBody(resp *http.Response) bool {
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody || attempt.HandsOver(x.Req, resp) {
		return false
	}
	all := x.traces()
	if !all[0].wantsBody() && !all[1].wantsBody() {
		return false
	}
	w := &bodyWatch{traces: all, ctx: x.spanned, req: x.Req, host: x.HostName(), download: x.download, began: time.Now()}
	w.body.Wrap(resp, w)
	return true
}

func (t *Trace) wantsBody() bool { return t != nil && t.BodyEnd != nil }

// A bodyWatch tells the hooks about the end of a response's body.
type bodyWatch struct {
	body     attempt.ObservedBody
	traces   [2]*Trace
	ctx      context.Context
	req      *http.Request
	host     string
	download *download // nil: the body does not resume
	began    time.Time
}

// BodyEnded calls the hooks BodyEnd.
func (w *bodyWatch) BodyEnded(bytes int64, err error) {
	e := BodyEnd{Request: w.req, Host: w.host, Bytes: bytes, Err: err, Complete: err == io.EOF, Resumes: w.download.countResumes(), Duration: time.Since(w.began)}
	switch {
	case e.Complete:
		e.Err = nil
	case err != nil: // in the goroutine of the Read
		e.Err = w.download.endOf(err)
	}
	for _, t := range w.traces {
		if t.wantsBody() {
			t.BodyEnd(w.ctx, e)
		}
	}
}

// closeUnless closes a response that nobody gets because a function of the user's panicked.
func closeUnless(ctx context.Context, returned *bool, resp *http.Response) {
	if !*returned {
		attempt.Dismiss(ctx, resp)
	}
}
