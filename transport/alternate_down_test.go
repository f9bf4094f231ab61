package transport_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// succeeds sends a request without a body, and reports whether it got a 200.
func succeeds(t testing.TB, tr http.RoundTripper, method, url string) bool {
	resp, err := tr.RoundTrip(newRequest(t, method, url, nil))
	_ = closing(resp, err)
	return err == nil && resp.StatusCode == http.StatusOK
}

// isDown reports whether a.test is down.
func isDown(tr *transport.Transport) bool {
	s, _ := tr.SnapshotOf(&url.URL{Scheme: "http", Host: "a.test"})
	return s.Down || s.GateClosed
}

// While a host is down, requests that may be repeated find out when it is back. A POST that
// tried it would fail.
func TestNoPostTriesAHostThatIsDown(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		down answer
	}{
		"503":       {policy.Rule{}, status(503)},
		"reset":     {policy.Rule{}, faults.Fail(syscall.ECONNRESET)},
		"gate":      {policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}}, status(503)},
		"gate full": {policy.Rule{Gate: policy.Gate{Mode: policy.GateRefuse}}, status(503)},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, row.rule)
			r.set("a.test", row.down)
			for !isDown(tr) {
				assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
				time.Sleep(10 * time.Millisecond)
			}
			sent, failed := 0, 0
			for range 278 {
				if sent++; !succeeds(t, tr, http.MethodPost, "http://a.test/") {
					failed++
				}
				time.Sleep(100 * time.Millisecond)
				assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
				time.Sleep(100 * time.Millisecond)
			}
			assert.Zero(t, failed, "of %d POSTs", sent)

			r.set("a.test", nil)
			for range 30 {
				succeeds(t, tr, http.MethodPost, "http://a.test/")
				succeeds(t, tr, http.MethodGet, "http://a.test/")
				time.Sleep(100 * time.Millisecond)
			}
			assert.False(t, isDown(tr), "after 3 s")
		})
	}
}

// If nobody sends requests that may be repeated, one POST per 30 s tries the host.
func TestPostsTryAHostIfNobodyElseDoes(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		down answer
		ctx  func(context.Context) context.Context
	}{
		"POST":            {policy.Rule{}, status(503), nil},
		"POST with a key": {policy.Rule{IdempotencyKey: policy.UUIDKey}, status(503), nil},
		"GET, once":       {policy.Rule{}, status(503), transport.Once},
		"gate":            {policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}}, status(503), nil},
		"gate and a wait": {policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}}, status(503, "Retry-After: 1"), nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, row.rule)
			r.set("a.test", row.down)
			for !isDown(tr) {
				succeeds(t, tr, http.MethodGet, "http://a.test/")
				time.Sleep(10 * time.Millisecond)
			}
			method, ctx := http.MethodPost, t.Context()
			if row.ctx != nil {
				method, ctx = http.MethodGet, row.ctx(ctx)
			}
			from := r.now()
			for r.now() < from+5*time.Minute {
				_ = closing(tr.RoundTrip(newRequest(t, method, "http://a.test/", nil).WithContext(ctx)))
				time.Sleep(100 * time.Millisecond)
			}
			tries := 0
			for _, a := range r.at("a.test", from) {
				if transport.AttemptNumber(a.req.Context()) == 1 {
					tries++
				}
			}
			assert.LessOrEqual(t, tries, 10, "in 5 min")
			assert.GreaterOrEqual(t, tries, 6, "the retries of a try take a while")
			r.set("a.test", nil)
			for range 310 {
				_ = closing(tr.RoundTrip(newRequest(t, method, "http://a.test/", nil).WithContext(ctx)))
				time.Sleep(100 * time.Millisecond)
			}
			assert.False(t, isDown(tr), "after 31 s")
		})
	}
}

// A caller who has little time says nothing about the host. One who leaves it as much time as
// it usually needs does.
func TestDeadlineIsAFailureIfTheHostHadItsTime(t *testing.T) {
	for name, row := range map[string]struct {
		successes int
		timeout   time.Duration
		silent    bool
		down      bool
	}{
		"less than usual":      {5, 3 * time.Millisecond, false, false},
		"one success":          {1, 3 * time.Millisecond, false, false},
		"more than usual":      {5, 60 * time.Millisecond, true, true},
		"less, and it is down": {5, 3 * time.Millisecond, true, false},
		"nothing is usual":     {0, 3 * time.Millisecond, false, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, policy.Rule{Attempts: 2, Backoff: backoff.Constant(0)})
			slow := rt(func(req *http.Request) (*http.Response, error) {
				if err := pause(req, 25*time.Millisecond); err != nil {
					return nil, err
				}
				return play(req, status(200))
			})
			r.set("a.test", answer(slow)) // 30 ms in all
			for range row.successes {
				assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
			}
			if row.silent {
				r.set("a.test", faults.Hang())
			}
			for range 6 {
				ctx, cancel := context.WithTimeout(t.Context(), row.timeout)
				_ = closing(tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx)))
				cancel()
			}
			assert.Equal(t, row.down, isDown(tr))
		})
	}
}

