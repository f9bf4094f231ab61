// The helpers of the tests. The names of package transport that only tests need are in
// export_test.go.

package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

var (
	// quick retries without a wait. It is for tests in which time does not matter, and
	// for tests over TCP, which run in real time.
	quick = policy.Rule{Backoff: backoff.Constant(0), RetryBudget: policy.RetryBudget{Enabled: policy.Off}}
	// exact waits 1 s, 2 s, 4 s … without jitter.
	exact = policy.Rule{Backoff: backoff.Exponential{Jitter: backoff.JitterNone}}
)

var (
	http1       = []protocol{{"http1", ts.Config{}}, {"http1+tls", ts.Config{TLS: ts.Trusted}}}
	http2       = []protocol{{"h2c", ts.Config{HTTP2: true}}, {"http2", ts.Config{HTTP2: true, TLS: ts.Trusted}}}
	anyProtocol = []protocol{http1[0], http2[0]}
)

// rt is a base transport made of a function. It does not close bodies, but play does.
type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// numbered returns a base that is told how many attempts it has had with this one.
func numbered(serve func(req *http.Request, n int) (*http.Response, error)) rt {
	var n atomic.Int64
	return func(req *http.Request) (*http.Response, error) { return serve(req, int(n.Add(1))) }
}

// get sends a GET, closes the response, and returns the results of RoundTrip.
func fetch(t testing.TB, tr http.RoundTripper, ctx context.Context, url string) (*http.Response, error) {
	t.Helper()
	resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, url, nil).WithContext(ctx))
	return resp, closing(resp, err)
}

// closing closes the response if RoundTrip returned one, and returns its error.
func closing(resp *http.Response, err error) error {
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// A protocol is a protocol of a server, with its name in tests.
type protocol struct {
	name string
	cfg  ts.Config
}

// at runs a test over TCP, and in memory in virtual time.
func at(t *testing.T, protocols []protocol, test func(*testing.T, ts.Config)) {
	t.Helper()
	for _, p := range protocols {
		t.Run(p.name+"/tcp", func(t *testing.T) { test(t, p.cfg) })
	}
	inMemory(t, protocols, test)
}

// inMemory runs a test in memory only. It is for tests in which time matters.
func inMemory(t *testing.T, protocols []protocol, test func(*testing.T, ts.Config)) {
	t.Helper()
	for _, p := range protocols {
		inBubble(t, p.name+"/memory", func(t *testing.T) {
			cfg := p.cfg
			cfg.Net = ts.NewNet()
			test(t, cfg)
		})
	}
}

// runAt is a subtest that calls at.
func runAt(t *testing.T, name string, protocols []protocol, test func(*testing.T, ts.Config)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { at(t, protocols, test) })
}

// runInMemory is a subtest that calls inMemory.
func runInMemory(t *testing.T, name string, protocols []protocol, test func(*testing.T, ts.Config)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inMemory(t, protocols, test) })
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// inBubble runs a subtest in virtual time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, test) })
}

// A stage is a server that plays a script, and a Transport of ours before it.
type stage struct {
	*ts.Server
	t    *testing.T
	base *http.Transport // may be changed before the first request
	tr   *transport.Transport
	seen *recorder // of all requests
}

func set(t *testing.T, cfg ts.Config, rule policy.Rule, steps ...ts.Step) *stage {
	t.Helper()
	s := &stage{Server: ts.Start(t, cfg, steps...), t: t, seen: &recorder{}}
	s.base = s.Transport()
	s.tr = mustNew(t, transport.Config{Base: s.base, Rule: rule, Traces: []*transport.Trace{s.seen.trace()}})
	return s
}

func mustNew(t testing.TB, c transport.Config) *transport.Transport {
	t.Helper()
	tr, err := transport.New(c)
	require.NoError(t, err)
	return tr
}

// A result is the response or error that a caller got.
type result struct {
	status  int    // 0: err is RoundTrip's
	body    string // read to its end
	err     error  // of RoundTrip or of reading the body
	reason  transport.Reason
	elapsed time.Duration // until RoundTrip returned
}

func (s *stage) request(method string, body io.Reader) *http.Request {
	s.t.Helper()
	return newRequest(s.t, method, s.URL+"/", body)
}

