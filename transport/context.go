// Settings of a single request, and the history of a response. Both travel in a
// context.

package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/trait"
	"github.com/aplomb-go/aplomb/policy"
)

type (
	optionsKey struct{}
	markKey    struct{}
)

// options are the settings in the context of a request. They never change once they
// are in a context.
type options struct {
	sending sending
	traces  []Trace            // with hooks for requests
	rule    *rules.RequestRule // of WithRule; nil: none
}

// sending says how often a request may be sent, whatever its method.
type sending uint8

const (
	byMethod sending = iota
	sendRepeatable
	sendOnce
)

// WithIdempotent returns a context whose requests may be retried whatever their method.
// The caller knows that it does no harm to act on them twice. If the rule hedges,
// they may be hedged as well. It replaces an earlier [WithoutRetries].
func WithIdempotent(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *options) { o.sending = sendRepeatable })
}

// WithoutRetries returns a context whose requests this package sends at most once, whatever
// happens. It replaces an earlier [WithIdempotent]. Below this package net/http itself
// still resends a request of which it wrote nothing, and an idempotent request on a
// kept connection that turned out to be closed.
func WithoutRetries(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *options) { o.sending = sendOnce })
}

// WithRule returns a context whose requests follow rule in the fields that it sets. They
// take the other fields from an earlier WithRule, and then from the rule of their path,
// from that of their host, and from Config.Rule. It holds for each Transport that such a
// request goes through, and for the requests of redirects.
//
// The limits that all requests to a host share cannot be set here: MaxRetryAfter, RateLimit,
// RetryBudget, ShareRetryAfter, ThrottleKey, QuotaPacing, CircuitBreaker, Concurrency and
// Hedge.Percentile. If something is wrong with the rule, RoundTrip sends nothing, and returns an error around
// a *policy.FieldError for each fault.
//
// A rule is checked and completed at the first request with the context or a context derived
// from it. That takes some microseconds. So share a context, or its parent, if many requests need
// the same rule. If the rule is known when the Transport is made, Config.Hosts is the place
// for it.
func WithRule(ctx context.Context, rule policy.Rule) context.Context {
	return withOptions(ctx, func(o *options) {
		if o.rule != nil {
			rule = rule.Or(o.rule.Policy)
		}
		o.rule = &rules.RequestRule{Policy: rule}
	})
}

// WithTrace returns a context whose requests are reported to trace. As in
// net/http/httptrace, a trace that is already in ctx is called after it.
// Config.Traces are called before both.
func WithTrace(ctx context.Context, trace *Trace) context.Context {
	if !trace.hasHooks() {
		return ctx
	}
	return withOptions(ctx, func(o *options) { o.traces = append([]Trace{*trace}, o.traces...) })
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

// tracesAfter returns the traces of a call: first those of its Transport, and then those of the options, if there are any.
func (o *options) tracesAfter(first []Trace) []Trace {
	if o == nil || len(o.traces) == 0 {
		return first
	}
	return slices.Concat(first, o.traces)
}

// isSingle reports whether at most one attempt is allowed.
func (c *call) isSingle() bool {
	return c.Rule.Policy.MaxAttempts <= 1 || c.options != nil && c.options.sending == sendOnce
}

// isIdempotent reports whether the request may be sent again although the server
// may have acted on it.
func (c *call) isIdempotent() bool {
	return c.options != nil && c.options.sending == sendRepeatable || c.Rule.Policy.Idempotent(c.Req)
}

// parentContext returns the context that the attempts begin with: the caller's, or that of
// RequestStart.
func (c *call) parentContext() context.Context {
	return cmp.Or(c.spanned, c.Req.Context())
}

// A mark is the history of a response that called for a retry and was not retried, or
// that came after more than one attempt. The response carries it in the context of its
// Request.
type mark struct {
	context.Context                // of the request that brought the response
	req             http.Request   // the same request, with the mark as its context
	resp            *http.Response // see of
	history         History
	gaveUp          bool                 // on a retry
	few             [fewAttempts]Attempt // room for it
}

func (m *mark) Value(key any) any {
	if key == (markKey{}) {
		return m
	}
	return m.Context.Value(key)
}

// String keeps package fmt from printing all of the response.
func (m *mark) String() string { return fmt.Sprint(m.Context) + ".History" }

func markOf(ctx context.Context) *mark {
	m, _ := ctx.Value(markKey{}).(*mark)
	return m
}

// of reports whether the mark belongs to this response. A caller who sends the
// request of a marked response again hands the mark down with it. A RoundTripper
// in between may have copied the response. The copy shares its header.
func (m *mark) of(resp *http.Response) bool {
	own := m.resp.Header
	return m.resp == resp || own != nil && reflect.ValueOf(own).Pointer() == reflect.ValueOf(resp.Header).Pointer()
}

// HistoryOf returns the history of a request. resp and err are the results of a Transport, of an
// http.Client above it, or of reading a body. Either may be nil.
//
// An error has a history if it is an [Error], or wraps one. A response has a history if there was
// more than one attempt, or if a limit held the first, even if the last is a success. If the response
// called for a retry, its history says why there was none. Either the retry was not safe
// ([ReasonNotIdempotent], [ReasonNotReplayable]), or a limit withheld it (attempts, time, the
// deadline, the longest wait allowed, the budget …).
//
// Any other History is zero. A success or another final response of a single attempt that did
// not wait has none. Neither has a response to a request that was to be sent once, nor a response
// or an error of another transport.
func HistoryOf(resp *http.Response, err error) History {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.History
	}
	if resp == nil || resp.Request == nil {
		return History{}
	}
	m := markOf(resp.Request.Context())
	if m == nil || !m.of(resp) {
		return History{}
	}
	return m.history
}

// ReasonOf returns the Reason of [HistoryOf]. If several Transports have a reason, it is that of
// the outermost. It is "" if there is none.
func ReasonOf(resp *http.Response, err error) Reason { return HistoryOf(resp, err).Reason }

// gaveUpBelow reports whether a Transport below gave up on this outcome.
func gaveUpBelow(req *http.Request, resp *http.Response, err error) bool {
	if resp != nil {
		// A caller who reuses the context of a marked response hands the old mark
		// down again. It says nothing about this outcome.
		var m *mark
		if resp.Request != nil {
			m = markOf(resp.Request.Context())
		}
		if m == nil || m == markOf(req.Context()) {
			return false
		}
		// A final 421 has a mark if the Transport below has no other connection.
		return m.gaveUp || m.history.Reason == ReasonFinal && resp.StatusCode == http.StatusMisdirectedRequest
	}
	return trait.GaveUp(err)
}

// method returns the request's method. An empty method means GET.
func method(req *http.Request) string { return cmp.Or(req.Method, http.MethodGet) }
