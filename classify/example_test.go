package classify_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aplomb-go/aplomb/classify"
)

// response returns the outcome of an attempt that got a response.
func response(code int, body string, header ...string) classify.Outcome {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return classify.Outcome{Response: &http.Response{
		StatusCode: code,
		Header:     h,
		Body:       io.NopCloser(strings.NewReader(body)),
	}}
}

// Default says for each status whether the server may have acted on the request.
func ExampleDefault() {
	for _, code := range []int{200, 404, 425, 429, 501, 503} {
		fmt.Println(code, classify.Default(response(code, "")))
	}
	// Output:
	// 200 final
	// 404 final
	// 425 refused
	// 429 ambiguous
	// 501 final
	// 503 ambiguous
}

// The first verdict other than Unknown counts. Default never returns Unknown.
func ExampleFirst() {
	classifier := classify.First(
		classify.OnStatus(classify.Ambiguous, http.StatusConflict),
		classify.OnError(classify.Final, classify.ErrorReset),
		classify.Default,
	)
	fmt.Println(classifier(response(409, "")))
	fmt.Println(classifier(classify.Outcome{Err: io.ErrUnexpectedEOF}))
	fmt.Println(classifier(response(500, "")))
	// Output:
	// ambiguous
	// final
	// ambiguous
}

// This API returns 409 or 423 while another writer holds the lock.
func ExampleOnStatus() {
	locked := classify.OnStatus(classify.Refused, http.StatusConflict, http.StatusLocked)
	fmt.Println(locked(response(409, "")))
	fmt.Println(locked(response(200, "")))
	// Output:
	// refused
	// unknown
}

// This server explains in the body why it failed. The caller still gets the
// whole body.
func ExampleOnBodyText() {
	full := classify.OnBodyText(classify.Refused, "queue capacity")
	o := response(500, "job not accepted: queue capacity reached")
	fmt.Println(full(o))

	body, _ := io.ReadAll(o.Response.Body)
	fmt.Printf("%s\n", body)
	// Output:
	// refused
	// job not accepted: queue capacity reached
}

// An API takes mostly POST. A refused request may be sent again, but a request
// that got an ambiguous response may not.
func ExampleRefusals() {
	classifier := classify.First(classify.Refusals, classify.Default)
	fmt.Println(classifier(response(429, "")))
	fmt.Println(classifier(response(503, "", "Retry-After", "3")))
	fmt.Println(classifier(response(503, "")))
	// Output:
	// refused
	// refused
	// ambiguous
}

// The hint of a provider is asked only if the standard hint finds no wait.
func ExampleFirstRetryAfter() {
	hint := classify.FirstRetryAfter(classify.DefaultHint, classify.ResetDurations)

	wait, ok := hint(response(429, "", "Retry-After", "20"))
	fmt.Println(wait, ok)

	wait, ok = hint(response(429, "",
		"X-Ratelimit-Remaining-Tokens", "0",
		"X-Ratelimit-Reset-Tokens", "6m0s"))
	fmt.Println(wait, ok)

	wait, ok = hint(response(503, ""))
	fmt.Println(wait, ok)
	// Output:
	// 20s true
	// 6m0s true
	// 0s false
}

// ErrorTypeOf says at which stage an error arose.
func ExampleErrorTypeOf() {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	fmt.Println(classify.ErrorTypeOf(refused))
	fmt.Println(classify.ErrorTypeOf(fmt.Errorf("upload: %w", io.ErrUnexpectedEOF)))
	fmt.Println(classify.ErrorTypeOf(http.ErrSchemeMismatch))
	fmt.Println(classify.ErrorTypeOf(nil))
	// Output:
	// dial
	// reset
	// tls
	// none
}

// The server says how much of a quota is left, and for how long.
func ExampleQuotaOf() {
	quota, ok := classify.QuotaOf(response(200, "",
		"RateLimit", `"hour";r=50;t=1800`,
		"RateLimit-Policy", `"hour";q=100;w=3600`))
	fmt.Println(quota.Remaining, "of", quota.Limit, "for", quota.Reset, ok)
	// Output: 50 of 100 for 30m0s true
}

