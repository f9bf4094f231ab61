package classify_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
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

// The first class other than Unknown counts. Default never returns Unknown.
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
	fmt.Println(locked(response(200, "")) == classify.Unknown)
	// Output:
	// refused
	// true
}

// This server explains in the body why it failed. The caller still gets the
// whole body.
func ExampleOnBody() {
	full := classify.OnBody(classify.Refused, "queue capacity")
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

// ErrorTypeOf says at which stage an error arose.
func ExampleErrorTypeOf() {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	fmt.Println(classify.ErrorTypeOf(refused))
	fmt.Println(classify.ErrorTypeOf(fmt.Errorf("upload: %w", io.ErrUnexpectedEOF)))
	fmt.Println(classify.ErrorTypeOf(http.ErrSchemeMismatch))
	fmt.Println(classify.ErrorTypeOf(nil) == "")
	// Output:
	// dial
	// reset
	// tls
	// true
}

// A date is measured from the server's own clock. Azure and OpenAI name their waits in
// milliseconds. A quota that is used up is full again in half a minute.
func ExampleRetryAfter() {
	fmt.Println(classify.RetryAfter(response(503, "", "Retry-After", "120")))
	fmt.Println(classify.RetryAfter(response(503, "",
		"Date", "Sun, 22 Nov 2026 08:00:00 GMT",
		"Retry-After", "Sun, 22 Nov 2026 08:00:30 GMT")))
	fmt.Println(classify.RetryAfter(response(429, "", "Retry-After", "2", "Retry-After-Ms", "1500")))
	fmt.Println(classify.RetryAfter(response(429, "", "RateLimit", `"minute";r=0;t=30`)))
	fmt.Println(classify.RetryAfter(response(503, "")))
	// Output:
	// 2m0s true
	// 30s true
	// 1.5s true
	// 30s true
	// 0s false
}

// This server sends a Retry-After that means nothing. With this function in its rule the
// back-off counts alone.
func ExampleRetryAfterFunc() {
	var ignore classify.RetryAfterFunc = func(classify.Outcome) (time.Duration, bool) { return 0, true }
	fmt.Println(ignore(response(503, "", "Retry-After", "86400")))
	// Output: 0s true
}
