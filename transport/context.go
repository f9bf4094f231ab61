// What a caller says about one request, through its context.

package transport

import (
	"context"
	"net/http"
	"reflect"
)

type (
	optionsKey struct{}
	gaveUpKey  struct{}
)

// options is what the context of a request says. It is never changed once it
// is in a context.
type options struct {
	sending sending
	trace   *Trace
	attempt int // 0 in what a caller hands over: the number of a send
}

// sending says how often a request may be sent, whatever its method.
type sending uint8

const (
	byMethod sending = iota
	repeatable
	once
)

// Repeatable returns a context whose requests may be sent again whatever their
// method: the caller knows that acting on them twice does no harm. With a rule
// that hedges, they may be hedged as well. It replaces an earlier [Once].
func Repeatable(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *options) { o.sending = repeatable })
}

// Once returns a context whose requests this package sends at most once,
// whatever happens. It replaces an earlier [Repeatable]. Below this package
// net/http itself still resends a request of which it wrote nothing, and an
// idempotent one on a kept connection that turned out to be closed.
func Once(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *options) { o.sending = once })
}

// WithTrace returns a context whose requests are reported to trace, in the
// manner of net/http/httptrace: a trace that is in ctx already is called
// after it. Config.Trace is called first of all.
func WithTrace(ctx context.Context, trace *Trace) context.Context {
	if trace == nil {
		return ctx
	}
	return withOptions(ctx, func(o *options) { o.trace = trace.before(o.trace) })
}

// AttemptNumber returns which send of its request an attempt is: 1 for the
// first and for a context that is not an attempt's, 2 for the first resend. It
// is for base transports that label or sign what they send.
func AttemptNumber(ctx context.Context) int {
	if o := optionsOf(ctx); o != nil && o.attempt > 0 {
		return o.attempt
	}
	return 1
}

// withAttempt returns the context of the n-th send.
func withAttempt(ctx context.Context, n int) context.Context {
	return withOptions(ctx, func(o *options) { o.attempt = n })
}

func withOptions(ctx context.Context, change func(*options)) context.Context {
	var o options
	if old := optionsOf(ctx); old != nil {
		o = *old
	}
	change(&o)
	return context.WithValue(ctx, optionsKey{}, &o)
}

func optionsOf(ctx context.Context) *options {
	o, _ := ctx.Value(optionsKey{}).(*options)
	return o
}

// gaveUp is the mark on a response that would have been retried and was not.
type gaveUp struct {
	resp     *http.Response // see of
	reason   Reason
	attempts []Attempt
}

func gaveUpOf(ctx context.Context) *gaveUp {
	g, _ := ctx.Value(gaveUpKey{}).(*gaveUp)
	return g
}

// marked returns resp with the reason why it was not retried: its Request
// becomes a copy whose context carries the mark, for [GaveUp]. Where the reason is
// a limit, a Transport around this one that sees the mark does not start again.
func marked(resp *http.Response, req *http.Request, reason Reason, attempts []Attempt) *http.Response {
	if resp.Request != nil {
		req = resp.Request
	}
	mark := &gaveUp{resp: resp, reason: reason, attempts: attempts}
	resp.Request = req.WithContext(context.WithValue(req.Context(), gaveUpKey{}, mark))
	return resp
}

// of reports whether the mark is this response's: a caller who sends the request
// of a marked one again hands the mark down with it. A RoundTripper in between
// may have copied the response; the copy shares its header.
func (g *gaveUp) of(resp *http.Response) bool {
	own := g.resp.Header
	return g.resp == resp || own != nil && reflect.ValueOf(own).Pointer() == reflect.ValueOf(resp.Header).Pointer()
}

// GaveUp reports why a response that called for a retry was not retried, and
// what was sent: it was not safe ([NotIdempotent], [NotReplayable], [BodyBusy]),
// or a limit withheld it (attempts, time, the deadline, the longest wait allowed,
// the budget …). ok is false for every other response: a success, an answer that
// another try would not change, one of a request that was to be sent once, or
// one from another transport.
func GaveUp(resp *http.Response) (reason Reason, attempts []Attempt, ok bool) {
	if resp == nil || resp.Request == nil {
		return 0, nil, false
	}
	g := gaveUpOf(resp.Request.Context())
	if g == nil || !g.of(resp) {
		return 0, nil, false
	}
	return g.reason, g.attempts, true
}
