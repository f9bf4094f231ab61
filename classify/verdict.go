// The four verdicts, and classifiers made of smaller classifiers.

package classify

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
)

// A Class is the conclusion that a classifier draws from an outcome. The zero
// value is [Unknown].
type Class uint8

const (
	// Unknown means that the classifier has no opinion.
	Unknown Class = iota
	// Final means that the caller gets the outcome. No request is sent again.
	Final
	// Refused means that the server did not act on the request. Any request may
	// be sent again, whatever its method.
	Refused
	// Ambiguous means that the server may have acted on the request. Only an
	// idempotent request may be sent again.
	Ambiguous
)

var verdicts = [...]string{Unknown: "unknown", Final: "final", Refused: "refused", Ambiguous: "ambiguous"}

// String returns "unknown", "final", "refused" or "ambiguous". For any other
// value it returns the number, as in "Class(9)".
func (v Class) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return fmt.Sprintf("Class(%d)", uint8(v))
}

// A Func classifies an outcome. It must be safe for concurrent use and must not
// change the outcome. It may read the response's body through [Outcome.Peek]
// only. In a rule, a nil Func inherits.
type Func func(Outcome) Class

// First returns a classifier that asks the given classifiers in turn and
// returns the first verdict other than [Unknown]. It returns Unknown if none of
// them has an opinion. Nil classifiers are skipped.
func First(funcs ...Func) Func {
	funcs = slices.DeleteFunc(slices.Clone(funcs), func(f Func) bool { return f == nil })
	return func(o Outcome) Class {
		for _, f := range funcs {
			if v := f(o); v != Unknown {
				return v
			}
		}
		return Unknown
	}
}

// OnStatus returns a classifier that gives v to responses with one of the given
// status codes and [Unknown] to every other outcome. Without codes it always
// returns Unknown.
func OnStatus(v Class, codes ...int) Func {
	codes = slices.Clone(codes)
	return func(o Outcome) Class {
		if o.Response != nil && slices.Contains(codes, o.Response.StatusCode) {
			return v
		}
		return Unknown
	}
}

// OnError returns a classifier that gives v to errors of the given kinds and
// [Unknown] to every other outcome. [ErrorTypeOf] determines the kind of an error.
// Without kinds the classifier always returns Unknown.
//
// Once the caller's own context has ended, the classifier returns Unknown for
// every error, so that [Default] can return Final. Nobody is left to send the
// request for.
func OnError(v Class, kinds ...ErrorType) Func {
	kinds = slices.Clone(kinds)
	return func(o Outcome) Class {
		if o.Err == nil || o.ended() || !slices.Contains(kinds, ErrorTypeOf(o.Err)) {
			return Unknown
		}
		return v
	}
}

// bodyLimit is how many bytes of a body a classifier or hint reads, unless told
// otherwise.
const bodyLimit = 64 << 10

// OnBody returns a classifier that calls match with up to limit bytes from the
// beginning of the response's body. If match returns true the verdict is v,
// otherwise [Unknown]. A limit of zero or less means 64 KiB.
//
// If codes are given, the classifier looks at responses with these statuses
// only. Without codes it looks at every response of status 400 or above.
//
// The time to read is limited by [Outcome.PeekWait], so match may get less than
// limit bytes if the body arrives slowly. If the body cannot be read ahead (see
// [Outcome.Peek]), match is not called. match must not keep or change its
// argument. If match is nil the verdict is always Unknown.
func OnBody(v Class, limit int, match func([]byte) bool, codes ...int) Func {
	if limit <= 0 {
		limit = bodyLimit
	}
	codes = slices.Clone(codes)
	return func(o Outcome) Class {
		if match == nil || !looksAt(o.Response, codes) {
			return Unknown
		}
		if head := o.Peek(limit); head != nil && match(head) {
			return v
		}
		return Unknown
	}
}

// OnBodyText returns a classifier that gives v to responses with the given text
// in the first 64 KiB of their body, and [Unknown] to every other outcome. The
// comparison is exact. Everything else is as in [OnBody].
//
// An empty text occurs in no body, because it is more likely a forgotten
// setting than a wish to match everything.
func OnBodyText(v Class, text string, codes ...int) Func {
	if text == "" {
		return First()
	}
	want := []byte(text)
	return OnBody(v, bodyLimit, func(head []byte) bool { return bytes.Contains(head, want) }, codes...)
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
