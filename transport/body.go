// The request's body between attempts.

package transport

import (
	"io"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// keepBody prepares the body for later attempts. A body that is sent once only is watched as
// well, because its Read may fail.
func (x *exchange) keepBody() {
	switch {
	case x.Req.Body == nil || x.Req.Body == http.NoBody:
	case x.isSingle():
		x.body = replay.Once(x.Req, x.t.kept)
	default:
		x.body = replay.New(x.Req, x.Rule.Policy.Upload.Memory, x.t.kept)
	}
}

// sourceBroke reports whether the request's own body failed. Neither the host nor the network
// is at fault then, and the next attempt would meet the same.
func (x *exchange) sourceBroke() bool { return x.body != nil && x.body.Broke() }

// rewind takes the body from the last attempt, for a retry. If it fails, it returns
// the Reason why there is no retry. busy is how long it may wait for a Read of the body.
func (x *exchange) rewind(d *decision, busy time.Duration) Reason {
	getBody, err := x.body.Rewind(x.Ctx, busy)
	d.getsBody = getBody
	switch err {
	case nil:
		return ReasonRetry
	case replay.ErrBusy:
		return ReasonBodyBusy
	case replay.ErrEnded:
		return x.reasonGone()
	}
	return ReasonNotReplayable
}

// bodyBeside takes what a second attempt beside the first needs of the body.
func (x *exchange) bodyBeside() bool {
	if x.body == nil {
		return true
	}
	_, err := x.body.Rewind(x.Ctx, replay.MaxBusy)
	return err == nil && x.body.Concurrent()
}

// nextBody returns the body for the next attempt, and the GetBody that the base
// transport may call during it. They are nil if the base transport may have the
// caller's.
func (x *exchange) nextBody() (body io.ReadCloser, getBody func() (io.ReadCloser, error)) {
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
			return nil, flight.ContextErr(ctx)
		}
		return nil, &bodyError{why: err}
	}
}