// An endpoint that cannot be reached because of its name, its address or its certificate costs
// no request that another endpoint answers.
func TestEndpointThatCannotBeReached(t *testing.T) {
	for name, err := range map[string]error{
		"unknown name":      &net.DNSError{Err: "no such host", Name: "b.test", IsNotFound: true},
		"wrong address":     &net.OpError{Op: "dial", Net: "tcp", Err: &net.AddrError{Err: "invalid port", Addr: "b.test:99999"}},
		"wrong certificate": &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "b.test"}},
		"handshake alert":   &net.OpError{Op: "remote error", Err: tls.AlertError(40)},
	} {
		inBubble(t, "alternate: "+name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, policy.Rule{Attempts: 3, Backoff: backoff.Constant(0)})
			r.set("b.test", faults.Fail(err))
			flaky := 0
			r.set("a.test", rt(func(req *http.Request) (*http.Response, error) {
				flaky++
				return play(req, status(200+303*(flaky%2))) // each second attempt succeeds
			}))
			failed := 0
			for range 10 {
				if !succeeds(t, tr, http.MethodGet, "http://a.test/") {
					failed++
				}
			}
			assert.Zero(t, failed, "of 10")
		})
		inBubble(t, "host: "+name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, policy.Rule{Attempts: 3, Backoff: backoff.Constant(0)})
			r.set("a.test", faults.Fail(err))
			failed := 0
			for range 8 {
				if !succeeds(t, tr, http.MethodGet, "http://a.test/") {
					failed++
				}
			}
			assert.Zero(t, failed, "of 8")
			assert.True(t, isDown(tr))
		})
		inBubble(t, "both: "+name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, policy.Rule{Attempts: 5, Backoff: backoff.Constant(time.Second)}, "http://c.test")
			r.set("a.test", faults.Fail(err))
			r.set("b.test", faults.Fail(err))
			r.set("c.test", faults.Fail(err))
			_, got := tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil))
			require.ErrorIs(t, got, err)
			assert.Len(t, r.at("a.test", 0), 1, "nothing is tried twice")
			assert.Len(t, r.at("b.test", 0), 1)
			assert.Len(t, r.at("c.test", 0), 1)
			assert.Zero(t, r.now().Truncate(time.Second))
		})
	}
}

// What says nothing about the endpoint stays where it is: the end of the context, and a
// request that nobody could send.
func TestRequestThatNoEndpointCouldServe(t *testing.T) {
	for name, err := range map[string]error{
		"header":  errors.New(`net/http: invalid header field value for "X"`),
		"context": context.Canceled,
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, policy.Rule{Attempts: 3, Backoff: backoff.Constant(0)})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.set("a.test", rt(func(*http.Request) (*http.Response, error) {
				if name == "context" {
					cancel()
				}
				return nil, err
			}))
			_, got := tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx))
			require.ErrorIs(t, got, err)
			assert.Empty(t, r.at("b.test", 0))
		})
	}
}

// A POST goes on only if the handshake surely failed before it was sent.
func TestAlertAfterAPostWasSent(t *testing.T) {
	for name, sent := range map[string]bool{"in the handshake": false, "after it": true} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, policy.Rule{Attempts: 3, Backoff: backoff.Constant(0)})
			r.set("a.test", rt(func(req *http.Request) (*http.Response, error) {
				trace := httptrace.ContextClientTrace(req.Context())
				if trace == nil {
					return nil, errors.New("nobody asks for the connection")
				}
				trace.GetConn("a.test:443")
				if sent {
					trace.GotConn(httptrace.GotConnInfo{})
				}
				return nil, &net.OpError{Op: "remote error", Err: tls.AlertError(40)}
			}))
			assert.Equal(t, !sent, succeeds(t, tr, http.MethodPost, "http://a.test/"))
		})
	}
}

