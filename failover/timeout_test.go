package failover_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// Each endpoint but the last has a bounded time until headers: 5 s if nothing else is said, and at most half of what
// is left to the deadline.
func TestTimeout(t *testing.T) {
	for name, row := range map[string]struct {
		timeout, deadline time.Duration
		want              []time.Duration // when the second and the third are asked
	}{
		"default":      {0, 0, []time.Duration{5 * time.Second, 10 * time.Second}},
		"another":      {time.Second, 0, []time.Duration{time.Second, 2 * time.Second}},
		"half of it":   {0, 8 * time.Second, []time.Duration{4 * time.Second, 6 * time.Second}},
		"much is left": {0, time.Minute, []time.Duration{5 * time.Second, 10 * time.Second}},
		"off":          {policy.Off, 8 * time.Second, nil},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRegions()
			var all []failover.Endpoint
			for _, host := range []string{"a.test", "b.test", "c.test"} {
				r.set(host, hangs)
				all = append(all, failover.Endpoint{URL: "http://" + host, Transport: r, Timeout: row.timeout})
			}
			deadline := cmp.Or(row.deadline, time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			req := newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx)
			_, err := do(mustNew(t, all...), req)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			assert.True(t, timeout.Timeout())
			assert.Equal(t, deadline, r.now(), "the last is not bounded")
			var at []time.Duration
			for _, host := range []string{"b.test", "c.test"} {
				for _, a := range r.at(host, 0) {
					at = append(at, a.at)
				}
			}
			assert.Equal(t, row.want, at)
		})
	}
}

// If the bounded time is over at each endpoint, the caller gets the first one's error, which says so and is no
// cancellation.
func TestErrorOfASilentEndpoint(t *testing.T) {
	for name, base := range map[string]func(http.RoundTripper) http.RoundTripper{
		"plain": func(rt http.RoundTripper) http.RoundTripper { return rt },
		"ours":  func(rt http.RoundTripper) http.RoundTripper { return transport.MustNew(transport.Config{Base: rt}) },
		"timed": func(rt http.RoundTripper) http.RoundTripper {
			return transport.MustNew(transport.Config{Base: rt, Rule: policy.Rule{AttemptTimeout: time.Minute, MaxAttempts: 2}})
		},
	} {
		bubble(t, name, func(t *testing.T) {
			r, _ := two(t, hangs, refuses)
			tr := mustNew(t, failover.Endpoint{URL: "http://a.test", Transport: base(r)}, endpoint("b.test", r, "q"))
			_, err := do(tr, newRequest(t, http.MethodGet, "http://a.test/?q=secret", nil))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.NotErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, "no response in time from http://a.test: ")
			assert.NotContains(t, err.Error(), "secret")
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			assert.True(t, timeout.Timeout())
			assert.Contains(t, transport.Explain(nil, err), "deadline")
		})
	}
}

// A request that could not go on is not bounded: it must not be acted on twice, its body can't be made again, there is no
// other endpoint for it, or the others are down. Nobody knows how long a large body takes.
func TestUnbounded(t *testing.T) {
	slow := rt(func(req *http.Request) (*http.Response, error) {
		if err := sleep(req.Context(), time.Minute); err != nil {
			return nil, err
		}
		return status(200).RoundTrip(req)
	})
	for name, row := range map[string]struct {
		method, query string
		body          io.Reader
		change        func(*http.Request)
		want          string
	}{
		"GET":            {"GET", "", nil, nil, "200 b.test"},
		"PUT":            {"PUT", "", strings.NewReader("x"), nil, "200 b.test"},
		"POST":           {"POST", "", nil, nil, "200 a.test"},
		"one body":       {"PUT", "", strings.NewReader("x"), func(req *http.Request) { req.GetBody = nil }, "200 a.test"},
		"unknown length": {"PUT", "", strings.NewReader("x"), func(req *http.Request) { req.ContentLength = 0 }, "200 a.test"},
		"pipe":           {"PUT", "", io.MultiReader(strings.NewReader("body")), nil, "200 a.test"},
		"stays":          {"GET", "?token=x", nil, nil, "200 a.test"},
		"large":          {"PUT", "", bytes.NewReader(make([]byte, 64<<10+1)), nil, "200 a.test"},
		"not that":       {"PUT", "", bytes.NewReader(make([]byte, 64<<10)), nil, "200 b.test"},
	} {
		bubble(t, name, func(t *testing.T) {
			_, tr := two(t, slow, nil)
			req := newRequest(t, row.method, "http://a.test/"+row.query, row.body)
			if row.change != nil {
				row.change(req)
			}
			assert.Equal(t, row.want, ask(tr, req))
		})
	}
	bubble(t, "the other is down", func(t *testing.T) {
		r, tr := two(t, nil, refuses)
		for range 5 {
			r.set("a.test", resets)
			get(t, tr, "http://a.test/")
			r.set("a.test", nil)
			get(t, tr, "http://a.test/")
		}
		r.set("a.test", slow)
		assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/"))
	})
}

