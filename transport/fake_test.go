// The helpers of the tests in package transport. The helpers of package
// transport_test are in helpers_test.go.

package transport

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// rt is a base transport made of a function. It does not close bodies, but play does.
type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A response makes the response or the error of a played base.
type response func(*http.Request) (*http.Response, error)

// play is a base that reads and closes each body, as a transport must. It then gives the
// next response. It repeats the last response forever.
type play struct {
	mu        sync.Mutex
	responses []response
	reqs      []*http.Request
	bodies    []string
}

func script(responses ...response) *play { return &play{responses: responses} }

func (p *play) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	next := p.responses[min(len(p.reqs), len(p.responses)-1)]
	p.reqs = append(p.reqs, req)
	p.bodies = append(p.bodies, string(body))
	p.mu.Unlock()
	return next(req)
}

func (p *play) attempts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.reqs)
}

// status responds with a status, headers as "Name: value", and a small body.
func status(code int, header ...string) response {
	return func(req *http.Request) (*http.Response, error) {
		return newResponse(req, code, io.NopCloser(strings.NewReader("body of "+http.StatusText(code))), header...), nil
	}
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

func fails(err error) response {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// quick is a rule for tests in which time does not matter.
var quick = policy.Rule{Backoff: backoff.Constant(0), Budget: policy.Budget{Burst: policy.Off}}

func mustNew(t testing.TB, c Config) *Transport {
	t.Helper()
	tr, err := New(c)
	require.NoError(t, err)
	return tr
}

func newRequest(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	return req
}

// body is a request body that knows whether it was closed, and how often.
type body struct {
	io.Reader
	mu     sync.Mutex
	closes int
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
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closes++
	return nil
}

func (b *body) closed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closes
}

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

// events collects a request's events.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) trace() *Trace {
	return &Trace{Event: func(ev Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, ev)
	}}
}

func (e *events) reasons() []Reason {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Reason
	for _, ev := range e.all {
		all = append(all, ev.Reason)
	}
	return all
}

func (e *events) last() Reason {
	r := e.reasons()
	return r[len(r)-1]
}

func (e *events) on(ctx context.Context) context.Context { return WithTrace(ctx, e.trace()) }

// unretried returns the history of a response, and whether it called for a retry.
func unretried(resp *http.Response) (Reason, []Attempt, bool) {
	h := HistoryOf(resp)
	return h.Reason, h.Attempts, h.Reason != ReasonFinal
}

// takes is a server that responds with 200 after a time. It stops when the client
// leaves.
func takes(d time.Duration) response {
	return func(req *http.Request) (*http.Response, error) {
		if err := pause(req, d); err != nil {
			return nil, err
		}
		return status(200)(req)
	}
}

type customBody struct{ io.Reader }

func custom(r io.Reader) io.ReadCloser   { return customBody{r} }
func buffered(r io.Reader) io.ReadCloser { return io.NopCloser(bufio.NewReader(r)) }

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func (customBody) Close() error { return nil }

// exact is a rule whose waits are known: 1 s, 2 s, 4 s … without jitter.
var exact = policy.Rule{Backoff: backoff.Exponential{Jitter: -1}}

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func get(t testing.TB, tr http.RoundTripper, ctx context.Context) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://h.test/", nil)
	require.NoError(t, err)
	return tr.RoundTrip(req)
}

// An origin is a base transport that remembers when each attempt arrived.
type origin struct {
	serve func(req *http.Request) (*http.Response, error)
	start time.Time

	mu sync.Mutex
	at []time.Duration
}

func newOrigin(serve func(*http.Request) (*http.Response, error)) *origin {
	return &origin{serve: serve, start: time.Now()}
}

func (o *origin) RoundTrip(req *http.Request) (*http.Response, error) {
	o.mu.Lock()
	o.at = append(o.at, time.Since(o.start))
	o.mu.Unlock()
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	return o.serve(req)
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

func (o *origin) attempts() int { return len(o.arrivals()) }

// together runs f n times at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
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
func stateOf(t testing.TB, tr *Transport) HostState {
	t.Helper()
	s, ok := tr.SnapshotOf(&url.URL{Scheme: "http", Host: "h.test"})
	require.True(t, ok)
	return s
}

func empty(code int) response {
	return func(req *http.Request) (*http.Response, error) { return newResponse(req, code, http.NoBody), nil }
}

// hangs blocks until the client leaves. deaf responds after a time and does not notice
// that the client has left.
func hangs(req *http.Request) (*http.Response, error) { return nil, pause(req, time.Hour) }

func deaf(d time.Duration) response { return deafly(d, status(200)) }

func deafly(d time.Duration, a response) response {
	return func(req *http.Request) (*http.Response, error) {
		time.Sleep(d)
		return a(req)
	}
}

func over(t testing.TB, c Config, base http.RoundTripper) *Transport {
	c.Base = base
	return mustNew(t, c)
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

const waitFor, tick = 5 * time.Second, time.Millisecond
