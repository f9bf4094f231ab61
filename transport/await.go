// Responses that are read whole before the caller gets them, so that a cut of the body
// is an outcome of the attempt.

package transport

import (
	"errors"
	"net/http"
	"runtime"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/ahead"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/policy"
)

// awaitsBody reports whether the body of a response is read before the caller gets the
// response: if the attempt could be retried after a cut, and the body is no stream.
func (c *call) awaitsBody(resp *http.Response) bool {
	most := c.Rule.Policy.Download.Memory
	return most > 0 && resume.Likely(resp) && resp.ContentLength <= most && !c.isSingle() && c.isIdempotent() &&
		!flight.InMemory(resp.Body) && !flight.HandsOver(c.Req, resp) && !resume.IsStream(c.Req, resp)
}

// awaitFinalBody reads the body of a response that the caller would get. If the body is cut,
// the cut is the outcome of the attempt, also of the last. So a Transport around this one
// sees that the attempts are used up.
func (x *exchange) awaitFinalBody() {
	if x.err != nil || retryable(x.verdict) || x.segment || !x.awaitsBody(x.resp) {
		return
	}
	if x.body != nil {
		if replayable, _ := x.body.Known(); !replayable {
			return
		}
	}
	if err := x.awaitBody(x.resp); err != nil {
		x.resp, x.err, x.judged = nil, err, verdictOfBody(err)
		x.classify()
	}
}

// verdictOfBody returns the verdict on a body whose digest differs. It was altered on the
// way, so that another attempt may bring it as it is. A classifier does not know the error.
func verdictOfBody(err error) known {
	_, ok := errors.AsType[*IntegrityError](err)
	return known{classify.Ambiguous, ok}
}

// awaitBody reads the body of a response, and puts what was read in its place. It returns the
// error of a body that was cut, or that is not as the server announced it. The body is
// closed then.
func (c *call) awaitBody(resp *http.Response) error {
	in := &ahead.Incoming{Body: resp.Body, Most: c.Rule.Policy.Download.Memory, Memory: &ahead.Holding{Pool: c.t.kept}}
	delivered, ctx := false, c.Ctx
	defer func() { // also if the base transport panics
		if !delivered {
			in.Forget()
			flight.Dismiss(ctx, resp)
		}
	}()
	//lint:ignore SA1019 old callers still set Request.Cancel
	if c.Req.Cancel != nil && !c.Linked {
		linked := *c
		defer linked.ObeyCancel()()
		ctx = linked.Ctx
	}
	err := in.Fill(ctx, &c.Sleeper, resp, c.Rule.Timeouts.Stall.On())
	switch {
	case err == nil:
		err = c.altered(in, resp)
	case c.restIsNear(in, resp):
		err = nil
	}
	if err != nil {
		return err
	}
	delivered = true
	resp.Body = in
	if in.Memory.Held.Load() > replay.Small {
		runtime.AddCleanup(in, (*ahead.Holding).Free, in.Memory) // if the caller forgets the body
	}
	return nil
}

// restIsNear reports whether a body that was cut on the way goes to the caller, because its
// rest can be asked for. Otherwise a connection that is cut after so many bytes each time
// would never bring the whole. A shorter body is fetched anew, also if it has changed. So is
// a body whose rest a Transport below did not get.
func (c *call) restIsNear(in *ahead.Incoming, resp *http.Response) bool {
	if !in.WasCutLate() || c.Ctx.Err() != nil || !c.Rule.Resumes {
		return false
	}
	_, no := resume.Check(c.Req, resp, false)
	return no == nil
}

// altered returns an IntegrityError if a body that was read whole has another digest than
// the announced one.
func (c *call) altered(in *ahead.Incoming, resp *http.Response) error {
	if !in.InMemory() {
		return nil
	}
	field, want, got := resume.Verify(resp, in.Data, c.Rule.Policy.Resume.Checksums == policy.On)
	if field == "" {
		return nil
	}
	return &IntegrityError{Field: field, Want: want, Got: got}
}
