package classify_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/aplomb-go/aplomb/classify"
)

// answer is a response as a transport would see it.
func answer(code int, body string, header ...string) classify.Outcome {
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

func ExampleDefault() {
	for _, code := range []int{200, 404, 425, 429, 501, 503} {
		fmt.Println(code, classify.Default(answer(code, "")))
	}
	// Output:
	// 200 final
	// 404 final
	// 425 refused
	// 429 ambiguous
	// 501 final
	// 503 ambiguous
}

// The first opinion wins; Default has one on everything.
func ExampleFirst() {
	classifier := classify.First(
		classify.OnStatus(classify.Ambiguous, http.StatusConflict),
		classify.OnError(classify.Final, classify.Reset),
		classify.Default,
	)
	fmt.Println(classifier(answer(409, "")))
	fmt.Println(classifier(classify.Outcome{Err: io.ErrUnexpectedEOF}))
	fmt.Println(classifier(answer(500, "")))
	// Output:
	// ambiguous
	// final
	// ambiguous
}

// An API that answers 409 while another writer holds the lock.
func ExampleOnStatus() {
	locked := classify.OnStatus(classify.Refused, http.StatusConflict, http.StatusLocked)
	fmt.Println(locked(answer(409, "")))
	fmt.Println(locked(answer(200, "")))
	// Output:
	// refused
	// unknown
}

// A server that explains in the body why it failed. The caller still gets the
// body in full.
func ExampleOnBodyText() {
	full := classify.OnBodyText(classify.Refused, "queue capacity")
	o := answer(500, "job not accepted: queue capacity reached")
	fmt.Println(full(o))

	body, _ := io.ReadAll(o.Response.Body)
	fmt.Printf("%s\n", body)
	// Output:
	// refused
	// job not accepted: queue capacity reached
}

// For an API that takes mostly POST: what the server refused may be sent again,
// what got lost may not.
func ExampleRefusals() {
	classifier := classify.First(classify.Refusals, classify.Default)
	fmt.Println(classifier(answer(429, "")))
	fmt.Println(classifier(answer(503, "", "Retry-After", "3")))
	fmt.Println(classifier(answer(503, "")))
	// Output:
	// refused
	// refused
	// ambiguous
}

// A provider's own way to name a wait, where the standard ones say nothing.
func ExampleFirstHint() {
	hint := classify.FirstHint(classify.DefaultHint, classify.ResetDurations)

	wait, ok := hint(answer(429, "", "Retry-After", "20"))
	fmt.Println(wait, ok)

	wait, ok = hint(answer(429, "",
		"X-Ratelimit-Remaining-Tokens", "0",
		"X-Ratelimit-Reset-Tokens", "6m0s"))
	fmt.Println(wait, ok)

	wait, ok = hint(answer(503, ""))
	fmt.Println(wait, ok)
	// Output:
	// 20s true
	// 6m0s true
	// 0s false
}

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

func ExampleQuotaOf() {
	quota, ok := classify.QuotaOf(answer(200, "",
		"RateLimit", `"hour";r=50;t=1800`,
		"RateLimit-Policy", `"hour";q=100;w=3600`))
	fmt.Println(quota.Remaining, "of", quota.Limit, "for", quota.Reset, ok)
	// Output: 50 of 100 for 30m0s true
}
