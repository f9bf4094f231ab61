// Telling the hooks of a Trace about a request, its attempts and its body.

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
)

// A timing records why and when an attempt was sent, and how long it took.
type timing struct {
	kind   Kind
	start  time.Time
	took   time.Duration // until the headers or the error
	queued Queued
}

// stamp fills in the part of the record that the timing knows.
func (t *timing) stamp(a *Attempt) {
	a.Kind, a.Start, a.Duration, a.Queued = t.kind, t.start, t.took, t.queued
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

// hooked reports whether a trace has a hook besides Event.
func (c *call) hooked() bool {
	all := c.traces()
	return all[0].hooked() || all[1].hooked()
}

// parent returns the context that the attempts begin with: the caller's, or the one
// that RequestStart returned.
func (c *call) parent() context.Context {
	if c.spanned != nil {
		return c.spanned
	}
	return c.req.Context()
}

// observed makes an exchange whose traces have hooks.
func (x *exchange) observed() (resp *http.Response, err error) {
	bodied := false
	x.requestStart()
	defer func() { x.requestEnd(resp, err, bodied) }()
	resp, err = x.run()
	bodied = x.observeBody(resp)
	return resp, err
}

// requestStart calls the hooks RequestStart. If a hook panics, the request's body is
// closed.
func (x *exchange) requestStart() {
	started := false
	defer closeBodyUnless(&started, x.req)
	ctx := x.req.Context()
	for _, t := range x.traces() {
		if t != nil {
			ctx = start(t.RequestStart, ctx, x.req)
		}
	}
	x.spanned, started = ctx, true
}

// requestEnd calls the hooks RequestEnd.
func (x *exchange) requestEnd(resp *http.Response, err error, bodied bool) {
	told := false
	defer closeUnless(&told, resp)
	req, state := x.caller()
	e := RequestEnd{
		Request: req, Host: safeName(state), Response: resp, Err: err,
		Reason: x.report.reason, Start: x.report.began, Duration: time.Since(x.report.began),
		Attempts: x.sent, Retries: max(x.sent-1-x.hedges, 0), Hedges: x.hedges,
		Queued: x.limits.total, BodyEnds: bodied,
	}
	for _, t := range x.traces() {
		if t != nil && t.RequestEnd != nil {
			t.RequestEnd(x.spanned, e)
		}
	}
	told = true
}

// closeUnless closes a response that nobody gets because a hook panicked.
func closeUnless(told *bool, resp *http.Response) {
	if !*told && resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
}

// A watch tells the hooks about one attempt. The request's goroutine uses it. It is a
// part of the attempt, so that it needs no allocation.
type watch struct {
	on     bool // a hook observes attempts
	begun  bool // AttemptStart was called, and AttemptEnd not yet
	traces [2]*Trace
	ctx    context.Context
	about  AttemptStart
}

// watch makes the hooks observe an attempt, if there are hooks for attempts.
func (x *exchange) watch(a *attempt) {
	all := x.traces()
	if !all[0].wantsAttempts() && !all[1].wantsAttempts() {
		return
	}
	a.watch.on, a.watch.traces = true, all
	req, state := x.caller()
	a.watch.about = AttemptStart{
		Request: req, Host: safeName(state), Alternate: x.alternate(), Number: a.Number, Kind: a.timing.kind,
		Offset: x.report.offset, Start: a.timing.start, Deadline: x.deadline(a.timing.start), Queued: a.timing.queued,
	}
}

// deadline returns when nobody waits for the headers of an attempt any more that starts now.
func (x *exchange) deadline(start time.Time) time.Time {
	until, _ := x.ctx.Deadline()
	body, after := x.req.Body, x.rule.Timeouts.After
	timed := after > 0 && (body == nil || body == http.NoBody || replay.SmallInMemory(body))
	if end := start.Add(after); timed && (until.IsZero() || end.Before(until)) {
		return end
	}
	return until
}

func (t *Trace) wantsAttempts() bool {
	return t != nil && (t.AttemptStart != nil || t.AttemptEnd != nil)
}

// start calls the hooks AttemptStart. header is the attempt's own.
func (w *watch) start(ctx context.Context, header http.Header) context.Context {
	w.about.Header, w.ctx, w.begun = header, ctx, true
	for _, t := range w.traces {
		if t != nil {
			w.ctx = start(t.AttemptStart, w.ctx, w.about)
		}
	}
	return w.ctx
}

// end calls the hooks AttemptEnd, once. over is the way of the attempt.
func (w *watch) end(over way, took time.Duration, resp *http.Response, err error) {
	if !w.begun {
		return
	}
	w.begun = false
	told := false
	defer closeUnless(&told, resp)
	e := AttemptEnd{AttemptStart: w.about, Addr: over.link.Addr(), Lane: over.number(), Duration: took, Response: resp, Err: err}
	for _, t := range w.traces {
		if t != nil && t.AttemptEnd != nil {
			t.AttemptEnd(w.ctx, e)
		}
	}
	told = true
}

// observeBody makes the body of a response tell its end. It reports whether it does.
func (x *exchange) observeBody(resp *http.Response) bool {
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody || flight.HandsOver(x.req, resp) {
		return false
	}
	all := x.traces()
	if !all[0].wantsBody() && !all[1].wantsBody() {
		return false
	}
	req, state := x.caller()
	b := &observedBody{ReadCloser: resp.Body, traces: all, ctx: x.spanned, req: req, host: safeName(state), download: x.download, began: time.Now()}
	if _, ok := resp.Body.(io.WriterTo); ok {
		b.copier.observedBody = b
		resp.Body = &b.copier
	} else {
		resp.Body = b
	}
	return true
}

func (t *Trace) wantsBody() bool { return t != nil && t.BodyEnd != nil }

// An observedBody counts the bytes of a response and calls the hooks BodyEnd at its end.
// Close may come from another goroutine during a Read.
type observedBody struct {
	io.ReadCloser
	traces   [2]*Trace
	ctx      context.Context
	req      *http.Request
	host     string
	download *download // nil: the body does not resume
	began    time.Time
	copier   observedCopier // of the body itself, if it has WriteTo

	mu    sync.Mutex // guards the fields below
	bytes int64
	ended bool
}

func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count(n)
	if err != nil {
		b.end(err, err == io.EOF)
	}
	return n, err
}

