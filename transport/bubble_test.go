package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A Transport that the tests of a program share is made in a bubble of testing/synctest, and used in
// others and outside. Whatever waits or is timed has its timers and channels from the bubble of its
// request. The times are short, because outside they pass in real time.
func TestTransportInBubblesAndOutside(t *testing.T) {
	const ms = time.Millisecond
	ok, body := faults.Status(200).Body("hello"), faults.Status(200).Header("Etag", `"v1"`).Body("0123456789")
	once := policy.Rule{MaxAttempts: 1, Resume: policy.Off}
	base := policy.Rule{Backoff: backoff.Constant(ms), RetryBudget: policy.RetryBudget{Enabled: policy.Off}}
	for name, row := range map[string]struct {
		rule    policy.Rule
		answers []answer // of each request, by its attempts
		want    error    // nil: each request gets "hello"
		pool    bool     // the host has other pools
		dead    bool     // they find no connection
		many    int      // requests at a time; 0: one
		upload  bool
		limit   time.Duration // Client.Timeout
	}{
		"a quick response":            {rule: policy.Rule{AttemptTimeout: time.Hour, ConnectTimeout: time.Hour, StallTimeout: time.Hour}, answers: []answer{ok}},
		"AttemptTimeout":              {rule: once.Or(policy.Rule{AttemptTimeout: 5 * ms}), answers: []answer{faults.Hang()}, want: policy.ErrAttemptTimeout},
		"the time of a retry":         {rule: policy.Rule{MaxAttempts: 2}, answers: []answer{faults.ConnReset(), ok}},
		"ConnectTimeout":              {rule: once.Or(policy.Rule{ConnectTimeout: 5 * ms}), answers: []answer{seeking}, want: context.DeadlineExceeded},
		"FirstEventTimeout":           {rule: once.Or(policy.Rule{FirstEventTimeout: 5 * ms}), answers: []answer{faults.Status(200).Header("Content-Type", "text/event-stream").Body("data: x\n\n").StallAt(3)}, want: policy.ErrAttemptTimeout},
		"a body that stalls":          {rule: once.Or(policy.Rule{StallTimeout: 5 * ms}), answers: []answer{body.StallAt(4)}, want: policy.ErrStallTimeout},
		"a body that is cut":          {answers: []answer{faults.Status(200).Body("hello").CutAt(2), ok}},
		"an upload":                   {rule: policy.Rule{AttemptTimeout: time.Hour, StallTimeout: time.Hour, ReplayBuffer: 1 << 20}, answers: []answer{faults.Status(503), ok}, upload: true},
		"retries":                     {answers: []answer{faults.ConnReset(), faults.Status(503).RetryAfter(0), ok}},
		"a body to be drained":        {answers: []answer{faults.Status(503).Body("later").Drip(1, ms), ok}},
		"a drain that hangs":          {answers: []answer{faults.Status(503).Body("later").StallAt(2), ok}},
		"a hedge":                     {rule: policy.Rule{Hedge: policy.Hedge{Delay: ms}}, answers: []answer{faults.Hang(), ok}},
		"a rate":                      {rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 500, Burst: 1}}, answers: []answer{ok}, many: 3},
		"a limiter":                   {rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}}, answers: []answer{ok.Delay(ms)}, many: 3},
		"a limiter and a rate":        {rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}, RateLimit: policy.RateLimit{PerSecond: 500, Burst: 1}}, answers: []answer{ok.Delay(ms)}, many: 3},
		"a quota":                     {rule: policy.Rule{QuotaPacing: policy.On}, answers: []answer{ok.Header("X-RateLimit-Limit", "2").Header("X-RateLimit-Remaining", "0").Header("X-RateLimit-Reset", "0")}, many: 3},
		"a hold":                      {rule: policy.Rule{ShareRetryAfter: policy.On}, answers: []answer{faults.Status(429).RetryAfter(0), ok}, many: 3},
		"a Timeout of a client":       {answers: []answer{faults.Hang()}, limit: 5 * ms, want: context.DeadlineExceeded},
		"other pools":                 {rule: policy.Rule{AttemptTimeout: 5 * ms}, answers: []answer{faults.ConnReset(), faults.ConnReset(), ok}, pool: true, many: 3},
		"a pool without a connection": {answers: []answer{faults.ConnReset(), faults.ConnReset(), ok}, pool: true, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := rt(func(req *http.Request) (*http.Response, error) {
				defer func() { _, _ = readAndClose(req.Body) }()
				if count, ok := req.Context().Value(attemptsKey{}).(*attemptCount); ok {
					return play(req, row.answers[min(count.next(), len(row.answers)-1)])
				}
				return play(req, ok)
			})
			var tr *transport.Transport
			use := func(t *testing.T) {
				if tr == nil {
					config := transport.Config{Base: server, Rule: row.rule.Or(base)}
					if row.pool {
						config.NewPool = func(string) http.RoundTripper { return server }
					}
					if row.dead {
						config.NewPool = func(string) http.RoundTripper { return rt(unconnected) }
					}
					tr = mustNew(t, config)
				}
				client := &http.Client{Transport: tr, Timeout: row.limit}
				var all sync.WaitGroup
				for range 2 {
					for range max(row.many, 1) {
						all.Go(func() {
							req := getRequest(t, "http://h.test/").WithContext(context.WithValue(t.Context(), attemptsKey{}, new(attemptCount)))
							if row.upload {
								req.Method, req.Body = http.MethodPut, reader(strings.NewReader("news"))
							}
							got, err := readResponse(client.Do(req))
							if row.want != nil {
								assert.ErrorIs(t, err, row.want)
							} else if assert.NoError(t, err) {
								assert.Equal(t, "hello", got)
							}
						})
					}
					all.Wait()
				}
				got, err := readResponse(client.Do(getRequest(t, "http://h.test/"))) // ends before its timers fire
				assert.NoError(t, err)
				assert.Equal(t, "hello", got)
			}
			bubble(t, use)
			bubble(t, use)
			use(t)
			if row.rule.RateLimit == (policy.RateLimit{}) { // it counts from a time that is years ahead
				bubble(t, use)
			}
		})
	}
}

// seeking is a base that finds no connection.
func seeking(req *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(req.Context()).GetConn("h.test:80")
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// unconnected is a base whose dials fail.
func unconnected(req *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(req.Context()).GetConn("h.test:80")
	return nil, errRefused
}

type attemptsKey struct{}

// An attemptCount counts the attempts of a request.
type attemptCount struct {
	mu sync.Mutex
	n  int
}

func (c *attemptCount) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n - 1
}

func readAndClose(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	got, err := io.ReadAll(body)
	return got, errors.Join(err, body.Close())
}

func readResponse(resp *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	got, err := readAndClose(resp.Body)
	return string(got), err
}
