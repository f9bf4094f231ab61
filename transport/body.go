// The request's body between attempts.

package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aplomb-go/aplomb/internal/replay"
)

// bodyReason returns the Reason for a result of [replay.Body.TakeBack].
func bodyReason(err error) Reason {
	switch err {
	case nil:
		return ReasonRetry
	case replay.ErrBusy:
		return ReasonBodyBusy
	case replay.ErrEnded:
		return ReasonCanceled
	}
	return ReasonNotReplayable
}

// getBody returns the GetBody that the base transport may call during the next
// attempt. It returns nil if the base transport may call the caller's GetBody.
func (x *exchange) getBody() func() (io.ReadCloser, error) {
	ctx := x.ctx
	inner := x.body.GetBody(ctx)
	if inner == nil {
		return nil
	}
	return func() (io.ReadCloser, error) {
		body, err := inner()
		switch err {
		case nil, replay.ErrLent:
			return body, err
		case replay.ErrEnded:
			return nil, contextErr(ctx)
		}
		return nil, &bodyError{why: err}
	}
}

// checkRequest returns an error if no transport could send the request.
func checkRequest(req *http.Request) error {
	switch {
	case req == nil:
		return errors.New("transport: nil request")
	case req.Body != nil && replay.IsNil(req.Body):
		return fmt.Errorf("transport: Request.Body is a nil %T; leave Body nil for a request without a body", req.Body)
	case req.URL == nil:
		return errors.New("transport: nil Request.URL")
	case req.Header == nil:
		return errors.New("transport: nil Request.Header")
	}
	return nil
}