// ResumeTried reports whether the body has asked for its rest. A Transport around this
// one asks.
func (b *observedBody) ResumeTried() bool { return resume.Tried(b.ReadCloser) }

// Close tells the end after the body is closed, also if its Close panics.
func (b *observedBody) Close() error {
	defer b.end(nil, false)
	return b.ReadCloser.Close()
}

func (b *observedBody) count(n int) {
	b.mu.Lock()
	b.bytes += int64(max(n, 0))
	b.mu.Unlock()
}

// end calls the hooks, once.
func (b *observedBody) end(err error, whole bool) {
	b.mu.Lock()
	ended, n := b.ended, b.bytes
	b.ended = true
	b.mu.Unlock()
	if ended {
		return
	}
	if whole {
		err = nil
	}
	e := BodyEnd{Request: b.req, Host: b.host, Bytes: n, Err: err, Whole: whole, Resumes: b.download.resumed(), Duration: time.Since(b.began)}
	for _, t := range b.traces {
		if t.wantsBody() {
			t.BodyEnd(b.ctx, e)
		}
	}
}

// An observedCopier is an observedBody that has WriteTo.
type observedCopier struct{ *observedBody }

// WriteTo counts what the writer takes. An error of the writer does not end the body.
func (c *observedCopier) WriteTo(w io.Writer) (int64, error) {
	to := &countingWriter{w: w, b: c.observedBody}
	n, err := c.ReadCloser.(io.WriterTo).WriteTo(to)
	if err == nil || to.err == nil || !errors.Is(err, to.err) {
		c.end(err, err == nil)
	}
	return n, err
}

type countingWriter struct {
	w   io.Writer
	b   *observedBody
	err error
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.b.count(n)
	if w.err = err; err == nil && n < len(p) {
		w.err = io.ErrShortWrite
	}
	return n, err
}
