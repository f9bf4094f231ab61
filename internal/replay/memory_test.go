package replay

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Only a GetBody of net/http itself over a body in memory is known to make
// bodies that share nothing.
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
		"replaced by another type":   {replaced(oneShot("text")), false},
		"another GetBody":            {own(of(strings.NewReader("text"))), false},
		"no GetBody":                 {of(struct{ io.Reader }{strings.NewReader("text")}), false},
		"in a NopCloser, no GetBody": {of(io.NopCloser(strings.NewReader("text"))), false},
	} {
		assert.Equal(t, row.want, Independent(row.req), name)
	}
}
