// Bodies that were cut and have no rest to ask for.

package transport_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
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
