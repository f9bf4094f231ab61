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
		{"no signal", answer(503), Unknown},
		{"an error", Outcome{Err: io.EOF}, Unknown},
		{"nothing", Outcome{}, Unknown},

		{"OpenAI forbids", answer(500, "X-Should-Retry", "false"), Final},
		{"OpenAI forbids, in other letters", answer(429, "X-Should-Retry", " False"), Final},
		{"Stripe forbids", answer(409, "Stripe-Should-Retry", "false"), Final},
		{"OpenAI asks", answer(409, "X-Should-Retry", "true"), Ambiguous},
		{"Stripe asks", answer(409, "Stripe-Should-Retry", "true"), Ambiguous},
		{"whatever the status", answer(501, "X-Should-Retry", "true"), Ambiguous},
		{"a server error too", answer(500, "X-Should-Retry", "true"), Ambiguous},
		{"on success there is nothing to ask for", answer(200, "X-Should-Retry", "true"), Unknown},
		{"nor to forbid", answer(200, "X-Should-Retry", "false"), Unknown},
		{"another word", answer(500, "X-Should-Retry", "maybe"), Unknown},
		{"both words", answer(500, "X-Should-Retry", "true", "X-Should-Retry", "false"), Final},
		{"two servers' words", answer(500, "X-Should-Retry", "true", "Stripe-Should-Retry", "false"), Final},
		{"a stronger fact is left alone: 421", answer(421, "X-Should-Retry", "true"), Unknown},
		{"a stronger fact is left alone: 429", answer(429, "X-Should-Retry", "true"), Unknown},
		{"a stronger fact is left alone: 503", answer(503, "X-Should-Retry", "true", "Retry-After", "1"), Unknown},

		{"Finagle", answer(503, "Finagle-Http-Nonretryable-Nack", "true"), Final},
		{"Envoy", answer(503, "X-Envoy-Overloaded", "true"), Final},
		{"gRPC, negative", answer(503, "Grpc-Retry-Pushback-Ms", "-1"), Final},
		{"gRPC, malformed", answer(503, "Grpc-Retry-Pushback-Ms", "soon"), Final},
		{"gRPC, beyond int32", answer(503, "Grpc-Retry-Pushback-Ms", "2147483648"), Final},
		{"gRPC, a wait", answer(503, "Grpc-Retry-Pushback-Ms", "2147483647"), Unknown},

		{"GitHub, with a wait", answer(403, "X-GitHub-Request-Id", "1", "Retry-After", "5"), Refused},
		{"GitHub, nothing left", answer(403, "X-GitHub-Request-Id", "1", "X-RateLimit-Remaining", "0"), Refused},
		{"GitHub, the secondary limit", withBody(403, `{"message":"You have exceeded a secondary rate limit."}`, "X-GitHub-Request-Id", "1"), Refused},
		{"GitHub, something left", answer(403, "X-GitHub-Request-Id", "1", "X-RateLimit-Remaining", "7"), Unknown},
		{"GitHub, not allowed", withBody(403, `{"message":"Resource not accessible"}`, "X-GitHub-Request-Id", "1"), Unknown},
		{"another server's 403", answer(403, "Retry-After", "5"), Unknown},
		{"GitHub, another status", answer(404, "X-GitHub-Request-Id", "1", "Retry-After", "5"), Unknown},
		{"GitHub, forbidden", answer(403, "X-GitHub-Request-Id", "1", "Retry-After", "5", "X-Should-Retry", "false"), Final},

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
		assert.Equal(t, Refused, f(answer(429, "X-Should-Retry", "true")))
		assert.Equal(t, Final, f(withBody(429, quota)))
		assert.Equal(t, Refused, f(answer(503, "X-Should-Retry", "true", "Retry-After", "1")))
		assert.Equal(t, Ambiguous, f(answer(503, "X-Should-Retry", "true")))
		assert.Equal(t, Refused, f(answer(421, "X-Should-Retry", "true")))
	})
}
