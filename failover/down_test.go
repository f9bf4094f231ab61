package failover_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// While the first endpoint is down, every request is answered by the second at once, and one request at a
// time finds out whether the first is back. When it is, requests are back within 2 s.
func TestOutage(t *testing.T) {
	for name, row := range map[string]struct {
		down  http.RoundTripper
		probe time.Duration // how long one takes
	}{
		"refused": {refuses, 5 * time.Millisecond},
		"503":     {status(503), 5 * time.Millisecond},
		"502":     {status(502), 5 * time.Millisecond},
		"504":     {status(504), 5 * time.Millisecond},
		"silent":  {hangs, 5 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			r, tr := two(t, nil, nil)
			for range 20 {
				assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/"))
			}
			assert.Empty(t, r.at("b.test", 0))

			r.set("a.test", row.down)
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() { assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/")) })
			}
			all.Wait()
			from := r.now()
			slow := 0
			for range 100 { // 10 s, and the time of the probes
				for range 8 {
					all.Go(func() {
						sent := r.now()
						assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
						if r.now()-sent > 50*time.Millisecond {
							slow++
						}
					})
				}
				time.Sleep(100 * time.Millisecond)
			}
			all.Wait()
			tries := r.at("a.test", from)
			assert.NotEmpty(t, tries)
			for i := range tries[1:] {
				assert.GreaterOrEqual(t, tries[i+1].at-tries[i].at, row.probe+max(time.Second, row.probe))
			}
			assert.LessOrEqual(t, slow, len(tries), "nobody else waits")

			r.set("a.test", nil)
			time.Sleep(row.probe)
			from = r.now()
			for r.now() < from+row.probe+2*time.Second {
				assert.Contains(t, get(t, tr, "http://a.test/"), "200 ")
				time.Sleep(50 * time.Millisecond)
			}
			from = r.now()
			for range 8 {
				assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/"))
			}
			assert.Empty(t, r.at("b.test", from))
		})
	}
}

// Five failures in a row are an outage. What is no failure of the endpoint does not count.
func TestWhatCounts(t *testing.T) {
	short := func(t *testing.T, tr http.RoundTripper) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := do(tr, newRequest(t, http.MethodPost, "http://a.test/", nil).WithContext(ctx))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	}
	leaves := func(t *testing.T, tr http.RoundTripper) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := do(tr, newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx))
		assert.ErrorIs(t, err, context.Canceled)
	}
	causes := func(t *testing.T, tr http.RoundTripper) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(errors.New("enough")) })
		_, err := do(tr, newRequest(t, http.MethodPost, "http://a.test/", nil).WithContext(ctx))
		assert.ErrorContains(t, err, "enough")
	}
	cancels := func(t *testing.T, tr http.RoundTripper) {
		req, canceled := newRequest(t, http.MethodGet, "http://a.test/", nil), make(chan struct{})
		//lint:ignore SA1019 old callers still set Request.Cancel
		req.Cancel = canceled
		close(canceled)
		_, err := do(tr, req)
		assert.ErrorContains(t, err, "request canceled")
	}
	plain := func(t *testing.T, tr http.RoundTripper) { get(t, tr, "http://a.test/") }
	post := func(t *testing.T, tr http.RoundTripper) {
		_, _ = do(tr, newRequest(t, http.MethodPost, "http://a.test/", strings.NewReader("body")))
	}
	stays := func(t *testing.T, tr http.RoundTripper) { get(t, tr, "http://a.test/?token=x") }
	for name, row := range map[string]struct {
		a    http.RoundTripper
		send func(*testing.T, http.RoundTripper)
		want bool
	}{
		"refused":             {refuses, plain, true},
		"reset":               {resets, plain, true},
		"silent":              {hangs, plain, true},
		"unknown error":       {fail(errors.New("unknown")), plain, true},
		"503":                 {status(503), plain, true},
		"503 to a POST":       {status(503), post, true},
		"503 that stays":      {status(503), stays, true},
		"500":                 {status(500), plain, false},
		"404":                 {status(404), plain, false},
		"429":                 {status(429), plain, false},
		"no HTTP":             {fail(errors.New(`net/http: invalid header field name "a b"`)), plain, false},
		"the caller's time":   {hangs, short, false},
		"the caller leaves":   {hangs, leaves, false},
		"the caller's cause":  {hangs, causes, false},
		"Request.Cancel":      {fail(errors.New("net/http: request canceled")), cancels, false},
		"canceled below":      {fail(context.Canceled), plain, false},
		"one success between": {sequence(refuses, refuses, refuses, refuses, status(404), refuses, refuses, refuses, refuses, status(200)), plain, false},
	} {
		bubble(t, name, func(t *testing.T) {
			for n := 4; n <= 5; n++ {
				r, tr := two(t, row.a, nil)
				for range n {
					row.send(t, tr)
				}
				if name == "one success between" {
					for range 4 {
						row.send(t, tr)
					}
				}
				if name == "Request.Cancel" {
					assert.Empty(t, r.at("b.test", 0))
				}
				before := len(r.at("a.test", 0))
				get(t, tr, "http://a.test/")
				assert.Equal(t, row.want && n == 5, len(r.at("a.test", 0)) == before, "%d requests", n)
			}
		})
	}
}

