// The four classes, and classifiers made of smaller classifiers.

package classify

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/aplomb-go/aplomb/internal/peek"
)

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
		if text != "" && looksAt(o.Response, codes) && bytes.Contains(o.Peek(peek.Limit), want) {
			return c
		}
		return Unknown
	}
}

func looksAt(resp *http.Response, codes []int) bool {
	switch {
	case resp == nil:
		return false
	case len(codes) > 0:
		return slices.Contains(codes, resp.StatusCode)
	}
	return resp.StatusCode >= http.StatusBadRequest
}
