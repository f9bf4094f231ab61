package classify

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	want := map[int]Class{408: Ambiguous, 421: Refused, 425: Refused, 429: Ambiguous}
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

// A field of the request or of the response may say more than the status.
func TestDefaultLooksAtFields(t *testing.T) {
	asks := func(code int, key string, values ...string) Outcome {
		o := response(code)
		o.Request = &http.Request{Header: http.Header{key: values}}
		return o
	}
	for _, tt := range []struct {
		o    Outcome
		want Class
	}{
		// A cache that has nothing stored says so by a 504 (RFC 9111 §5.2.1.7).
		{asks(504, "Cache-Control", "only-if-cached"), Final},
		{asks(504, "Cache-Control", "max-stale=60, Only-If-Cached"), Final},
		{asks(504, "Cache-Control", "no-cache"), Ambiguous},
		{asks(504, "Cache-Control", ""), Ambiguous},
		{asks(503, "Cache-Control", "only-if-cached"), Ambiguous},
		// A 413 is about the size of the request, unless the server says that it will pass.
		{response(413, "Retry-After", "30"), Refused},
		{response(413, "Retry-After", "0"), Refused},
		{response(413, "Retry-After", "soon"), Final},
		{response(413, "RateLimit-Reset", "30"), Final},
		// Only a request with an expectation can be repeated without it.
		{asks(417, "Expect"), Final},
		{asks(417, "Expect", ""), Final},
		{asks(417, "Expect", "200-ok"), Final},
		{asks(417, "Expect", "100-continue"), Refused},
		{asks(417, "Expect", " 100-Continue"), Refused},
		{asks(417, "Expect", "", "100-continue"), Refused},
	} {
		assert.Equal(t, tt.want, Default(tt.o), "%+v %+v", tt.o.Request, tt.o.Response)
	}
}

func TestDefaultOfNothing(t *testing.T) {
	assert.Equal(t, Final, Default(Outcome{}))
	assert.Equal(t, Final, Default(Outcome{Err: errors.New("surprise")}))
	assert.Equal(t, Ambiguous, Default(Outcome{Err: io.EOF}))
	assert.Equal(t, Final, Default(Outcome{Response: &http.Response{}}))
	assert.Equal(t, Ambiguous, First(OnError(Ambiguous, ErrorOther), Default)(Outcome{Err: errors.New("surprise")}))
}

func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		o    Outcome
		want Class
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
		assert.Zero(t, testing.AllocsPerRun(100, func() { RetryAfter(o) }), "status %d", code)
	}
	f := First(Refusals, Signals, OnStatus(Final, 503), OnError(Final, ErrorReset), OnBody(Refused, "x"), Default)
	o := Outcome{Request: r, Response: &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}}}
	assert.Zero(t, testing.AllocsPerRun(100, func() { f(o) }))
}

func withBody(code int, text string, header ...string) Outcome {
	o := response(code, header...)
	o.Response.Body = io.NopCloser(strings.NewReader(text))
	return o
}

func TestFirst(t *testing.T) {
	is := func(v Class) Func { return func(Outcome) Class { return v } }
	for name, tt := range map[string]struct {
		f    Func
		want Class
	}{
		"no function is asked": {First(), Unknown},
		"nil":                  {First(nil, nil), Unknown},
		"no opinion":           {First(is(Unknown), nil, is(Unknown)), Unknown},
		"the first opinion":    {First(is(Unknown), nil, is(Refused), is(Final)), Refused},
		"one within another":   {First(First(nil), First(is(Ambiguous))), Ambiguous},
	} {
		assert.Equal(t, tt.want, tt.f(Outcome{}), name)
	}

	funcs := []Func{is(Final)}
	f := First(funcs...)
	funcs[0] = is(Refused)
	assert.Equal(t, Final, f(Outcome{}), "the caller's slice is the caller's")
}

