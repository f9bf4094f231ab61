package classify

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSignals(t *testing.T) {
	const quota = `{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}`
	for _, tt := range []struct {
		name string
		o    Outcome
		want Verdict
	}{
		{"no signal", response(503), Unknown},
		{"an error", Outcome{Err: io.EOF}, Unknown},
		{"nothing", Outcome{}, Unknown},

		{"OpenAI forbids", response(500, "X-Should-Retry", "false"), Final},
		{"OpenAI forbids, in other letters", response(429, "X-Should-Retry", " False"), Final},
		{"Stripe forbids", response(409, "Stripe-Should-Retry", "false"), Final},
		{"OpenAI asks", response(409, "X-Should-Retry", "true"), Ambiguous},
		{"Stripe asks", response(409, "Stripe-Should-Retry", "true"), Ambiguous},
		{"whatever the status", response(501, "X-Should-Retry", "true"), Ambiguous},
		{"a server error too", response(500, "X-Should-Retry", "true"), Ambiguous},
		{"on success there is nothing to ask for", response(200, "X-Should-Retry", "true"), Unknown},
		{"nor to forbid", response(200, "X-Should-Retry", "false"), Unknown},
		{"another word", response(500, "X-Should-Retry", "maybe"), Unknown},
		{"both words", response(500, "X-Should-Retry", "true", "X-Should-Retry", "false"), Final},
		{"two servers' words", response(500, "X-Should-Retry", "true", "Stripe-Should-Retry", "false"), Final},
		{"a stronger fact is left alone: 421", response(421, "X-Should-Retry", "true"), Unknown},
		{"a stronger fact is left alone: 413", response(413, "X-Should-Retry", "true", "Retry-After", "1"), Unknown},
		{"a stronger fact is left alone: 429", response(429, "X-Should-Retry", "true"), Unknown},
		{"a stronger fact is left alone: 503", response(503, "X-Should-Retry", "true", "Retry-After", "1"), Unknown},

		{"Finagle", response(503, "Finagle-Http-Nonretryable-Nack", "true"), Final},
		{"Envoy", response(503, "X-Envoy-Overloaded", "true"), Final},
		{"gRPC, negative", response(503, "Grpc-Retry-Pushback-Ms", "-1"), Final},
		{"gRPC, malformed", response(503, "Grpc-Retry-Pushback-Ms", "soon"), Final},
		{"gRPC, beyond int32", response(503, "Grpc-Retry-Pushback-Ms", "2147483648"), Final},
		{"gRPC, two waits", response(503, "Grpc-Retry-Pushback-Ms", "5", "Grpc-Retry-Pushback-Ms", "7"), Final},
		{"gRPC, the same wait twice", response(503, "Grpc-Retry-Pushback-Ms", "5", "Grpc-Retry-Pushback-Ms", "5"), Final},
		{"gRPC, two waits in a field", response(503, "Grpc-Retry-Pushback-Ms", "5, 7"), Final},
		{"gRPC, a wait", response(503, "Grpc-Retry-Pushback-Ms", "2147483647"), Unknown},

		{"GitHub, with a wait", response(403, "X-GitHub-Request-Id", "1", "Retry-After", "5"), Refused},
		{"GitHub, nothing left", response(403, "X-GitHub-Request-Id", "1", "X-RateLimit-Remaining", "0"), Refused},
		{"GitHub, the secondary limit", withBody(403, `{"message":"You have exceeded a secondary rate limit."}`, "X-GitHub-Request-Id", "1"), Refused},
		{"GitHub, something left", response(403, "X-GitHub-Request-Id", "1", "X-RateLimit-Remaining", "7"), Unknown},
		{"GitHub, not allowed", withBody(403, `{"message":"Resource not accessible"}`, "X-GitHub-Request-Id", "1"), Unknown},
		{"another server's 403", response(403, "Retry-After", "5"), Unknown},
		{"GitHub, another status", response(404, "X-GitHub-Request-Id", "1", "Retry-After", "5"), Unknown},
		{"GitHub, forbidden", response(403, "X-GitHub-Request-Id", "1", "Retry-After", "5", "X-Should-Retry", "false"), Final},

		{"pitfall 39: a quota used up", withBody(429, quota), Final},
		{"pitfall 39: whatever else it says", withBody(429, quota, "X-Should-Retry", "true", "Retry-After", "1"), Final},
		{"the words in prose", withBody(429, "insufficient_quota"), Unknown},
		{"another status", withBody(500, quota), Unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want.String(), Signals(tt.o).String())
		})
	}

	t.Run("with Refusals", func(t *testing.T) {
		f := First(Signals, Refusals, Default)
		assert.Equal(t, Refused, f(response(429, "X-Should-Retry", "true")))
		assert.Equal(t, Final, f(withBody(429, quota)))
		assert.Equal(t, Refused, f(response(503, "X-Should-Retry", "true", "Retry-After", "1")))
		assert.Equal(t, Ambiguous, f(response(503, "X-Should-Retry", "true")))
		assert.Equal(t, Refused, f(response(421, "X-Should-Retry", "true")))
	})
}
