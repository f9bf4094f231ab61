// A download that is cut and cannot be resumed.

package get

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A cutError ends a body that the transport did not resume.
type cutError struct {
	err  error
	at   int64 // the size of the file then
	weak bool  // no response can be matched with the bytes so far
}

func (e *cutError) Error() string { return inShort(e.err) }
func (e *cutError) Unwrap() error { return e.err }

// startable reports whether a new request makes sense. It does not if the
// transport has used up the attempts for the rest, because retries must not be
// multiplied.
func (e *cutError) startable() bool {
	resume, ok := errors.AsType[*transport.ResumeError](e.err)
	return !ok || !resume.GaveUp()
}

// repeated calls once until the file is whole. Only a cut body leads to another
// call, because the transport has already retried after all other failures. The
// attempts and the waits are those of the host's rule. Its MaxElapsed is about a single
// request, and a body may take longer.
func (d *download) repeated(ctx context.Context, once func(context.Context) (string, error)) (string, error) {
	var cut *cutError
	again := func(err error) (ok bool) {
		cut, ok = errors.AsType[*cutError](err)
		return ok && cut.startable()
	}
	starts := max(d.rule.Attempts, 1) // retries may be off
	backoff := announced{d.rule.Backoff, func(n int, wait time.Duration) {
		text := fmt.Sprintf("%s, starts over (%d of %d)", cut.text(), n+2, starts)
		d.tracker.startsOver(text, wait)
	}}
	return policy.DoValue(ctx, policy.Rule{Attempts: starts, Backoff: backoff}, again, once)
}

func (e *cutError) text() string {
	why := "the server did not send the rest"
	if e.weak {
		why = "the server's file cannot be resumed"
	}
	return fmt.Sprintf("cut off at %s (%s), %s", sizeText(e.at), e, why)
}

// announced tells each wait. policy.Do asks for each wait once, before it sleeps.
type announced struct {
	policy.Backoff
	tell func(n int, wait time.Duration)
}

func (a announced) Delay(n int, prev time.Duration) time.Duration {
	wait := a.Backoff.Delay(n, prev)
	if wait >= 0 { // otherwise there is no other start
		a.tell(n, wait)
	}
	return wait
}