func TestStatus(t *testing.T) {
	codes := []int{409, 503}
	f := OnStatus(Refused, codes...)
	codes[0] = 200
	assert.Equal(t, Refused, f(response(409)))
	assert.Equal(t, Refused, f(response(503)))
	assert.Equal(t, Unknown, f(response(200)))
	assert.Equal(t, Unknown, f(Outcome{}))
	assert.Equal(t, Unknown, f(Outcome{Err: io.EOF}))
	assert.Equal(t, Unknown, OnStatus(Final)(response(200)))
}

func TestError(t *testing.T) {
	f := OnError(Final, ErrorReset, ErrorDial)
	assert.Equal(t, Final, f(Outcome{Err: io.EOF}))
	assert.Equal(t, Unknown, f(Outcome{Err: http.ErrSchemeMismatch}))
	assert.Equal(t, Unknown, f(response(500)))
	assert.Equal(t, Unknown, f(Outcome{}))
	assert.Equal(t, Unknown, OnError(Final, "")(response(200)), "no error is of no type")
	assert.Equal(t, Unknown, OnError(Final)(Outcome{Err: io.EOF}))
}

// gzipped returns an outcome whose body is coded.
func gzipped(o Outcome) Outcome {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.Copy(z, o.Response.Body)
	_ = z.Close()
	o.Response.Header.Set("Content-Encoding", "gzip")
	o.Response.Body = io.NopCloser(&b)
	return o
}

func TestBody(t *testing.T) {
	const text = `{"reason":"queue capacity reached"}`
	for name, tt := range map[string]struct {
		f    Func
		o    Outcome
		want Class
	}{
		"found":                       {OnBody(Refused, "queue capacity"), withBody(500, text), Refused},
		"found at 400":                {OnBody(Refused, "queue capacity"), withBody(400, text), Refused},
		"the text is not in the body": {OnBody(Refused, "Queue Capacity"), withBody(500, text), Unknown},
		"success is not looked at":    {OnBody(Refused, "queue capacity"), withBody(200, text), Unknown},
		"success is looked at if its code is asked for":   {OnBody(Refused, "queue capacity", 200), withBody(200, text), Refused},
		"only the codes that are asked for are looked at": {OnBody(Refused, "queue capacity", 200), withBody(500, text), Unknown},
		"an empty text":              {OnBody(Refused, ""), withBody(500, text), Unknown},
		"beyond 64 KiB":              {OnBody(Refused, "END"), withBody(500, strings.Repeat("x", 64<<10)+"END"), Unknown},
		"just within 64 KiB":         {OnBody(Refused, "END"), withBody(500, strings.Repeat("x", 64<<10-3)+"END"), Refused},
		"an empty body":              {OnBody(Refused, "x"), withBody(500, ""), Unknown},
		"no body":                    {OnBody(Refused, "x"), response(500), Unknown},
		"a coded body":               {Signals, gzipped(withBody(429, `{"error":{"code":"insufficient_quota"}}`)), Final},
		"an error":                   {OnBody(Refused, "EOF"), Outcome{Err: io.EOF}, Unknown},
		"neither response nor error": {OnBody(Refused, "EOF"), Outcome{}, Unknown},
		"a body that was looked at":  {First(OnBody(Final, "nothing"), OnBody(Refused, "queue")), withBody(500, text), Refused},
	} {
		t.Run(name, func(t *testing.T) {
			var whole []byte
			if tt.o.Response != nil && tt.o.Response.Body != nil {
				whole, _ = io.ReadAll(tt.o.Response.Body)
				tt.o.Response.Body = io.NopCloser(bytes.NewReader(whole))
			}
			assert.Equal(t, tt.want, tt.f(tt.o))
			if whole != nil {
				after, err := io.ReadAll(tt.o.Response.Body)
				require.NoError(t, err)
				assert.Equal(t, whole, after, "pitfall 32: the body is there for the caller")
			}
		})
	}
}

