// The parts of a call of RoundTrip that do not change.

package transport

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/rules"
)

// A call is a request, its host and the rule that applies to it. Apart from plain, price
// and the sleeper, it does not change after obeyCancel, unless the rule has alternates: req,
// state and rule are then those of the endpoint. One goroutine uses it.
type call struct {
	t       *Transport
	req     *http.Request   // the caller's, or the same for an alternate
	ctx     context.Context // the caller's; see obeyCancel
	linked  bool            // Request.Cancel ends ctx, too
	state   *host.State[rules.Resolved]
	rule    *rules.Resolved
	options *options        // nil: none
	inside  bool            // the context belongs to an attempt of another Transport
	spanned context.Context // what RequestStart returned; nil: no hook
	home    *endpoint       // the caller's request and its host; nil: req and state, because there are no alternates
	at      int             // the endpoint of req, state and rule; 0: the request's own host
	plain   *http.Request   // the request without its Expect, after a 417; nil: it keeps it
	price   int             // see cost; 0: Cost was not asked yet
	sleeper flight.Sleeper
}

// obeyCancel makes the closing of Request.Cancel end c.ctx, so that every wait of
// the exchange sees it. Old callers still use Request.Cancel. The attempts keep
// the caller's context, because the base transport looks at the channel itself,
// and because the body of its response outlives the exchange. stop ends the
// goroutine that listens. That goroutine may run late. So a channel that is closed
// already, as after a light first attempt, ends c.ctx at once.
func (c *call) obeyCancel() (stop func()) {
	//lint:ignore SA1019 old callers still set Request.Cancel
	canceled := c.req.Cancel
	ctx, cancel := context.WithCancelCause(c.ctx)
	c.ctx, c.linked = ctx, true
	select {
	case <-canceled:
		cancel(errRequestCanceled)
		return func() {}
	default:
	}
	go func() {
		select {
		case <-canceled:
			cancel(errRequestCanceled)
		case <-ctx.Done():
		}
	}()
	return func() { cancel(nil) }
}

// carry takes what the caller's context carries.
func (c *call) carry(ctx context.Context) {
	if all := flight.CarriedBy(ctx); all != nil {
		c.options, _ = all.Options.(*options)
		c.inside = all.Number > 0
	}
}

// caller returns the caller's request and the state of its host, wherever attempts go.
func (c *call) caller() (*http.Request, *host.State[rules.Resolved]) {
	if c.home != nil {
		return c.home.req, c.home.state
	}
	return c.req, c.state
}

// single reports whether at most one attempt is allowed.
func (c *call) single() bool {
	return c.rule.Policy.Attempts <= 1 || c.options != nil && c.options.sending == once
}

// cost returns what the request costs. The rule is asked once per request. A reconnect of the
// body costs as much.
func (c *call) cost() int {
	if c.price == 0 {
		c.price = 1
		if own := c.rule.Policy.Cost; own != nil {
			c.price = min(max(own(c.req), 1), math.MaxInt32)
		}
	}
	return c.price
}

// idempotent reports whether the request may be sent again although the server
// may have acted on it.
func (c *call) idempotent() bool {
	return c.options != nil && c.options.sending == repeatable || c.rule.Policy.Idempotent(c.req)
}

// vouched reports whether somebody has allowed to repeat this very request: the
// caller by Repeatable, or the author of the rule by an Idempotent of its own.
func (c *call) vouched() bool {
	return c.options != nil && c.options.sending == repeatable || c.rule.Vouches
}

// outcome returns the outcome that classifiers and hints judge.
func (c *call) outcome(resp *http.Response, err error) classify.Outcome {
	o := classify.Outcome{Request: c.req, Response: resp, Err: err, PeekWait: c.rule.PeekWait}
	switch {
	case c.plain != nil:
		o.Request = c.plain
	case c.linked:
		o.Request = c.req.WithContext(c.ctx)
	}
	return o
}

// unexpect makes the next attempts leave Expect out. A server that cannot meet an
// expectation has not acted, and may act on the same request without it (RFC 9110
// §10.1.1). A classifier sees the request as it is sent, so that a second 417 is final.
func (c *call) unexpect() {
	c.plain = c.req.WithContext(c.ctx)
	c.plain.Header = c.req.Header.Clone()
	delete(c.plain.Header, "Expect")
}

// sleepOr waits until d is over or ready receives something. It ends at once when the
// caller's context does.
func (c *call) sleepOr(d time.Duration, ready <-chan struct{}) error {
	if c.sleeper.Sleep(c.ctx, d, ready) == flight.Canceled {
		return flight.ContextErr(c.ctx)
	}
	return nil
}

// gone returns why the caller's context ended. Request.Cancel and the deadline of
// http.Client.Timeout come at the same time, so a deadline that has passed counts.
func (c *call) gone() Reason {
	if until, ok := c.ctx.Deadline(); ok && !time.Now().Before(until) || errors.Is(c.ctx.Err(), context.DeadlineExceeded) {
		return ReasonTimeout
	}
	return ReasonCanceled
}

// method returns the request's method. An empty method means GET.
func method(req *http.Request) string { return cmp.Or(req.Method, http.MethodGet) }

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// closeBodyUnless closes the body of a request that is not sent because a function of the
// user's panicked.
func closeBodyUnless(returned *bool, req *http.Request) {
	if !*returned {
		closeBody(req)
	}
}