func newRequest(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	return req
}

func (s *stage) send(method string, body io.Reader) result {
	s.t.Helper()
	return s.do(s.request(method, body))
}

func (s *stage) do(req *http.Request) result { return do(s.tr, req) }

func do(tr http.RoundTripper, req *http.Request) (r result) {
	start := time.Now()
	resp, err := tr.RoundTrip(req)
	r.elapsed = time.Since(start)
	if err != nil {
		r.err = err
		return r
	}
	r.status = resp.StatusCode
	r.reason, _, _ = unretried(resp)
	var text []byte
	text, r.err = io.ReadAll(resp.Body)
	r.body = string(text)
	_ = resp.Body.Close()
	return r
}

// A recorder keeps the ends of attempts. The end of a request for another reason than its last
// attempt and that of a body that was to be continued are kept as well, without a Kind.
type recorder struct {
	mu  sync.Mutex
	all []transport.AttemptEnd
}

func (r *recorder) trace() *transport.Trace {
	return &transport.Trace{
		AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.all = append(r.all, e)
		},
		RequestEnd: func(_ context.Context, e transport.RequestEnd) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.ContainsFunc(r.all, func(a transport.AttemptEnd) bool { return a.Request == e.Request && a.Reason == e.Reason }) {
				r.all = append(r.all, transport.AttemptEnd{
					Request: e.Request, Host: e.Host, Response: e.Response, Attempt: transport.Attempt{Number: e.Attempts, Err: e.Err, Reason: e.Reason},
				})
			}
		},
		BodyEnd: func(_ context.Context, e transport.BodyEnd) {
			if own, ok := errors.AsType[*transport.Error](e.Err); ok {
				r.mu.Lock()
				defer r.mu.Unlock()
				a := transport.Attempt{Offset: own.Offset, Err: e.Err, Reason: own.Reason}
				r.all = append(r.all, transport.AttemptEnd{Request: e.Request, Host: e.Host, Attempt: a})
			}
		},
	}
}

func (r *recorder) events() []transport.AttemptEnd {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]transport.AttemptEnd(nil), r.all...)
}

func (r *recorder) reasons() (all []transport.Reason) {
	for _, e := range r.events() {
		all = append(all, e.Reason)
	}
	return all
}

// last returns the last reason, and ReasonFinal if there was none.
func (r *recorder) last() (reason transport.Reason) {
	for _, e := range r.events() {
		reason = e.Reason
	}
	return reason
}

func (r *recorder) on(ctx context.Context) context.Context {
	return transport.WithTrace(ctx, r.trace())
}

// reader makes a one-shot body of a reader: without GetBody, Seek and WriterTo.
func reader(r io.Reader) io.ReadCloser { return io.NopCloser(struct{ io.Reader }{r}) }

// bodies are the kinds of request bodies, each with the same text.
func bodies(t *testing.T, text string) map[string]func() io.Reader {
	file := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return map[string]func() io.Reader{
		"GetBody":  func() io.Reader { return strings.NewReader(text) },
		"one-shot": func() io.Reader { return reader(strings.NewReader(text)) },
		"file": func() io.Reader {
			f, err := os.Open(file)
			require.NoError(t, err)
			return f
		},
	}
}

// lastBody asserts that the last request brought its body whole.
func (s *stage) lastBody(text string) {
	s.t.Helper()
	log := s.Log()
	require.NotEmpty(s.t, log)
	last := log[len(log)-1]
	assert.True(s.t, last.BodyWhole, "the last body is whole")
	assert.EqualValues(s.t, len(text), last.BodyLength)
	assert.Equal(s.t, ts.Hash([]byte(text)), last.BodySHA256)
}

// whenRetried makes f run while the request is between two attempts.
func (s *stage) whenRetried(attempt int, f func()) *http.Request {
	return s.request(http.MethodPost, reader(strings.NewReader("an order"))).WithContext(
		transport.WithTrace(s.t.Context(), &transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
			if e.Number == attempt {
				assert.Equal(s.t, transport.ReasonRetry, e.Reason)
				f()
			}
		}}))
}

// unretried returns the history of a response, and whether it called for a retry.
func unretried(resp *http.Response) (transport.Reason, []transport.Attempt, bool) {
	h := transport.HistoryOf(resp, nil)
	return h.Reason, h.Attempts, h.Reason != "" && h.Reason != transport.ReasonFinal
}

