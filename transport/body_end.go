// Telling how the body of a response ended badly for its reader.

package transport

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/rules"
)

// A bodyOrigin is what a body knows of the call that it came from.
type bodyOrigin struct {
	t       *Transport
	req     *http.Request // the caller's, who must not change it until the body is closed
	rule    *rules.Resolved
	spanned context.Context // what RequestStart returned; nil: no hook
}

// callFor returns the call for req, the caller's request or the request for the rest.
func (s *bodyOrigin) callFor(req *http.Request) call {
	base, _ := s.t.pools.Resolve(s.t)
	return call{t: s.t, base: base, Request: limit.Request{Registry: &s.t.registry, Req: req, Ctx: req.Context(), Rule: s.rule}, options: optionsOf(req.Context())}
}

// hearsOfCuts reports whether a trace is told of a body that is not continued.
func (c *call) hearsOfCuts() bool {
	all := c.traces()
	return all[0] != nil && all[0].Event != nil || all[1] != nil && all[1].Event != nil
}

// An endingBody tells of a bad end. Nothing continues it, and why says the reason. It is a
// single allocation.
type endingBody struct {
	body attempt.ObservedBody
	bodyOrigin
	sent int // attempts until the response
	why  error
}

// tellEndOf makes the body of a response tell of a bad end.
func (c *call) tellEndOf(sent int, resp *http.Response, why error) {
	b := &endingBody{bodyOrigin: bodyOrigin{c.t, c.Req, c.Rule, c.spanned}, sent: sent, why: why}
	b.body.Wrap(resp, b)
}

// BodyEnded tells of a bad end.
func (b *endingBody) BodyEnded(bytes int64, err error) {
	if err != nil && err != io.EOF {
		b.tellFailed(b.sent, bytes, err, b.why, resume.Tried(b.body.ReadCloser))
	}
}

// tellFailed tells that a body ended with err at offset, and that nothing continues it. why
// says the reason, unless the caller's context has ended, or a Transport below gave up.
func (s *bodyOrigin) tellFailed(sent int, offset int64, err, why error, below bool) {
	c := s.callFor(s.req)
	defer c.ObeyCancel()()
	reason := ReasonNotResumable
	switch {
	case c.Ctx.Err() != nil:
		reason, why = c.reasonGone(), attempt.ContextErr(c.Ctx)
	case below || gaveUpBelow(s.req, nil, err):
		reason, why = ReasonNested, resume.ErrBelow
	}
	s.tellEnd(sent, s.bodyError(offset, reason, err, why))
}

// reasonOf returns the Reason for a cause that does not come from the loop.
func (s *bodyOrigin) reasonOf(cause error) Reason {
	switch {
	case s.req.Context().Err() != nil:
		c := s.callFor(s.req)
		return c.reasonGone()
	case cause == resume.ErrLimit:
		return ReasonMaxAttempts
	case cause == resume.ErrLate:
		return ReasonDeadline
	}
	return ReasonNotResumable
}

// tellEnd reports the end of a body to the observers. It took sent attempts until its last bytes.
func (s *bodyOrigin) tellEnd(sent int, e *Error) {
	h := s.t.registry.Hosts.Acquire(s.req.URL)
	defer h.Release()
	h.ReleaseCount() // no request is sent
	c := s.callFor(s.req)
	c.State, c.spanned = h, s.spanned
	(&report{call: &c, offset: e.Offset}).tellObservers(&Event{
		Attempt: Attempt{Number: sent, Err: e, Time: time.Now()},
		Reason:  e.Reason,
	})
}
