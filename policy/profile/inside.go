// Errors inside a success.

package profile

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/peek"
)

// A look returns the outcome for which a success stands that has an error in its body.
// ok is false if there is no such error. If the body was lost before it told, the
// outcome has the error of the body. A look must not read the body of any other success.
type look func(o classify.Outcome) (inside classify.Outcome, ok bool)

// judgeInside is judge for a provider that reports errors inside a success.
func judgeInside(inside look, own ...classify.Func) classify.Func {
	outside := judge(own...)
	whole := classify.First(outside, classify.Default)
	return func(o classify.Outcome) classify.Class {
		in, ok := inside(o)
		if !ok {
			return outside(o)
		}
		v := whole(in)
		if in.Err != nil && v == classify.Refused {
			return classify.Ambiguous // the server had begun to respond
		}
		return v
	}
}

// hintInside is a hint for a provider that reports errors inside a success.
func hintInside(inside look, hint classify.RetryAfterFunc) classify.RetryAfterFunc {
	return func(o classify.Outcome) (time.Duration, bool) {
		if in, ok := inside(o); ok {
			o = in
		}
		return hint(o)
	}
}

// standFor returns the outcome of a response with another status and another body.
func standFor(o classify.Outcome, status int, body []byte) classify.Outcome {
	resp := *o.Response
	resp.StatusCode, resp.Status = status, ""
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	o.Response = &resp
	return o
}

// lost returns the outcome of a success whose body failed.
func lost(o classify.Outcome, err error) classify.Outcome {
	return classify.Outcome{Request: o.Request, Err: err}
}

// firstEvent returns the look at the first event of a stream that carries content or an
// error. status returns the status for which the data of an event stands, or 0 if the event is
// no error. bare reports whether an event carries neither.
func firstEvent(status func(data []byte) int, bare func(data []byte) bool) look {
	return func(o classify.Outcome) (classify.Outcome, bool) {
		if !peek.IsEventStream(o.Response) {
			return o, false
		}
		e, ok, err := peek.Outcome(o).FirstEvent(func(e peek.Event) bool { return e.Type == "ping" || bare(e.Data) })
		switch {
		case err != nil:
			return lost(o, err), true
		case !ok:
			return o, false
		}
		if code := status(e.Data); code >= http.StatusBadRequest {
			return standFor(o, code, e.Data), true
		}
		return o, false
	}
}

// A streamError is an error as an event tells it. Some events have its parts in "error",
// and some have them in the event itself.
type streamError struct {
	Type     string          `json:"type"`
	Code     json.RawMessage `json:"code"` // a name or a status
	Error    *streamError    `json:"error"`
	Response *streamError    `json:"response"`
}
