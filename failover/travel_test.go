package failover_test

import (
	"cmp"
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

// A request with a header field or a query parameter that is not known to be harmless stays with the first endpoint,
// unless another allows it by name. It stays also if the first is down.
func TestWhatDoesNotTravel(t *testing.T) {
	const never = "-"
	for _, row := range []struct {
		url, header string
		host        string
		trailer     string
		needs       string // the name to allow, if it is not that of the header; "-": none
	}{
		{header: "Authorization: Bearer x"},
		{header: "authorization: Bearer x"},
		{header: "Cookie: a=b"},
		{header: "Referer: https://c.test/"},
		{header: "Origin: https://c.test"},
		{header: "Baggage: user=x"},
		{header: "Tracestate: x=y"},
		{header: "X-Honeycomb-Team: x"},
		{header: "X-WSSE: x"},
		{header: "X-Custom: ghp_x"},
		{header: "User_Agent: x"},
		{header: "Content-Type-: x"},
		{header: "X-Accept: x"},
		{header: "Accept : x"},
		{header: "Content-Location: x"},
		{header: `If-None-Match: "v1"`},
		{header: "range: bytes=5-"},
		{header: "Last-Event-ID: 5"},
		{header: "Upgrade: websocket"},
		{header: "host: other.test"},
		{host: "other.test", needs: "Host"},
		{trailer: "X-Signature", needs: "X-Signature"},
		{trailer: "Content-Digest", needs: "Content-Digest"},

		{url: "http://user:x@a.test/", needs: "Authorization"},
		{url: "http://a.test/?page=2", needs: "page"},
		{url: "http://a.test/?%73k=x&&sk=y", needs: "sk"},
		{url: "http://a.test/?acl", needs: "ACL"},
		{url: "http://a.test/?accept=x", needs: "accept"},
		{url: "http://a.test/?%zz=x", needs: never},
		{url: "http://a.test/?a=%zz", needs: never},
		{url: "http://a.test/?a=b;sig=x", needs: never},

		{url: "http://a.test/../x", needs: never},
		{url: "http://a.test/..;/x", needs: never},
		{url: "http://a.test/..%5c..%5cetc", needs: never},
		{url: "http://a.test/x/..%5cetc", needs: never},
		{url: "http://a.test/%2e%2E/etc", needs: never},
		{url: "http://a.test/%252e%252e/etc", needs: never},
		{url: "http://a.test/.%2509./etc", needs: never},
	} {
		name, value, _ := strings.Cut(row.header, ": ")
		for _, allowed := range []string{"X-Unrelated", cmp.Or(row.needs, name)} {
			synctest.Test(t, func(t *testing.T) {
				r, _ := two(t, refuses, nil)
				tr := mustNew(t, endpoint("a.test", r), endpoint("b.test", r), endpoint("c.test", r, allowed, strings.ToUpper(allowed)))
				for range 7 { // five of them take the first down
					req := newRequest(t, http.MethodGet, cmp.Or(row.url, "http://a.test/"), nil)
					if row.header != "" {
						req.Header[name] = []string{value} // as the row spells it
					}
					if row.trailer != "" {
						req.Trailer = http.Header{row.trailer: nil}
					}
					if row.host != "" {
						req.Host = row.host
					}
					_, _ = do(tr, req)
				}
				assert.Empty(t, r.at("b.test", 0), "%+v", row)
				travels := allowed == cmp.Or(row.needs, name) && row.needs != never
				all := r.at("c.test", 0)
				assert.Equal(t, travels, len(all) == 7, "%+v with %q", row, allowed)
				if travels && name != "" {
					assert.Equal(t, []string{value}, all[0].req.Header[name], "nothing is stripped")
				}
				if travels && row.host != "" {
					assert.Equal(t, row.host, all[0].req.Host)
				}
			})
		}
	}
}

// These fields travel, and together with them each other name needs its own place in Allow.
func TestWhatTravels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := two(t, refuses, nil)
		tr := mustNew(t, endpoint("a.test", r), endpoint("b.test", r, "X-Tenant", "page"))
		send := func(url string, other ...string) string {
			req := newRequest(t, http.MethodGet, url, nil)
			for _, name := range append(other, "accept", "Accept-Encoding", "Accept-Language", "User-Agent", "Content-Type", "Content-Length",
				"Content-Encoding", "Content-Language", "Content-Digest", "Cache-Control", "traceparent", "Idempotency-Key", "X-Idempotency-Key") {
				req.Header[name] = []string{"Bearer ?x=y"}
			}
			req.Header["X-Forwarded-For"] = nil // is not sent
			return ask(tr, req)
		}
		assert.Equal(t, "200 b.test", send("http://a.test/v..x?"))
		assert.Equal(t, "200 b.test", send("http://a.test/?page=2&page=3", "X-Tenant"))
		assert.Contains(t, send("http://a.test/?page=2", "X-Tenant", "X-Other"), "connection refused")
		assert.Contains(t, send("http://a.test/?page=2&other", "X-Tenant"), "connection refused")
	})
}

// A CONNECT has no path, and its response is a connection. An opaque URL has no path, either.
func TestConnectStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := two(t, refuses, nil)
		opaque := newRequest(t, http.MethodGet, "http://a.test", nil)
		opaque.URL.Opaque = "//a.test/x"
		for _, req := range []*http.Request{newRequest(t, http.MethodConnect, "http://a.test", nil), opaque} {
			_, err := do(r.transport(t, "a.test", "b.test"), req)
			assert.Error(t, err)
			assert.Empty(t, r.at("b.test", 0))
		}
	})
}

