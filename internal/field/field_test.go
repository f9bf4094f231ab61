package field

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// response returns a response with header fields: names and values in turn.
func response(code int, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Add(header[i], header[i+1])
	}
	return resp
}

type read = func(*http.Response) (time.Duration, bool)

type waitTest struct {
	name string
	resp *http.Response
	want time.Duration
	ok   bool
}

func run(t *testing.T, f read, tests []waitTest) {
	for _, tt := range tests {
		wait, ok := f(tt.resp)
		assert.Equal(t, tt.ok, ok, tt.name)
		assert.Equal(t, tt.want, wait, tt.name)
	}
}

// TestWait: which of several fields counts.
func TestWait(t *testing.T) {
	exhausted := []string{"RateLimit", `"a";r=0;t=30`}
	run(t, Wait, []waitTest{
		{"nothing said", dated(503), 0, false},
		{"milliseconds before seconds", dated(503, "Retry-After", "1", "Retry-After-Ms", "600"), 600 * time.Millisecond, true},
		{"malformed milliseconds", dated(503, "Retry-After", "1", "Retry-After-Ms", "-600"), time.Second, true},
		{"Retry-After before RateLimit", dated(429, append(exhausted, "Retry-After", "2")...), 2 * time.Second, true},
		{"pitfall 43: zero before RateLimit", dated(429, append(exhausted, "Retry-After", "0")...), 0, true},
		{"a malformed Retry-After", dated(429, append(exhausted, "Retry-After", "x")...), 30 * time.Second, true},
		{"RateLimit alone", dated(429, exhausted...), 30 * time.Second, true},
		{"RateLimit on 503", dated(503, exhausted...), 0, false},
		{"pitfall 8: RateLimit on success", dated(200, exhausted...), 0, false},
		{"Discord's field", dated(429, "X-RateLimit-Reset-After", "0.25"), 250 * time.Millisecond, true},
		{"Discord's field before RateLimit", dated(429, append(exhausted, "X-RateLimit-Reset-After", "0.25")...), 250 * time.Millisecond, true},
		{"Retry-After before Discord's field", dated(429, "X-RateLimit-Reset-After", "0.25", "Retry-After", "1"), time.Second, true},
		{"the pushback of gRPC", dated(503, "Grpc-Retry-Pushback-Ms", "250"), 250 * time.Millisecond, true},
		{"Retry-After before the pushback", dated(503, "Grpc-Retry-Pushback-Ms", "250", "Retry-After", "1"), time.Second, true},
		{"units are for profiles", dated(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "6m"), 0, false},
		{"no response", nil, 0, false},
	})
}

// Each field of the table is read under the name that net/http gives it, alone and first, and users
// are told of it.
func TestEachFieldIsRead(t *testing.T) {
	text, err := os.ReadFile("../../classify/retryafter.go")
	require.NoError(t, err)
	_, doc, found := strings.Cut(string(text), "// RetryAfter is the RetryAfterFunc of the default rule.")
	require.True(t, found)
	doc, _, _ = strings.Cut(doc, "\nfunc ")
	for i, f := range waits {
		want, _ := f.read("7", sent)
		wait, ok := Wait(response(429, f.key, "7"))
		assert.Equal(t, []any{want, true}, []any{wait, ok}, f.key)
		assert.Positive(t, wait, f.key)
		assert.True(t, NamesZero(response(429, f.key, "0")), f.key)
		assert.False(t, NamesZero(response(429, f.key, "7")), f.key)
		assert.Contains(t, strings.ToLower(doc), strings.ToLower(f.key))
		for _, later := range waits[i+1:] {
			first, ok := Wait(response(429, later.key, "9", f.key, "7"))
			assert.Equal(t, []any{wait, true}, []any{first, ok}, "%s before %s", f.key, later.key)
		}
	}
}

