package classify

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDefaultHint(t *testing.T) {
	exhausted := []string{"RateLimit", `"a";r=0;t=30`}
	for name, tt := range map[string]struct {
		o    Outcome
		want time.Duration
		ok   bool
	}{
		"nothing said":                        {dated(503), 0, false},
		"milliseconds before seconds":         {dated(503, "Retry-After", "1", "Retry-After-Ms", "600"), 600 * time.Millisecond, true},
		"malformed milliseconds":              {dated(503, "Retry-After", "1", "Retry-After-Ms", "-600"), time.Second, true},
		"Retry-After before RateLimit":        {dated(429, append(exhausted, "Retry-After", "2")...), 2 * time.Second, true},
		"pitfall 43: zero before RateLimit":   {dated(429, append(exhausted, "Retry-After", "0")...), 0, true},
		"a malformed Retry-After":             {dated(429, append(exhausted, "Retry-After", "x")...), 30 * time.Second, true},
		"RateLimit alone":                     {dated(429, exhausted...), 30 * time.Second, true},
		"RateLimit on 503":                    {dated(503, exhausted...), 0, false},
		"pitfall 8: RateLimit on success":     {dated(200, exhausted...), 0, false},
		"an error":                            {Outcome{Err: io.EOF}, 0, false},
		"neither response nor error":          {Outcome{}, 0, false},
		"a provider's own field is not asked": {dated(429, "X-RateLimit-Reset-After", "5"), 0, false},
	} {
		wait, ok := DefaultHint(tt.o)
		assert.Equal(t, tt.ok, ok, name)
		assert.Equal(t, tt.want, wait, name)
	}
}

func TestFirstHint(t *testing.T) {
	is := func(d time.Duration) Hint { return func(Outcome) (time.Duration, bool) { return d, true } }
	for name, tt := range map[string]struct {
		h    Hint
		want time.Duration
		ok   bool
	}{
		"no function is asked": {FirstHint(), 0, false},
		"nil":                  {FirstHint(nil), 0, false},
		"no response":          {FirstHint(NoHint, nil), 0, false},
		"the first":            {FirstHint(nil, NoHint, is(2), is(1)), 2, true},
		"at once counts":       {FirstHint(is(0), is(1)), 0, true},
	} {
		wait, ok := tt.h(Outcome{})
		assert.Equal(t, tt.ok, ok, name)
		assert.Equal(t, tt.want, wait, name)
	}
}

// TestNoHintOnSuccess: every hint, on what is not a failure.
func TestNoHintOnSuccess(t *testing.T) {
	hints := map[string]Hint{
		"DefaultHint": DefaultHint, "NoHint": NoHint, "RetryAfter": RetryAfter, "RetryAfterMillis": RetryAfterMillis,
		"RateLimitReset": RateLimitReset, "RetryInfo": RetryInfo, "ResetAfter": ResetAfter,
		"BodyRetryAfter": BodyRetryAfter, "ResetDurations": ResetDurations, "ResetTimes": ResetTimes,
		"Pushback": Pushback, "SecondaryLimit": SecondaryLimit,
	}
	const body = `{"retry_after":1,"error":{"details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"1s"}]}} secondary rate limit`
	for name, h := range hints {
		for _, code := range []int{101, 200, 202, 302} {
			o := withBody(code, body, "Retry-After", "1", "Retry-After-Ms", "1", "RateLimit", `"a";r=0;t=1`,
				"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1", "X-RateLimit-Reset-After", "1",
				"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "1s",
				"Anthropic-RateLimit-Tokens-Remaining", "0", "Anthropic-RateLimit-Tokens-Reset", "2100-01-01T00:00:00Z",
				"Grpc-Retry-Pushback-Ms", "1", "X-GitHub-Request-Id", "1")
			_, ok := h(o)
			assert.False(t, ok, "pitfall 8: %s on %d", name, code)
		}
		for _, o := range []Outcome{{}, {Err: io.EOF}, response(429), response(403), {Response: response(429).Response}} {
			o.Request = nil
			if o.Response != nil {
				o.Response.Header = nil
			}
			_, ok := h(o)
			assert.False(t, ok, "%s of nothing", name)
		}
	}
}
