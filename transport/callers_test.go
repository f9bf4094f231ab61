package transport_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
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
		"timeouts": {AttemptTimeout: time.Second, Stall: policy.Stall{Timeout: time.Second}, Gate: policy.Gate{Max: 50}},
		"gate":     {Gate: policy.Gate{Max: 50}},
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
					assert.Zero(t, stateOf(t, tr).GateSlots)
					time.Sleep(time.Minute)
				})
			}
		}
	}
}

// TestStreamsLeaveTheGate: streams take no slots from other requests.
func TestStreamsLeaveTheGate(t *testing.T) {
	for kind, header := range map[string][]string{
		"event stream":     {"Content-Type: Text/Event-Stream; charset=utf-8"},
		"without a length": nil,
	} {
		inBubble(t, kind, func(t *testing.T) {
			tr := mustNew(t, transport.Config{Rule: policy.Rule{Gate: policy.Gate{Max: 50}}, Base: rt(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/plain" {
					return play(req, faults.Status(200))
				}
				r, w := io.Pipe()
				go func() {
					for {
						time.Sleep(20 * time.Second)
						if _, err := w.Write([]byte("data: x\n\n")); err != nil {
							return
						}
					}
				}()
				return newResponse(req, 200, r, header...), nil
			})})
			var streams sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for range 50 {
				streams.Go(func() {
					resp, err := get(t, tr, ctx)
					if assert.NoError(t, err) {
						defer context.AfterFunc(ctx, func() { _ = resp.Body.Close() })()
						_, _ = io.Copy(io.Discard, resp.Body)
					}
				})
			}
			slowest := time.Duration(0)
			for range 400 {
				time.Sleep(time.Second)
				began := time.Now()
				within, done := context.WithTimeout(t.Context(), 10*time.Second)
				resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/plain", nil).WithContext(within))
				done()
				require.NoError(t, err)
				_ = resp.Body.Close()
				slowest = max(slowest, time.Since(began))
			}
			t.Logf("the slowest plain GET took %v", slowest)
			assert.LessOrEqual(t, slowest, time.Second)
			stop()
			streams.Wait()
			synctest.Wait() // the bodies are closed beside their Reads
			assert.Zero(t, stateOf(t, tr).GateSlots)
			time.Sleep(time.Minute)
		})
	}
}
