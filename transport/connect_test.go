// The connect phase of an attempt, and a proxy that responds to a request instead of the server.

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// post sends a POST that is not idempotent.
func (w *wired) post() result {
	return do(w.tr, newRequest(w.t, http.MethodPost, w.URL+"/", strings.NewReader("an order")))
}

// A POST that never had a connection is sent again, and arrives once.
func TestUnsentPOSTIsRetried(t *testing.T) {
	for _, row := range []struct {
		name string
		rule policy.Rule
		ends time.Duration // of the first attempt
	}{
		{"AttemptTimeout", hasty, attemptTime},
		{"profile.Service", profile.Service(), time.Second},
		{"ConnectTimeout", policy.Rule{ConnectTimeout: 100 * time.Millisecond}.Or(hasty), 100 * time.Millisecond},
		{"ConnectTimeout alone", policy.Rule{AttemptTimeout: policy.Off, ConnectTimeout: 100 * time.Millisecond}.Or(hasty), 100 * time.Millisecond},
		{"ConnectTimeout that is longer", policy.Rule{ConnectTimeout: time.Second}.Or(hasty), attemptTime},
	} {
		inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
			w := wire(t, cfg, row.rule, well)
			w.net.Fail("fault.test", ts.ErrBlackhole) // drops SYNs
			go func() {
				time.Sleep(row.ends - time.Millisecond)
				w.net.Fail("fault.test", nil)
			}()
			got := w.post()
			w.ok(got, row.ends+200*time.Millisecond, row.name)
			assert.GreaterOrEqual(t, got.elapsed, row.ends, row.name)
			assert.Equal(t, 1, w.Arrivals(), "requests that arrived, %v", row.name)
		})
	}
}

// The server has a POST and is silent. It may have acted, so the POST is not sent again.
// The time of the connect phase does not bound it.
func TestSentPOSTIsNotRetried(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		w := wire(t, cfg, policy.Rule{ConnectTimeout: 50 * time.Millisecond}.Or(hasty), func(r *ts.Received) ts.Step {
			return ts.Hang()
		})
		got := w.post()
		require.Error(t, got.err)
		assert.Equal(t, attemptTime, got.elapsed)
		assert.Equal(t, 1, w.Arrivals(), "requests that arrived")
	})
}

// A base transport that calls no hooks, or that calls them after it had a connection,
// proves nothing.
func TestNoProofWithoutHooks(t *testing.T) {
	trace := func(req *http.Request) *httptrace.ClientTrace { return httptrace.ContextClientTrace(req.Context()) }
	for name, row := range map[string]struct {
		before   func(*http.Request)
		attempts int
	}{
		"no hooks":       {func(*http.Request) {}, 1},
		"only GetConn":   {func(req *http.Request) { trace(req).GetConn("h.test:80") }, 4},
		"a connection":   {func(req *http.Request) { trace(req).GetConn("h.test:80"); trace(req).GotConn(httptrace.GotConnInfo{}) }, 1},
		"another, later": {func(req *http.Request) { trace(req).GotConn(httptrace.GotConnInfo{}); trace(req).GetConn("h.test:80") }, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			sent := 0
			b := rt(func(req *http.Request) (*http.Response, error) {
				sent++
				row.before(req)
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			tr := mustNew(t, transport.Config{Base: b, Rule: policy.Rule{ConnectTimeout: time.Minute}.Or(hasty)})
			_, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://h.test/", nil))
			require.Error(t, err)
			count(t, row.attempts, sent, "POST sent")
		})
	}
}

// net/http goes on with a dial after the time of an attempt, and calls the hooks then. Those of the caller
// hear of the attempts that have time only.
func TestHooksAfterTheTimeOfAnAttempt(t *testing.T) {
	for within, want := range map[time.Duration][]string{
		30 * time.Second: {"start", "start"}, 5 * time.Minute: {"start", "done", "1xx"},
	} {
		inBubble(t, within.String(), func(t *testing.T) {
			b := rt(func(req *http.Request) (*http.Response, error) {
				trace := httptrace.ContextClientTrace(req.Context())
				trace.ConnectStart("tcp", "h.test:80")
				time.AfterFunc(time.Minute, func() {
					trace.ConnectDone("tcp", "h.test:80", nil)
					assert.NoError(t, trace.Got1xxResponse(103, nil))
				})
				select {
				case <-req.Context().Done():
					return nil, req.Context().Err()
				case <-time.After(2 * time.Minute):
				}
				return newResponse(req, 200, http.NoBody), nil
			})
			var mu sync.Mutex
			var told []string
			tell := func(text string) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, text)
			}
			hooks := &httptrace.ClientTrace{
				ConnectStart:   func(string, string) { tell("start") },
				ConnectDone:    func(string, string, error) { tell("done") },
				Got1xxResponse: func(int, textproto.MIMEHeader) error { tell("1xx"); return nil },
			}
			tr := mustNew(t, transport.Config{Base: b, Rule: policy.Rule{AttemptTimeout: within, MaxAttempts: 2}.Or(quick)})
			req := newRequest(t, http.MethodGet, "http://h.test/", nil)
			_ = closing(tr.RoundTrip(req.WithContext(httptrace.WithClientTrace(t.Context(), hooks))))
			time.Sleep(time.Hour)
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, want, told)
		})
	}
}

