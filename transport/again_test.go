// Bodies that were cut: what a reader gets of them, as over net/http alone, who hears of it, and what is joined to one body.

package transport_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// text returns n bytes of JSON that gzip cannot make much smaller.
func text(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `{"id":%d,"name":"%x"},`, i, uint64(i)*0x9e3779b97f4a7c15)
	}
	return b.String()[:n]
}

// jsonStep is an answer as JSON APIs give it, without a validator.
func jsonStep(body string, length, gzip bool) ts.Step {
	step := ts.OK(body).Header("Content-Type", "application/json")
	if gzip {
		step = step.Gzip()
	}
	if !length {
		step = step.Chunked()
	}
	return step
}

// TestACutAnswerIsFetchedAgain: JSON without a validator, cut once. Without fetching
// again, no reader gets the body. If its length is not known, which is so if net/http has
// decompressed it, a few bytes are not enough to know that it is no stream.
func TestACutAnswerIsFetchedAgain(t *testing.T) {
	const size = 10_000
	for _, length := range []bool{true, false} {
		for _, gzip := range []bool{true, false} {
			for _, at := range []int64{0, 1, 100, -1} {
				for name, rule := range map[string]policy.Rule{"default": {}, "API": profile.API()} {
					runInMemory(t, fmt.Sprintf("%s/length=%v/gzip=%v/at %d", name, length, gzip, at), anyProtocol, func(t *testing.T, cfg ts.Config) {
						whole := jsonStep(text(size), length, gzip)
						cut := at
						if cut < 0 {
							cut = size - 1
							if gzip {
								cut = 2000 // the middle; its end holds a checksum
							}
						}
						for _, again := range []int64{policy.Off, 0} {
							rule.MaxRefetch = again
							s := set(t, cfg, rule, whole.CutAt(cut, ts.Reset), whole)
							got := s.send(http.MethodGet, nil)
							if again == policy.Off || at >= 0 && (gzip || !length) {
								assert.Error(t, got.err)
								assert.Less(t, len(got.body), size)
								assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
							} else {
								assert.NoError(t, got.err)
								assert.True(t, got.body == text(size), "%d bytes", len(got.body))
								assert.Equal(t, 2, s.Arrivals(), "requests that arrived")
							}
							s.base.CloseIdleConnections()
							s.Close()
						}
					})
				}
			}
		}
	}
}

// TestWhichRequestsAreFetchedAgain: a response that was cut is no licence to act twice.
func TestWhichRequestsAreFetchedAgain(t *testing.T) {
	order := func() io.Reader { return strings.NewReader("an order") }
	for _, row := range []struct {
		name   string
		method string
		body   func() io.Reader
		rule   policy.Rule
		ctx    func(context.Context) context.Context
		key    bool
		again  bool
	}{
		{"GET", http.MethodGet, nil, policy.Rule{}, nil, false, true},
		{"GET with a body", http.MethodGet, order, policy.Rule{}, nil, false, false},
		{"GET once", http.MethodGet, nil, policy.Rule{}, transport.WithoutRetries, false, false},
		{"GET without retries", http.MethodGet, nil, policy.Rule{MaxAttempts: 1}, nil, false, false},
		{"POST", http.MethodPost, order, policy.Rule{}, nil, false, false},
		{"POST with a key", http.MethodPost, order, policy.Rule{}, nil, true, false},
		{"POST of an idempotent host", http.MethodPost, order, policy.Rule{Idempotent: func(*http.Request) bool { return true }}, nil, false, false},
		{"PUT", http.MethodPut, order, policy.Rule{}, nil, false, false},
		{"repeatable POST", http.MethodPost, order, policy.Rule{}, transport.WithIdempotent, false, true},
		{"repeatable POST without a body", http.MethodPost, nil, policy.Rule{}, transport.WithIdempotent, false, true},
		{"repeatable POST of a pipe", http.MethodPost, func() io.Reader { return reader(order()) }, policy.Rule{}, transport.WithIdempotent, false, false},
	} {
		runInMemory(t, row.name, anyProtocol, func(t *testing.T, cfg ts.Config) {
			whole := jsonStep(text(5000), true, false)
			s := set(t, cfg, row.rule, whole.CutAt(3000, ts.Reset), whole)
			var body io.Reader
			if row.body != nil {
				body = row.body()
			}
			req := s.request(row.method, body)
			if row.ctx != nil {
				req = req.WithContext(row.ctx(req.Context()))
			}
			if row.key {
				req.Header.Set("Idempotency-Key", "k")
			}
			got := s.do(req)
			assert.Equal(t, row.again, got.err == nil, "%v", got.err)
			if row.again && row.body != nil {
				s.lastBody("an order")
			}
			if !row.again {
				assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
			}
		})
	}
}

