// What one attempt returned, its class, and classifiers made of smaller classifiers.

package classify

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/aplomb-go/aplomb/internal/peek"
)

// An Outcome is the result of one attempt to send a request. It is passed by
// value. Either Response or Err is set, never both. If neither is set, nothing
// is known, and [Default] returns Final.
type Outcome struct {
	// Request is the caller's request with the caller's context, which does not
	// end at the timeout of an attempt. It must not be changed. A nil Request
	// has no method, and its context never ends.
	Request *http.Request
	// Response is the server's response with its body unread. It is nil if Err
	// is set.
	Response *http.Response
	// Err is the error of the base transport. It is nil if Response is set.
	Err error
}

// Peek returns up to n bytes from the beginning of the response's body. The
// body can still be read in full afterwards. If its Content-Encoding is gzip or
// deflate, Peek reads up to 64 KiB of it, or n bytes if that is more, and returns
// up to n bytes of the decoded content.
//
// Peek returns when it has n bytes, at the end of the body, at a read error, at
// the end of the Request's context, when its Cancel is closed, or after a second. A
// Transport whose attempts have a shorter timeout than that takes the timeout instead. All calls of
// Peek for one response share this time, so several body classifiers delay a stalled response no
// longer than a single classifier. A later Read returns the read error, after the bytes before it.
//
// Peek also returns if the source breaks the contract of io.Reader. If its Read
// panicked, the later Read panics with the same value in the goroutine of its
// caller. If its Read returned an invalid count, the later Read returns an
// error.
//
// The result is nil, and the body untouched, if the body cannot be read ahead:
//
//   - There is no response or no body.
//   - n is not positive.
//   - The body is a connection (status 101, CONNECT).
//   - The response has no content (HEAD).
//
// For an empty body the result is empty but not nil.
//
// The first Peek replaces Response.Body. Peek must not be called at the same
// time as a Read of the body or another Peek of the same response. Close may be
// called at any time. The result is valid until the body is closed and must not
// be changed.
func (o Outcome) Peek(n int) []byte { return peek.Outcome(o).Peek(n) }

// ended reports whether the caller has stopped waiting.
func (o Outcome) ended() bool { return o.Request != nil && o.Request.Context().Err() != nil }

// failed reports whether there is a response of status 400 or above. No other
// response can be a reason to send again.
func (o Outcome) failed() bool {
	return o.Response != nil && o.Response.StatusCode >= http.StatusBadRequest
}

// A Class is what an outcome says about the request. The zero value is [Unknown].
type Class string

const (
	// Unknown means that the classifier has no opinion, so that the next one is asked.
	Unknown Class = ""
	// Final means that the caller gets the outcome. No request is sent again.
	Final Class = "final"
	// Refused means that the server did not act on the request. Any request may
	// be sent again, whatever its method.
	Refused Class = "refused"
	// Ambiguous means that the server may have acted on the request. Only an
	// idempotent request may be sent again.
	Ambiguous Class = "ambiguous"
)

// A Func classifies an outcome. It must be safe for concurrent use and must not
// change the outcome. It may read the response's body through [Outcome.Peek]
// only. In a rule, a nil Func inherits.
type Func func(Outcome) Class

// First returns a classifier that asks the given classifiers in turn and
// returns the first class other than [Unknown]. It returns Unknown if none of
// them has an opinion. Nil classifiers are skipped.
func First(funcs ...Func) Func {
	funcs = slices.DeleteFunc(slices.Clone(funcs), func(f Func) bool { return f == nil })
	return func(o Outcome) Class {
		for _, f := range funcs {
			if c := f(o); c != Unknown {
				return c
			}
		}
		return Unknown
	}
}

// OnStatus returns a classifier that gives c to responses with one of the given
// status codes and [Unknown] to every other outcome. Without codes it always
// returns Unknown.
func OnStatus(c Class, codes ...int) Func {
	codes = slices.Clone(codes)
	return func(o Outcome) Class {
		if o.Response != nil && slices.Contains(codes, o.Response.StatusCode) {
			return c
		}
		return Unknown
	}
}

// OnError returns a classifier that gives c to errors of the given types and
// [Unknown] to every other outcome. [ErrorTypeOf] determines the type of an error.
// Without types the classifier always returns Unknown.
//
// Once the caller's own context has ended, the classifier returns Unknown for
// every error, so that [Default] can return Final. Nobody is left to send the
// request for.
func OnError(c Class, types ...ErrorType) Func {
	types = slices.Clone(types)
	return func(o Outcome) Class {
		if o.Err == nil || o.ended() || !slices.Contains(types, ErrorTypeOf(o.Err)) {
			return Unknown
		}
		return c
	}
}

// OnBody returns a classifier that gives c to responses with the given text in the
// first 64 KiB of their body, and [Unknown] to every other outcome. The comparison is
// exact. An empty text occurs in no body, because it is more likely a forgotten setting
// than a wish to match everything.
//
// If codes are given, the classifier looks at responses with these statuses
// only. Without codes it looks at every response of status 400 or above. It reads the
// body through [Outcome.Peek], which takes a second at most.
func OnBody(c Class, text string, codes ...int) Func {
	want, codes := []byte(text), slices.Clone(codes)
	return func(o Outcome) Class {
		looks := o.failed()
		if len(codes) > 0 {
			looks = o.Response != nil && slices.Contains(codes, o.Response.StatusCode)
		}
		if text != "" && looks && bytes.Contains(o.Peek(peek.Limit), want) {
			return c
		}
		return Unknown
	}
}
