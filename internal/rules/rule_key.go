// The fields of idempotency keys.

package rules

import (
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
)

const (
	KeyField      = "Idempotency-Key"
	OtherKeyField = "X-Idempotency-Key"
)

// inProgress is a classifier for requests to a host that honours keys. A 409 with
// Retry-After says that the server still works on a request with the same key, and will
// have its response. Without Retry-After a 409 may be any conflict.
func inProgress(o classify.Outcome) classify.Verdict {
	if o.Response != nil && o.Response.StatusCode == http.StatusConflict && o.Request != nil &&
		len(o.Request.Header[KeyField])+len(o.Request.Header[OtherKeyField]) > 0 {
		if _, ok := classify.RetryAfter(o); ok {
			return classify.Ambiguous
		}
	}
	return classify.Unknown
}