func TestIdempotent(t *testing.T) {
	for method, want := range map[string]bool{
		"": true, "get": false, "propfind": false, "X": false, "*": false, "PRI": false,
		// IANA's registry of HTTP methods, read on 22 November 2026.
		"ACL": true, "BASELINE-CONTROL": true, "BIND": true, "CHECKIN": true, "CHECKOUT": true,
		"CONNECT": false, "COPY": true, "DELETE": true, "GET": true, "HEAD": true, "LABEL": true,
		"LINK": true, "LOCK": false, "MERGE": true, "MKACTIVITY": true, "MKCALENDAR": true,
		"MKCOL": true, "MKREDIRECTREF": true, "MKWORKSPACE": true, "MOVE": true, "OPTIONS": true,
		"ORDERPATCH": true, "PATCH": false, "POST": false, "PROPFIND": true, "PROPPATCH": true,
		"PUT": true, "QUERY": true, "REBIND": true, "REPORT": true, "SEARCH": true, "TRACE": true,
		"UNBIND": true, "UNCHECKOUT": true, "UNLINK": true, "UNLOCK": true, "UPDATE": true,
		"UPDATEREDIRECTREF": true, "VERSION-CONTROL": true,
	} {
		assert.Equal(t, want, Idempotent(&http.Request{Method: method}), "pitfall 22: method %q", method)
	}
	for key, want := range map[string]bool{
		"Idempotency-Key": true, "X-Idempotency-Key": true, "Idempotency": false,
	} {
		assert.Equal(t, want, Idempotent(&http.Request{Method: "POST", Header: http.Header{key: {"k"}}}), key)
		assert.Equal(t, want, Idempotent(&http.Request{Method: "POST", Header: http.Header{key: nil}}), "%s, not sent", key)
	}
	assert.False(t, Idempotent(nil))
	assert.False(t, Idempotent(&http.Request{Method: "POST"}), "no header at all")
}

// A server that remembers a nonce answers the second request with "already used", key or not.
func TestIdempotentSingleUse(t *testing.T) {
	for _, method := range []string{"GET", "PUT", "POST"} {
		r := &http.Request{Method: method, Header: http.Header{"Dpop": {"proof"}, "Idempotency-Key": {"k"}}}
		assert.False(t, Idempotent(r), method)
		r.Header = http.Header{"Authorization": {"DPoP token"}, "Idempotency-Key": {"k"}}
		assert.True(t, Idempotent(r), "%s without a proof", method)
	}
}

// After a lost response, the second of two conditional requests would meet the effect of the first
// (RFC 9110 §13.1.1). A condition of a safe method does no harm.
func TestIdempotentConditions(t *testing.T) {
	for _, field := range []string{
		"If", "If-Match", "If-None-Match", "If-Unmodified-Since", "X-Goog-If-Generation-Match", "X-Amz-If-Match-Size", "X-Ms-If-Sequence-Number-Eq",
	} {
		for method, want := range map[string]bool{"GET": true, "HEAD": true, "PROPFIND": true, "PUT": false, "DELETE": false, "MOVE": false, "POST": false} {
			r := &http.Request{Method: method, Header: http.Header{field: {"x"}}}
			assert.Equal(t, want, Idempotent(r), "%s with %s", method, field)
			r.Header["Idempotency-Key"] = []string{"k"}
			assert.True(t, Idempotent(r), "%s with %s and a key", method, field)
		}
	}
	for _, field := range []string{"If-Modified-Since", "If-Range", "X-Amz-Copy-Source-If-Match"} {
		assert.True(t, Idempotent(&http.Request{Method: "PUT", Header: http.Header{field: {"x"}}}), field)
	}
}

func TestSignals(t *testing.T) {
	const quota = `{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}`
	for _, tt := range []struct {
		name string
		o    Outcome
		want Class
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
		assert.Equal(t, tt.want, Signals(tt.o), tt.name)
	}
	f := First(Signals, Refusals, Default)
	assert.Equal(t, Refused, f(response(429, "X-Should-Retry", "true")))
	assert.Equal(t, Final, f(withBody(429, quota)))
	assert.Equal(t, Refused, f(response(503, "X-Should-Retry", "true", "Retry-After", "1")))
	assert.Equal(t, Ambiguous, f(response(503, "X-Should-Retry", "true")))
	assert.Equal(t, Refused, f(response(421, "X-Should-Retry", "true")))
}
