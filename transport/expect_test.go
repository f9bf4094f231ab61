package transport_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// RFC 9110 §10.1.1: a request that gets a 417 is repeated once without its expectation,
// whatever its method.
func TestExpectationFailed(t *testing.T) {
	bodies := map[string]func() io.Reader{
		"in memory": func() io.Reader { return strings.NewReader("text") },
		"one-shot":  func() io.Reader { return oneShot("text") },
	}
	for name, body := range bodies {
		for _, rule := range []policy.Rule{{}, policy.Service()} {
			inBubble(t, name, func(t *testing.T) {
				base := script(status(417), status(503), status(200))
				req := newRequest(t, http.MethodPost, "http://h.test/", body())
				req.Header["Expect"] = []string{"100-continue"}
				var seen recorder
				resp, err := over(t, transport.Config{Rule: rule}, base).RoundTrip(req.WithContext(transport.Repeatable(seen.on(t.Context()))))
				require.NoError(t, err)
				_ = resp.Body.Close()
				assert.Equal(t, 200, resp.StatusCode)
				require.Equal(t, 3, base.attempts())
				assert.Equal(t, []string{"100-continue"}, base.reqs[0].Header["Expect"])
				assert.NotContains(t, base.reqs[1].Header, "Expect")
				assert.NotContains(t, base.reqs[2].Header, "Expect", "and it stays away")
				assert.Equal(t, []string{"text", "text", "text"}, base.bodies)
				assert.Equal(t, []string{"100-continue"}, req.Header["Expect"], "the caller's own header is left alone")
			})
		}
	}
	inBubble(t, "a POST, twice refused", func(t *testing.T) {
		base := script(status(417))
		req := newRequest(t, http.MethodPost, "http://h.test/", strings.NewReader("text"))
		req.Header.Set("Expect", "100-continue")
		resp, err := over(t, transport.Config{Rule: quick}, base).RoundTrip(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, 417, resp.StatusCode)
		assert.Equal(t, 2, base.attempts(), "without the expectation a 417 is final")
	})
	inBubble(t, "without an expectation", func(t *testing.T) {
		base := script(status(417), status(200))
		resp, err := get(t, over(t, transport.Config{Rule: quick}, base), t.Context())
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, 417, resp.StatusCode)
		assert.Equal(t, 1, base.attempts())
	})
}
