// Responses that are read before the caller gets them, so that a cut of the body is an
// outcome of the attempt.

package transport

import (
	"errors"
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/ahead"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// awaitsBody reports whether the body of a response is read before the caller gets the
// response. A second DELETE would find nothing, so an idempotent method does not suffice. The
// request has to be safe or to have a key, or somebody has to vouch for it.
func (c *call) awaitsBody(resp *http.Response) bool {
	most := c.Rule.Policy.Download.Memory
	return most > 0 && resume.Likely(resp) && resp.ContentLength <= most && !c.isSingle() &&
		(flight.IsSafe(c.Req) || rules.HasKey(c.Req.Header) || c.isVouchedFor()) && c.isIdempotent() &&
		!flight.InMemory(resp.Body) && !flight.HandsOver(c.Req, resp) && !resume.IsStream(c.Req, resp)
}

// awaitFinalBody reads the body of a response that the caller would get.
func (x *exchange) awaitFinalBody() {
	if x.err != nil || retryable(x.verdict) || x.segment || x.places != nil && x.isNoAnswer() || !x.awaitsBody(x.resp) {
		return
	}
	resp, err := x.awaitBody(x.resp)
	if x.resp = resp; err != nil {
		x.short, x.resp, x.err, x.judged = resp, nil, err, verdictOfBody(err)
		x.askRule()
	}
}

// verdictOfBody returns the verdict on a body whose digest differs. It was altered on the
// way, so that another attempt may bring it as it is. A classifier does not know the error.
func verdictOfBody(err error) earlyVerdict {
	_, ok := errors.AsType[*IntegrityError](err)
	return earlyVerdict{classify.Ambiguous, ok}
}

// deliverShort gives the caller the last response with what came of its body. Its mark, and
// that of its body, tell a Transport around this one that the attempts are used up.
func (x *exchange) deliverShort(reason Reason) *http.Response {
	x.short.Body.(*ahead.Body).GiveUp()
	return x.report.markResponse(x.short, x.Req, reason)
}

// awaitBody reads the body of a response, and returns the response for the caller, with what was
// read in its place. It returns the error of a body that was cut, with the response, or without it
// that of a body that is not as the server announced it. If a Transport below has given up on the
// body, or if its rest can be had, the cut is the reader's.
func (c *call) awaitBody(resp *http.Response) (*http.Response, error) {
	closes, ctx := true, c.Ctx
	defer func() { // also if the base transport panics
		if closes {
			flight.Dismiss(ctx, resp)
		}
	}()
	//lint:ignore SA1019 old callers still set Request.Cancel
	if c.Req.Cancel != nil && !c.Linked {
		linked := *c
		defer linked.ObeyCancel()()
		ctx = linked.Ctx
	}
	body, err := ahead.Fill(ctx, c.Rule.Timeouts.Alarms, resp, c.Rule.Policy.Download.Memory, c.t.kept)
	data, whole := body.Whole()
	switch {
	case whole:
		err = c.altered(resp, data)
		closes = err != nil
	case err == nil, ctx.Err() != nil:
		closes = err != nil
	case body.ResumeTried(), c.restIsNear(resp, data):
		closes, err = false, nil
	default:
		closes = false
	}
	if closes {
		return nil, err
	}
	return body.Resp, err
}

// restIsNear reports whether the rest of a body that was cut can be asked for, and so much came
// that it is worth it. Otherwise a connection that is cut after so many bytes each time would
// never bring the whole.
func (c *call) restIsNear(resp *http.Response, data []byte) bool {
	if len(data) < resume.MinProgress || !c.Rule.Resumes {
		return false
	}
	_, no := resume.Check(c.Req, resp, new(resume.Terms))
	return no == nil
}

// altered returns an IntegrityError if a body has another digest than the announced one.
func (c *call) altered(resp *http.Response, data []byte) error {
	field, want, got := resume.Verify(c.Req, resp, data, c.Rule.Policy.Resume.Checksums == policy.On)
	if field == "" {
		return nil
	}
	return &IntegrityError{Field: field, Want: want, Got: got}
}