// A Transport of ours sees the end of the time as a deadline. So it starts no wait beyond that, and the request goes on at
// once with the time that is left.
func TestDeadlineIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegions()
		ours := transport.MustNew(transport.Config{Base: r})
		tr := pair(t, ours, ours)
		r.set("a.test", status(503, "Retry-After: 30"))
		assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
		assert.Equal(t, 10*time.Millisecond, r.now())
	})
	synctest.Test(t, func(t *testing.T) { // after the headers, the deadline is that of the caller
		for _, deadline := range []time.Duration{0, time.Hour} {
			ctx := t.Context()
			if deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, deadline)
				defer cancel()
			}
			var got context.Context
			base := rt(func(req *http.Request) (*http.Response, error) {
				got = req.Context()
				until, ok := got.Deadline()
				assert.True(t, ok)
				assert.Equal(t, 5*time.Second, time.Until(until))
				return status(200).RoundTrip(req)
			})
			tr := pair(t, base, base)
			resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx))
			require.NoError(t, err)
			time.Sleep(time.Minute)
			assert.NoError(t, got.Err())
			want, bounded := ctx.Deadline()
			until, ok := got.Deadline()
			assert.Equal(t, []any{want, bounded}, []any{until, ok})
			_ = resp.Body.Close()
			assert.ErrorIs(t, got.Err(), context.Canceled)
		}
	})
}

// The context of a request lasts as long as the body of its response, and ends with its end, its Close or an error. The
// end of the caller's context ends it as well.
func TestContextEndsWithTheBody(t *testing.T) {
	for name, row := range map[string]struct {
		body io.ReadCloser
		end  func(resp *http.Response, cancel func())
	}{
		"end":    {nil, func(resp *http.Response, _ func()) { _, _ = io.Copy(io.Discard, resp.Body) }},
		"Close":  {nil, func(resp *http.Response, _ func()) { _ = resp.Body.Close() }},
		"caller": {nil, func(_ *http.Response, cancel func()) { cancel() }},
		"error":  {&closer{Reader: readerFunc(func([]byte) (int, error) { return 0, errors.New("cut") })}, func(resp *http.Response, _ func()) { _, _ = resp.Body.Read(make([]byte, 1)) }},
		"all": {nil, func(resp *http.Response, cancel func()) {
			go cancel()
			go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
			go func() { _ = resp.Body.Close() }()
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			var got context.Context
			var ended atomic.Bool
			base := rt(func(req *http.Request) (*http.Response, error) {
				got = req.Context()
				context.AfterFunc(got, func() { ended.Store(true) })
				resp, err := status(200).RoundTrip(req)
				if row.body != nil {
					resp.Body = row.body
				}
				return resp, err
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tr := pair(t, base, base)
			resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx))
			require.NoError(t, err)
			_, _ = resp.Body.Read(make([]byte, 1))
			time.Sleep(time.Minute)
			assert.Equal(t, name == "error", ended.Load())
			row.end(resp, cancel)
			synctest.Wait()
			assert.True(t, ended.Load())
			assert.Equal(t, name != "caller" && name != "all", resp.Request.Context().Err() == nil, "the request of the response has the caller's context")
		})
	}
}