// A server may count requests and tokens, each in a window of its own.
func ExampleQuotas() {
	for _, q := range classify.Quotas(response(200, "",
		"X-RateLimit-Remaining-Requests", "59", "X-RateLimit-Reset-Requests", "1s",
		"X-RateLimit-Limit-Tokens", "150000", "X-RateLimit-Remaining-Tokens", "149984", "X-RateLimit-Reset-Tokens", "6m0s")) {
		fmt.Printf("%q: %d for %v\n", q.Unit, q.Remaining, q.Reset)
	}
	// Output:
	// "": 59 for 1s
	// "tokens": 149984 for 6m0s
}

// A custom Func looks at the outcome and returns Unknown if it has no
// opinion.
func ExampleFunc() {
	maintenance := func(o classify.Outcome) classify.Class {
		if o.Response != nil && o.Response.Header.Get("X-Maintenance") != "" {
			return classify.Refused
		}
		return classify.Unknown
	}
	classifier := classify.First(maintenance, classify.Default)
	fmt.Println(classifier(response(500, "", "X-Maintenance", "until noon")))
	fmt.Println(classifier(response(500, "")))
	// Output:
	// refused
	// ambiguous
}

// A custom Hint reads a wait that only this server sends.
func ExampleRetryAfterFunc() {
	minutes := func(o classify.Outcome) (time.Duration, bool) {
		if o.Response == nil {
			return 0, false
		}
		n, err := strconv.Atoi(o.Response.Header.Get("X-Back-In-Minutes"))
		return time.Duration(n) * time.Minute, err == nil && n >= 0
	}
	hint := classify.FirstRetryAfter(classify.DefaultHint, minutes)
	fmt.Println(hint(response(503, "", "X-Back-In-Minutes", "2")))
	fmt.Println(hint(response(503, "")))
	// Output:
	// 2m0s true
	// 0s false
}

// Peek reads the beginning of a body. The caller still gets the whole body.
func ExampleOutcome_Peek() {
	o := response(500, "overloaded, try again")
	fmt.Printf("%s\n", o.Peek(10))

	body, _ := io.ReadAll(o.Response.Body)
	fmt.Printf("%s\n", body)
	// Output:
	// overloaded
	// overloaded, try again
}

// A client that must not wait for a slow name server gives up on DNS errors,
// although Default would let it try again.
func ExampleOnError() {
	classifier := classify.First(classify.OnError(classify.Final, classify.ErrorDNS), classify.Default)
	fmt.Println(classifier(classify.Outcome{Err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}}))
	fmt.Println(classifier(classify.Outcome{Err: io.ErrUnexpectedEOF}))
	// Output:
	// final
	// ambiguous
}

// This API returns status 200 for errors as well, and says so in a JSON body.
func ExampleOnBody() {
	busy := func(body []byte) bool {
		var reply struct{ Error string }
		return json.Unmarshal(body, &reply) == nil && reply.Error == "busy"
	}
	classifier := classify.OnBody(classify.Refused, 1<<10, busy, http.StatusOK)
	fmt.Println(classifier(response(200, `{"error": "busy"}`)))
	fmt.Println(classifier(response(200, `{"items": []}`)))
	// Output:
	// refused
	// unknown
}

// Some servers say themselves whether a retry makes sense.
func ExampleSignals() {
	classifier := classify.First(classify.Signals, classify.Default)
	fmt.Println(classifier(response(503, "", "X-Should-Retry", "false")))
	fmt.Println(classifier(response(409, "", "X-Should-Retry", "true")))
	fmt.Println(classifier(response(429, `{"error": {"code": "insufficient_quota"}}`)))
	// Output:
	// final
	// ambiguous
	// final
}

// A POST with an Idempotency-Key may be sent twice.
func ExampleIdempotent() {
	post, _ := http.NewRequest(http.MethodPost, "https://example.com/orders", nil)
	fmt.Println(classify.Idempotent(post))
	post.Header.Set("Idempotency-Key", "order-1")
	fmt.Println(classify.Idempotent(post))
	// Output:
	// false
	// true
}

func ExampleOutcome_Await() {
	// A server that sends its status first, and the result when it has one.
	body := io.NopCloser(strings.NewReader("   \n  <Error><Code>InternalError</Code></Error>"))
	o := classify.Outcome{Response: &http.Response{StatusCode: http.StatusOK, Body: body}}
	head, err := o.Await(64<<10, func(head []byte) bool { return bytes.Contains(head, []byte("</Error>")) })
	fmt.Println(strings.TrimSpace(string(head)), err)
	// Output: <Error><Code>InternalError</Code></Error> <nil>
}

