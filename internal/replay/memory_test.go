package replay

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Only a GetBody of net/http itself is known to make bodies that share nothing. Only the
// Close of a NopCloser is known to do nothing.
func TestIndependent(t *testing.T) {
	of := func(body io.Reader) *http.Request { return put(t, body) }
	own := func(req *http.Request) *http.Request {
		made := req.GetBody
		req.GetBody = func() (io.ReadCloser, error) { return made() }
		return req
	}
	replaced := func(body io.ReadCloser) *http.Request {
		req := of(strings.NewReader("text"))
		req.Body = body
		return req
	}
	for name, row := range map[string]struct {
		req  *http.Request
		want bool
	}{
		"bytes.Buffer":               {of(bytes.NewBufferString("text")), true},
		"bytes.Reader":               {of(bytes.NewReader([]byte("text"))), true},
		"strings.Reader":             {of(strings.NewReader("text")), true},
		"replaced in memory":         {replaced(io.NopCloser(bytes.NewReader([]byte("text")))), true},
		"replaced by another reader": {replaced(io.NopCloser(bufio.NewReader(strings.NewReader("text")))), true},
		"replaced by another type":   {replaced(oneShot("text")), false},
		"another GetBody":            {own(of(strings.NewReader("text"))), false},
		"no GetBody":                 {of(struct{ io.Reader }{strings.NewReader("text")}), false},
		"in a NopCloser, no GetBody": {of(io.NopCloser(strings.NewReader("text"))), false},
	} {
		assert.Equal(t, row.want, Independent(row.req), name)
	}
}

// A body in memory costs nothing before the first retry. A retry then costs a reader
// and its NopCloser, which net/http's own GetBody allocates as well.
func TestCopiesAllocate(t *testing.T) {
	var pool Pool
	for name, row := range map[string]struct {
		req   *http.Request
		first float64 // allocations up to the first attempt
	}{
		"GetBody":    {put(t, strings.NewReader("text")), 0},
		"no GetBody": {put(t, io.NopCloser(bytes.NewReader([]byte("text")))), 3},
	} {
		for attempts := 1; attempts <= 3; attempts++ {
			want := row.first + 2*float64(attempts-1)
			assert.Equal(t, want, testing.AllocsPerRun(100, func() {
				b := New(row.req, 1<<20, &pool)
				for n := 1; n <= attempts; n++ {
					if n > 1 {
						_, _ = b.TakeBack(context.Background(), MaxBusy)
					}
					b.Next(context.Background(), n)
				}
			}), "%s, %d attempts", name, attempts)
		}
	}
}
