package policy

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestUUIDKey(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			key := UUIDKey(&http.Request{Method: method})
			assert.Regexp(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`), key)
			seen[key] = true
		}
	}
	assert.Len(t, seen, 200)
	for _, method := range []string{"", "GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		assert.Empty(t, UUIDKey(&http.Request{Method: method}), method)
	}
}

// A key per request makes a POST repeatable at a host that honours keys.
func ExampleUUIDKey() {
	rule := Rule{IdempotencyKey: UUIDKey}
	fmt.Println(len(rule.IdempotencyKey(&http.Request{Method: "POST"})))
	fmt.Println(len(rule.IdempotencyKey(&http.Request{Method: "PUT"})), "because PUT is idempotent")
	// Output:
	// 36
	// 0 because PUT is idempotent
}
