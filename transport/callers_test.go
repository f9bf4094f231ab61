// Callers who are slow, single faults that nobody else is to feel, and Transports that are forgotten.

package transport_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// takesAll is a server that reads the request's body, and responds after 20 ms.
func takesAll(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		read := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, req.Body); close(read) }()
		select {
		case <-read:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
		_ = req.Body.Close()
	}
	return play(req, faults.Status(200).Delay(20*time.Millisecond))
}

// TestSlowCallersHoldUpNobody: uploads that wait for their callers take no slots from other
// requests, whether a caller sends nothing at all or a byte now and then.
func TestSlowCallersHoldUpNobody(t *testing.T) {
	rules := map[string]policy.Rule{
		"timeouts": {AttemptTimeout: time.Second, StallTimeout: time.Second, Concurrency: policy.Concurrency{Max: 50}},
		"limiter":  {Concurrency: policy.Concurrency{Max: 50}},
	}
	for name, rule := range rules {
		for kind, uploads := range map[string]struct {
			n     int
			every time.Duration
		}{"idle": {10, 0}, "a trickle": {20, 30 * time.Millisecond}, "a slow trickle": {20, time.Second}} {
			for _, method := range []string{http.MethodPut, http.MethodPost} {
				inBubble(t, name+" "+kind+" "+method, func(t *testing.T) {
					tr := mustNew(t, transport.Config{Base: rt(takesAll), Rule: rule})
					ctx, stop := context.WithTimeout(t.Context(), 15*time.Second)
					defer stop()
					var all sync.WaitGroup
					for range uploads.n {
						all.Go(func() {
							r, w := io.Pipe()
							if uploads.every > 0 {
								go func() {
									for {
										time.Sleep(uploads.every)
										if _, err := w.Write([]byte("x")); err != nil {
											return
										}
									}
								}()
							}
							defer context.AfterFunc(ctx, func() { _ = w.Close() })()
							resp, err := tr.RoundTrip(newRequest(t, method, "http://h.test/", r))
							if assert.NoError(t, err) {
								_ = resp.Body.Close()
							}
						})
					}
					var done atomic.Int32
					for ctx.Err() == nil {
						time.Sleep(10 * time.Millisecond)
						all.Go(func() {
							if _, err := send(t, tr, http.MethodGet, "http://h.test/"); err == nil && ctx.Err() == nil {
								done.Add(1)
							}
						})
					}
					t.Logf("%d of 1500 GETs", done.Load())
					assert.GreaterOrEqual(t, done.Load(), int32(1200))
					all.Wait()
					assert.Zero(t, stateOf(t, tr).ConcurrencyInUse, "slots in use")
					time.Sleep(time.Minute)
				})
			}
		}
	}
}

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