// TestSignedRange: a request whose signature covers its range is sent again as it is, or not at all.
// Any other range would be refused.
func TestSignedRange(t *testing.T) {
	const size, signature = 3000, "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host;range, Signature=0f"
	for name, row := range map[string]struct {
		most int64
		want []string // the ranges that are asked for
	}{
		"within MaxRefetch": {0, []string{"bytes=0-2999", "bytes=0-2999"}},
		"too much":          {1000, []string{"bytes=0-2999"}},
		"off":               {policy.Off, []string{"bytes=0-2999"}},
	} {
		runInMemory(t, name, anyProtocol, func(t *testing.T, cfg ts.Config) {
			whole := ts.Status(http.StatusPartialContent).Body(text(size)).Header("ETag", `"v1"`).Header("Content-Range", "bytes 0-2999/9000")
			s := set(t, cfg, policy.Rule{MaxRefetch: row.most}, whole.CutAt(2000, ts.Reset), whole)
			req := s.request(http.MethodGet, nil)
			req.Header.Set("Range", row.want[0])
			req.Header.Set("Authorization", signature)
			got := s.do(req)
			if len(row.want) > 1 {
				require.NoError(t, got.err)
				assert.Equal(t, text(size), got.body)
			} else {
				assert.Equal(t, classify.ErrorReset, classify.ErrorTypeOf(got.err), "%v", got.err)
			}
			var ranges []string
			for _, a := range s.Log() {
				ranges = append(ranges, a.Header.Get("Range"))
			}
			assert.Equal(t, row.want, ranges)
		})
	}
}

// TestGarbageBehindGzip: bytes behind the end of a gzip stream make net/http's decompressor fail, and a second
// response would have them, too. A stream that is cut is fetched again, unless that is in a header of 10
// bytes between two.
func TestGarbageBehindGzip(t *testing.T) {
	const size = 10_000
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text(size))
	require.NoError(t, z.Close())
	whole := b.String()
	for name, row := range map[string]struct {
		body string
		cut  int64 // 0: the body comes whole
		sent int
	}{
		"no garbage":           {body: whole, sent: 1},
		"one byte":             {body: whole + "x", sent: 1},
		"nine bytes":           {body: whole + strings.Repeat("\x00", 9), sent: 1},
		"ten bytes":            {body: whole + strings.Repeat("\x00", 10), sent: 1},
		"the beginning of one": {body: whole + whole[:20], sent: 1},
		"two streams":          {body: whole + whole, sent: 1},
		"cut":                  {body: whole, cut: int64(len(whole) / 2), sent: 2},
		"cut in the second":    {body: whole + whole, cut: int64(len(whole) + 5), sent: 1},
		"cut behind a header":  {body: whole + whole, cut: int64(len(whole) + 100), sent: 2},
		"cut in the garbage":   {body: whole + strings.Repeat("x", 9), cut: int64(len(whole) + 5), sent: 1},
	} {
		for setting, rule := range map[string]policy.Rule{"default": {}, "API": profile.API(), "limit": {Concurrency: policy.Concurrency{Max: 2}}, "stall": {StallTimeout: time.Minute}} {
			for _, chunked := range []bool{false, true} {
				runInMemory(t, fmt.Sprintf("%s/%s/chunked=%v", name, setting, chunked), anyProtocol, func(t *testing.T, cfg ts.Config) {
					step := ts.OK(row.body).Header("Content-Type", "application/json").Header("Content-Encoding", "gzip")
					if chunked {
						step = step.Chunked()
					}
					first := step
					if row.cut > 0 {
						first = step.CutAt(row.cut, ts.Close)
					}
					s := set(t, cfg, rule, first, step)
					got := s.do(s.request(http.MethodGet, nil))
					assert.True(t, strings.HasPrefix(got.body, text(size)))
					assert.Equal(t, row.sent, s.Arrivals(), "%v", got.err)
				})
			}
		}
	}
}

// TestAgainWaitsLikeARetry: the second request keeps to the back-off, the attempts and
// the deadline.
func TestAgainWaitsLikeARetry(t *testing.T) {
	whole := jsonStep(text(5000), true, false)
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, exact, whole.CutAt(3000, ts.Reset), whole.CutAt(3500, ts.Reset), whole)
		start := time.Now()
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Equal(t, 3*time.Second, time.Since(start), "1 s and 2 s")

		s = set(t, ts.Config{Net: cfg.Net, HTTP2: cfg.HTTP2, Host: "b.test"}, policy.Rule{MaxAttempts: 3}.Or(quick), repeat(9, whole.CutAt(3000, ts.Reset))...)
		got = s.send(http.MethodGet, nil)
		require.Error(t, got.err)
		assert.Equal(t, 3, s.Arrivals(), "requests that arrived")

		s = set(t, ts.Config{Net: cfg.Net, HTTP2: cfg.HTTP2, Host: "c.test"}, exact, whole.CutAt(3000, ts.Reset), whole)
		ctx := expires(t, 900*time.Millisecond)
		start = time.Now()
		got = s.do(s.request(http.MethodGet, nil).WithContext(ctx))
		require.Error(t, got.err)
		assert.Zero(t, time.Since(start), "the wait would pass the deadline")
		assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
	})
}