// An answer is a faults.Step. Where a step cannot do it, an answer is an http.RoundTripper, or
// a function like its RoundTrip.
type answer any

// play plays an answer to a request. A step leaves the body of the request alone, because the
// caller of play has it.
func play(req *http.Request, a answer) (*http.Response, error) {
	switch a := a.(type) {
	case faults.Step:
		bare := req.WithContext(req.Context())
		bare.Body = nil
		resp, err := faults.New(nil, faults.Script(a)).RoundTrip(bare)
		if err == nil {
			resp.Request = req
		}
		return resp, err
	case http.RoundTripper:
		return a.RoundTrip(req)
	}
	return a.(func(*http.Request) (*http.Response, error))(req)
}

// An origin is a base transport that reads and closes each body, as a transport must. It
// remembers the requests, and when they arrived.
type origin struct {
	serve answer
	start time.Time

	mu     sync.Mutex
	at     []time.Duration
	reqs   []*http.Request
	bodies []string
}

// script returns an origin that plays the answers in turn, and repeats the last one forever.
func script(answers ...answer) *origin {
	var n atomic.Int32
	return &origin{start: time.Now(), serve: func(req *http.Request) (*http.Response, error) {
		return play(req, answers[min(int(n.Add(1)), len(answers))-1])
	}}
}

func (o *origin) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	var err error
	at := time.Since(o.start)
	if req.Body != nil {
		body, err = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	o.mu.Lock()
	o.at = append(o.at, at)
	o.reqs = append(o.reqs, req)
	o.bodies = append(o.bodies, string(body))
	o.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return play(req, o.serve)
}

// status is a response with headers as "Name: value", and a small body.
func status(code int, header ...string) faults.Step {
	s := faults.Status(code).Body("body of " + http.StatusText(code))
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		s = s.Header(name, value)
	}
	return s
}

func newResponse(req *http.Request, code int, body io.ReadCloser, header ...string) *http.Response {
	resp := &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: body, ContentLength: -1, Request: req,
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		resp.Header.Add(name, value)
	}
	return resp
}

// body is a request body that knows whether it was closed, and how often.
type body struct {
	io.Reader
	closes atomic.Int32
	onRead func()
}

func oneShot(text string) *body { return &body{Reader: bytes.NewBufferString(text)} }

func (b *body) Read(p []byte) (int, error) {
	if b.onRead != nil {
		b.onRead()
	}
	return b.Reader.Read(p)
}

func (b *body) Close() error {
	b.closes.Add(1)
	return nil
}

func (b *body) closed() int { return int(b.closes.Load()) }

// seekBody is a body with Seek.
type seekBody struct {
	body
	io.Seeker
	seekErr error
}

func seekable(text string) *seekBody {
	r := strings.NewReader(text)
	return &seekBody{body: body{Reader: r}, Seeker: r}
}

func (b *seekBody) Seek(offset int64, whence int) (int64, error) {
	if b.seekErr != nil && whence == io.SeekStart {
		return 0, b.seekErr
	}
	return b.Seeker.Seek(offset, whence)
}

type customBody struct{ io.Reader }

func custom(r io.Reader) io.ReadCloser   { return customBody{r} }
func buffered(r io.Reader) io.ReadCloser { return io.NopCloser(bufio.NewReader(r)) }

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func (customBody) Close() error { return nil }

func get(t testing.TB, tr http.RoundTripper, ctx context.Context) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://h.test/", nil)
	require.NoError(t, err)
	return tr.RoundTrip(req)
}

func (o *origin) arrivals() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]time.Duration(nil), o.at...)
}