// The server may act on a request and reset the connection, and be down when the caller sends the request
// again with its key. An endpoint that doesn't know the key would act as well.
func TestIdempotencyKey(t *testing.T) {
	for _, row := range []struct {
		method string
		key    string
		shared bool
		twice  bool // the caller allows to repeat it
		want   bool // to go elsewhere
	}{
		{method: http.MethodPost, key: "Idempotency-Key"},
		{method: http.MethodPost, key: "idempotency-key"},
		{method: http.MethodPost, key: "X-Idempotency-Key"},
		{method: http.MethodPost, key: "Idempotency-Key", shared: true, want: true},
		{method: http.MethodPost, key: "Idempotency-Key", twice: true, want: true},
		{method: http.MethodPost, key: "X-Other", shared: true},
		{method: http.MethodPut, key: "Idempotency-Key", want: true},
	} {
		for _, ours := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRegions()
				var base http.RoundTripper = r
				if ours {
					base = transport.MustNew(transport.Config{Base: r, Rule: policy.Rule{MaxAttempts: 1}})
				}
				b := endpoint("b.test", base)
				if row.shared {
					b.Allow = []string{"idempotency-key", "X-Other"}
				}
				tr := mustNew(t, endpoint("a.test", base), b)
				r.set("a.test", resets) // it acts before that
				for i := range 8 {
					req := newRequest(t, row.method, "http://a.test/", nil)
					req.Header[row.key] = []string{"1"}
					if row.twice {
						req = req.WithContext(transport.WithIdempotent(req.Context()))
					}
					_, _ = do(tr, req)
					if row.key == "X-Other" && i > 3 {
						break // a refusal of it would be no harm
					}
					if row.key != "X-Other" {
						r.set("a.test", refuses)
					}
				}
				assert.Equal(t, row.want, len(r.at("b.test", 0)) > 0, "%+v, ours: %v", row, ours)
			})
		}
	}
}

// If one of the endpoints does not know the keys of the others, none counts.
func TestKeysAreSharedByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		r.set("a.test", status(503))
		r.set("b.test", status(503))
		tr := mustNew(t, endpoint("a.test", r), endpoint("b.test", r, "Idempotency-Key"), endpoint("c.test", r))
		req := newRequest(t, http.MethodPost, "http://a.test/", nil)
		req.Header.Set("Idempotency-Key", "1")
		assert.Equal(t, "503 a.test", ask(tr, req))
		assert.Empty(t, r.at("b.test", 0))
	})
}

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
			gets(t, tr, 20, "200 a.test")
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
			gets(t, tr, 8, "200 a.test")
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
		takeDown(t, tr)
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
			takeDown(t, tr)
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
				assert.Zero(t, failed, "failed requests")
				return
			}
			assert.Equal(t, 3, failed, "failed requests")
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
		gets(t, tr, 10, "503 a.test")
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

// A probe may fail after another request has ended the outage.
func TestProbeThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := two(t, refuses, nil)
		takeDown(t, tr)
		time.Sleep(2 * time.Second)
		r.set("a.test", rt(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return refuses(req)
		}))
		go func() { assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/")) }()
		time.Sleep(500 * time.Millisecond)
		r.set("a.test", nil)
		assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/?token=x"))
		time.Sleep(time.Second)
		assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/"))
	})
}

// While the first endpoint is down, a response that says that another one does not have the resource proves
// nothing. Before the outage the caller gets the 503 of the first, and later an error.
func TestForeignAnswerDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := two(t, status(503), status(404))
		gets(t, tr, 5, "503 a.test")
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
		tr := mustNew(t, endpoint("a.test", r), endpoint("b.test", r),
			failover.Endpoint{URL: "http://c.test/x", Transport: r})
		r.set("a.test", refuses)
		r.set("b.test", status(503))
		gets(t, tr, 20, "200 c.test")
		assert.Len(t, r.at("a.test", 0), 5)
		assert.Len(t, r.at("b.test", 0), 5)
	})
}

// A request that is to be sent once is not sent to an endpoint that is down, so it goes to the next.
func TestOnceDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, tr := two(t, refuses, nil)
		takeDown(t, tr)
		for _, ctx := range []context.Context{transport.WithoutRetries(t.Context()), t.Context()} {
			assert.Equal(t, "200 b.test", ask(tr, newRequest(t, http.MethodPost, "http://a.test/", nil).WithContext(ctx)))
		}
	})
}

// The last endpoint that is up may go down while a request looks for one.
func TestLastGoesDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := two(t, refuses, nil)
		var tr *failover.Transport
		calls := 0
		ours := transport.MustNew(transport.Config{Base: r, Rule: policy.Rule{MaxAttempts: 1, Idempotent: func(*http.Request) bool {
			if calls++; calls == 2 { // the request asks whether it is the one to try A
				takeDown(t, tr)
			}
			return true
		}}})
		tr = pair(t, ours, r)
		gets(t, tr, 5, "200 b.test")
		time.Sleep(2 * time.Second)
		r.set("b.test", status(503))
		calls = 0
		assert.Contains(t, get(t, tr, "http://a.test/"), "connection refused")
		assert.Greater(t, calls, 2)
	})
}