// TestAWatchDoesNotHang: a body without a length may be a stream that looks like JSON.
func TestAWatchDoesNotHang(t *testing.T) {
	event := `{"type":"ADDED","object":{"n":1}}` + "\n"
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		// The second response is silent.
		young := jsonStep(strings.Repeat(event, 30), false, false)
		s := set(t, ts.Config{Net: cfg.Net, HTTP2: cfg.HTTP2, Host: "b.test"}, quick, young.CutAt(int64(20*len(event)), ts.Reset), young.CutAt(10, ts.Stall))
		start := time.Now()
		got := s.send(http.MethodGet, nil)
		require.Error(t, got.err)
		assert.Equal(t, strings.Repeat(event, 20), got.body)
		assert.Equal(t, 10*time.Second, time.Since(start))

		// The second response goes on with other events, so the difference shows early.
		other := jsonStep(strings.Repeat(strings.ToLower(event), 100), false, false).Drip(len(event), 50*time.Millisecond)
		s = set(t, ts.Config{Net: cfg.Net, HTTP2: cfg.HTTP2, Host: "c.test"}, quick, jsonStep(strings.Repeat(event, 100), false, false).CutAt(int64(90*len(event)), ts.Reset), other)
		start = time.Now()
		got = s.send(http.MethodGet, nil)
		require.Error(t, got.err)
		assert.Less(t, time.Since(start), 1500*time.Millisecond, "512 bytes are enough, and the drain takes 250 ms")

		req := s.request(http.MethodGet, nil)
		req.URL.RawQuery = "resourceVersion=5&watch=true"
		s = set(t, ts.Config{Net: cfg.Net, HTTP2: cfg.HTTP2, Host: "d.test"}, quick, young.CutAt(600, ts.Reset), young)
		req.URL.Host = strings.TrimPrefix(s.URL, "http://")
		got = s.do(req)
		require.Error(t, got.err)
		assert.Equal(t, 1, s.Arrivals(), "a watch of Kubernetes")
	})
}

// A stream of prices has a constant ETag, or an old Last-Modified, and its server ignores Range.
// The reader never gets bytes of two streams, and no clean end if the stream was cut.
func TestStreamWithAConstantValidator(t *testing.T) {
	for _, validator := range []string{`ETag: "v1"`, "Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT"} {
		for _, header := range []string{"X: y", "Content-Type: text/event-stream", "Content-Type: application/x-ndjson", "Accept-Ranges: bytes"} {
			inBubble(t, validator+", "+header, func(t *testing.T) {
				all := []string{validator, "Date: Sat, 01 Jan 2020 00:00:00 GMT", header}
				base := script(cutWith(io.ErrUnexpectedEOF, "price 17\nprice 1", all...), cutWith(io.EOF, "price 99\nprice 95\n", all...))
				got := do(over(t, transport.Config{Rule: quick}, base), newRequest(t, http.MethodGet, "http://h.test/", nil))
				assert.Equal(t, "price 17\nprice 1", got.body)
				assert.Equal(t, io.ErrUnexpectedEOF, got.err)
				attempts := 2
				if strings.HasPrefix(header, "Content-Type") {
					attempts = 1
				}
				base.sent(t, attempts, "a stream is not asked for its rest")
			})
		}
	}
}

// Ten thousand random streams have validators that never change. Their servers respond to a Range
// with a new stream, which often begins like the first, or send streams without a length. What a
// reader has comes from one response, and a clean end is the end of that response.
func TestNoMixOfStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(15, 15))
		types := []string{"text/plain", "text/event-stream", "application/json", "application/x-ndjson", "multipart/x-mixed-replace; boundary=x", ""}
		continued := 0
		for i := range 10_000 {
			var streams []string // as they were sent
			var ended []bool     // that came to their end
			header := []string{`ETag: "v1"`, "Content-Type: " + types[r.IntN(len(types))]}
			if r.IntN(4) == 0 {
				header = append(header, "Accept-Ranges: bytes")
			}
			var tr http.RoundTripper = over(t, transport.Config{Rule: quick}, rt(func(req *http.Request) (*http.Response, error) {
				text := prices(r)
				if n := len(streams); n > 0 && r.IntN(2) == 0 {
					text = streams[0][:r.IntN(len(streams[0])+1)] + text // begins alike
				}
				end, at := io.ErrUnexpectedEOF, r.IntN(len(text)+1)
				if r.IntN(3) == 0 {
					end, at = io.EOF, len(text)
				}
				streams, ended = append(streams, text[:at]), append(ended, end == io.EOF)
				return newResponse(req, 200, testkit.CutAt(text[:at], end), header...), nil
			}))
			got := do(tr, getRequest(t, "http://h.test/"))
			mixed := true
			for n, s := range streams {
				if got.err == nil && ended[n] && got.body == s || got.err != nil && strings.HasPrefix(s, got.body) {
					mixed = false
					continued += min(n, 1)
				}
			}
			assert.False(t, mixed, "stream %d: %q, %v\nwas mixed of %q", i, got.body, got.err, streams)
		}
		assert.Positive(t, continued)
	})
}

