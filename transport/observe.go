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

// asksConnection reports whether somebody wants to know the connection of the next attempt: a Trace
// that asks for addresses, or all observers and the planner of the routes if it is a retry.
func (x *retrier) asksConnection() bool {
	hears := x.t.logger != nil
	for _, t := range x.traces() {
		if hears = hears || t != nil; t != nil && t.Addresses {
			return true
		}
	}
	return x.sent > 1 && (hears || x.planner.MayLeave())
}

// traces returns the observers of a call: first that of the Transport, then that of the
// request. Each may be nil.
func (c *call) traces() [2]*Trace {
	all := [2]*Trace{c.t.trace}
	if c.options != nil {
		all[1] = c.options.trace
	}
	return all
}

// hasHooks reports whether a trace has a hook besides Event.
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
		Reason: x.report.reason, Start: began, Duration: time.Since(began),
		Attempts: x.sent, Queued: x.queued, BodyFollows: bodied,
	}
	for _, t := range x.traces() {
		if t != nil && t.RequestEnd != nil {
			t.RequestEnd(x.spanned, e)
		}
	}
	told = true
}

// A watch tells the hooks about one attempt. The request's goroutine uses it. It is a
// part of the attempt, so that it needs no allocation.
type watch struct {
	begun  bool // AttemptStart was called, and AttemptEnd not yet
	traces [2]*Trace
	ctx    context.Context
	about  AttemptStart
}

// watchAttempt makes the hooks observe an attempt, if there are hooks for attempts.
func (x *retrier) watchAttempt(a *try) {
	a.watch.traces = x.traces()
	for _, t := range a.watch.traces {
		a.Watched = a.Watched || t != nil && (t.AttemptStart != nil || t.AttemptEnd != nil)
	}
	if !a.Watched {
		return
	}
	a.watch.about = AttemptStart{
		Request: x.Req, Host: x.HostName(), Number: a.Number, Kind: AttemptKind(a.Kind),
		Offset: x.report.offset, Start: x.Registry.TimeOf(a.SentAt), Deadline: x.attemptDeadline(a), Queued: Queued(a.Queued),
	}
}

// attemptDeadline returns when nobody waits for the headers of an attempt any more that starts now.
// Another attempt may read the caller's own body meanwhile, or has read it.
func (x *retrier) attemptDeadline(a *try) time.Time {
	until, _ := x.Ctx.Deadline()
	body := cmp.Or(a.Body, x.Req.Body)
	after := a.Timeouts.After
	timed := after > 0 && (body == nil || body == http.NoBody || replay.SmallInMemory(body))
	if end := x.Registry.TimeOf(a.SentAt).Add(after); timed && (until.IsZero() || end.Before(until)) {
		return end
	}
	return until
}

// tellStart calls the hooks AttemptStart. header is the attempt's own.
func (w *watch) tellStart(ctx context.Context, header http.Header) context.Context {
	w.about.Header, w.ctx, w.begun = header, ctx, true
	for _, t := range w.traces {
		if t != nil {
			w.ctx = callStart(t.AttemptStart, w.ctx, w.about)
		}
	}
	return w.ctx
}

// tellEnd calls the hooks AttemptEnd, once.
func (w *watch) tellEnd(o *attempt.Outcome) {
	if !w.begun {
		return
	}
	w.begun = false
	told := false
	defer closeUnless(w.ctx, &told, o.Resp)
	e := AttemptEnd{AttemptStart: w.about, Addr: o.Link.Addr(), Pool: o.PoolNumber(), Duration: o.Took(), Response: o.Resp, Err: o.Err}
	for _, t := range w.traces {
		if t != nil && t.AttemptEnd != nil {
			t.AttemptEnd(w.ctx, e)
		}
	}
	told = true
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
	if e.Complete {
		e.Err = nil
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
