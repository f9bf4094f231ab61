package route

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/rules"
)

// A tripper is a base transport.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// makerOf returns a Maker whose other pools are all lane.
func makerOf(lane http.RoundTripper) *Maker {
	return NewMaker(nil, func(string) http.RoundTripper { return lane }, nil)
}

// An upload tells of its Close.
type upload struct {
	io.Reader
	closed bool
}

func (u *upload) Close() error { u.closed = true; return nil }

// TestTrialWithoutConnection tries a pool that gets no connection: the dial fails, its context ends
// first, or its caller leaves in another way. Only after a failed dial it goes over the base.
func TestTrialWithoutConnection(t *testing.T) {
	for name, back := range map[string]bool{"refused": true, "silent": true, "late": true, "context": false, "Cancel": false} {
		synctest.Test(t, func(t *testing.T) {
			body, sent, most := &upload{Reader: strings.NewReader("text")}, 0, time.Second
			base := tripper(func(req *http.Request) (*http.Response, error) {
				sent++
				assert.False(t, body.closed, name)
				_ = req.Body.Close()
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
			})
			dialling := tripper(func(req *http.Request) (*http.Response, error) {
				if name == "late" { // it fetches a token first
					time.Sleep(most)
					most += time.Second / 2
				}
				trace := httptrace.ContextClientTrace(req.Context())
				trace.GetConn("h.test:80")
				defer req.Body.Close()
				if name == "refused" {
					trace.ConnectDone("tcp", "h.test:80", syscall.ECONNREFUSED)
					return nil, errors.New("connection refused")
				}
				time.AfterFunc(5*time.Second, func() { trace.ConnectDone("tcp", "h.test:80", nil) })
				select {
				case <-req.Context().Done():
				//lint:ignore SA1019 old callers still set Request.Cancel
				case <-req.Cancel:
				}
				return nil, errors.New("no connection")
			})
			var pools pool.Pools
			over := pools.Other(0, nil)
			tr := &Trial{
				registry: new(exchange.Registry), maker: makerOf(dialling), base: base, pools: &pools, to: over, back: pools.Current(),
				patience: time.Second, Restart: func(p *pool.Pool) { over = p },
			}
			tr.registry.Prepare(func(*host.State[rules.Resolved]) {})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://h.test/", body)
			require.NoError(t, err)
			canceled := make(chan struct{})
			//lint:ignore SA1019 old callers still set Request.Cancel
			req.Cancel = canceled
			if name == "context" || name == "Cancel" {
				time.AfterFunc(time.Second/2, func() {
					if name == "Cancel" {
						close(canceled)
					} else {
						cancel()
					}
				})
			}
			start := time.Now()
			resp, err := tr.RoundTrip(req)
			assert.Equal(t, back, err == nil, name)
			assert.Equal(t, back, sent == 1, name)
			assert.Equal(t, back, over == tr.back, name)
			assert.True(t, body.closed, name)
			assert.LessOrEqual(t, time.Since(start), most, name)
			if back {
				assert.Same(t, req, resp.Request)
				assert.False(t, tr.to.IsDue(tr.registry.Now()), name)
			}
			time.Sleep(6 * time.Second)
			assert.Equal(t, name != "refused", tr.to.IsDue(tr.registry.Now()), "%s: a dial may still succeed", name)
			time.Sleep(time.Minute)
		})
	}
}

// TestTrialsOfOnePool begins two attempts over a pool. The second may wait for the connection that the
// first makes. If there is no transport for the pool, it waits for nothing, and both go over the base.
func TestTrialsOfOnePool(t *testing.T) {
	lane := tripper(func(req *http.Request) (*http.Response, error) {
		trace := httptrace.ContextClientTrace(req.Context())
		trace.GetConn("h.test:80")
		time.Sleep(300 * time.Millisecond)
		trace.GotConn(httptrace.GotConnInfo{})
		trace.WroteHeaders()
		select {
		case <-time.After(2 * time.Second): // longer than it has time for the connection
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	})
	broken := tripper(func(req *http.Request) (*http.Response, error) {
		trace := httptrace.ContextClientTrace(req.Context())
		trace.GetConn("h.test:80")
		trace.GotConn(httptrace.GotConnInfo{})
		return nil, syscall.ECONNRESET
	})
	for name, row := range map[string]struct {
		lane  http.RoundTripper
		waits bool
		http1 bool
		took  [2]time.Duration
	}{
		"it was sent":         {broken, true, false, [2]time.Duration{}},
		"no transport":        {nil, true, false, [2]time.Duration{time.Minute, time.Minute}},
		"the second waits":    {lane, true, false, [2]time.Duration{2300 * time.Millisecond, 2600 * time.Millisecond}},
		"the second does not": {lane, false, false, [2]time.Duration{2300 * time.Millisecond, time.Minute}},
		// The response takes longer than the second has time, but there is a connection.
		"HTTP/1.1": {lane, true, true, [2]time.Duration{2300 * time.Millisecond, 2750 * time.Millisecond}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var pools pool.Pools
			over := pools.Other(0, nil)
			registry := new(exchange.Registry)
			registry.Prepare(func(*host.State[rules.Resolved]) {})
			base := tripper(func(req *http.Request) (*http.Response, error) {
				time.Sleep(time.Minute)
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
			})
			for i := range row.took {
				go func() {
					tr := &Trial{
						registry: registry, maker: makerOf(row.lane), base: base, pools: &pools, to: over, back: pools.Current(),
						patience: time.Second, waits: row.waits, http1: row.http1, Restart: func(*pool.Pool) {},
					}
					start := time.Now()
					_, err := tr.RoundTrip(getRequest(t, "http://h.test/"))
					assert.Equal(t, name == "it was sent", err != nil, name)
					assert.Equal(t, row.took[i], time.Since(start), "%s: attempt %d", name, i)
				}()
				synctest.Wait()
			}
			time.Sleep(2 * time.Minute)
		})
	}
}