func ExampleOutcome_FirstEvent() {
	body := io.NopCloser(strings.NewReader(": a comment\n\nevent: error\ndata: {\"type\": \"overloaded_error\"}\n\n"))
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}
	fmt.Println(classify.IsEventStream(resp))
	e, ok, err := classify.Outcome{Response: resp}.FirstEvent(nil)
	fmt.Println(e.Type, string(e.Data), ok, err)
	// Output:
	// true
	// error {"type": "overloaded_error"} true <nil>
}

// Retry-After is a number of seconds or a date. A date is measured from the server's own
// clock.
func ExampleRetryAfter() {
	fmt.Println(classify.RetryAfter(response(503, "", "Retry-After", "120")))
	fmt.Println(classify.RetryAfter(response(503, "",
		"Date", "Sun, 22 Nov 2026 08:00:00 GMT",
		"Retry-After", "Sun, 22 Nov 2026 08:00:30 GMT")))
	fmt.Println(classify.RetryAfter(response(503, "")))
	// Output:
	// 2m0s true
	// 30s true
	// 0s false
}

// Azure and OpenAI name their waits in milliseconds.
func ExampleRetryAfterMillis() {
	fmt.Println(classify.RetryAfterMillis(response(429, "", "Retry-After-Ms", "1500")))
	// Output: 1.5s true
}

// The quota is used up, and it is full again in half a minute.
func ExampleRateLimitReset() {
	fmt.Println(classify.RateLimitReset(response(429, "", "RateLimit", `"minute";r=0;t=30`)))
	fmt.Println(classify.RateLimitReset(response(429, "", "RateLimit", `"minute";r=7;t=30`)))
	// Output:
	// 30s true
	// 0s false
}

// The default rule reads milliseconds, then seconds, then what is left of a quota.
func ExampleDefaultHint() {
	fmt.Println(classify.DefaultHint(response(429, "", "Retry-After", "2", "Retry-After-Ms", "1500")))
	// Output: 1.5s true
}

// This server sends a Retry-After that means nothing. With NoHint in its rule the
// back-off counts alone.
func ExampleNoHint() {
	fmt.Println(classify.NoHint(response(503, "", "Retry-After", "86400")))
	// Output: 0s false
}

// Discord names the wait in the body.
func ExampleBodyRetryAfter() {
	fmt.Println(classify.BodyRetryAfter(response(429, `{"message": "You are being rate limited.", "retry_after": 64.57}`)))
	// Output: 1m4.57s true
}

// Discord names the wait in a header field, too.
func ExampleResetAfter() {
	fmt.Println(classify.ResetAfter(response(429, "", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "1.25")))
	// Output: 1.25s true
}

// Of OpenAI's quotas only the tokens are used up.
func ExampleResetDurations() {
	fmt.Println(classify.ResetDurations(response(429, "",
		"X-Ratelimit-Remaining-Requests", "59", "X-Ratelimit-Reset-Requests", "1h",
		"X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "20ms")))
	// Output: 20ms true
}

// Anthropic names the instant at which a quota is full again.
func ExampleResetTimes() {
	fmt.Println(classify.ResetTimes(response(429, "",
		"Date", "Sun, 22 Nov 2026 08:00:00 GMT",
		"Anthropic-Ratelimit-Tokens-Remaining", "0",
		"Anthropic-Ratelimit-Tokens-Reset", "2026-11-22T08:00:45Z")))
	// Output: 45s true
}

// Google Cloud names the wait in the details of an error.
func ExampleRetryInfo() {
	fmt.Println(classify.RetryInfo(response(429, `{"error": {"code": 429, "details": [
		{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}
	]}}`)))
	// Output: 3.5s true
}

// GitHub does not always name a wait when the secondary rate limit is exceeded.
func ExampleSecondaryLimit() {
	fmt.Println(classify.SecondaryLimit(response(403,
		`{"message": "You have exceeded a secondary rate limit."}`, "X-Github-Request-Id", "C0DE")))
	// Output: 1m0s true
}

// A gRPC server pushes back for half a second.
func ExamplePushback() {
	fmt.Println(classify.Pushback(response(503, "", "Grpc-Retry-Pushback-Ms", "500")))
	// Output: 500ms true
}