// If there is no body, the context ends with the outcome.
func TestContextEndsWithoutABody(t *testing.T) {
	for name, answer := range map[string]http.RoundTripper{
		"error": refuses, "panic": rt(func(*http.Request) (*http.Response, error) { panic("base") }),
		"no body": rt(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Request: req}, nil
		}),
	} {
		bubble(t, name, func(t *testing.T) {
			var ended atomic.Bool
			base := rt(func(req *http.Request) (*http.Response, error) {
				if req.URL.Host == "b.test" {
					return nil, errors.New("down as well")
				}
				context.AfterFunc(req.Context(), func() { ended.Store(true) })
				return answer.RoundTrip(req)
			})
			tr := pair(t, base, base)
			func() {
				defer func() { _ = recover() }()
				_, _ = tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil))
			}()
			if name == "panic" {
				time.Sleep(5 * time.Second) // its timer does that
			}
			synctest.Wait()
			assert.True(t, ended.Load())
		})
	}
}

// The body of a 101 is a connection, which can be written to when there is nothing to read any more. Its context is not
// ended.
func TestUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &duplex{Buffer: bytes.NewBufferString("hello")}
		var got context.Context
		base := rt(func(req *http.Request) (*http.Response, error) {
			got = req.Context()
			resp := &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{}, Request: req}
			resp.Body = conn
			return resp, nil
		})
		tr := mustNew(t, endpoint("a.test", base), endpoint("b.test", base, "Upgrade"))
		req := newRequest(t, http.MethodGet, "http://a.test/", nil)
		req.Header.Set("Upgrade", "echo")
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.NoError(t, got.Err())
		w, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		_, err = w.Write([]byte(", world"))
		assert.NoError(t, err)
		text, err := io.ReadAll(w)
		assert.NoError(t, err)
		assert.Equal(t, "hello, world", string(text))
		assert.NoError(t, w.Close())
		assert.True(t, conn.closed)
	})
}

type duplex struct {
	*bytes.Buffer
	closed bool
}

func (d *duplex) Close() error { d.closed = true; return nil }

// A response that comes when its time is over is too late. Its body is closed, also if the goroutine that reads it has not
// begun or does not end before the request goes on.
func TestLateResponse(t *testing.T) {
	for name, body := range map[string]*closer{"small": {Reader: strings.NewReader("late")}, "stalled": nil} {
		bubble(t, name, func(t *testing.T) {
			if body == nil {
				body = newStalled()
			}
			_, tr := two(t, rt(func(req *http.Request) (*http.Response, error) {
				time.Sleep(6 * time.Second) // it does not look at its context
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body, Request: req}, nil
			}), nil)
			assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
			synctest.Wait()
			assert.True(t, body.closed.Load())
		})
	}
}