// prices returns a stream.
func prices(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(8) {
		fmt.Fprintf(&b, "price %d\n", 10+r.IntN(90))
	}
	return b.String()
}

// TestExplainTellsOfABodyThatWasCut: the story says that there was a response, and why nothing
// continues its body. It does so without a Logger and a Trace, too.
func TestExplainTellsOfABodyThatWasCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		step := faults.Status(200).Body("twelve bytes").CutAt(5)
		resp, err := mustNew(t, transport.Config{Base: script(step)}).RoundTrip(postRequest(t, "http://h.test/?key=SECRET"))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		const why = "for a body only a GET or QUERY is sent again, or a request with WithIdempotent"
		assert.Equal(t, "POST http://h.test/?key=xxxxx\n  status 200 at the first attempt, and its body failed (unexpected EOF): "+why, transport.Explain(resp, err))
		for _, own := range []struct {
			method, key, want string
			rule              policy.Rule
			ctx               context.Context
			body              io.Reader
		}{
			{method: http.MethodPut, want: why},
			{method: http.MethodPost, key: "1", want: why},
			{method: http.MethodPost, rule: policy.Rule{Idempotent: func(*http.Request) bool { return true }}, want: why},
			{method: http.MethodGet, body: strings.NewReader("x"), want: "the request has a body, and is not sent again for that of the response"},
			{method: http.MethodPost, ctx: transport.WithIdempotent(t.Context()), body: iotest.OneByteReader(strings.NewReader("x")), want: "the request has a body, and is not sent again for that of the response"},
		} {
			req := newRequest(t, own.method, "http://h.test/", own.body)
			if own.key != "" {
				req.Header.Set("Idempotency-Key", own.key)
			}
			if own.ctx != nil {
				req = req.WithContext(own.ctx)
			}
			resp := mustRoundTrip(t, mustNew(t, transport.Config{Base: script(step), Rule: own.rule}), req)
			_, err := io.ReadAll(resp.Body)
			assert.Contains(t, transport.Explain(resp, err), "its body failed (unexpected EOF): "+own.want, "%+v", own)
		}
		resp, err = mustNew(t, transport.Config{Base: script(faults.Status(503), step), Rule: exact}).RoundTrip(postRequest(t, "http://h.test/").WithContext(transport.WithIdempotent(t.Context())))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		story := transport.Explain(resp, err)
		assert.Contains(t, story, "attempt 1, at 0s: 503")
		assert.Contains(t, story, "\n  status 200, and its body failed (")
		resp, err = mustNew(t, transport.Config{Base: script(step)}).RoundTrip(getRequest(t, "http://h.test/"))
		require.NoError(t, err)
		story = transport.Explain(resp, errors.New("limit of the base"))
		assert.Equal(t, "GET http://h.test/\n  status 200 at the first attempt, and its body failed (limit of the base)", story)
		large := faults.Status(200).Body(strings.Repeat("x", 100)).CutAt(50)
		for _, traces := range [][]*transport.Trace{nil, {{BodyEnd: func(context.Context, transport.BodyEnd) {}}}} {
			resp, err = mustNew(t, transport.Config{Traces: traces, Base: script(large), Rule: policy.Rule{MaxRefetch: 40}}).RoundTrip(getRequest(t, "http://h.test/"))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.Equal(t, io.ErrUnexpectedEOF, err)
			assert.Contains(t, transport.Explain(resp, err), "too many bytes to fetch them again (MaxRefetch)")
			resp, err = mustNew(t, transport.Config{Traces: traces, Base: script(large, faults.Status(200).Body(strings.Repeat("x", 100)))}).RoundTrip(getRequest(t, "http://h.test/"))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			assert.Equal(t, "GET http://h.test/\n  status 200 at the first attempt, its body was cut and went on", transport.Explain(resp, err))
		}
	})
}

// cutWith is a response whose body ends with an error.
func cutWith(err error, text string, header ...string) answer {
	return func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 200, testkit.CutAt(text, err), header...), nil
	}
}

