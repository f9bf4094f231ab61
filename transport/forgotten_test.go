package transport_test

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A hoarder is a base transport that refers to all requests, and to what the caller gets.
type hoarder struct {
	text  string // of the responses
	field string // of their headers
	sent  []*http.Request
	got   []*http.Response // what the caller gets
}

func (h *hoarder) RoundTrip(req *http.Request) (*http.Response, error) {
	h.sent = append(h.sent, req)
	if req.Body != nil {
		_, _ = io.CopyN(io.Discard, req.Body, 2*replay.Small)
	}
	resp := newResponse(req, 200, io.NopCloser(struct{ io.Reader }{strings.NewReader(h.text)}), h.field)
	resp.ContentLength = int64(len(h.text))
	return resp, nil
}

// A forgotten Transport is garbage, also if its base refers to bodies whose memory was
// counted. The cleanup of such a body must not lead to the Transport, because then the body
// would never become garbage either.
func TestForgottenTransportIsGarbage(t *testing.T) {
	const size = 1 << 20
	text := strings.Repeat("x", size)
	for _, c := range []struct {
		name string
		rule policy.Rule
		base hoarder
		put  bool
	}{
		{"an awaited body", policy.Rule{Download: policy.Download{Memory: 2 * size}}, hoarder{text: text, field: "Content-Type: text/plain"}, false},
		{"a request's body", policy.Rule{}, hoarder{field: "Content-Type: text/plain"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			left := func() weak.Pointer[hoarder] {
				base := new(hoarder)
				*base = c.base
				tr := mustNew(t, transport.Config{Rule: c.rule, Base: base})
				req := newRequest(t, http.MethodGet, "http://h.test/", nil)
				if c.put {
					req.Method, req.Body, req.ContentLength = http.MethodPut, io.NopCloser(struct{ io.Reader }{strings.NewReader(text)}), size
				}
				resp := mustRoundTrip(t, tr, req)
				_, _ = resp.Body.Read(make([]byte, 10))
				base.got = append(base.got, resp)
				return weak.Make(base)
			}()
			for range 1000 {
				if runtime.GC(); left.Value() == nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
			t.Error("the Transport is still there")
		})
	}
}
