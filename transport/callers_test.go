// Callers who are slow, single faults that nobody else is to feel, and Transports that are forgotten.

package transport_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/soak"
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

// TestFailuresAtRandom is retry_sim of github.com/mbrooker/simulator_example for one of its clients:
// ten requests per second to a server where each attempt fails with the same probability. The
// success is what it was before the budget had a rest, which begins only if hardly anything
// succeeds.
func TestFailuresAtRandom(t *testing.T) {
	for failure, before := range map[float64]float64{0.1: 1, 0.3: 0.999, 0.5: 0.752, 0.7: 0.452, 0.9: 0.147} {
		t.Run(fmt.Sprint(failure), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(100*failure)))
				var mu sync.Mutex // guards rng
				var sent, good atomic.Int64
				base := faults.New(nil, func(*http.Request) faults.Step {
					sent.Add(1)
					mu.Lock()
					defer mu.Unlock()
					if rng.Float64() < failure {
						return faults.Status(503)
					}
					good.Add(1)
					return faults.Status(200)
				})
				requests := soak.Size(3000, 30_000)
				steady(t, mustNew(t, transport.Config{Base: base}), 100*time.Millisecond, time.Duration(requests)*100*time.Millisecond, "http://api.test")
				success, load := float64(good.Load())/float64(requests), float64(sent.Load())/float64(requests)
				t.Logf("failure %.1f: success %.3f, load %.3f", failure, success, load)
				assert.GreaterOrEqual(t, success, before-0.03)
			})
		})
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
// counted.
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

// steady sends requests at a steady rate, each in a goroutine of its own.
func steady(t *testing.T, rt http.RoundTripper, every, during time.Duration, uri string) {
	var all sync.WaitGroup
	for range int(during / every) {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, uri, nil)
			if assert.NoError(t, err) {
				if resp, err := rt.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
				}
			}
		})
		time.Sleep(every)
	}
	all.Wait()
}