// As long as no byte came from a second response, the reader gets the very error that the base
// gave, whatever prevented the continuation.
func TestErrorOfACutIsTheBasesOwn(t *testing.T) {
	reset := fmt.Errorf("read: %w", syscall.ECONNRESET)
	again := func(err error) answer { // a second response that brings what the reader has, and no more
		return func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("Range") != "" {
				return newResponse(req, 206, testkit.CutAt("", err), `ETag: "v1"`, "Content-Range: bytes 2-9/10"), nil
			}
			return newResponse(req, 200, testkit.CutAt("ab", err)), nil
		}
	}
	for name, row := range map[string]struct {
		rule policy.Rule
		then []answer
	}{
		"503":                  {then: []answer{status(503)}},
		"503 with a wait":      {then: []answer{status(503, "Retry-After: 3600")}},
		"404":                  {then: []answer{status(404)}},
		"another version":      {then: []answer{status(200, `ETag: "v2"`)}},
		"a reset":              {then: []answer{faults.Fail(syscall.ECONNRESET)}},
		"no host":              {then: []answer{faults.Fail(&net.DNSError{IsNotFound: true})}},
		"no byte":              {then: []answer{again(errors.New("another"))}},
		"no byte, often":       {then: []answer{again(io.ErrUnexpectedEOF)}},
		"no reconnect":         {rule: policy.Rule{Resume: policy.Off, MaxRefetch: policy.Off}},
		"no retry":             {rule: policy.Rule{MaxAttempts: 1}},
		"no budget":            {rule: policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off}}, then: []answer{status(503)}},
		"no time":              {rule: policy.Rule{MaxElapsedTime: time.Millisecond}},
		"a late turn":          {rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.01}}},
		"AttemptTimeout":       {rule: policy.Rule{AttemptTimeout: time.Second}, then: []answer{faults.Hang()}},
		"a pair of Transports": {then: []answer{status(503)}},
	} {
		for _, header := range [][]string{nil, {`ETag: "v1"`}} {
			for _, cut := range []error{io.ErrUnexpectedEOF, reset} {
				inBubble(t, fmt.Sprint(name, header, cut), func(t *testing.T) {
					ctx := expires(t, time.Hour)
					base := script(append([]answer{cutWith(cut, "ab", header...)}, row.then...)...)
					c := transport.Config{Rule: row.rule.Or(policy.Rule{Backoff: backoff.Constant(time.Second)})}
					tr := over(t, c, base)
					if name == "a pair of Transports" {
						tr = over(t, c, tr)
					}
					resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx))
					text, err := io.ReadAll(resp.Body)
					assert.Equal(t, "ab", string(text))
					assert.True(t, err == cut, "%T: %[1]v", err)
					assert.NoError(t, resp.Body.Close())
				})
			}
		}
	}
}

// stuck is a body whose Read and Close wait for a second.
type stuck struct{}

func (stuck) Read([]byte) (int, error) { time.Sleep(time.Second); return 0, io.ErrUnexpectedEOF }
func (stuck) Close() error             { time.Sleep(time.Second); return nil }

// If the caller's context ended meanwhile, the error of the context and its cause are seen, and
// the error is a net.Error. This is so at any moment: before the reconnect, in its wait, in its
// attempt, and while its response is read.
func TestErrorOfACutTellsOfTheContext(t *testing.T) {
	cause := errors.New("the job is over")
	for name, row := range map[string]struct {
		then answer
		when time.Duration // after the cut
	}{
		"before":         {status(200), 0},
		"in the wait":    {status(200), 500 * time.Millisecond},
		"in the attempt": {faults.Hang(), 1500 * time.Millisecond},
		"in the body": {func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 200, stuck{}), nil
		}, 1500 * time.Millisecond},
	} {
		for _, passes := range []bool{false, true} {
			if passes && name == "in the wait" {
				continue // no wait begins that cannot end in an attempt
			}
			inBubble(t, fmt.Sprintf("%s/deadline %v", name, passes), func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				want := cause
				if passes {
					late, stop := context.WithTimeout(t.Context(), row.when+time.Millisecond)
					defer stop()
					ctx, want = late, context.DeadlineExceeded
				}
				end := func() {
					time.Sleep(row.when + 2*time.Millisecond)
					cancel(cause)
				}
				first := func(req *http.Request) (*http.Response, error) {
					both := iotest.DataErrReader(io.MultiReader(strings.NewReader(strings.Repeat("ab", 256)), iotest.ErrReader(io.ErrUnexpectedEOF)))
					return newResponse(req, 200, io.NopCloser(both)), nil
				}
				tr := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second)}}, script(first, row.then))
				resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx))
				n, err := resp.Body.Read(make([]byte, 600))
				require.NoError(t, err)
				require.Equal(t, 512, n)
				if row.when == 0 {
					end()
				} else {
					go end()
				}
				_, err = resp.Body.Read(make([]byte, 10))
				assert.ErrorIs(t, err, ctx.Err())
				assert.ErrorIs(t, err, want)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "the error of the cut")
				assert.Equal(t, map[bool]transport.Reason{false: transport.ReasonCanceled, true: transport.ReasonDeadline}[passes], transport.ReasonOf(nil, err))
				var n2 net.Error
				if assert.ErrorAs(t, err, &n2) {
					assert.Equal(t, passes, n2.Timeout())
					//lint:ignore SA1019 callers of net.Error still ask
					assert.Equal(t, passes, n2.Temporary())
				}
				assert.NoError(t, resp.Body.Close())
				time.Sleep(time.Minute)
			})
		}
	}
}

