// The parts that profiles share.

package profile

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/peek"
)

// memory is how much of a request body is kept for a retry. The SDKs of cloud
// storage send parts of 5 to 16 MiB in bodies that hide GetBody and Seek.
const memory = 16 << 20

// judge returns the classifier of a profile. It asks first whether the server forbids a
// retry. Then it asks own, which are the provider's own rules, and at last
// classify.Signals and classify.Refusals.
func judge(own ...classify.Func) classify.Func {
	return classify.First(forbidden, classify.First(own...), classify.Signals, classify.Refusals)
}

// forbidden is classify.Signals without its reasons for a retry. Such a reason
// would hide that the server did not act.
func forbidden(o classify.Outcome) classify.Class {
	if v := classify.Signals(o); v == classify.Final {
		return v
	}
	return classify.Unknown
}

// onWords returns a classifier that gives v if one of the words is in the first 64 KiB of
// the body and the status fits. A word in quotes matches a whole JSON string.
func onWords(v classify.Class, status int, words ...string) classify.Func {
	return given(v, status, func(o classify.Outcome) bool {
		head := o.Peek(peek.Limit)
		return slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(head, []byte(w)) })
	})
}

// given returns a classifier that gives v to responses with the status for which is reports
// true.
func given(v classify.Class, status int, is func(classify.Outcome) bool) classify.Func {
	return func(o classify.Outcome) classify.Class {
		if o.Response != nil && o.Response.StatusCode == status && is(o) {
			return v
		}
		return classify.Unknown
	}
}

// urlOf returns the URL of a request. It is empty if there is no request or it has no
// URL.
func urlOf(req *http.Request) *url.URL {
	if req == nil || req.URL == nil {
		return &url.URL{}
	}
	return req.URL
}

// withToken returns the name of a scope. Use it only if Authorization is a token, which
// is the same in all requests of a client, and not a signature.
func withToken(req *http.Request, part string) string {
	return req.Header.Get("Authorization") + "\n" + part
}
