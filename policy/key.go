// The keys of requests: of idempotency, and of the scopes that are throttled.

package policy

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/internal/scope"
)

// UUIDKey is a Rule.IdempotencyKey. It returns a random UUID (RFC 9562 §5.4) for a POST and
// for a PATCH, and "" for other methods. To repeat those does no harm, or a key does not
// protect it. It is safe for concurrent use.
//
// The value has no quotes, as providers such as Stripe document it. The draft of the field
// makes it a string of structured fields. A server that insists on that needs a function
// that puts the UUID into quotes.
func UUIDKey(req *http.Request) string {
	if req.Method != http.MethodPost && req.Method != http.MethodPatch {
		return ""
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// KeyByCredentials is a Rule.ThrottleKey for servers that count the requests of each client. It returns the
// credentials in Authorization, X-Api-Key and the like, as the default does. It is safe for concurrent use.
func KeyByCredentials(req *http.Request) string { return scope.Text(req.Header) }

// KeyByHost is a Rule.ThrottleKey for servers that count by something that is not in the request, such as the
// client's address. It does not tell the requests to a host apart, and is safe for concurrent use.
func KeyByHost(*http.Request) string { return "" }

// KeyByRoute is a Rule.ThrottleKey for servers that count the requests of each route. It returns the
// credentials that the default scope sees, the method, and the path without its ids. An id is
// a part of the path that has a digit, unless it is a version such as v1. It is safe for
// concurrent use.
func KeyByRoute(req *http.Request) string {
	parts := strings.Split(req.URL.Path, "/")
	for i, part := range parts {
		if strings.ContainsAny(part, digits) && strings.Trim(part, digits) != "v" {
			parts[i] = "*"
		}
	}
	return scope.Text(req.Header) + "\n" + cmp.Or(req.Method, http.MethodGet) + " " + strings.Join(parts, "/")
}

const digits = "0123456789"
