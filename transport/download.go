// A body that continues after a cut, by attempts in the loop.

package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/rules"
)

// A download is a response's body that continues after a cut, with the call that
// it came from. It is the Fetcher of that body. Both are a single allocation.
type download struct {
	body    resume.Body
	t       *Transport
	req     *http.Request // the caller's, who must not change it until the body is closed
	rule    *rules.Resolved
	spanned context.Context // that RequestStart returned; nil: no hook
	past    *past           // nil: a single attempt, and no continuation
	pool    *pool.Pool      // over which the body comes
	start   instant.Instant // of the first attempt since the last progress, if the rule has a MaxElapsedTime

	resumes atomic.Int32 // how often the body was continued
	price   int32        // that of the request; 0: Cost was not asked yet
}

// A past is the state that a continuation takes over from earlier attempts. Most bodies
// come whole from the first attempt, and have none.
type past struct {
	series  series
	sentAt  time.Time      // when the last continuation was sent; zero before the first
	offset  int64          // of the last continuation
	cut     classify.Class // on the last cut
	first   error          // of the first cut
	resumed int64          // the offset at which the body was continued first
	wait    time.Time      // until when the host asked to wait
	end     error          // of the body, with the reason why it was not continued; nil: none yet
}

// A server that cuts a body again and again gets continuationGap between two continuations, unless the
// part between them had longPart bytes. The time that the part took counts towards the gap.
const (
	longPart        = 1 << 20
	continuationGap = time.Second
)

// callFor returns the call for req, the caller's request or the request for the rest.
func (d *download) callFor(req *http.Request) call {
	c := call{t: d.t, base: d.t.pools.Resolve(), options: optionsOf(req.Context())}
	c.Request = exchange.Request{Registry: &d.t.registry, Req: req, Ctx: req.Context(), Rule: d.rule}
	c.traces = c.options.tracesAfter(d.t.traces)
	return c
}

// countResumes returns how often the body was continued.
func (d *download) countResumes() int {
	if d == nil {
		return 0
	}
	return int(d.resumes.Load())
}

// endOf returns the error that says most about the end of the body.
func (d *download) endOf(err error) error {
	if d == nil || d.past == nil || d.past.end == nil {
		return err
	}
	return d.past.end
}

// hasGrown reports whether bytes before offset came from a continuation.
func (d *download) hasGrown(offset int64) bool {
	return d.resumes.Load() > 0 && offset > d.past.resumed
}

// MayFetch reports whether a cut calls for a retry of a GET.
func (d *download) MayFetch(offset int64, err error) bool {
	c := d.callFor(d.req)
	defer c.ObeyCancel()()
	if c.Ctx.Err() != nil {
		return false
	}
	o := c.OutcomeOf(nil, err)
	if classify.ErrorTypeOf(err) == classify.ErrorTLS {
		o.Err = shaken{err}
	}
	class := c.Rule.Classify(o)
	if d.past == nil {
		d.past = &past{series: series{sent: 1}}
	}
	d.past.first, d.past.cut = cmp.Or(d.past.first, err), class
	return retryable(class) && !gaveUpBelow(c.Req, nil, err) && c.isIdempotent()
}

// Fetch makes the continuations of a cut body, until the missing bytes come. If a second
// response is cut while its first bytes are compared, that is another cut.
func (d *download) Fetch(cut *resume.Cut) error {
	for {
		rest, err := cut.Request(d.req.WithContext(cmp.Or(d.spanned, d.req.Context()))) // it belongs to the span as well
		attempt.Dismiss(context.Background(), &http.Response{Body: cut.Part})
		if err != nil {
			return err
		}
		resp, err := d.send(rest, cut)
		if err != nil {
			return err
		}
		lost, err := cut.Use(resp)
		if err == nil {
			if d.resumes.Add(1) == 1 {
				d.past.resumed = cut.Offset
			}
			return nil
		}
		if !lost || !d.MayFetch(cut.Offset, err) {
			attempt.Discard(rest.Context(), resp)
			return err
		}
		attempt.Dismiss(context.Background(), resp)
		cut.Err = err
	}
}

