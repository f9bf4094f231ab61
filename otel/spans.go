package aplombotel

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/transport"
)

type requestKey struct{}

// A request is what its attempts share.
type request struct {
	span  trace.Span
	own   bool                 // the span is ours to end
	about []attribute.KeyValue // those of the request; nil: nobody has asked yet

	mu     sync.Mutex // guards the fields below
	sent   int        // attempts so far
	failed string     // the error type of the last outcome
}

// next counts an attempt. It returns the number of attempts before it, and the error type
// of the last of them.
func (r *request) next() (before int, failed string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, failed = r.sent, r.failed
	r.sent++
	return before, failed
}

// note keeps the error type of an attempt, or its status if that is not an error.
func (r *request) note(status int, failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed = failure; failure == "" {
		r.failed = strconv.Itoa(status)
	}
}

func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// requestStart begins the span of a request.
func (t *Telemetry) requestStart(ctx context.Context, req *http.Request) context.Context {
	r := &request{own: !t.noRequestSpan}
	if r.own {
		ctx, r.span = t.tracer.Start(ctx, requestName(req))
		if r.span.IsRecording() {
			r.about = about(req)
			r.span.SetAttributes(r.about...)
		}
	} else {
		r.span = trace.SpanFromContext(ctx)
	}
	return context.WithValue(ctx, requestKey{}, r)
}

// attemptStart begins the span of an attempt, and writes its trace context into the header.
func (t *Telemetry) attemptStart(ctx context.Context, a transport.AttemptStart) context.Context {
	r := requestOf(ctx)
	if r == nil {
		r = &request{} // the trace context of another Trace was not derived from ours
	}
	resent, failed := r.next()
	t.counts.attemptStart(ctx, t, &a, failed)
	ctx, span := t.tracer.Start(ctx, name(a.Request), t.client...)
	if span.IsRecording() {
		if r.about == nil {
			r.about = about(a.Request)
		}
		attrs := append(make([]attribute.KeyValue, 0, len(r.about)+4), r.about...)
		attrs = append(attrs, kindKey.String(a.Kind.String()))
		if resent > 0 {
			attrs = append(attrs, resendKey.Int(resent))
		}
		if q := a.Queued.Total(); q > 0 {
			attrs = append(attrs, queuedKey.Float64(q.Seconds()))
		}
		if a.Offset > 0 {
			attrs = append(attrs, offsetKey.Int64(a.Offset))
		}
		span.SetAttributes(attrs...)
	}
	t.propagator.Inject(ctx, propagation.HeaderCarrier(a.Header))
	return ctx
}

// attemptEnd ends the span of an attempt.
func (t *Telemetry) attemptEnd(ctx context.Context, a transport.AttemptEnd) {
	status, failure := result(a.Response, a.Err)
	if r := requestOf(ctx); r != nil && !errors.Is(a.Err, transport.ErrOutrun) {
		r.note(status, failure)
	}
	with := t.sets.of(a.Request, labels{status: status, failure: failure, key: kindKey, value: a.Kind.String()})
	t.counts.attempts.Add(ctx, 1, with.add...)
	t.counts.duration.Record(ctx, a.Duration.Seconds(), with.record...)
	span := trace.SpanFromContext(ctx)
	if span.IsRecording() {
		if errors.Is(a.Err, transport.ErrOutrun) {
			span.SetAttributes(outrunKey.Bool(true))
		} else {
			finish(span, a.Request, status, failure, a.Err)
		}
	}
	span.End()
}

// event counts a decision, and adds it to the request's span.
func (t *Telemetry) event(e transport.Event) {
	t.counts.event(t, &e)
	if r := requestOf(e.Context); r != nil && r.span.IsRecording() {
		r.decided(&e)
	}
}

