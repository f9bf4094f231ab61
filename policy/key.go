// Keys that let a server recognise a request that it has seen.

package policy

import (
	"crypto/rand"
	"fmt"
	"net/http"
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
