// The idempotency key of a request.

package transport

import (
	"github.com/aplomb-go/aplomb/internal/rules"
	"strings"
)

// keyed gives the request the Idempotency-Key of its rule, unless the caller set one. The
// request becomes a copy, with which all attempts are made.
func (c *call) keyed() {
	for name := range c.req.Header {
		if strings.EqualFold(name, rules.KeyField) || strings.EqualFold(name, rules.OtherKeyField) {
			return
		}
	}
	asked := false
	defer closeBodyUnless(&asked, c.req)
	key := c.rule.Policy.IdempotencyKey(c.req)
	asked = true
	if key == "" {
		return
	}
	req := c.req.WithContext(c.req.Context())
	req.Header = c.req.Header.Clone()
	req.Header[rules.KeyField] = []string{key}
	c.req = req
}
