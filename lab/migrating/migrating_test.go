// Both programs of each pair do the same.

package migrating

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/transport"
)

// A program sends a request and reads the response.
type program func(ctx context.Context, method, url string, body []byte) result

type result struct {
	status int
	body   string
	err    error
	resp   *http.Response // without its body, nil for resty
}

// A pair is the same program before and after.
type pair struct {
	name          string // in the table of the document
	before, after func(*testing.T, http.RoundTripper) program
}

var pairs = []pair{
	{"go-retryablehttp", made(ofClient, retryablehttpBefore), made(ofClient, retryablehttpAfter)},
	{"rehttp", made(ofClient, rehttpBefore), made(ofClient, rehttpAfter)},
	{"failsafe-go", made(ofClient, failsafeBefore), made(ofClient, failsafeAfter)},
	{"heimdall", made(ofClient, heimdallBefore), made(ofClient, heimdallAfter)},
	{"resty", made(ofResty, restyBefore), made(ofResty, restyAfter)},
	{"cenkalti/backoff", made(ofFunc(backoffBefore), plainClient), made(ofFunc(backoffAfter), newClient)},
	{"a hand-written loop", made(ofFunc(loopBefore), plainClient), made(ofFunc(loopAfter), newClient)},
}

func plainClient(base http.RoundTripper) *http.Client { return &http.Client{Transport: base} }

// made makes a program of a constructor.
func made[C any](use func(C) program, construct func(http.RoundTripper) C) func(*testing.T, http.RoundTripper) program {
	return func(_ *testing.T, base http.RoundTripper) program { return use(construct(base)) }
}

func ofClient[C interface {
	Do(*http.Request) (*http.Response, error)
}](client C) program {
	return func(ctx context.Context, method, url string, body []byte) result {
		var r io.Reader // of nothing: heimdall rewinds a body that an attempt still reads
		if body != nil {
			r = bytes.NewReader(body)
		}
		req, err := http.NewRequestWithContext(ctx, method, url, r)
		if err != nil {
			return result{err: err}
		}
		return read(client.Do(req))
	}
}

func ofFunc(send func(context.Context, *http.Client, string, string, []byte) (*http.Response, error)) func(*http.Client) program {
	return func(client *http.Client) program {
		return func(ctx context.Context, method, url string, body []byte) result {
			return read(send(ctx, client, method, url, body))
		}
	}
}

func ofResty(client *resty.Client) program {
	client.SetLogger(silent{})
	return func(ctx context.Context, method, url string, body []byte) result {
		r := client.R().SetContext(ctx)
		if body != nil {
			r.SetBody(body)
		}
		resp, err := r.Execute(method, url)
		return result{status: resp.StatusCode(), body: resp.String(), err: err, resp: resp.RawResponse}
	}
}

// silent is a resty.Logger.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

func read(resp *http.Response, err error) result {
	r := result{err: err, resp: resp}
	if resp == nil {
		return r
	}
	r.status = resp.StatusCode
	text, err := io.ReadAll(resp.Body)
	if r.err == nil {
		r.err = err
	}
	_ = resp.Body.Close()
	r.body = string(text)
	return r
}