// A delivery is what a reader gets of a body.
type delivery struct {
	parts []string
	times []time.Duration // since the request, of each part
	end   string          // the error
}

// asAlone reads the response to a GET over net/http alone and over Transports, each with a server of
// its own that plays the steps. It asserts that they deliver the same, and that at most so many
// requests arrive over a Transport.
func asAlone(t *testing.T, most int, read func(t *testing.T, body io.Reader, add func(part string)) error, steps ...ts.Step) {
	over := func(rule policy.Rule) func(http.RoundTripper) http.RoundTripper {
		return func(base http.RoundTripper) http.RoundTripper {
			return mustNew(t, transport.Config{Base: base, Rule: rule})
		}
	}
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		play := func(wrap func(http.RoundTripper) http.RoundTripper) (d delivery, arrived int) {
			s := ts.Start(t, cfg, steps...)
			defer s.Close()
			base := s.Transport()
			defer base.CloseIdleConnections()
			start := time.Now()
			resp := mustRoundTrip(t, wrap(base), newRequest(t, http.MethodGet, s.URL+"/", nil))
			err := read(t, resp.Body, func(part string) {
				d.parts, d.times = append(d.parts, part), append(d.times, time.Since(start))
			})
			d.end = fmt.Sprint(err)
			require.NoError(t, resp.Body.Close())
			return d, s.Arrivals()
		}
		want, _ := play(func(base http.RoundTripper) http.RoundTripper { return base })
		for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
			"default": over(policy.Rule{}),
			"API":     over(profile.API()),
			"Service": over(profile.Service()),
			"GitHub":  over(profile.GitHub()),
			"a pair":  func(base http.RoundTripper) http.RoundTripper { return over(profile.API())(over(profile.API())(base)) },
		} {
			got, arrived := play(wrap)
			assert.Equal(t, want, got, name)
			assert.LessOrEqual(t, arrived, most, name)
		}
	})
}

// The last chunk of a JSON response is missing. A decoder has all of the text, and never reads that
// far.
func TestJSONWithoutItsLastChunk(t *testing.T) {
	whole := jsonStep(`{"id":1}`, false, false)
	asAlone(t, 1, func(_ *testing.T, body io.Reader, add func(string)) error {
		var v json.RawMessage
		err := json.NewDecoder(body).Decode(&v)
		add(string(v))
		return err
	}, whole.CutAt(8, ts.Close), whole)
}

// The daemon of Docker tells events as JSON, each to those who listen then. It restarts within a
// second. Its reader has to learn that, with every event until then, so that it asks again for
// those after it.
func TestEventsOfDockerAreCut(t *testing.T) {
	events := func(first int) (s string) {
		for id := range 5 {
			s += fmt.Sprintf(`{"Action":"start","id":%d}`+"\n", first+id)
		}
		return s
	}
	size := len(events(1)) / 5
	step := func(first int) ts.Step {
		return ts.OK(events(first)).Header("Content-Type", "application/json").Chunked().Drip(size, 30*time.Millisecond)
	}
	asAlone(t, 2, func(t *testing.T, body io.Reader, add func(string)) error {
		for d := json.NewDecoder(body); ; {
			var event json.RawMessage
			if err := d.Decode(&event); err != nil {
				assert.NotEqual(t, io.EOF, err, "the events that follow are lost")
				return err
			}
			add(string(event))
		}
	}, step(1).CutAt(int64(5*size), ts.Close), step(6))
}

// Each line of a log comes when it was written.
func TestLinesThatComeSlowly(t *testing.T) {
	const line = "a line of a log\n"
	asAlone(t, 1, func(_ *testing.T, body io.Reader, add func(string)) error {
		buf := make([]byte, len(line))
		for {
			if _, err := io.ReadFull(body, buf); err != nil {
				return err
			}
			add(string(buf))
		}
	}, ts.OK(strings.Repeat(line, 20)).Header("Content-Type", "text/plain").Chunked().Drip(len(line), 90*time.Millisecond))
}

// A base transport may wrap all bodies, also that of a HEAD, whose header is that of a GET.
func TestHeadThroughABaseThatWrapsBodies(t *testing.T) {
	const text = "right!"
	for name, rule := range map[string]policy.Rule{"default": {}, "API": profile.API(), "AWS": profile.AWS()} {
		for _, length := range []int64{int64(len(text)), -1} {
			bubble(t, func(t *testing.T) {
				req := newRequest(t, http.MethodHead, "http://h.test/", nil)
				if length < 0 {
					req = req.WithContext(transport.WithIdempotent(req.Context()))
				}
				base := script(func(req *http.Request) (*http.Response, error) {
					resp := newResponse(req, 200, reader(strings.NewReader("")),
						"Content-Digest: "+field256(text), "Repr-Digest: "+field256(text), "X-Amz-Checksum-Crc32c: AAAAAQ==")
					resp.ContentLength = length
					return resp, nil
				})
				got := do(over(t, transport.Config{Rule: rule}, base), req)
				require.NoError(t, got.err, name)
				assert.Equal(t, 200, got.status)
				assert.Empty(t, got.body)
				base.sent(t, 1)
			})
		}
	}
}