// An alternate that does not have what the host has is no answer, because that proves
// nothing. The caller gets the outcome of the host.
func TestAlternateThatDoesNotHaveIt(t *testing.T) {
	for _, not := range []int{401, 403, 404, 405, 410, 501} {
		for name, row := range map[string]struct {
			method   string
			attempts int
			host     []answer // one after the other, and then the last
			down     bool     // before the request
			others   []string
			want     string // status and body, or an error
			first    int    // attempts at the host
			other    int    // attempts at the alternate
		}{
			"the host recovers":      {host: []answer{status(503), status(200)}, want: "200 of a.test", first: 2, other: 1},
			"the host fails":         {host: []answer{status(503)}, want: "503 of a.test", first: 3, other: 1},
			"no attempt is left":     {attempts: 2, host: []answer{status(503)}, want: "503 of a.test", first: 1, other: 1},
			"an error is left":       {attempts: 2, host: []answer{refuses}, want: "connection refused", first: 1, other: 1},
			"a POST":                 {method: http.MethodPost, attempts: 2, host: []answer{refuses}, want: "connection refused", first: 1, other: 1},
			"the host has no name":   {host: []answer{faults.Fail(&net.DNSError{Err: "no such host", IsNotFound: true})}, want: "no such host", first: 1, other: 1},
			"the host does not know": {host: []answer{status(503), status(404)}, want: "404 of a.test", first: 2, other: 1},
			"the host was down":      {down: true, host: []answer{status(200)}, want: "200 of a.test", first: 1, other: 1},
			"the host is down":       {down: true, host: []answer{status(503)}, want: "503 of a.test", first: 3, other: 1},
			"another has it":         {host: []answer{status(503)}, others: []string{"http://c.test"}, want: "200 of c.test", first: 1, other: 1},
			"the last is the host":   {attempts: 2, down: true, host: []answer{status(200)}, others: []string{"http://c.test"}, want: "200 of a.test", first: 1, other: 1},
			"one attempt":            {attempts: 1, down: true, host: []answer{status(200)}, want: fmt.Sprint(not, " of b.test"), first: 0, other: 1},
		} {
			inBubble(t, fmt.Sprint(not, ": ", name), func(t *testing.T) {
				r := newRegions()
				rule := policy.Rule{Attempts: cmp.Or(row.attempts, 4), Backoff: backoff.Constant(100 * time.Millisecond)}
				tr := r.transport(t, rule, row.others...)
				if row.down {
					r.set("a.test", refuses)
					for range 5 {
						_ = closing(tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil)))
					}
					assert.True(t, row.attempts == 1 || isDown(tr))
				}
				n := 0
				r.set("a.test", rt(func(req *http.Request) (*http.Response, error) {
					n++
					return withBody(play(req, row.host[min(n, len(row.host))-1]))
				}))
				r.set("b.test", rt(func(req *http.Request) (*http.Response, error) { return withBody(play(req, status(not))) }))
				r.set("c.test", rt(func(req *http.Request) (*http.Response, error) { return withBody(play(req, status(200))) }))
				from := r.now()
				resp, err := tr.RoundTrip(newRequest(t, cmp.Or(row.method, http.MethodGet), "http://a.test/", nil))
				if err != nil {
					require.ErrorContains(t, err, row.want)
				} else {
					body, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					assert.Equal(t, row.want, fmt.Sprint(resp.StatusCode, " ", string(body)))
					assert.Contains(t, row.want, resp.Request.URL.Host)
				}
				assert.Len(t, r.at("a.test", from), row.first)
				assert.Len(t, r.at("b.test", from), row.other, "it is left out")
			})
		}
	}
}

// withBody gives a response a body that names its host.
func withBody(resp *http.Response, err error) (*http.Response, error) {
	if err == nil {
		resp.Body = io.NopCloser(strings.NewReader("of " + resp.Request.URL.Host))
		resp.ContentLength = -1
	}
	return resp, err
}

// A host with alternates and no gate is down for 90 s. The hook and the log say where its
// requests go, and when it is back, once each.
func TestOutageIsTold(t *testing.T) {
	for name, row := range map[string]struct {
		down  answer
		cause string
	}{
		"refused":      {refuses, "connection refused"},
		"503":          {status(503), "503"},
		"with a wait":  {status(503, "Retry-After: 2"), "503"},
		"unknown name": {faults.Fail(&net.DNSError{Err: "no such host", Name: "a.test", IsNotFound: true}), "no such host"},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			var seen changes
			var log testkit.Text
			tr := mustNew(t, transport.Config{
				Base:   r,
				Hosts:  map[string]policy.Rule{"a.test": {Alternates: policy.Alternates{Bases: []string{"http://b.test"}}}},
				Trace:  seen.trace(),
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			minutes := func(n int) {
				for range n * 60 {
					assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
					time.Sleep(time.Second)
				}
			}
			minutes(1)
			r.set("a.test", row.down)
			from := time.Now()
			for range 90 {
				assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
				time.Sleep(time.Second)
			}
			r.set("a.test", nil)
			minutes(1)
			var all []transport.HostChange
			for _, h := range seen.all {
				if h.Condition == transport.ConditionDown {
					all = append(all, h)
				}
			}
			require.Len(t, all, 2)
			assert.Equal(t, "http://a.test is down ("+row.cause+"): its requests go to http://b.test", all[0].String())
			assert.WithinDuration(t, from, all[0].Since, time.Second, "when the first of the failures began")
			assert.Equal(t, []any{"http://a.test", "http://b.test"}, []any{all[0].Host, all[0].Alternate})
			assert.True(t, all[1].Over)
			assert.Regexp(t, `^http://a\.test is back after \S+: its requests go there again$`, all[1].String())
			assert.WithinDuration(t, from.Add(90*time.Second), all[1].Time, 3*time.Second)

			lines := strings.Split(log.String(), "\n")
			told := slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "condition=down") })
			require.Len(t, told, 2)
			assert.Contains(t, told[0], "level=WARN")
			assert.Contains(t, told[0], "alternate=http://b.test")
			assert.NotContains(t, told[0], "limit=")
			assert.Contains(t, told[1], "level=INFO")
		})
	}
}

