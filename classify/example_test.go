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
		classify.OnError(classify.Final, classify.Reset),
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
func ExampleFirstHint() {
	hint := classify.FirstHint(classify.DefaultHint, classify.ResetDurations)

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

// KindOf says at which stage an error arose.
func ExampleKindOf() {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	fmt.Println(classify.KindOf(refused))
	fmt.Println(classify.KindOf(fmt.Errorf("upload: %w", io.ErrUnexpectedEOF)))
	fmt.Println(classify.KindOf(http.ErrSchemeMismatch))
	fmt.Println(classify.KindOf(nil))
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
	maintenance := func(o classify.Outcome) classify.Verdict {
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
func ExampleHint() {
	minutes := func(o classify.Outcome) (time.Duration, bool) {
		if o.Response == nil {
			return 0, false
		}
		n, err := strconv.Atoi(o.Response.Header.Get("X-Back-In-Minutes"))
		return time.Duration(n) * time.Minute, err == nil && n >= 0
	}
	hint := classify.FirstHint(classify.DefaultHint, minutes)
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
	classifier := classify.First(classify.OnError(classify.Final, classify.DNS), classify.Default)
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