func TestNamesZero(t *testing.T) {
	past := sent.Add(-time.Hour).Format(http.TimeFormat)
	for name, row := range map[string]struct {
		resp *http.Response
		want bool
	}{
		"no response":             {nil, false},
		"nothing said":            {dated(503), false},
		"zeros":                   {dated(503, "Retry-After", " 00"), true},
		"a time in the past":      {dated(503, "Retry-After", past), false},
		"zero beside it":          {dated(503, "Retry-After", past, "X-Amz-Retry-After", "0"), true},
		"a field of another code": {dated(503, "Retry-After", past, "X-RateLimit-Reset-After", "0"), false},
		"a success":               {dated(200, "Retry-After", "0"), false},
	} {
		assert.Equal(t, row.want, NamesZero(row.resp), name)
	}
}

// in returns the function that reads a field of the table.
func in(key string) read {
	return waits[slices.IndexFunc(waits[:], func(f waitField) bool { return f.key == key })].in
}

func TestSays(t *testing.T) {
	h := http.Header{"X": {"a", " TRUE "}, "Y": {" 00\t"}}
	assert.Equal(t, []bool{true, false, false}, []bool{Says(h, "X", "true"), Says(h, "X", "b"), Says(h, "Y", "true")})
	assert.Equal(t, []bool{false, true, false}, []bool{Zero(h, "X"), Zero(h, "Y"), Zero(h, "Z")})
}

func TestResetAfter(t *testing.T) {
	run(t, in("X-Ratelimit-Reset-After"), []waitTest{
		{"a decimal", response(429, "X-RateLimit-Reset-After", "0.25"), 250 * time.Millisecond, true},
		{"nothing left", response(429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "1"), time.Second, true},
		{"something left of this limit", response(429, "X-RateLimit-Remaining", "3", "X-RateLimit-Reset-After", "1"), 0, false},
		{"pitfall 2: negative", response(429, "X-RateLimit-Reset-After", "-1"), 0, false},
		{"pitfall 2: an exponent", response(429, "X-RateLimit-Reset-After", "1e300"), 0, false},
		{"another status", response(503, "X-RateLimit-Reset-After", "1"), 0, false},
	})
}

func TestResetOpenAI(t *testing.T) {
	both := func(requests, tokens string) *http.Response {
		return response(429, "X-RateLimit-Remaining-Requests", requests, "X-RateLimit-Reset-Requests", "20ms",
			"X-RateLimit-Remaining-Tokens", tokens, "X-RateLimit-Reset-Tokens", "6m0s")
	}
	run(t, ResetOpenAI, []waitTest{
		{"requests used up", both("0", "5"), 20 * time.Millisecond, true},
		{"tokens used up", both("5", "0"), 6 * time.Minute, true},
		{"both used up", both("0", "0"), 6 * time.Minute, true},
		{"both used up, the longer first", response(429, "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "6m0s",
			"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "20ms"), 6 * time.Minute, true},
		{"none used up", both("1", "1"), 0, false},
		{"without a unit", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "6"), 6 * time.Second, true},
		{"more than a day", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "50h"), 24 * time.Hour, true},
		{"malformed", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "soon"), 0, false},
		{"pitfall 2: negative", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "-6s"), 0, false},
		{"pitfall 2: a plus sign", response(429, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "+6s"), 0, false},
		{"another status", response(503, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "6s"), 0, false},
	})
}

func TestResetAnthropic(t *testing.T) {
	in := func(d time.Duration) string { return sent.Add(d).Format(time.RFC3339) }
	run(t, ResetAnthropic, []waitTest{
		{"requests", dated(429, "Anthropic-RateLimit-Requests-Remaining", "0", "Anthropic-RateLimit-Requests-Reset", in(time.Minute)), time.Minute, true},
		{
			"the latest of several",
			dated(429, "Anthropic-RateLimit-Input-Tokens-Remaining", "0", "Anthropic-RateLimit-Input-Tokens-Reset", in(time.Minute),
				"Anthropic-RateLimit-Output-Tokens-Remaining", "0", "Anthropic-RateLimit-Output-Tokens-Reset", in(time.Hour),
				"Anthropic-RateLimit-Tokens-Remaining", "1", "Anthropic-RateLimit-Tokens-Reset", in(24*time.Hour)),
			time.Hour, true,
		},
		{"past", dated(429, "Anthropic-RateLimit-Tokens-Remaining", "0", "Anthropic-RateLimit-Tokens-Reset", in(-time.Minute)), 0, false},
		{"malformed", dated(429, "Anthropic-RateLimit-Tokens-Remaining", "0", "Anthropic-RateLimit-Tokens-Reset", "60"), 0, false},
		{"529", dated(529, "Anthropic-RateLimit-Tokens-Remaining", "0", "Anthropic-RateLimit-Tokens-Reset", in(time.Minute)), 0, false},
	})
}

