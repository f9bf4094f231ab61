// The helpers of the tests in package transport_test. The helpers of package transport are
// in fake_test.go.

package transport_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

var (
	// now retries without a wait. It is for tests in which time does not matter, and
	// for tests over TCP, which run in real time.
	now = policy.Rule{Backoff: backoff.Constant(0), Budget: policy.Budget{Burst: policy.Off}}
	// exactly waits 1 s, 2 s, 4 s … without jitter.
	exactly = policy.Rule{Backoff: backoff.Exponential{Jitter: -1}}
)

var (
	http1       = []protocol{{"http1", ts.Config{}}, {"http1+tls", ts.Config{TLS: ts.Trusted}}}
	http2       = []protocol{{"h2c", ts.Config{HTTP2: true}}, {"http2", ts.Config{HTTP2: true, TLS: ts.Trusted}}}
	anyProtocol = []protocol{http1[0], http2[0]}
)

// base is a base transport made of a function.
type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// plays makes a base that plays the steps in turn and repeats the last step forever.
func plays(steps ...faults.Step) *faults.Transport { return faults.New(nil, faults.Script(steps...)) }

// get sends a GET, closes the response, and returns the results of RoundTrip.
func get(t testing.TB, tr http.RoundTripper, ctx context.Context, url string) (*http.Response, error) {
	t.Helper()
	resp, err := tr.RoundTrip(request(t, http.MethodGet, url, nil).WithContext(ctx))
	if err == nil {
		_ = resp.Body.Close()
	}
	return resp, err
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
		t.Run(p.name+"/memory", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := p.cfg
				cfg.Net = ts.NewNet()
				test(t, cfg)
			})
		})
	}
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
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
	s.tr = mustNew(t, transport.Config{Base: s.base, Rule: rule, Trace: s.seen.trace()})
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
	return request(s.t, method, s.URL+"/", body)
}

func request(t testing.TB, method, url string, body io.Reader) *http.Request {
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

// A recorder keeps events.
type recorder struct {
	mu  sync.Mutex
	all []transport.Event
}

func (r *recorder) trace() *transport.Trace {
	return &transport.Trace{Event: func(e transport.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, e)
	}}
}

func (r *recorder) events() []transport.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]transport.Event(nil), r.all...)
}

func (r *recorder) reasons() (all []transport.Reason) {
	for _, e := range r.events() {
		all = append(all, e.Reason)
	}
	return all
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

// A sum is the hash and the length of the bytes that are written to it.
type sum struct {
	hash.Hash
	n int64
}

func newSum() *sum { return &sum{Hash: sha256.New()} }

func (s *sum) Write(p []byte) (int, error) {
	s.n += int64(len(p))
	return s.Hash.Write(p)
}

func (s *sum) hex() string { return hex.EncodeToString(s.Sum(nil)) }

// lastBody asserts that the last request brought its body whole.
func (s *stage) lastBody(text string) {
	s.t.Helper()
	log := s.Log()
	last := log[len(log)-1]
	assert.True(s.t, last.BodyWhole, "the last body is whole")
	assert.EqualValues(s.t, len(text), last.BodyLength)
	assert.Equal(s.t, ts.Hash([]byte(text)), last.BodySHA256)
}

// whenRetried makes f run while the request is between two attempts.
func (s *stage) whenRetried(attempt int, f func()) *http.Request {
	return s.request(http.MethodPost, reader(strings.NewReader("an order"))).WithContext(
		transport.WithTrace(s.t.Context(), &transport.Trace{Event: func(e transport.Event) {
			if e.Number == attempt {
				assert.Equal(s.t, transport.ReasonRetry, e.Reason)
				f()
			}
		}}))
}

// unretried returns the history of a response, and whether it called for a retry.
func unretried(resp *http.Response) (transport.Reason, []transport.Attempt, bool) {
	h := transport.HistoryOf(resp)
	return h.Reason, h.Attempts, h.Reason != transport.ReasonFinal
}