// A changing server has another version of its resource now and then, and responds in the ways of
// many servers. It notes what it has sent, and so knows which bytes belong to which header.
type changing struct {
	r        *rand.Rand
	versions []resource
	now      int    // the version at present
	coding   string // of the responses at present; "": none
	coder    bool   // a compressor stands in front of a file server, and compresses parts as well
	constant bool   // the validators stay the same with other bytes. So no part may be believed, and none is sent.
	types    string // the media type
	requests int
	sent     []sending
}

// A resource is a version of the content, and the header that tells of it.
type resource struct {
	plain  string
	header http.Header
}

// A sending is a response to the caller's own request, or with the whole to one for the rest.
type sending struct {
	body   string // up to its end, although it may be cut
	status int
	header http.Header
}

func (s sending) String() string { return fmt.Sprintf("%d %v %.100q", s.status, s.header, s.body) }

func newChanging(r *rand.Rand) *changing {
	c := &changing{r: r, coder: r.IntN(3) == 0, constant: r.IntN(3) == 0}
	c.coding = []string{"", "", "gzip", "br", "Identity"}[r.IntN(5)]
	c.types = []string{"text/plain", "application/json", "application/octet-stream", "application/x-ndjson"}[r.IntN(4)]
	validators := r.IntN(6)
	text := scrambled(r, 1+r.IntN([]int{10, 600, 3000}[r.IntN(3)]))
	for i := range 1 + r.IntN(3) {
		h := http.Header{"Content-Type": {c.types}}
		if r.IntN(3) == 0 {
			h.Set("X-Page", fmt.Sprint(r.IntN(2)))
		}
		id := i
		if c.constant {
			id = 0
		}
		switch validators {
		case 0:
			h.Set("ETag", fmt.Sprintf(`W/"v%d"`, id))
		case 1, 2, 3:
			h.Set("ETag", fmt.Sprintf(`"v%d"`, id))
		case 4:
			h.Set("Last-Modified", fmt.Sprintf("Sat, 01 Jan 2000 0%d:00:00 GMT", id))
		}
		if r.IntN(4) == 0 {
			h.Set("Accept-Ranges", []string{"bytes", "none"}[r.IntN(2)])
		}
		c.versions = append(c.versions, resource{text, h})
		switch at := r.IntN(len(text)); r.IntN(3) {
		case 0: // another byte
			text = text[:at] + scrambled(r, 1) + text[at+1:]
		case 1: // other bytes at the end
			text = text[:at] + scrambled(r, len(text)-at)
		default: // another length
			text = text[:at] + scrambled(r, 1+r.IntN(800))
		}
	}
	return c
}

func scrambled(r *rand.Rand, n int) string {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return string(p)
}

// coded is how s looks in a coding. Texts that begin alike look alike at their beginning. A part
// looks like no part of the whole. In br it even has the same length.
func coded(s, coding string) string {
	if coding != "gzip" && coding != "br" {
		return s
	}
	h := fnv.New32()
	_, _ = h.Write([]byte(s[:min(len(s), 4)] + coding))
	p := []byte(s)
	if coding == "gzip" {
		p = append([]byte{0x1f}, p...)
	}
	for i := range p {
		p[i] ^= byte(h.Sum32()) ^ byte(i)
	}
	return string(p)
}

// RoundTrip responds to the caller's request, or to one for the rest, which has If-Range. The body may
// be cut.
func (c *changing) RoundTrip(req *http.Request) (*http.Response, error) {
	r := c.r
	c.requests++
	if r.IntN(3) == 0 {
		c.now = r.IntN(len(c.versions))
	}
	if r.IntN(8) == 0 {
		c.coding = []string{"", "gzip", "br"}[r.IntN(3)]
	}
	resp := &http.Response{StatusCode: 200, Header: c.versions[c.now].header.Clone(), ContentLength: -1, Request: req, ProtoMajor: 1}
	resp.Header.Set("Date", fmt.Sprintf("Sat, 01 Jan 2020 00:00:%02d GMT", r.IntN(60)))
	resp.Header.Set("X-Request-Id", fmt.Sprint(r.Uint32()))
	if c.coding != "" {
		resp.Header.Set("Content-Encoding", c.coding)
	}
	body, counted, own := c.fill(resp)
	if counted && r.IntN(2) == 0 {
		resp.ContentLength = int64(len(body))
	}
	if own {
		c.sent = append(c.sent, sending{body: body, status: resp.StatusCode, header: resp.Header.Clone()})
	}
	end, err := len(body), io.EOF
	if c.requests == 1 && r.IntN(4) > 0 || r.IntN(3) == 0 {
		end, err = r.IntN(len(body)+1), io.ErrUnexpectedEOF
	}
	resp.Body = testkit.CutAt(body[:end], err)
	return resp, nil
}