// decided adds a decision to the span of a request. The last decision is in the
// attributes of the span.
func (r *request) decided(e *transport.Event) {
	switch e.Reason {
	case transport.ReasonRetry, transport.ReasonHedged, transport.ReasonResume, transport.ReasonMismatch, transport.ReasonResumeMax:
	default:
		return
	}
	attrs := []attribute.KeyValue{numberKey.Int(e.Number)}
	if e.Wait > 0 {
		attrs = append(attrs, waitKey.Float64(e.Wait.Seconds()))
	}
	if e.Offset > 0 {
		attrs = append(attrs, offsetKey.Int64(e.Offset))
	}
	if e.Status != 0 {
		attrs = append(attrs, statusKey.Int(e.Status))
	}
	if e.Err != nil {
		attrs = append(attrs, errorKey.String(typeOf(e.Err)))
	}
	r.span.AddEvent(e.Reason.String(), trace.WithTimestamp(e.Time), trace.WithAttributes(attrs...))
}

// requestEnd counts a request, and ends its span if no body follows.
func (t *Telemetry) requestEnd(ctx context.Context, e transport.RequestEnd) {
	status, failure := result(e.Response, e.Err)
	with := t.sets.of(e.Request, labels{status: status, failure: failure, key: reasonKey, value: e.Reason.String()})
	t.counts.requests.Add(ctx, 1, with.add...)
	r := requestOf(ctx)
	if r == nil || !r.own {
		return
	}
	if r.span.IsRecording() {
		attrs := append(make([]attribute.KeyValue, 0, 5), reasonKey.String(e.Reason.String()), attemptsKey.Int(e.Attempts))
		if q := e.Queued.Total(); q > 0 {
			attrs = append(attrs, queuedKey.Float64(q.Seconds()))
		}
		finish(r.span, e.Request, status, failure, e.Err, attrs...)
	}
	if !e.BodyEnds {
		r.span.End()
	}
}

// bodyEnd ends the span of a request whose response has a body.
func (t *Telemetry) bodyEnd(ctx context.Context, e transport.BodyEnd) {
	with := t.sets.of(e.Request, labels{})
	t.counts.body.Add(ctx, e.Bytes, with.add...)
	if e.Resumes > 0 {
		t.counts.resumes.Add(ctx, int64(e.Resumes), with.add...)
	}
	r := requestOf(ctx)
	if r == nil || !r.own {
		return
	}
	if r.span.IsRecording() {
		r.span.SetAttributes(sizeKey.Int64(e.Bytes))
		if e.Resumes > 0 {
			r.span.SetAttributes(resumesKey.Int(e.Resumes))
		}
		if e.Err != nil {
			finish(r.span, e.Request, 0, typeOf(e.Err), e.Err)
		}
	}
	r.span.End()
}

// finish writes the result of an attempt or a request into its span.
func finish(span trace.Span, req *http.Request, status int, failure string, err error, more ...attribute.KeyValue) {
	if status != 0 {
		more = append(more, statusKey.Int(status))
	}
	if failure != "" {
		more = append(more, errorKey.String(failure))
	}
	span.SetAttributes(more...)
	if failure == "" {
		return
	}
	text := ""
	if err != nil {
		text = transport.SafeError(err, req.URL)
	}
	span.SetStatus(codes.Error, text)
}

// result returns the status and the error type of an outcome. The type is empty after a
// success. If there is neither a response nor an error, there was a panic.
func result(resp *http.Response, err error) (status int, failure string) {
	switch {
	case err != nil:
		return 0, typeOf(err)
	case resp == nil:
		return 0, "panic"
	case resp.StatusCode >= 400:
		return resp.StatusCode, strconv.Itoa(resp.StatusCode)
	}
	return resp.StatusCode, ""
}

// typeOf returns the error type of an error. There are few of them.
func typeOf(err error) string {
	if errors.Is(err, transport.ErrOutrun) {
		return "outrun"
	}
	if k := classify.KindOf(err); k != classify.Other {
		return k.String()
	}
	return "_OTHER"
}