// An endpoint that answers nobody for a second is down, however little time each caller has, and whether its deadline
// passes or it leaves. Then one request a second finds out whether it is back. A shorter silence says nothing.
func TestSilence(t *testing.T) {
	for name, row := range map[string]struct {
		patience, timeout time.Duration
		leaves            bool // the caller has no deadline
		method            string
		attempt           time.Duration // bounds each attempt of a Transport of ours
		down              time.Duration // from then on, requests go to the next
	}{
		"20 ms":             {patience: 20 * time.Millisecond, down: time.Second},
		"300 ms":            {patience: 300 * time.Millisecond, down: time.Second},
		"1.9 s":             {patience: 1900 * time.Millisecond, down: 5 * 955 * time.Millisecond},
		"2.1 s":             {patience: 2100 * time.Millisecond, down: 5 * 1055 * time.Millisecond},
		"a minute":          {patience: time.Minute, down: 5 * 5005 * time.Millisecond},
		"leaves":            {patience: 300 * time.Millisecond, leaves: true, down: 1500 * time.Millisecond},
		"POST":              {patience: 300 * time.Millisecond, method: http.MethodPost, down: 1500 * time.Millisecond},
		"POST, leaves":      {patience: 2 * time.Second, leaves: true, method: http.MethodPost, down: 10 * time.Second},
		"a shorter Timeout": {patience: 300 * time.Millisecond, timeout: 100 * time.Millisecond, down: 525 * time.Millisecond},
		"no Timeout":        {patience: 20 * time.Millisecond, timeout: policy.Off, down: time.Second},
		"a bounded attempt": {patience: time.Minute, attempt: 300 * time.Millisecond, down: 5 * 305 * time.Millisecond},
		"a shorter attempt": {patience: time.Minute, attempt: 20 * time.Millisecond, down: time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			r, _ := two(t, hangs, nil)
			a := failover.Endpoint{URL: "http://a.test", Transport: r, Timeout: row.timeout}
			if row.attempt > 0 {
				a.Transport = transport.MustNew(transport.Config{Base: r, Rule: policy.Rule{MaxAttempts: 1, AttemptTimeout: row.attempt}})
			}
			tr := mustNew(t, a, endpoint("b.test", r))
			sendUntil := func(end time.Duration) (n int) {
				for ; r.now() < end; n++ {
					ctx, cancel := context.WithTimeout(t.Context(), row.patience)
					if row.leaves {
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(row.patience, cancel)
					}
					_, _ = do(tr, newRequest(t, cmp.Or(row.method, http.MethodGet), "http://a.test/", nil).WithContext(ctx))
					cancel()
				}
				return n
			}
			n := sendUntil(row.down)
			assert.Len(t, r.at("a.test", 0), n, "before that it is not down")
			from := r.now()
			assert.Greater(t, sendUntil(from+20*time.Second), 200, "the next answers at once")
			assert.LessOrEqual(t, len(r.at("a.test", from)), 20, "a request a second")
			assert.Equal(t, "200 b.test", get(t, tr, "http://a.test/"))
		})
	}
}

// A response ends a silence, so the next one begins anew.
func TestSilenceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tr := two(t, nil, nil)
		for range 5 {
			r.set("a.test", hangs)
			n := len(r.at("a.test", 0))
			for range 20 { // 300 ms
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				assert.Equal(t, "200 b.test", ask(tr, newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx)))
				cancel()
			}
			assert.Len(t, r.at("a.test", 0), n+20)
			r.set("a.test", nil)
			assert.Equal(t, "200 a.test", get(t, tr, "http://a.test/"))
		}
	})
}

// Over net/http, a silent server costs the bounded time, and a body may take longer than that. A discarded response leaves
// its connection.
func TestOverNetHTTP(t *testing.T) {
	for name, row := range map[string]struct {
		cfg   ts.Config
		dials int // a canceled request of HTTP/1 costs its connection
	}{"http1": {ts.Config{}, 3}, "http2": {ts.Config{HTTP2: true, TLS: ts.Trusted}, 2}} {
		bubble(t, name, func(t *testing.T) {
			cfg := row.cfg
			cfg.Net = ts.NewNet()
			cfg.Host = "a.test"
			a := ts.Start(t, cfg, ts.OK("a body that takes longer").Drip(4, 2*time.Second), ts.Hang(), ts.Status(503).Body("page"), ts.OK("a"))
			cfg.Host = "b.test"
			b := ts.Start(t, cfg, ts.OK("b"))
			tr := mustNew(t, failover.Endpoint{URL: a.URL, Transport: a.Transport()}, failover.Endpoint{URL: b.URL, Transport: b.Transport()})
			for _, want := range []string{"200 a body that takes longer", "200 b", "200 b", "200 a"} {
				assert.Equal(t, want, get(t, tr, a.URL+"/"))
			}
			testkit.Count(t, row.dials, cfg.Net.Dials(), "connection dialed")
		})
	}
}
