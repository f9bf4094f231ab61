package classify

import (
	"errors"
	"io"
	"log"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

var discardLog = log.New(io.Discard, "", 0)

func response(code int, header ...string) Outcome {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return Outcome{Response: &http.Response{StatusCode: code, Header: h}}
}

// TestDefaultStatuses is the table of Default for responses.
func TestDefaultStatuses(t *testing.T) {
	want := map[int]Verdict{408: Ambiguous, 421: Refused, 425: Refused, 429: Ambiguous}
	for code := 500; code < 600; code++ {
		want[code] = Ambiguous
	}
	// Pitfall 25: what the next attempt would meet again.
	for _, code := range []int{501, 505, 507, 508, 511} {
		want[code] = Final
	}
	for code := -1; code < 1000; code++ {
		v, ok := want[code]
		if !ok {
			v = Final
		}
		assert.Equal(t, v, Default(response(code)), "status %d", code)
	}
}

// A cache that has nothing stored says so by a 504 (RFC 9111 §5.2.1.7).
func TestDefaultOnlyIfCached(t *testing.T) {
	for field, want := range map[string]Verdict{
		"only-if-cached": Final, "max-stale=60, Only-If-Cached": Final, "no-cache": Ambiguous, "": Ambiguous,
	} {
		o := response(504)
		o.Request = &http.Request{Header: http.Header{"Cache-Control": {field}}}
		assert.Equal(t, want, Default(o), "Cache-Control: %s", field)
		o.Response.StatusCode = 503
		assert.Equal(t, Ambiguous, Default(o), "a 503 to Cache-Control: %s", field)
	}
}

// A 413 is about the size of the request, unless the server says that it will pass.
func TestDefaultContentTooLarge(t *testing.T) {
	assert.Equal(t, Refused, Default(response(413, "Retry-After", "30")))
	assert.Equal(t, Refused, Default(response(413, "Retry-After", "0")))
	assert.Equal(t, Final, Default(response(413, "Retry-After", "soon")))
	assert.Equal(t, Final, Default(response(413, "RateLimit-Reset", "30")))
}

// Only a request with an expectation can be repeated without it.
func TestDefaultExpectationFailed(t *testing.T) {
	for _, tt := range []struct {
		expect []string
		want   Verdict
	}{
		{nil, Final}, {[]string{""}, Final}, {[]string{"200-ok"}, Final},
		{[]string{"100-continue"}, Refused}, {[]string{" 100-Continue"}, Refused}, {[]string{"", "100-continue"}, Refused},
	} {
		o := response(417)
		o.Request = request(t, "POST", "http://127.0.0.1/", nil)
		o.Request.Header["Expect"] = tt.expect
		assert.Equal(t, tt.want, Default(o), tt.expect)
	}
}

func TestDefaultOfNothing(t *testing.T) {
	assert.Equal(t, Final, Default(Outcome{}))
	assert.Equal(t, Final, Default(Outcome{Err: errors.New("surprise")}))
	assert.Equal(t, Ambiguous, Default(Outcome{Err: io.EOF}))
	assert.Equal(t, Final, Default(Outcome{Response: &http.Response{}}))
	assert.Equal(t, Ambiguous, First(OnError(Ambiguous, Other), Default)(Outcome{Err: errors.New("surprise")}))
}

func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		o    Outcome
		want Verdict
	}{
		"429":                           {response(429), Refused},
		"503 with a wait":               {response(503, "Retry-After", "1"), Refused},
		"503 with a wait of nothing":    {response(503, "Retry-After", "0"), Refused},
		"503 with zero milliseconds":    {response(503, "Retry-After-Ms", "0"), Refused},
		"503 with milliseconds":         {response(503, "Retry-After-Ms", "5"), Refused},
		"503 with a date to come":       {response(503, "Date", "Tue, 06 May 2031 08:49:29 GMT", "Retry-After", "Tue, 06 May 2031 08:49:30 GMT"), Refused},
		"503 with a date in the past":   {response(503, "Date", "Tue, 06 May 2031 08:49:29 GMT", "Retry-After", "Tue, 06 May 2031 07:49:29 GMT"), Unknown},
		"503 with an instant just past": {response(503, "Date", "Tue, 06 May 2031 08:49:29 GMT", "Retry-After", "1935823000"), Unknown},
		"503 with a malformed wait":     {response(503, "Retry-After", "soon"), Unknown},
		"503":                           {response(503), Unknown},
		"500 with a wait":               {response(500, "Retry-After", "1"), Unknown},
		"pitfall 8: 202 with a wait":    {response(202, "Retry-After", "1"), Unknown},
		"a lost response":               {Outcome{Err: io.EOF}, Unknown},
		"neither a response nor error":  {Outcome{}, Unknown},
	} {
		assert.Equal(t, tt.want, Refusals(tt.o), name)
	}
}

func TestDefaultAllocatesNothing(t *testing.T) {
	r := request(t, "GET", "http://127.0.0.1/", nil)
	for _, code := range []int{200, 404, 503} {
		o := Outcome{Request: r, Response: &http.Response{StatusCode: code, Header: http.Header{}}}
		assert.Zero(t, testing.AllocsPerRun(100, func() { Default(o) }), "status %d", code)
		assert.Zero(t, testing.AllocsPerRun(100, func() { DefaultHint(o) }), "status %d", code)
	}
	f := First(Refusals, Signals, OnStatus(Final, 503), OnError(Final, Reset), OnBodyText(Refused, "x"), Default)
	o := Outcome{Request: r, Response: &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}}}
	assert.Zero(t, testing.AllocsPerRun(100, func() { f(o) }))
}

func BenchmarkDefaultOnSuccess(b *testing.B) {
	r, _ := http.NewRequestWithContext(b.Context(), "GET", "http://127.0.0.1/", nil)
	o := Outcome{Request: r, Response: &http.Response{StatusCode: 200}}
	for b.Loop() {
		Default(o)
	}
}