// between counts the arrivals from a time on and before another time.
func (o *origin) between(from, to time.Duration) (n int) {
	for _, at := range o.arrivals() {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// sent asserts how many requests have arrived.
func (o *origin) sent(t testing.TB, want int, about ...any) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	what := "request"
	if len(o.reqs) > 0 {
		what = o.reqs[0].Method
	}
	count(t, want, len(o.at), what+" sent", about...)
}

// count asserts how often something happened. what says what, such as "POST sent".
func count[N int | int32 | int64](t testing.TB, want int, got N, what string, about ...any) {
	t.Helper()
	testkit.Count(t, want, int(got), what, about...)
}

func (o *origin) attempts() int { return len(o.arrivals()) }

// together runs f n times at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// mustRoundTrip returns the response to a request.
func mustRoundTrip(t testing.TB, tr http.RoundTripper, req *http.Request) *http.Response {
	t.Helper()
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	return resp
}

func mustGet(t testing.TB, tr http.RoundTripper) *http.Response {
	t.Helper()
	return mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil))
}

func mustFetch(t testing.TB, tr http.RoundTripper, ctx context.Context, url string) *http.Response {
	t.Helper()
	resp, err := fetch(t, tr, ctx, url)
	require.NoError(t, err)
	return resp
}

// errorAs returns the error of a type that err is or wraps.
func errorAs[E error](t testing.TB, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	require.True(t, ok, "%v", err)
	return e
}

// mustRead reads the body of a response to its end, and leaves it open.
func mustRead(t testing.TB, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

// responds is send, and asserts that there is a response. It may run in any goroutine.
func responds(t testing.TB, tr http.RoundTripper, method, url string, header ...string) int {
	t.Helper()
	code, err := send(t, tr, method, url, header...)
	assert.NoError(t, err)
	return code
}

// send sends a request, and reads and closes the response.
func send(t testing.TB, tr http.RoundTripper, method, url string, header ...string) (int, error) {
	resp, err := tr.RoundTrip(headed(t, method, url, header...))
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

func headed(t testing.TB, method, url string, header ...string) *http.Request {
	req := newRequest(t, method, url, nil)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return req
}

// pause waits as a server does that stops working when the client leaves.
func pause(req *http.Request, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
		return context.Cause(req.Context())
	}
}

// stateOf returns the snapshot of http://h.test.
func stateOf(t testing.TB, tr *transport.Transport) transport.HostState {
	t.Helper()
	return hostState(t, tr, "http://h.test")
}

// hostState returns the snapshot of a host.
func hostState(t testing.TB, tr *transport.Transport, name string) transport.HostState {
	t.Helper()
	all := tr.Snapshot().Hosts
	i := slices.IndexFunc(all, func(s transport.HostState) bool { return s.Host == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

// idle asserts that nothing of http://h.test is in use, and nobody waits.
func idle(t testing.TB, tr *transport.Transport) {
	t.Helper()
	s := stateOf(t, tr)
	assert.Zero(t, s.InFlight, "requests in flight")
	assert.Zero(t, s.ConcurrencyInUse, "slots in use")
	assert.Zero(t, s.ConcurrencyWaiting, "requests at the limiter")
	assert.Zero(t, s.RetriesWaiting, "retries in line")
}

// deafly does not notice that the client has left.
func deafly(d time.Duration, a answer) rt {
	return func(req *http.Request) (*http.Response, error) {
		time.Sleep(d)
		return play(req.WithContext(context.WithoutCancel(req.Context())), a)
	}
}

func deaf(d time.Duration) rt { return deafly(d, status(200)) }

func over(t testing.TB, c transport.Config, base http.RoundTripper) *transport.Transport {
	c.Base = base
	return mustNew(t, c)
}

// expires returns a context with a deadline.
func expires(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// cancels closes the Request.Cancel of a request after a time, as old callers do.
func cancels(req *http.Request, after time.Duration) {
	canceled := make(chan struct{})
	//lint:ignore SA1019 old callers still set Request.Cancel
	req.Cancel = canceled
	time.AfterFunc(after, func() { close(canceled) })
}

// backoffFunc is a Backoff made of a function.
type backoffFunc func(n int, prev time.Duration) time.Duration

func (f backoffFunc) Delay(n int, prev time.Duration) time.Duration { return f(n, prev) }

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

const waitFor, tick = 5 * time.Second, time.Millisecond

func mustGetWith(t testing.TB, tr http.RoundTripper, ctx context.Context) *http.Response {
	t.Helper()
	return mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx))
}

func wantText(t testing.TB, r io.Reader, want string, about ...any) {
	t.Helper()
	text, err := io.ReadAll(r)
	assert.NoError(t, err, about...)
	assert.Equal(t, want, string(text), about...)
}