// send sends the request for the missing bytes through the loop, in which the cut is the outcome at
// hand. After progress the continuation counts as a request and starts a new series. Its first
// attempt follows at once, apart from the jitter, the gap and a wait that the server asked for.
// Without progress it is a retry, about which rule, back-off and budget decide. A response that was
// given up on is an error, because it cannot continue the body.
func (d *download) send(rest *http.Request, cut *resume.Cut) (*http.Response, error) {
	h := d.t.registry.Hosts.Acquire(rest.URL)
	defer h.Release()
	h.ReleaseCount() // a continuation earns no retry before it goes
	c := d.callFor(rest)
	c.State, c.Price = h, d.price
	x, past := c.newRetrier(), d.past
	defer x.ObeyCancel()()
	if x.Rule.Gated {
		x.last.permit = new(limit.Permit)
	}
	x.last.Outcome = attempt.Outcome{Number: past.series.sent, Kind: attempt.Cut, Pool: d.pool, Err: cut.Err, DoneAt: x.Registry.Now(), Class: past.cut}
	x.download, x.offset, x.wait, x.start = d, cut.Offset, past.wait, d.start
	if !cut.Progressed { // or it begins a request, of which nothing was sent yet
		x.series = past.series
	}
	defer func() {
		past.series, past.wait = x.series, x.wait
		d.pool, d.start, d.price = x.last.Pool, x.start, x.Price
	}()
	resp, err := x.loop()
	if reason := HistoryOf(resp, nil).Reason; reason != "" && reason != ReasonFinal {
		attempt.Discard(x.Ctx, resp)
		return nil, x.newError(reason, fmt.Errorf("transport: the response has status %d", resp.StatusCode))
	}
	if err != nil && x.Ctx.Err() != nil {
		err = x.newError(x.reasonGone(), attempt.ContextErr(x.Ctx)) // whatever error the base made of it
	}
	return resp, err
}

// gap returns how long it takes at offset until the continuations are far enough apart.
func (p *past) gap(offset int64, now time.Time) time.Duration {
	if p.sentAt.IsZero() || offset-p.offset >= longPart {
		return 0
	}
	return max(continuationGap-now.Sub(p.sentAt), 0)
}

// Ended returns the error for a body that nothing continues. As long as no byte came from a second
// response, that error is the base's own for the first cut. But if a continuation was due, the end of
// the caller's context has to be seen in it.
func (d *download) Ended(offset int64, err, cause error) error {
	c := d.callFor(d.req)
	defer c.ObeyCancel()()
	gone, first := c.Ctx.Err(), err
	if d.past != nil && d.past.first != nil && !d.hasGrown(offset) {
		first = d.past.first
	}
	switch {
	case cause == nil && gone == nil:
		return io.EOF
	case cause == nil, cause == resume.ErrBelow, cause == resume.ErrFinal && gone != nil:
		return err
	case cause == resume.ErrFinal:
		return first
	}
	reason, ended := ReasonNotResumable, gone // unless the loop or the cause says more
	switch {
	case gone != nil:
		if reason = c.reasonGone(); !errors.Is(cause, gone) {
			cause = attempt.ContextErr(c.Ctx)
		}
	case cause == resume.ErrLimit:
		reason = ReasonMaxAttempts
	case cause == resume.ErrLate:
		reason, ended = ReasonDeadline, context.DeadlineExceeded
	}
	e := &Error{History: History{Reason: reason}, Offset: offset, url: d.req.URL.String(), ofBody: true, ended: ended}
	if last := errorBelow(cause); last != nil {
		e.History = last.History
	}
	e.Err = &bodyError{err, cause, true, e.url}
	if d.past.end = e; !d.hasGrown(offset) && gone == nil {
		return first
	}
	return e
}
