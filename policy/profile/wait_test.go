package profile

import (
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/peek"
)

type waitTest struct {
	name string
	o    classify.Outcome
	want time.Duration
	ok   bool
}

func run(t *testing.T, f classify.RetryAfterFunc, tests []waitTest) {
	for _, tt := range tests {
		wait, ok := f(tt.o)
		assert.Equal(t, tt.ok, ok, tt.name)
		assert.Equal(t, tt.want, wait, tt.name)
	}
}

func answer(code int, text string) classify.Outcome {
	return classify.Outcome{Response: &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}}
}

func TestRetryInfo(t *testing.T) {
	info := func(delay string) string {
		return `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","retryDelay":{"x":1}},` +
			`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":` + delay + `}]}}`
	}
	run(t, retryInfo, []waitTest{
		{"a delay", answer(429, info(`"3.5s"`)), 3500 * time.Millisecond, true},
		{"whole seconds", answer(503, info(`"3s"`)), 3 * time.Second, true},
		{"nanoseconds", answer(503, info(`"0.000000001s"`)), 1, true},
		{"a list", answer(429, "\n["+info(`"3s"`)+"]"), 3 * time.Second, true},
		{"pitfall 1: overflow", answer(429, info(`"99999999999999999999s"`)), time.Duration(math.MaxInt64), true},
		{"pitfall 2: negative", answer(429, info(`"-3s"`)), 0, false},
		{"no unit", answer(429, info(`"3"`)), 0, false},
		{"a number", answer(429, info(`3`)), 0, false},
		{"another detail", answer(429, `{"error":{"details":[{"@type":"x/google.rpc.QuotaFailure","retryDelay":"3s"}]}}`), 0, false},
		{"not JSON", answer(429, "google.rpc.RetryInfo"), 0, false},
		{"not JSON, a list", answer(429, "[google.rpc.RetryInfo"), 0, false},
		{"cut off", answer(429, `{"pad":"`+strings.Repeat("x", peek.Limit)+`",`+info(`"3s"`)[1:]), 0, false},
		{"empty", answer(429, ""), 0, false},
	})
}

func TestDiscordRetryAfter(t *testing.T) {
	run(t, discordRetryAfter, []waitTest{
		{"a decimal", answer(429, `{"message":"You are being rate limited.","retry_after":64.57,"global":false}`), 64570 * time.Millisecond, true},
		{"zero", answer(429, `{"retry_after":0}`), 0, true},
		{"pitfall 2: negative", answer(429, `{"retry_after":-1}`), 0, false},
		{"pitfall 2: an exponent", answer(429, `{"retry_after":1e300}`), 0, false},
		{"a string", answer(429, `{"retry_after":"1"}`), 0, false},
		{"null", answer(429, `{"retry_after":null}`), 0, false},
		{"none", answer(429, `{}`), 0, false},
		{"a list", answer(429, `[1]`), 0, false},
		{"another status", answer(503, `{"retry_after":1}`), 0, false},
	})
}