// A probe whose caller leaves proves nothing, so the next request is a probe at once.
func TestProbeWhoseCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := two(t, refuses, nil)
		for range 5 {
			get(t, tr, "http://a.test/")
		}
		time.Sleep(2 * time.Second)
		r.set("a.test", nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := do(tr, newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx))
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/"))
	})
}

// A POST that finds out that the endpoint is still down fails, so others go before it. If there are only
// POSTs, one per 10 s does so.
func TestPostsProbeRarely(t *testing.T) {
	for name, others := range map[string]bool{"among others": true, "alone": false} {
		bubble(t, name, func(t *testing.T) {
			r, tr := two(t, status(503), nil)
			for range 5 {
				get(t, tr, "http://a.test/")
			}
			failed := 0
			for range 300 { // 30 s
				if result, _ := do(tr, newRequest(t, http.MethodPost, "http://a.test/", nil)); result != "200 b.test" {
					failed++
				}
				if others {
					assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
				}
				time.Sleep(100 * time.Millisecond)
			}
			if others {
				assert.Zero(t, failed)
				return
			}
			assert.Equal(t, 3, failed)
			r.set("a.test", nil)
			time.Sleep(11 * time.Second)
			assert.Equal(t, "200 a.test", ask(tr, newRequest(t, http.MethodPost, "http://a.test/", nil)))
		})
	}
}

// If all endpoints are down, requests go to them as if none were.
func TestAllDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := two(t, status(503), refuses)
		for range 10 {
			assert.Equal(t, "503 a.test", get(t, tr, "http://a.test/"))
		}
		assert.Len(t, r.at("a.test", 0), 10)
		assert.Len(t, r.at("b.test", 0), 10)
		r.set("a.test", hangs)
		r.set("b.test", nil)
		assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"), "the first is bounded")
		r.set("a.test", refuses)
		assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
		assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
		assert.Len(t, r.at("a.test", 0), 12, "it is down, and the other is not")
	})
}

// A request that stays goes to its endpoint also if that is down, and its success ends the outage.
func TestWhoStaysEndsTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := two(t, status(503), nil)
		for range 5 {
			get(t, tr, "http://a.test/?token=x")
		}
		assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
		assert.Equal(t, "503 a.test", get(t, tr, "http://a.test/?token=x"))
		r.set("a.test", nil)
		assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
		assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/?token=x"))
		assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/"))
	})
}

// While the first endpoint is down, a response that says that another one does not have the resource proves
// nothing. Before the outage the caller gets the 503 of the first, and later an error.
func TestForeignAnswerDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := two(t, status(503), status(404))
		for range 5 {
			assert.Equal(t, "503 a.test", get(t, tr, "http://a.test/"))
		}
		assert.Equal(t, "failover: http://a.test is down, and http://b.test answered 404", get(t, tr, "http://a.test/"))
		r.set("b.test", status(409))
		assert.Equal(t, "409 b.test", get(t, tr, "http://a.test/"))
		r.set("b.test", status(503))
		assert.Equal(t, "503 b.test", get(t, tr, "http://a.test/"))
	})
}

// A third endpoint takes over if the second is down as well.
func TestThirdEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		tr := mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: r}, failover.Endpoint{URL: "http://b.test", Transport: r},
			failover.Endpoint{URL: "http://c.test/x", Transport: r})
		r.set("a.test", refuses)
		r.set("b.test", status(503))
		for range 20 {
			assert.Equal(t, "200 c.test", get(t, tr, "http://a.test/"))
		}
		assert.Len(t, r.at("a.test", 0), 5)
		assert.Len(t, r.at("b.test", 0), 5)
	})
}

// A request that is to be sent once is not sent to an endpoint that is down, so it goes to the next.
func TestOnceDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, tr := two(t, refuses, nil)
		for range 5 {
			get(t, tr, "http://a.test/")
		}
		for _, ctx := range []context.Context{transport.Once(t.Context()), t.Context()} {
			assert.Equal(t, "200 b.test", ask(tr, newRequest(t, http.MethodPost, "http://a.test/", nil).WithContext(ctx)))
		}
	})
}

// The last endpoint that is up may go down while a request looks for one.
func TestLastGoesDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", refuses)
		var tr *failover.Transport
		calls := 0
		ours := transport.MustNew(transport.Config{Base: r, Rule: policy.Rule{Attempts: 1, Idempotent: func(*http.Request) bool {
			if calls++; calls == 2 { // the request asks whether it is the one to try A
				for range 5 {
					get(t, tr, "http://a.test/")
				}
			}
			return true
		}}})
		tr = pair(t, ours, r)
		for range 5 {
			assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
		}
		time.Sleep(2 * time.Second)
		r.set("b.test", status(503))
		calls = 0
		assert.Contains(t, get(t, tr, "http://a.test/"), "connection refused")
		assert.Greater(t, calls, 2)
	})
}
