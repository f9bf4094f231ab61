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
	"github.com/aplomb-go/aplomb/transport"
)

// A hoarder is a base transport that refers to all requests, and to what the caller gets.
type hoarder struct {
	sent []*http.Request
	got  []*http.Response // what the caller gets
}

func (h *hoarder) RoundTrip(req *http.Request) (*http.Response, error) {
	h.sent = append(h.sent, req)
	_, _ = io.CopyN(io.Discard, req.Body, 2*replay.Small)
	return newResponse(req, 200, http.NoBody), nil
}

// A forgotten Transport is garbage, also if its base refers to bodies whose memory was
// counted. The cleanup of such a body must not lead to the Transport, because then the body
// would never become garbage either.
func TestForgottenTransportIsGarbage(t *testing.T) {
	const size = 1 << 20
	left := func() weak.Pointer[hoarder] {
		base := new(hoarder)
		tr := mustNew(t, transport.Config{Base: base})
		body := io.NopCloser(struct{ io.Reader }{strings.NewReader(strings.Repeat("x", size))})
		req := newRequest(t, http.MethodPut, "http://h.test/", body)
		req.ContentLength = size
		base.got = append(base.got, mustRoundTrip(t, tr, req))
		return weak.Make(base)
	}()
	for range 1000 {
		if runtime.GC(); left.Value() == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the Transport is still there")
}