// If an alternate is down, that is told as well.
func TestOutageOfAnAlternateIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions()
		var seen changes
		tr := mustNew(t, transport.Config{Base: r, Trace: seen.trace(), Hosts: map[string]policy.Rule{"a.test": {
			Backoff: backoff.Constant(0), Alternates: policy.Alternates{Bases: []string{"http://b.test", "http://c.test"}},
		}}})
		r.set("a.test", refuses)
		r.set("b.test", refuses)
		for range 30 {
			assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
			time.Sleep(100 * time.Millisecond)
		}
		r.set("a.test", nil)
		r.set("b.test", nil)
		for range 30 {
			assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
			assert.True(t, succeeds(t, tr, http.MethodGet, "http://b.test/"))
			time.Sleep(100 * time.Millisecond)
		}
		var texts []string
		for _, h := range seen.all {
			texts = append(texts, h.String())
		}
		assert.Equal(t, []string{
			"http://a.test is down (connection refused): its requests go to http://b.test",
			"http://b.test is down (connection refused): its requests go to http://c.test",
		}, texts[:2])
		var back []string
		for _, h := range seen.all[2:] {
			assert.True(t, h.Over)
			back = append(back, h.Host)
		}
		assert.ElementsMatch(t, []string{"http://a.test", "http://b.test"}, back)
	})
}

// TestAlternateThatAnswersTooLate: a base that does not notice the end of the context brings a 404
// of the alternate after it. The host had an error, or its response was cut, so nothing is left but
// the error of the context.
func TestAlternateThatAnswersTooLate(t *testing.T) {
	for name, answer := range map[string]func(*http.Response){
		"headers": func(*http.Response) { time.Sleep(time.Second) },
		"body": func(resp *http.Response) {
			body, _ := io.Pipe() // nobody writes
			resp.Body, resp.ContentLength = body, 10
		},
	} {
		for first, outcome := range map[string]func(*http.Request) (*http.Response, error){
			"status": func(req *http.Request) (*http.Response, error) {
				resp, err := play(req, status(503))
				resp.Body, resp.ContentLength = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), 10
				return resp, err
			},
			"error": func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		} {
			inBubble(t, name+" after "+first, func(t *testing.T) {
				r := newRegions()
				tr := r.transport(t, policy.Rule{Attempts: 2, Backoff: backoff.Constant(0)})
				r.set("a.test", rt(outcome))
				r.set("b.test", rt(func(req *http.Request) (*http.Response, error) {
					resp, err := play(req, status(404))
					answer(resp)
					return resp, err
				}))
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				_, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx))
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
	}
}

// TestSuccessesOfAnAlternateAreSeen: a host that is an alternate of another is not down while most of
// the requests that go to it directly are answered.
func TestSuccessesOfAnAlternateAreSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, transport.Config{Hosts: map[string]policy.Rule{
			"a.test": {Alternates: policy.Alternates{Bases: []string{"http://b.test"}}},
		}}, rt(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "a.test" || req.Method == http.MethodPost {
				return newResponse(req, 500, http.NoBody), nil
			}
			return newResponse(req, 200, http.NoBody), nil
		}))
		succeeds(t, tr, http.MethodGet, "http://a.test/")
		for range 7 {
			for range 100 {
				assert.True(t, succeeds(t, tr, http.MethodGet, "http://b.test/"))
			}
			succeeds(t, tr, http.MethodPost, "http://b.test/")
			s, _ := tr.SnapshotOf(&url.URL{Scheme: "http", Host: "b.test"})
			assert.False(t, s.Down)
		}
	})
}
