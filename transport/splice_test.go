// Bodies whose validators never change although their bytes do.

package transport_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

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
