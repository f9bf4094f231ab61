// Telling the hooks of a Trace about a request, its attempts and its body.

package transport

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
)

// requestStart calls the hooks RequestStart. If a hook panics, the request's body is
// closed.
func (x *retrier) requestStart() {
	defer func() {
		if x.spanned == nil {
			closeBody(x.Req)
		}
	}()
	ctx := x.Req.Context()
	for _, t := range x.traces {
		ctx = callStart(t.RequestStart, ctx, x.Req)
	}
	x.spanned = ctx
}

// requestEnd calls the hooks RequestEnd.
func (x *retrier) requestEnd(began time.Time, resp *http.Response, err error) {
	bodied, told := x.observeBody(resp), false
	defer x.dismissUnless(&told, resp)
	e := RequestEnd{
		Request: x.Req, Host: x.HostName(), Response: resp, Err: err,
		Reason: x.reason, Duration: time.Since(began),
		Attempts: x.sent, Waited: x.waited, BodyFollows: bodied,
	}
	for _, t := range x.traces {
		if t.RequestEnd != nil {
			t.RequestEnd(x.spanned, e)
		}
	}
	told = true
}

// watchAttempt makes the hooks observe an attempt, if there are hooks for attempts. It reports
// whether somebody wants to know the address: the hooks AttemptEnd, or all observers if it is a retry.
func (x *retrier) watchAttempt(a *try) (asksAddress bool) {
	for _, t := range x.traces {
		a.Watched = a.Watched || t.AttemptStart != nil
		if t.AttemptEnd != nil {
			a.told = a.Ctx
		}
	}
	return a.told != nil || x.sent > 1 && (x.t.logger != nil || len(x.traces) > 0)
}

// tellStart calls the hooks AttemptStart. header is the attempt's own.
func (c *call) tellStart(a *try, header http.Header) {
	about := AttemptStart{
		Request: c.Req, Host: c.HostName(), Header: header, Number: a.Number, Kind: AttemptKind(a.Kind),
		Offset: a.offset, Start: c.Registry.TimeOf(a.SentAt),
	}
	about.Deadline, _ = c.Ctx.Deadline()
	// Another attempt may read the caller's own body meanwhile, or has read it.
	if body := cmp.Or(a.Body, c.Req.Body); a.Timeouts.After > 0 && (body == nil || body == http.NoBody || replay.SmallInMemory(body)) {
		if end := about.Start.Add(a.Timeouts.After); about.Deadline.IsZero() || end.Before(about.Deadline) {
			about.Deadline = end
		}
	}
	for _, t := range c.traces {
		a.Ctx = callStart(t.AttemptStart, a.Ctx, about)
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
	for _, t := range c.traces {
		if t.AttemptEnd != nil {
			t.AttemptEnd(ctx, e)
		}
	}
}

// observeBody makes the body of a response tell its end. It reports whether it does.
func (x *retrier) observeBody(resp *http.Response) bool {
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody || attempt.HandsOver(x.Req, resp) ||
		!slices.ContainsFunc(x.traces, func(t Trace) bool { return t.BodyEnd != nil }) {
		return false
	}
	about := BodyEnd{Request: x.Req, Host: x.HostName()}
	resp.Body = &observedBody{ReadCloser: resp.Body, traces: x.traces, ctx: x.spanned, about: about, download: x.download, began: time.Now()}
	return true
}

// An observedBody is the body of a response. It counts the bytes, and tells the hooks of its end. Close may come from
// another goroutine during a Read.
type observedBody struct {
	io.ReadCloser
	traces   []Trace
	ctx      context.Context // of the hooks
	about    BodyEnd         // what is known from the beginning
	download *download       // nil: the body does not resume
	began    time.Time

	bytes  atomic.Int64
	closed atomic.Bool // or being closed
	ended  atomic.Bool
}

func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(max(n, 0)))
	if err != nil {
		b.end(err)
	}
	return n, err
}

// ResumeTried reports whether the body has asked for its rest. An outer Transport asks.
func (b *observedBody) ResumeTried() bool { return resume.Tried(b.ReadCloser) }

// Close tells the end after the body is closed, also if its Close panics. A Read that it ends
// is no error of the body.
func (b *observedBody) Close() error {
	b.closed.Store(true)
	defer b.end(nil)
	return b.ReadCloser.Close()
}

// end calls the hooks BodyEnd, once. err is io.EOF if the body was read whole, and nil if it was closed before.
func (b *observedBody) end(err error) {
	if b.ended.Swap(true) {
		return
	}
	e := b.about
	e.Bytes, e.Resumes, e.Duration = b.bytes.Load(), b.download.countResumes(), time.Since(b.began)
	if e.Complete = err == io.EOF; err != nil && !e.Complete && !b.closed.Load() { // in the goroutine of the Read
		e.Err = b.download.endOf(err)
	}
	for _, t := range b.traces {
		if t.BodyEnd != nil {
			t.BodyEnd(b.ctx, e)
		}
	}
}

// downloadOf returns the download that continues the body of a response, or nil.
func downloadOf(resp *http.Response) *download {
	switch b := resp.Body.(type) {
	case *observedBody:
		return b.download
	case *resume.Body:
		return b.Fetcher.(*download)
	}
	return nil
}

// closeBody closes the body of a request that is not sent.
func closeBody(req *http.Request) {
	if req != nil && req.Body != nil && !replay.IsNil(req.Body) {
		_ = req.Body.Close()
	}
}
