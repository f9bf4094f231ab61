// The fields of idempotency keys.

package rules

import (
	"maps"
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/field"
)

const (
	KeyField      = "Idempotency-Key"
	OtherKeyField = "X-Idempotency-Key"
)

// inProgress is a classifier for requests to a host that honours keys. A 409 with
// Retry-After says that the server still works on a request with the same key, and will
// have its response. Without Retry-After a 409 may be any conflict.
func inProgress(o classify.Outcome) classify.Class {
	if o.Response != nil && o.Response.StatusCode == http.StatusConflict && o.Request != nil &&
		len(o.Request.Header[KeyField])+len(o.Request.Header[OtherKeyField]) > 0 {
		if _, ok := field.RetryAfter(o.Response); ok {
			return classify.Ambiguous
		}
	}
	return classify.Unknown
}

// HasKey reports whether a header has a key for idempotency.
func HasKey(h http.Header) bool {
	for name := range h {
		if strings.EqualFold(name, KeyField) || strings.EqualFold(name, OtherKeyField) {
			return true
		}
	}
	return false
}

// WithKey returns a copy of a request with a key for idempotency.
func WithKey(req *http.Request, key string) *http.Request {
	own := req.WithContext(req.Context())
	own.Header = req.Header.Clone()
	own.Header[KeyField] = []string{key}
	return own
}

// Keyless returns a copy of a request without the fields that name a key for idempotency. It
// is the request itself if there is no such field.
func Keyless(req *http.Request) *http.Request {
	header := req.Header.Clone()
	maps.DeleteFunc(header, func(name string, _ []string) bool { return strings.Contains(strings.ToLower(name), "idempoten") })
	if len(header) == len(req.Header) {
		return req
	}
	bare := req.WithContext(req.Context())
	bare.Header = header
	return bare
}