// A connection that comes in the moment in which the time for it is over may carry the
// request. A POST is not sent again then.
func TestConnectionThatIsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		sent := 0
		b := rt(func(req *http.Request) (*http.Response, error) {
			sent++
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GetConn("h.test:80")
			<-req.Context().Done()
			trace.GotConn(httptrace.GotConnInfo{})
			return nil, context.Cause(req.Context())
		})
		tr := mustNew(t, transport.Config{Base: b, Rule: policy.Rule{ConnectTimeout: 50 * time.Millisecond}.Or(hasty)})
		_, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://h.test/", nil))
		assert.EqualError(t, err, "transport: not retried (not idempotent): dial tcp: no connection within 50ms")
		count(t, 1, sent, "POST sent")
	})
}

// The dialer of a tunnel has errors of its own. If hooks prove that there was no connection, nothing was
// sent, and any request is sent again. An *http.Transport has no response when it returns an error, so an
// idempotent request is sent again without that proof. The error of another base may be anything.
func TestDialerWithErrorsOfItsOwn(t *testing.T) {
	rejected := errors.New("ssh: rejected: connect failed")
	final := classify.OnError(classify.Final, classify.ErrorOther)
	for name, row := range map[string]struct {
		rule   policy.Rule
		method string
		around bool // another base is around net/http
		err    error
		dials  int
	}{
		"GET":                       {method: http.MethodGet, err: rejected, dials: 2},
		"POST without hooks":        {method: http.MethodPost, err: rejected, dials: 1},
		"POST":                      {rule: policy.Rule{AttemptTimeout: time.Minute}, method: http.MethodPost, err: rejected, dials: 2},
		"POST, around":              {rule: policy.Rule{AttemptTimeout: time.Minute}, method: http.MethodPost, around: true, err: rejected, dials: 2},
		"GET, around":               {method: http.MethodGet, around: true, err: rejected, dials: 1},
		"the rule says it is final": {rule: policy.Rule{AttemptTimeout: time.Minute, Classify: final}, method: http.MethodPost, err: rejected, dials: 1},
		"a bad address":             {method: http.MethodGet, err: &net.OpError{Op: "dial", Err: &net.AddrError{Err: "bad"}}, dials: 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			srv, dials := ts.Start(t, ts.Config{Net: ts.NewNet()}, ts.OK("ok")), 0
			h := srv.Transport()
			dial := h.DialContext
			h.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dials++; dials == 1 {
					return nil, row.err
				}
				return dial(ctx, network, addr)
			}
			var base http.RoundTripper = h
			if row.around {
				base = rt(h.RoundTrip)
			}
			tr := mustNew(t, transport.Config{Base: base, Rule: row.rule})
			resp, err := tr.RoundTrip(newRequest(t, row.method, srv.URL, strings.NewReader("x")))
			count(t, row.dials, dials, "dials")
			if row.dials == 1 {
				assert.ErrorIs(t, err, row.err)
				return
			}
			require.NoError(t, err)
			assert.NoError(t, resp.Body.Close())
			tr.CloseIdleConnections()
		})
	}
}

// The attempts know their connections from the first retry on, or if a hook asks.
func TestAttemptsKnowTheirConnections(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		bad := func(r *ts.Received) ts.Step {
			if r.Conn < 3 {
				return ts.Status(503)
			}
			return ts.OK("well")
		}
		w := wire(t, cfg, policy.Rule{MaxAttempts: 3}.Or(quick), bad)
		resp := mustRoundTrip(t, w.tr, newRequest(t, http.MethodGet, w.URL, nil))
		all := transport.HistoryOf(resp, nil).Attempts
		require.Len(t, all, 3)
		assert.Equal(t, "", all[0].Addr)
		assert.Equal(t, w.Addr, all[1].Addr)
		assert.Equal(t, 0, all[0].Pool, "number of the pool")
		assert.Equal(t, 0, all[1].Pool, "number of the pool")
		assert.Equal(t, 1, all[2].Pool, "number of the pool")

		var ends []transport.AttemptEnd
		ctx := transport.WithTrace(t.Context(), &transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) { ends = append(ends, e) }})
		mustFetch(t, w.tr, ctx, w.URL)
		assert.Equal(t, w.Addr, ends[0].Addr)
	})
}