func TestPushback(t *testing.T) {
	run(t, in(pushback), []waitTest{
		{"a wait", response(503, "Grpc-Retry-Pushback-Ms", "250"), 250 * time.Millisecond, true},
		{"at once", response(503, "Grpc-Retry-Pushback-Ms", "0"), 0, true},
		{"pitfall 2: negative", response(503, "Grpc-Retry-Pushback-Ms", "-1"), 0, false},
		{"malformed beside a wait", response(503, "Grpc-Retry-Pushback-Ms", "5", "Grpc-Retry-Pushback-Ms", "x"), 0, false},
		{"none", response(503), 0, false},
	})
	for value, want := range map[string]bool{"0": false, "250": false, "2147483647": false, "2147483648": true, "-1": true, "x": true} {
		assert.Equal(t, want, ForbidsPushback(http.Header{"Grpc-Retry-Pushback-Ms": {value}}), value)
	}
	assert.False(t, ForbidsPushback(nil))
	assert.True(t, ForbidsPushback(http.Header{"Grpc-Retry-Pushback-Ms": {"1", "1"}}))
}

// TestNoWaitOnSuccess: all fields, in a response that is no failure.
func TestNoWaitOnSuccess(t *testing.T) {
	reads := map[string]read{"Wait": Wait, "RetryAfter": RetryAfter, "ResetOpenAI": ResetOpenAI, "ResetAnthropic": ResetAnthropic}
	for _, f := range waits {
		reads[f.key] = f.in
	}
	for name, f := range reads {
		for _, code := range []int{101, 200, 202, 302} {
			wait, ok := f(response(code, "Retry-After", "1", "Retry-After-Ms", "1", "RateLimit", `"a";r=0;t=1`,
				"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1", "X-RateLimit-Reset-After", "1",
				"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "1s",
				"Anthropic-RateLimit-Tokens-Remaining", "0", "Anthropic-RateLimit-Tokens-Reset", "2100-01-01T00:00:00Z",
				"Grpc-Retry-Pushback-Ms", "1"))
			assert.False(t, ok || wait != 0, "pitfall 8: %s on %d", name, code)
		}
		for _, resp := range []*http.Response{nil, {StatusCode: 429}, {StatusCode: 403}} {
			wait, ok := f(resp)
			assert.False(t, ok || wait != 0, "%s of nothing", name)
		}
	}
}

// FuzzWaits: whatever a server sends, no panic and nothing negative.
func FuzzWaits(f *testing.F) {
	f.Add("0.25")
	f.Add("6m0s")
	f.Add("2031-05-06T08:49:37Z")
	f.Fuzz(func(t *testing.T, value string) {
		resp := response(429, "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Remaining-Tokens", "0", "Anthropic-Ratelimit-Tokens-Remaining", "0")
		reads := []read{Wait, ResetOpenAI, ResetAnthropic}
		for _, key := range []string{"X-Ratelimit-Reset-Requests", "X-Ratelimit-Reset-Tokens", "Anthropic-Ratelimit-Tokens-Reset"} {
			resp.Header[key] = []string{value}
		}
		for _, f := range waits {
			resp.Header[f.key] = []string{value}
			reads = append(reads, f.in)
		}
		for _, f := range reads {
			wait, ok := f(resp)
			require.GreaterOrEqual(t, wait, time.Duration(0))
			if !ok {
				require.Zero(t, wait)
			}
		}
	})
}
