// What may be concluded from an outcome, and how are classifiers made of
// smaller ones?

package classify

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
)

// A Verdict is what an outcome says about the server. The zero value is
// [Unknown].
type Verdict uint8

const (
	// Unknown is the verdict of a classifier without an opinion.
	Unknown Verdict = iota
	// Final gives the outcome to the caller.
	Final
	// Refused means that the server did not act on the request: any request
	// may be sent again, whatever its method.
	Refused
	// Ambiguous means that the server may have acted on the request: only an
	// idempotent one may be sent again.
	Ambiguous
)

var verdicts = [...]string{Unknown: "unknown", Final: "final", Refused: "refused", Ambiguous: "ambiguous"}

// String returns "unknown", "final", "refused" or "ambiguous"; for a value that
// is none of the constants, its number.
func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// ParseVerdict reads what [Verdict.String] writes. Anything else is an error,
// other spellings included.
func ParseVerdict(s string) (Verdict, error) {
	if i := slices.Index(verdicts[:], s); i >= 0 {
		return Verdict(i), nil
	}
	return Unknown, fmt.Errorf("classify: %q is not a verdict: want unknown, final, refused or ambiguous", s)
}

// A Func classifies an outcome. It must be safe for concurrent use, must not
// change the outcome, and reads the response's body through [Outcome.Peek]
// only. A nil Func is treated as one that always answers [Unknown].
type Func func(Outcome) Verdict

// None always answers [Unknown]. In a rule it turns an inherited classifier
// off; [Default] then decides alone.
func None(Outcome) Verdict { return Unknown }

// First asks the given classifiers in turn and returns the first answer other
// than [Unknown]; Unknown where nobody has an opinion. Nil ones are skipped.
func First(funcs ...Func) Func {
	funcs = slices.DeleteFunc(slices.Clone(funcs), func(f Func) bool { return f == nil })
	return func(o Outcome) Verdict {
		for _, f := range funcs {
			if v := f(o); v != Unknown {
				return v
			}
		}
		return Unknown
	}
}

// Status answers v for responses with one of the given status codes, [Unknown]
// for everything else. Without codes it never has an opinion.
func OnStatus(v Verdict, codes ...int) Func {
	codes = slices.Clone(codes)
	return func(o Outcome) Verdict {
		if o.Response != nil && slices.Contains(codes, o.Response.StatusCode) {
			return v
		}
		return Unknown
	}
}

// Error answers v for errors of one of the given kinds, as [KindOf] tells them,
// and [Unknown] for everything else. Without kinds it never has an opinion.
//
// Once the caller's own context has ended there is nobody left to send for:
// Error then answers Unknown whatever the error, so that [Default] can say
// Final.
func OnError(v Verdict, kinds ...Kind) Func {
	kinds = slices.Clone(kinds)
	return func(o Outcome) Verdict {
		if o.Err == nil || o.ended() || !slices.Contains(kinds, KindOf(o.Err)) {
			return Unknown
		}
		return v
	}
}

// bodyLimit is how far a body classifier looks unless told otherwise.
const bodyLimit = 64 << 10

// Body answers v where match accepts the first limit bytes of the response's
// body, [Unknown] for everything else. A limit of zero or less means 64 KiB.
//
// It looks at answers of status 400 and above; given codes, at those instead.
// The look is bounded in time ([Outcome.Peek]), so match may see less than
// limit bytes of a body that arrives slowly; it is not called where no look is
// possible. It must not keep or change its argument. A nil match accepts
// nothing.
func OnBody(v Verdict, limit int, match func([]byte) bool, codes ...int) Func {
	if limit <= 0 {
		limit = bodyLimit
	}
	codes = slices.Clone(codes)
	return func(o Outcome) Verdict {
		if match == nil || !looksAt(o.Response, codes) {
			return Unknown
		}
		if head := o.Peek(limit); head != nil && match(head) {
			return v
		}
		return Unknown
	}
}

// BodyContains answers v where text occurs in the first 64 KiB of the
// response's body: a [Body] classifier, with the same rules. The comparison is
// exact. An empty text occurs nowhere: it is a setting that was forgotten.
func OnBodyText(v Verdict, text string, codes ...int) Func {
	if text == "" {
		return None
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
