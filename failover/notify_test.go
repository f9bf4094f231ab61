package failover_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/policy"
)

// heard is what the functions Notify of some endpoints heard.
type heard struct {
	mu  sync.Mutex
	all []string
}

// by returns a Notify.
func (h *heard) by(name string) func(bool, error) {
	return func(up bool, why error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, fmt.Sprint(name, " ", up, " ", why))
	}
}

// take returns what was heard since the last take.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.all
	h.all = nil
	return all
}

// Notify of each endpoint hears once that it is down, and why, and once that it is back.
func TestNotify(t *testing.T) {
	for why, down := range map[string]http.RoundTripper{
		"503 Service Unavailable":      status(503),
		"dial tcp: connection refused": refuses,
		"no response in time from":     hangs,
	} {
		bubble(t, why, func(t *testing.T) {
			r, h := newRegions(), &heard{}
			tr := mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: r, Notify: h.by("a")},
				failover.Endpoint{URL: "http://b.test", Transport: r, Notify: h.by("b"), Allow: []string{"q"}})
			r.set("a.test", down)
			for range 4 {
				get(t, tr, "http://a.test/?q=secret")
			}
			assert.Empty(t, h.take())
			get(t, tr, "http://a.test/?q=secret")
			all := h.take()
			require.Len(t, all, 1)
			assert.Regexp(t, "^a false .*"+strings.ReplaceAll(why, " ", ".*"), all[0])
			assert.NotContains(t, all[0], "secret")
			for range 100 { // some of them find out that it is not back
				get(t, tr, "http://a.test/")
				time.Sleep(100 * time.Millisecond)
			}
			assert.Empty(t, h.take())
			r.set("b.test", status(502))
			takeDown(t, tr)
			assert.Equal(t, []string{"b false 502 Bad Gateway"}, h.take())
			r.set("a.test", nil)
			time.Sleep(10 * time.Second)
			get(t, tr, "http://a.test/")
			get(t, tr, "http://a.test/")
			assert.Equal(t, []string{"a true <nil>"}, h.take())
		})
	}
}

// The first endpoint's Notify hears each name that keeps requests there once, also while it is up.
func TestNotifyOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newRegions(), &heard{}
		endpoints := []failover.Endpoint{{URL: "http://a.test", Transport: r, Notify: h.by("a")},
			{URL: "http://b.test", Transport: r, Notify: h.by("b"), Allow: []string{"Authorization", "page"}}}
		tr := mustNew(t, endpoints...)
		long := strings.Repeat("x", 65)
		for _, row := range []struct {
			method, url string
			header      []string
			want        string // the names
		}{
			{url: "http://a.test/", header: []string{"Accept", "Authorization"}},
			{url: "http://a.test/?page=2", header: []string{"Authorization", "X-Tenant"}, want: "X-Tenant"},
			{url: "http://a.test/?page=2&sort=x", header: []string{"x-tenant"}, want: "sort"},
			{url: "http://a.test/?SORT=y&t0ken", want: "?"},
			{url: "http://a.test/?another&%0a=x&" + long + "=x"},
			{url: "http://a.test/../x", header: []string{"X-Other"}},
			{method: http.MethodPut, url: "http://a.test/", header: []string{"Idempotency-Key"}},
			{method: http.MethodPost, url: "http://a.test/", header: []string{"X-Idempotency-Key"}, want: "Idempotency-Key"},
			{url: "http://c.test/?foreign=x"},
		} {
			req := newRequest(t, row.method, row.url, nil)
			for _, name := range row.header {
				req.Header[name] = []string{"secret"}
			}
			assert.Contains(t, ask(tr, req), "200 ")
			var want []string
			if row.want != "" {
				want = []string{"a true " + row.want + ": keeps requests with http://a.test, because an Allow lacks it"}
			}
			assert.Equal(t, want, h.take(), "%+v", row)
		}
		for i := range 100 {
			get(t, tr, fmt.Sprintf("http://a.test/?n%d=x", i))
		}
		assert.Len(t, h.take(), 64-4, "and not more")

		get(t, mustNew(t, endpoints[0]), "http://a.test/?page=2")
		get(t, mustNew(t, append(endpoints, endpoint("c.test", r, "sort"))...), "http://a.test/?sort=x")
		assert.Empty(t, h.take(), "there is none, or another allows it")

		var why error
		endpoints[0].Notify = func(_ bool, err error) { why = err }
		get(t, mustNew(t, endpoints...), "http://a.test/?sort=x")
		var field *policy.FieldError
		require.ErrorAs(t, why, &field)
		assert.Equal(t, "sort", field.Field)
	})
}

// Notify is called by one goroutine at a time, and hears the last change. It may send requests itself, and other requests do
// not wait for it.
func TestNotifyOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		var tr *failover.Transport
		var calls, inside, slow atomic.Int32
		last := true
		tr = mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: r, Notify: func(up bool, _ error) {
			calls.Add(1)
			assert.Equal(t, int32(1), inside.Add(1))
			get(t, tr, "http://a.test/?a=x")
			time.Sleep(10 * time.Second)
			last = up
			inside.Add(-1)
		}}, endpoint("b.test", r))
		r.set("a.test", refuses)
		var all sync.WaitGroup
		send := func() {
			for range 5 {
				all.Go(func() {
					from := r.now()
					if get(t, tr, "http://a.test/"); r.now() > from+time.Second {
						slow.Add(1)
					}
				})
			}
			time.Sleep(2 * time.Second)
		}
		send()
		r.set("a.test", nil) // while Notify hears that it is down
		for range 20 {
			send()
		}
		all.Wait()
		assert.True(t, last)
		assert.Equal(t, int32(3), calls.Load(), "down, back, and a name")
		assert.Equal(t, int32(1), slow.Load(), "requests that waited")
	})
}

// If Notify panics, so does RoundTrip. The response is closed, and later changes are told.
func TestNotifyPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &closer{Reader: strings.NewReader("x")}
		r, panics, n := newRegions(), true, 0
		tr := mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: r, Notify: func(up bool, _ error) {
			if n++; panics {
				panic("notify")
			}
		}}, endpoint("b.test", r))
		r.set("a.test", with(200, body))
		assert.PanicsWithValue(t, "notify", func() { get(t, tr, "http://a.test/?a=x") })
		assert.True(t, body.closed.Load())
		panics = false
		get(t, tr, "http://a.test/?b=x")
		assert.Equal(t, 2, n)
	})
}
