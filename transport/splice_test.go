// Bodies whose validators never change although their bytes do.

package transport_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

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

// A 200 in the place of a 206 continues the body if its first bytes are those that the reader
// has. The bytes are kept only up to MaxRefetch, and not if the server promised ranges.
func TestWholeResponseIsCompared(t *testing.T) {
	for name, row := range map[string]struct {
		rule   policy.Rule
		header string
		second string
		whole  bool
	}{
		"the same":          {second: "0123456789", whole: true},
		"another beginning": {second: "x123456789"},
		"another last byte": {second: "0123x56789"},
		"shorter":           {second: "012"},
		"up to Again":       {rule: policy.Rule{MaxRefetch: 5}, second: "0123456789", whole: true},
		"beyond Again":      {rule: policy.Rule{MaxRefetch: 4}, second: "0123456789"},
		"Again is off":      {rule: policy.Rule{MaxRefetch: policy.Off}, second: "0123456789"},
		"Accept-Ranges":     {header: "Accept-Ranges: bytes", second: "0123456789"},
	} {
		inBubble(t, name, func(t *testing.T) {
			header := []string{`ETag: "v1"`, row.header}
			base := script(ofTen(cutWith(io.ErrUnexpectedEOF, "01234", header...)), ofTen(cutWith(io.EOF, row.second, header...)))
			got := do(over(t, transport.Config{Rule: row.rule.Or(quick)}, base), newRequest(t, http.MethodGet, "http://h.test/", nil))
			assert.Equal(t, "bytes=5-", base.reqs[1].Header.Get("Range"))
			if row.whole {
				assert.NoError(t, got.err)
				assert.Equal(t, row.second, got.body)
				return
			}
			assert.Equal(t, io.ErrUnexpectedEOF, got.err)
			assert.Equal(t, "01234", got.body)
		})
	}
}

// ofTen is an answer of ten bytes.
func ofTen(serve answer) answer {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := play(req, serve)
		resp.ContentLength = 10
		return resp, err
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