// fill chooses one of many ways to respond. It returns the body, and whether its length may be told.
// own reports whether the body is a response to the caller's own request, and not a part of the rest.
func (c *changing) fill(resp *http.Response) (body string, counted, own bool) {
	r, plain, req := c.r, c.versions[c.now].plain, resp.Request
	stored := coded(plain, c.coding)
	file := stored // whose bytes a range counts
	if c.coder {
		file = plain
	}
	asks, check := req.Header.Get("Range"), req.Header.Get("If-Range")
	first, last, asked := parseRange(asks, file)
	way := r.IntN(16)
	if way == 15 || !asked && last > 0 { // another range than that which was asked for
		first = r.IntN(last + 1)
	}
	own = check == ""
	parts := asked && !c.constant && (own || r.IntN(16) > 0 || check == resp.Header.Get("Etag"))
	switch {
	case way == 1:
		resp.StatusCode = []int{404, 503, 203}[r.IntN(3)]
		return "no", true, own
	case way == 2 && !own && !c.constant && asks == fmt.Sprintf("bytes=%d-", len(stored)):
		resp.StatusCode = 416
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes */%d", len(stored)))
		return "", true, false
	case asked && way == 3: // a part that says nothing of it
		return stored[min(first, len(stored)):], true, own || first == 0
	case first <= last && way == 4: // a part with the wrong status
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(file)))
		return coded(plain[min(first, len(plain)):], c.coding), true, own
	case parts && way > 5:
		resp.StatusCode, body = 206, file[first:last+1]
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(file)))
		if c.coder {
			return coded(body, c.coding), c.coding != "br", own // a wrong length would be believed
		}
		return body, true, own
	case !asked && c.coding != "" && r.IntN(3) == 0: // net/http decompresses
		resp.Uncompressed = true
		resp.Header.Del("Content-Encoding")
		return plain, false, own
	}
	return stored, true, true // perhaps instead of the rest
}

// parseRange returns the range that a request asks for, if text has it.
func parseRange(s, text string) (first, last int, ok bool) {
	last = len(text) - 1
	n, _ := fmt.Sscanf(s, "bytes=%d-%d", &first, &last)
	last = min(last, len(text)-1)
	return first, last, n > 0 && first <= last
}

// belongs reports whether the body got, or at least its beginning, is that of a response with this
// status and header. Only the fields that tell of one response may differ.
func (c *changing) belongs(got string, whole bool, status int, header http.Header) bool {
	for _, s := range c.sent {
		s.header["Date"], s.header["X-Request-Id"] = header["Date"], header["X-Request-Id"]
		if s.status == status && reflect.DeepEqual(s.header, header) && (got == s.body || !whole && strings.HasPrefix(s.body, got)) {
			return true
		}
	}
	return false
}

// joins returns a function that downloads from a server that changes, and judges what came. The
// function reports whether a body ended cleanly that had needed a second response.
func joins(t testing.TB) func(t testing.TB, seed uint64) bool {
	var server *changing
	base := rt(func(req *http.Request) (*http.Response, error) { return server.RoundTrip(req) })
	tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 4}.Or(quick)})
	return func(t testing.TB, seed uint64) bool {
		r := rand.New(rand.NewPCG(seed, 24))
		server = newChanging(r)
		req := getRequest(t, "http://h.test/")
		switch size := len(server.versions[0].plain); r.IntN(4) {
		case 0:
			first := r.IntN(size)
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, first+r.IntN(size)))
		case 1:
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-", r.IntN(size)))
		}
		resp := mustRoundTrip(t, tr, req)
		status, header, before := resp.StatusCode, resp.Header.Clone(), server.requests
		body, err := io.ReadAll(resp.Body)
		require.Equal(t, header, resp.Header)
		require.NoError(t, resp.Body.Close())
		require.True(t, server.belongs(string(body), err == nil, status, header),
			"seed %d: %d %v\nhas %d bytes of no response, and then %v: %.100q\nof %v", seed, status, header, len(body), err, body, server.sent)
		return err == nil && server.requests > before
	}
}

// FuzzJoin downloads from servers that change between two responses, or that send parts which are
// none. A reader gets bytes of one response only, and that response has the header which the caller
// has. A clean end is the end of that response.
func FuzzJoin(f *testing.F) {
	join := joins(f)
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { join(t, seed) })
}

// TestJoin is the fuzz target over many seeds, for the normal test.
func TestJoin(t *testing.T) {
	join, continued := joins(t), 0
	seeds := soak.Size[uint64](5_000, 1_000_000)
	for seed := range seeds {
		if join(t, seed) {
			continued++
		}
	}
	t.Logf("%d of %d bodies were continued", continued, seeds)
	assert.Greater(t, continued, int(seeds)/20)
}
