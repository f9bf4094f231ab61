package failover_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
)

// rt is a RoundTripper made of a function.
type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Regions are the servers of several hosts, behind one RoundTripper. The test says how each answers.
type regions struct {
	start time.Time

	mu     sync.Mutex
	answer map[string]http.RoundTripper // by host; nil: a 200
	seen   []arrival
}

// An arrival is a request that came to a region.
type arrival struct {
	host string
	at   time.Duration
	req  *http.Request
	body string
}

func newRegions() *regions {
	return &regions{start: time.Now(), answer: map[string]http.RoundTripper{}}
}

// RoundTrip reads and closes the body, takes 5 ms, and answers.
func (r *regions) RoundTrip(req *http.Request) (*http.Response, error) {
	var text []byte
	var err error
	if req.Body != nil {
		text, err = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	r.mu.Lock()
	r.seen = append(r.seen, arrival{req.URL.Host, time.Since(r.start), req, string(text)})
	answer := r.answer[req.URL.Host]
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := sleep(req.Context(), 5*time.Millisecond); err != nil {
		return nil, err
	}
	if answer == nil {
		answer = status(200)
	}
	return answer.RoundTrip(req)
}

func (r *regions) set(host string, answer http.RoundTripper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer[host] = answer
}

// at returns the arrivals at a host since a time.
func (r *regions) at(host string, from time.Duration) (all []arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.seen {
		if a.host == host && a.at >= from {
			all = append(all, a)
		}
	}
	return all
}

func (r *regions) now() time.Duration { return time.Since(r.start) }

// two returns regions in which a.test and b.test answer so, and a Transport over both.
func two(t testing.TB, a, b http.RoundTripper) (*regions, *failover.Transport) {
	t.Helper()
	r := newRegions()
	r.set("a.test", a)
	r.set("b.test", b)
	return r, r.transport(t, "a.test", "b.test")
}

// transport returns a Transport over http://a.test, http://b.test and so on.
func (r *regions) transport(t testing.TB, hosts ...string) *failover.Transport {
	var all []failover.Endpoint
	for _, host := range hosts {
		all = append(all, endpoint(host, r))
	}
	return mustNew(t, all...)
}

// endpoint returns an endpoint that allows some names.
func endpoint(host string, base http.RoundTripper, allow ...string) failover.Endpoint {
	return failover.Endpoint{URL: "http://" + host, Transport: base, Allow: allow}
}

// pair returns a Transport over http://a.test and http://b.test.
func pair(t testing.TB, a, b http.RoundTripper) *failover.Transport {
	t.Helper()
	return mustNew(t, endpoint("a.test", a), endpoint("b.test", b))
}

func mustNew(t testing.TB, endpoints ...failover.Endpoint) *failover.Transport {
	t.Helper()
	return testkit.Must(failover.New(endpoints...))(t)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// status answers with a status, headers and a small body that names the host.
func status(code int, header ...string) http.RoundTripper {
	return rt(func(req *http.Request) (*http.Response, error) {
		resp := &http.Response{
			StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: req,
			Body: io.NopCloser(strings.NewReader(req.URL.Host)), ContentLength: int64(len(req.URL.Host)),
		}
		for _, h := range header {
			name, value, _ := strings.Cut(h, ": ")
			resp.Header.Add(name, value)
		}
		return resp, nil
	})
}

// with answers with a body.
func with(code int, body io.ReadCloser) http.RoundTripper {
	return rt(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{}, Body: body, Request: req}, nil
	})
}

func fail(err error) http.RoundTripper {
	return rt(func(*http.Request) (*http.Response, error) { return nil, err })
}

var (
	refuses = rt(func(req *http.Request) (*http.Response, error) { return step(faults.ConnRefused(), req) })
	resets  = fail(syscall.ECONNRESET)
	hangs   = rt(func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	})
)

func step(s faults.Step, req *http.Request) (*http.Response, error) {
	return faults.New(nil, faults.Script(s)).RoundTrip(req)
}

func newRequest(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	return testkit.Must(http.NewRequestWithContext(t.Context(), method, url, body))(t)
}

// do sends a request, and returns the status and the body of the response or the error.
func do(tr http.RoundTripper, req *http.Request) (result string, err error) {
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return "", err
	}
	return fmt.Sprint(resp.StatusCode, " ", string(text)), nil
}

// ask sends a request, and returns the outcome in a few words.
func ask(tr http.RoundTripper, req *http.Request) string {
	result, err := do(tr, req)
	if err != nil {
		return err.Error()
	}
	return result
}

// get sends a GET, and returns the outcome in a few words.
func get(t testing.TB, tr http.RoundTripper, url string) string {
	t.Helper()
	return ask(tr, newRequest(t, http.MethodGet, url, nil))
}

// gets sends some GETs, which all have the same outcome.
func gets(t testing.TB, tr http.RoundTripper, n int, want string) {
	t.Helper()
	for range n {
		assert.Equal(t, want, get(t, tr, "http://a.test/"))
	}
}

// takeDown sends the requests after whose failures the first endpoint is down.
func takeDown(t testing.TB, tr http.RoundTripper) {
	t.Helper()
	for range 5 {
		get(t, tr, "http://a.test/")
	}
}

func bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