// TestSame: given a server with a fault, both programs of a pair send the same requests,
// and get the same response.
func TestSame(t *testing.T) {
	order := []byte("an order")
	for _, fault := range []struct {
		name   string
		method string
		body   []byte
		steps  []testserver.Step
		want   int // arrivals
		status int // 0: not compared, because some report an error
	}{
		{"two 503s", http.MethodGet, nil, []testserver.Step{testserver.Status(503), testserver.Status(503), testserver.OK("hello")}, 3, 200},
		{"a PUT meets a 502", http.MethodPut, order, []testserver.Step{testserver.Status(502), testserver.OK("stored")}, 2, 200},
		{"a reset", http.MethodGet, nil, []testserver.Step{testserver.ResetBeforeHeaders(), testserver.OK("hello")}, 2, 200},
		{"no fault", http.MethodPost, order, []testserver.Step{testserver.OK("done")}, 1, 200},
		{"a 404", http.MethodGet, nil, []testserver.Step{testserver.Status(404).Body("no such order")}, 1, 404},
		{"always 503", http.MethodGet, nil, []testserver.Step{testserver.Status(503)}, 5, 0},
	} {
		for _, p := range pairs {
			t.Run(fault.name+"/"+p.name, func(t *testing.T) {
				run := func(build func(*testing.T, http.RoundTripper) program) (r result, log []testserver.Arrival) {
					// In virtual time the waits take no time.
					synctest.Test(t, func(t *testing.T) {
						server := testserver.Start(t, testserver.Config{Net: testserver.NewNet()}, fault.steps...)
						r = build(t, server.Transport())(t.Context(), fault.method, server.URL+"/orders", fault.body)
						log = server.Log()
					})
					return r, log
				}
				before, sawBefore := run(p.before)
				after, sawAfter := run(p.after)
				if !assert.Equal(t, [2]int{fault.want, fault.want}, [2]int{len(sawBefore), len(sawAfter)}, "requests before and after") {
					return
				}
				for i, b := range sawBefore {
					a := sawAfter[i]
					if a.Method != b.Method || a.Target != b.Target || a.BodySHA256 != b.BodySHA256 || a.BodySHA256 != testserver.Hash(fault.body) {
						t.Errorf("request %d: %s %s with %q before, %s %s with %q after",
							i+1, b.Method, b.Target, b.BodyPrefix, a.Method, a.Target, a.BodyPrefix)
					}
				}
				if fault.status == 0 {
					return
				}
				assert.True(t, before.err == nil && after.err == nil && before.status == fault.status && after.status == fault.status && before.body == after.body,
					"before %d %q %v, after %d %q %v, want %d", before.status, before.body, before.err, after.status, after.body, after.err, fault.status)
			})
		}
	}
}

// TestPing: both programs call a function until it succeeds.
func TestPing(t *testing.T) {
	for name, ping := range map[string]func(context.Context, func(context.Context) error) error{
		"before": pingBefore, "after": pingAfter,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := ping(t.Context(), func(context.Context) error {
					if calls++; calls < 3 {
						return errors.New("not up yet")
					}
					return nil
				})
				assert.True(t, err == nil && calls == 3, "%d calls, %v", calls, err)
			})
		})
	}
}

// TestHeimdall: heimdall waits although the context has ended, and does not retry a 429.
// The program with aplomb does otherwise.
func TestHeimdall(t *testing.T) {
	heimdall := pairs[slices.IndexFunc(pairs, func(p pair) bool { return p.name == "heimdall" })]
	elapsed := func(build func(*testing.T, http.RoundTripper) program) (took time.Duration) {
		measure(t, build, faults.Script(faults.Status(503)), func(t *testing.T, send program, _ *faults.Transport) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			send(ctx, http.MethodGet, url, nil)
			took = time.Since(start)
		})
		return took
	}
	before, after := elapsed(heimdall.before), elapsed(heimdall.after)
	assert.True(t, before >= time.Second && after <= 50*time.Millisecond, "a request with 50 ms took %v before, %v after", before, after)
	sent := func(build func(*testing.T, http.RoundTripper) program) (n int) {
		measure(t, build, faults.Script(faults.Status(429)), func(t *testing.T, send program, server *faults.Transport) {
			send(t.Context(), http.MethodGet, url, nil)
			n = len(server.Records())
		})
		return n
	}
	assert.Equal(t, [2]int{1, 5}, [2]int{sent(heimdall.before), sent(heimdall.after)}, "how often a GET that gets 429 is sent, before and after")
}

// TestRestyErrorCondition: AddRetryAfterErrorCondition retries a 404.
func TestRestyErrorCondition(t *testing.T) {
	before := made(ofResty, func(base http.RoundTripper) *resty.Client {
		return resty.New().SetTransport(base).SetRetryCount(4).AddRetryAfterErrorCondition()
	})
	measure(t, before, faults.Script(faults.Status(404)), func(t *testing.T, send program, server *faults.Transport) {
		send(t.Context(), http.MethodGet, url, nil)
		assert.Len(t, server.Records(), 5, "requests sent")
	})
}

// reasonOf says why there was no retry.
func reasonOf(r result) transport.Reason { return transport.HistoryOf(r.resp, nil).Reason }
