// What an attempt was, and how it ended.

package attempt

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pool"
)

// An Outcome is what an attempt was and how it ended. The cut of a body is one as well, without an
// attempt. The loop fills in the first fields before the send, the Attempt fills in the next, and the
// loop adds the class. The limits, the routes and the observers read all of them.
type Outcome struct {
	Number int // counts the attempts of the call from 1
	Kind   Kind
	SentAt instant.Instant // 0: not known
	Queued Queued          // before it was sent
	Pool   *pool.Pool      // that it takes, and that hears what comes; nil: the first pool, which nobody listens to
	Heard  instant.Instant // when something had come over the pool last before it
	Link   *Link           // its connection; nil: nobody needs to know

	Resp   *http.Response // nil: an error, or it was discarded
	Err    error
	DoneAt instant.Instant // when it had a response or an error; 0: not known

	Class     classify.Class // Unknown: nobody was asked yet
	BodyBroke bool           // the request's own body failed
	Below     bool           // a Transport below has the attempts of which Err tells
}

// A Kind says why an attempt was made.
type Kind string

const (
	Cut    Kind = ""       // there was no attempt, but the body of a response was cut
	First  Kind = "first"  // of a request
	Retry  Kind = "retry"  // after a failure
	Hedge  Kind = "hedge"  // beside a slow attempt
	Resume Kind = "resume" // for the rest of a cut body
)

// Queued is how long a request has waited at each limit.
type Queued struct{ Cooldown, Pacing, Gate, Rate time.Duration }

// Status returns the status of the response, or 0 if there was none.
func (o *Outcome) Status() int {
	if o.Resp == nil {
		return 0
	}
	return o.Resp.StatusCode
}

// Took returns the time until the headers or the error, or 0 if it is not known.
func (o *Outcome) Took() time.Duration {
	if o.SentAt == 0 || o.DoneAt == 0 {
		return 0
	}
	return o.DoneAt.Sub(o.SentAt)
}

// Failed reports whether the outcome calls for a retry.
func (o *Outcome) Failed() bool {
	return o.Class == classify.Refused || o.Class == classify.Ambiguous
}

// PoolNumber returns the number of the pool.
func (o *Outcome) PoolNumber() int {
	if o.Pool == nil {
		return 0
	}
	return o.Pool.Number
}

// AsSent returns the outcome of an attempt that may be under way still.
func (o *Outcome) AsSent() Outcome {
	return Outcome{Number: o.Number, Kind: o.Kind, SentAt: o.SentAt, Queued: o.Queued, Pool: o.Pool, Heard: o.Heard, Link: o.Link}
}

// ResultOf returns what an outcome says about the host as a whole.
func ResultOf(ctx context.Context, resp *http.Response, err error) concurrency.Result {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return concurrency.Neutral // the caller left
	case err != nil && IsLate(ctx, err):
		return concurrency.Lost // the host may be busy with it still
	case err != nil:
		return resultOfError(err)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return concurrency.Neutral // this client sends too much, or too slowly
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusNetworkAuthenticationRequired:
		return concurrency.Success // it is about this request alone
	}
	if resp.StatusCode >= 500 {
		return concurrency.Failed
	}
	return concurrency.Success
}

// IsLate reports whether an attempt ended because it took too long. A base transport may
// return the cause of the caller's deadline, which can be any error.
func IsLate(ctx context.Context, err error) bool {
	return classify.ErrorTypeOf(err) == classify.ErrorTimeout || ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

func resultOfError(err error) concurrency.Result {
	switch classify.ErrorTypeOf(err) {
	case classify.ErrorDNS, classify.ErrorDial, classify.ErrorTLS, classify.ErrorReset:
		return concurrency.Failed
	}
	return concurrency.Neutral // the request's own fault, or nobody's
}
