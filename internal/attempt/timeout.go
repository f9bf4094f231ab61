// The timeouts of attempts.

package attempt

import (
	"net"
	"time"

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
