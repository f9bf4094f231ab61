package aplombotel

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/transport"
)

type requestKey struct{}

// A request has the state that its attempts share. It is their context as well, so that
// they find it. The request's goroutine changes it. The body may end in another goroutine,
// which changes only last.
type request struct {
	context.Context // with the span of the request
	span            trace.Span
	own             bool // the span is ours to end
	peer            *peer

	// all[room:] has the attributes that all spans of the request have. In front of them
	// is room for those of an attempt. It is nil until a span is recorded.
	all []attribute.KeyValue
	// last has the attributes of the request's own span, which gets them when it ends.
	last list

	sent   int           // attempts so far
	waited time.Duration // at the limits, by the attempts so far
	taken  bool          // an attempt has taken the room
}

// Value returns the request, or a value of the caller's context.
func (r *request) Value(key any) any {
	if key == (requestKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// String keeps package fmt from reading the fields, which may change meanwhile.
func (r *request) String() string { return fmt.Sprint(r.Context) + ".Request" }

// requestOf returns the request of a context. If another Trace has replaced our context,
// it returns a new request without a span of its own.
func (t *Telemetry) requestOf(ctx context.Context, req *http.Request) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{Context: ctx, span: trace.SpanFromContext(ctx), peer: t.peers.of(req)}
}

// room is how many attributes most attempts have besides those of the request. behind is
// how many most requests have besides those of their attempts.
const (
	room   = 3
	behind = 4
)

// describe makes the attributes that all spans of the request have. If there is a single
// attempt, both spans take their attributes from this memory.
func (r *request) describe(req *http.Request) {
	if r.all == nil {
		r.all = r.peer.describe(make([]attribute.KeyValue, room, room+4+behind), req)
	}
}

// with returns the attributes of an attempt. own are those that other spans do not have.
// The slice is never changed again, because a span may keep it.
func (r *request) with(own []attribute.KeyValue) []attribute.KeyValue {
	if r.taken || len(own) > room {
		return slices.Concat(own, r.all[room:])
	}
	r.taken = true
	from := room - len(own)
	copy(r.all[from:], own)
	return slices.Clip(r.all[from:])
}

// requestStart begins the span of a request.
func (t *Telemetry) requestStart(ctx context.Context, req *http.Request) context.Context {
	r := &request{Context: ctx, own: !t.noRequestSpan, peer: t.peers.of(req)}
	if r.own {
		r.Context, r.span = t.tracer.Start(ctx, r.peer.requestName)
	} else {
		r.span = trace.SpanFromContext(ctx)
	}
	if r.own && r.span.IsRecording() {
		r.describe(req)
	}
	return r
}

// attemptStart begins the span of an attempt, and writes its trace context into the header.
// The span gets its attributes all at once when it ends, because each time costs much.
func (t *Telemetry) attemptStart(ctx context.Context, a transport.AttemptStart) context.Context {
	r := t.requestOf(ctx, a.Request)
	resent := r.sent
	r.sent++
	if a.Kind == transport.AttemptHedge && r.span.IsRecording() {
		r.span.AddEvent("hedge", trace.WithTimestamp(a.Start))
	}
	ctx, span := t.tracer.Start(ctx, r.peer.name, t.client...)
	if resent > 0 {
		span.SetAttributes(resendKey.Int(resent))
	}
	t.propagator.Inject(ctx, carrier(a.Header))
	return ctx
}

// attemptEnd counts an attempt and the decision about it, and ends its span at the time when its outcome came.
func (t *Telemetry) attemptEnd(ctx context.Context, a transport.AttemptEnd) {
	r := t.requestOf(ctx, a.Request)
	status, failure := result(a.Response, a.Err)
	outrun := a.Response == nil && a.Reason == transport.ReasonOutrun
	if outrun {
		failure = string(transport.ReasonOutrun)
	}
	version := versionOf(a.Response)
	r.peer.set(labels{of: attempts, failure: failure, value: string(a.Kind)}).count.Add(1)
	t.counts.record(ctx, r.peer, labels{of: duration, status: status, failure: failure, version: version}, a.Duration.Seconds())
	t.counts.waited(ctx, r.peer, a.WaitedFor, a.Waited)
	r.waited += a.Waited
	span := trace.SpanFromContext(ctx)
	if span.IsRecording() {
		own := append(make(list, 0, 8), kindKey.String(string(a.Kind)))
		own = withPeer(own, a.Addr)
		own.add(a.Pool > 0, poolKey.Int(a.Pool))
		own.add(a.Waited > 0, waitedKey.Float64(a.Waited.Seconds()))
		own.add(a.Offset > 0, offsetKey.Int64(a.Offset))
		own.add(outrun, reasonKey.String(failure))
		if !outrun {
			own = withResult(own, status, failure, version)
			fail(span, a.Request, failure, a.Err)
		}
		r.describe(a.Request)
		span.SetAttributes(r.with(own)...)
	}
	ended := time.Now()
	if late := ended.Sub(a.Start.Add(a.Duration)); late > time.Millisecond { // the decision took its time
		ended = ended.Add(-late) // by the clock that the start of the span has
		span.End(trace.WithTimestamp(ended))
	} else {
		span.End()
	}
	if a.Reason == transport.ReasonRetry {
		why := a.Reason                // the back-off, or
		if 2*a.RetryAfter >= a.Delay { // the wait of the server, and a jitter that is not longer
			why = transport.ReasonThrottled
		}
		t.counts.waited(ctx, r.peer, why, a.Delay)
		r.retries(&a, ended)
	}
}

// retries adds the decision to retry to the span of a request. The last decision is in the
// attributes of the span.
func (r *request) retries(a *transport.AttemptEnd, at time.Time) {
	if !r.span.IsRecording() {
		return
	}
	all := list{numberKey.Int(a.Number)}
	all.add(a.Delay > 0, delayKey.Float64(a.Delay.Seconds()))
	all.add(a.Offset > 0, offsetKey.Int64(a.Offset))
	all.add(a.Status != 0, statusKey.Int(a.Status))
	all.add(a.Err != nil, errorKey.String(typeOf(a.Err)))
	r.span.AddEvent(string(a.Reason), trace.WithTimestamp(at), trace.WithAttributes(all...))
}

// requestEnd counts a request, and ends its span if no body follows.
func (t *Telemetry) requestEnd(ctx context.Context, e transport.RequestEnd) {
	r := t.requestOf(ctx, e.Request)
	status, failure := result(e.Response, e.Err)
	t.counts.record(ctx, r.peer, labels{of: requests, failure: failure, value: string(e.Reason)}, e.Duration.Seconds())
	t.counts.waited(ctx, r.peer, e.Reason, e.Waited-r.waited) // before it was refused
	if !r.own {
		return
	}
	if r.all != nil {
		r.last = append(r.all[room:], reasonKey.String(string(e.Reason)), attemptsKey.Int(e.Attempts))
		r.last.add(e.Waited > 0, waitedKey.Float64(e.Waited.Seconds()))
		r.last = withResult(r.last, status, failure, "")
		fail(r.span, e.Request, failure, e.Err)
	}
	if !e.BodyFollows {
		r.end()
	}
}

// bodyEnd ends the span of a request whose response has a body.
func (t *Telemetry) bodyEnd(ctx context.Context, e transport.BodyEnd) {
	r := t.requestOf(ctx, e.Request)
	failure := ""
	if e.Err != nil {
		failure = typeOf(e.Err)
		r.peer.set(labels{of: bodyFailures, failure: failure}).count.Add(1)
	}
	t.counts.record(ctx, r.peer, labels{of: bodySize, failure: failure}, float64(e.Bytes))
	if !r.own {
		return
	}
	if r.last != nil {
		r.last = append(r.last, sizeKey.Int64(e.Bytes))
		r.last.add(e.Resumes > 0, resumesKey.Int(e.Resumes))
		r.last = withResult(r.last, 0, failure, "")
		fail(r.span, e.Request, failure, e.Err)
	}
	r.end()
}

// end ends the span of the request.
func (r *request) end() {
	r.span.SetAttributes(r.last...)
	r.span.End()
}

// A list has the attributes of a span, an event or a measurement.
type list []attribute.KeyValue

// add adds an attribute that is set.
func (l *list) add(set bool, attr attribute.KeyValue) {
	if set {
		*l = append(*l, attr)
	}
}

// withResult appends the result of an attempt or a request.
func withResult(all list, status int, failure, version string) list {
	all.add(status != 0, statusKey.Int(status))
	all.add(failure != "", errorKey.String(failure))
	all.add(version != "", versionKey.String(version))
	return all
}

// versionOf returns the version of HTTP of a response, or "".
func versionOf(resp *http.Response) string {
	switch {
	case resp == nil:
		return ""
	case resp.ProtoMajor == 1 && resp.ProtoMinor == 0:
		return "1.0"
	}
	return [...]string{1: "1.1", 2: "2", 3: "3"}[min(max(resp.ProtoMajor, 0), 3)]
}

// fail gives a span the status of a failure. failure is empty after a success.
func fail(span trace.Span, req *http.Request, failure string, err error) {
	switch {
	case failure == "":
	case err == nil:
		span.SetStatus(codes.Error, "")
	default:
		span.SetStatus(codes.Error, transport.SafeError(err, req.URL))
	}
}

// A carrier is the header of an attempt. It knows the canonical name of the field that
// propagators usually write, because http.Header would make that name anew each time.
type carrier http.Header

func (c carrier) Get(key string) string { return http.Header(c).Get(key) }

func (c carrier) Set(key, value string) {
	if key == "traceparent" {
		c["Traceparent"] = []string{value}
		return
	}
	http.Header(c).Set(key, value)
}

func (c carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }

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
func typeOf(err error) string { return string(classify.ErrorTypeOf(err)) }
