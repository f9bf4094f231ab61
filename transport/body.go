// The request's body between attempts.

package transport

import (
	"io"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// keepBody prepares the body for later attempts. A body that is sent once only is watched as
// well, because its Read may fail.
func (c *call) keepBody() replay.Body {
	switch {
	case c.Req.Body == nil || c.Req.Body == http.NoBody:
		return nil
	case c.isSingle():
		return replay.Once(c.Req, c.t.kept)
	}
	return replay.New(c.Req, c.Rule.Policy.ReplayBuffer, c.t.kept)
}

// rewind takes the body from the last attempt, for a retry. If it fails, it returns
// the Reason why there is no retry. busy is how long it may wait for a Read of the body.
func (x *retrier) rewind(d *decision, busy time.Duration) Reason {
	getBody, err := x.body.Rewind(x.Ctx, busy)
	d.getsBody = getBody
	switch err {
	case nil:
		return ReasonRetry
	case replay.ErrBusy:
		d.why = err
	case replay.ErrEnded:
		return x.reasonGone()
	}
	return ReasonNotReplayable
}

// nextBody returns the body for the next attempt, and the GetBody that the base
// transport may call during it. They are nil if the base transport may have the
// caller's.
func (x *retrier) nextBody() (body io.ReadCloser, getBody func() (io.ReadCloser, error)) {
	ctx := x.Ctx
	body, inner := x.body.Next(ctx, x.sent)
	if inner == nil {
		return body, nil
	}
	return body, func() (io.ReadCloser, error) {
		body, err := inner()
		switch err {
		case nil, replay.ErrDetached:
			return body, err
		case replay.ErrEnded:
			return nil, attempt.ContextErr(ctx)
		}
		return nil, &bodyError{why: err}
	}
}
