// The idempotency key of a request.

package transport

import (
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
)

const (
	keyField      = "Idempotency-Key"
	otherKeyField = "X-Idempotency-Key"
)

// keyed gives the request the Idempotency-Key of its rule, unless the caller set one. The
// request becomes a copy, with which all attempts are made.
func (c *call) keyed() {
	for name := range c.req.Header {
		if strings.EqualFold(name, keyField) || strings.EqualFold(name, otherKeyField) {
			return
		}
	}
	asked := false
	defer closeBodyUnless(&asked, c.req)
	key := c.rule.policy.IdempotencyKey(c.req)
	asked = true
	if key == "" {
		return
	}
	req := c.req.WithContext(c.req.Context())
	req.Header = c.req.Header.Clone()
	req.Header[keyField] = []string{key}
	c.req = req
}

// inProgress is a classifier for requests to a host that honours keys. A 409 with
// Retry-After says that the server still works on a request with the same key, and will
// have its response. Without Retry-After a 409 may be any conflict.
func inProgress(o classify.Outcome) classify.Verdict {
	if o.Response != nil && o.Response.StatusCode == http.StatusConflict && o.Request != nil &&
		len(o.Request.Header[keyField])+len(o.Request.Header[otherKeyField]) > 0 {
		if _, ok := classify.RetryAfter(o); ok {
			return classify.Ambiguous
		}
	}
	return classify.Unknown
}
