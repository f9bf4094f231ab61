// The timeouts of attempts.

package attempt

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// Timeouts are the timeouts of a rule, with their errors. They are made once for a rule.
type Timeouts struct {
	After time.Duration // for the headers, from the start of an attempt or from the end of a body that takes time to send; not positive: off
	late  error         // if that takes longer

	quiet  time.Duration // without progress; not positive: off
	silent error         // if that takes longer

	Connect     time.Duration // until the attempt has a connection; not positive: off
	unconnected error         // if that takes longer

	event     time.Duration // from the headers of an event stream to its first event; not positive: off
	eventless error         // if that takes longer
}

// TimeoutsOf returns the timeouts of a rule.
func TimeoutsOf(r *policy.Rule) Timeouts {
	t := Timeouts{
		After: r.AttemptTimeout,
		late:  &TimeoutError{"transport: no response within the attempt's %v", r.AttemptTimeout, policy.ErrAttemptTimeout},

		quiet:  r.StallTimeout,
		silent: &TimeoutError{"transport: no progress for %v", r.StallTimeout, policy.ErrStallTimeout},

		Connect:     r.ConnectTimeout,
		unconnected: &net.OpError{Op: "dial", Net: "tcp", Err: &TimeoutError{"no connection within %v", r.ConnectTimeout, errUnconnected}},

		event:     r.FirstEventTimeout,
		eventless: &TimeoutError{"transport: no event within %v after the headers", r.FirstEventTimeout, policy.ErrAttemptTimeout},
	}
	if t.quiet > 0 && (t.After <= 0 || t.quiet < t.After) {
		t.After, t.late = t.quiet, t.silent
	}
	return t
}

// On reports whether attempts are timed, so that they need a context of their own.
func (t *Timeouts) On() bool { return t.After > 0 || t.Connect > 0 || t.event > 0 }

// end notes that there is a response or an error. It replaces the error by the
// timeout, or by the end of the caller's context, if one of them ended the attempt. The
// attempt's context is cancelled only when the response's body has ended. below is the error
// that the timeout hides, if there is one.
func (o *Outgoing) end(resp *http.Response, err error) (got *http.Response, _, below error) {
	a, caller := &o.Ctx, o.Ctx.Context
	if late := a.outcome(resp); late != nil {
		Dismiss(caller, resp) // it came too late, and its body is already cut off
		if caller.Err() != nil {
			return nil, ContextErr(caller), nil
		}
		return nil, late, err
	}
	switch {
	case err != nil:
		if a.unlink != nil && caller.Err() != nil && !errors.Is(err, caller.Err()) {
			err = ContextErr(caller) // the attempt's context did not inherit it
		}
	case resp.Body == nil || resp.Body == http.NoBody:
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if a.unlink != nil {
			a.unlink()
		}
	case HandsOver(&o.Req, resp):
		// A tunnel ends with the caller's context, as it does without aplomb. The
		// body of a tunnel that has no Write, as in net/http, can be wrapped.
		if _, writes := resp.Body.(io.Writer); !writes {
			o.body = attemptBody{resp.Body, a}
			resp.Body = &o.body
		}
	case a.quiet > 0 && !replay.SmallInMemory(resp.Body):
		b := &o.more.body
		b.attemptBody, b.left = attemptBody{resp.Body, a}, a.quiet
		resp.Body = b
		a.mu.Lock()
		a.body = b
		a.mu.Unlock()
	default:
		o.body = attemptBody{resp.Body, a}
		resp.Body = &o.body
	}
	return resp, err, nil
}