// A connection of a user may not know its address, because net/http never asks for it.
func TestConnectionWithoutAddress(t *testing.T) {
	inMemory(t, http1[:1], func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, ts.OK("well"))
		base := s.Transport()
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := cfg.Net.DialContext(ctx, network, addr)
			return addressless{Conn: conn}, err
		}
		w := &wired{Server: s, t: t, net: cfg.Net, tr: mustNew(t, transport.Config{Base: base, Rule: hasty})}
		w.ok(w.post(), 0)
		w.die()
		w.ok(w.get(), attemptTime+20*time.Millisecond)
		w.tr.CloseIdleConnections()
	})
}

type addressless struct{ net.Conn }

func (addressless) RemoteAddr() net.Addr { panic("not known") }

// A response of a proxy does not come from the server. Any method is sent again, because
// nothing of the request has left. Over a base around net/http, which may make such an
// error of a server's response, only an idempotent request is.
func TestProxyRefusesConnect(t *testing.T) {
	for _, row := range []struct {
		code     int
		method   string
		base     string
		attempts int
	}{
		{503, http.MethodGet, "default", 3}, {503, http.MethodPost, "default", 3},
		{429, http.MethodPost, "default", 3}, {502, http.MethodPost, "default", 3},
		{407, http.MethodGet, "default", 1}, {403, http.MethodGet, "default", 1}, {501, http.MethodGet, "default", 1},
		{503, http.MethodGet, "user's", 3}, {504, http.MethodGet, "user's", 3},
		{503, http.MethodPost, "user's", 3}, {502, http.MethodPost, "user's", 3}, {429, http.MethodPost, "user's", 3},
		{408, http.MethodPost, "user's", 3}, {500, http.MethodPost, "user's", 3},
		{407, http.MethodGet, "user's", 1}, {407, http.MethodPost, "user's", 1}, {403, http.MethodPost, "user's", 1},
		{503, http.MethodGet, "wrapped", 3}, {503, http.MethodPost, "wrapped", 1},
	} {
		t.Run(fmt.Sprint(row.code, " ", row.method, " base: ", row.base), func(t *testing.T) {
			var attempts atomic.Int32
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				attempts.Add(1)
				w.WriteHeader(row.code)
			}))
			defer proxy.Close()
			u, err := url.Parse(proxy.URL)
			require.NoError(t, err)
			own := &http.Transport{}
			if row.base == "default" {
				own = transport.NewBase()
			}
			own.Proxy = http.ProxyURL(u)
			var base http.RoundTripper = own
			if row.base == "wrapped" {
				base = rt(own.RoundTrip)
			}
			tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 3, Backoff: backoff.Constant(0)}})
			req := newRequest(t, row.method, "https://host.invalid/", strings.NewReader("text"))
			_, err = tr.RoundTrip(req)
			require.Error(t, err)
			count(t, row.attempts, attempts.Load(), "CONNECT sent", err)
			assert.ErrorContains(t, err, http.StatusText(row.code))
		})
	}
}

// An error that only looks like that of a proxy does not make a POST safe.
func TestNoProxyRefused(t *testing.T) {
	text := errors.New("Bad Gateway")
	proxied := &http.Transport{Proxy: http.ProxyFromEnvironment}
	for _, row := range []struct {
		name string
		base http.RoundTripper
		url  string
		err  error
		want bool
	}{
		{"the error of a proxy", proxied, "https://h.test/", text, true},
		{"a final error of a proxy", proxied, "https://h.test/", errors.New("Forbidden"), false},
		{"an error that wraps the error of a proxy", proxied, "https://h.test/", fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", text), false},
		{"the error of a proxy among several", proxied, "https://h.test/", errors.Join(text), false},
		{"a reset", proxied, "https://h.test/", syscall.ECONNRESET, false},
		{"a proxy for plain HTTP", proxied, "http://h.test/", text, false},
		{"a base without a proxy", &http.Transport{}, "https://h.test/", text, false},
		{"a base around net/http", rt(proxied.RoundTrip), "https://h.test/", text, false},
	} {
		req := newRequest(t, http.MethodPost, row.url, nil)
		assert.Equal(t, row.want, over(t, transport.Config{}, row.base).RefusedByProxy(req, row.err), row.name)
	}
}

// A request waits as long as a proxy asks it to.
func TestProxyAsksToWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		proxy := ts.Start(t, ts.Config{Net: ts.NewNet()}, ts.Status(503).Header("Retry-After", "20"))
		u, err := url.Parse(proxy.URL)
		require.NoError(t, err)
		base := transport.NewBase()
		base.DialContext, base.Proxy = proxy.Transport().DialContext, http.ProxyURL(u)
		tr := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 2}.Or(quick)}, base)
		_, err = tr.RoundTrip(newRequest(t, http.MethodPost, "https://host.invalid/", nil))
		require.Error(t, err)
		log := proxy.Log()
		require.Len(t, log, 2)
		assert.GreaterOrEqual(t, log[1].Time.Sub(log[0].Time), 20*time.Second)
		tr.CloseIdleConnections()
	})
}
