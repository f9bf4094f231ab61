package transport_test

import (
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func TestFailFast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ev := &recorder{}
		tr := mustNew(t, transport.Config{Base: script(status(200)), Rule: policy.Rule{Concurrency: policy.Concurrency{FailFast: policy.On, Max: 1}}})
		first := mustGet(t, tr)
		start := time.Now()
		b := oneShot("text")
		_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", b).WithContext(ev.on(t.Context())))
		assert.Equal(t, start, time.Now())
		assert.ErrorIs(t, err, transport.ErrNotSent)
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonConcurrency, e.Reason)
		assert.True(t, e.GaveUp())
		assert.False(t, e.Timeout())
		count(t, 1, b.closed(), "body closed")
		assert.Equal(t, []transport.Reason{transport.ReasonConcurrency}, ev.reasons())
		_ = first.Body.Close()
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
	})
}

// TestFailFastAndRate: the limiter refuses requests, and the rate makes them wait.
func TestFailFastAndRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: script(status(200)), Rule: policy.Rule{
			RateLimit: policy.RateLimit{PerSecond: 1, Burst: 1}, Concurrency: policy.Concurrency{FailFast: policy.On, Max: 10},
		}})
		for range 2 {
			responds(t, tr, http.MethodGet, "http://h.test/")
		}
		together(3, func(int) { // there are free slots
			responds(t, tr, http.MethodGet, "http://h.test/")
		})
	})
}

// TestSlotOfABody: an attempt has its slot until the end of the response's body.
func TestSlotOfABody(t *testing.T) {
	const flying, landed = 1, 0
	upgrade := func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 101, rwcBody{}, "Upgrade: x"), nil
	}
	type step struct {
		do   func(*http.Response)
		want int
	}
	readAll := func(r *http.Response) { _, _ = io.ReadAll(r.Body) }
	readOne := func(r *http.Response) { _, _ = r.Body.Read(make([]byte, 1)) }
	closeIt := func(r *http.Response) { _ = r.Body.Close() }
	nothing := func(*http.Response) {}
	rows := map[string]struct {
		responses []answer
		rule      policy.Rule
		method    string
		header    string
		steps     []step
		panics    bool
	}{
		"read to the end, then closed":   {responses: []answer{status(200)}, steps: []step{{nothing, flying}, {readOne, flying}, {readAll, landed}, {closeIt, landed}}},
		"closed, then read":              {responses: []answer{status(200)}, steps: []step{{closeIt, landed}, {readAll, landed}, {closeIt, landed}}},
		"not closed":                     {responses: []answer{status(200)}, steps: []step{{func(*http.Response) { time.Sleep(time.Hour) }, flying}, {closeIt, landed}}},
		"no body":                        {responses: []answer{faults.Status(204)}, steps: []step{{nothing, landed}}},
		"101":                            {responses: []answer{upgrade}, header: "Upgrade: x", steps: []step{{nothing, landed}}},
		"a tunnel":                       {responses: []answer{status(200)}, method: http.MethodConnect, steps: []step{{nothing, landed}}},
		"a refused tunnel":               {responses: []answer{status(407)}, method: http.MethodConnect, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"an error":                       {responses: []answer{faults.Fail(errors.New("odd"))}, steps: []step{{nothing, landed}}},
		"errors, then a response":        {responses: []answer{faults.Fail(syscall.ECONNRESET), faults.Fail(syscall.ECONNREFUSED), status(200)}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"bad responses, then a good one": {responses: []answer{status(503), status(500), faults.Status(503), status(200)}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"given up":                       {responses: []answer{status(503)}, steps: []step{{nothing, landed}, {closeIt, landed}}},
		"too many requests":              {responses: []answer{status(429)}, steps: []step{{nothing, landed}}},
		"not implemented":                {responses: []answer{status(501)}, steps: []step{{nothing, landed}}},
		"a loser that never responds":    {responses: []answer{faults.Hang(), status(200)}, rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"a loser that responds late":     {responses: []answer{deaf(5 * time.Second), status(200)}, rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, steps: []step{{func(*http.Response) { time.Sleep(time.Minute) }, flying}, {closeIt, landed}}},
		"a hedge that loses":             {responses: []answer{deaf(2 * time.Second), deaf(time.Minute)}, rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, steps: []step{{func(*http.Response) { time.Sleep(time.Hour) }, flying}, {closeIt, landed}}},
		"a hedge and its attempt fail":   {responses: []answer{deafly(2*time.Second, status(503)), deafly(3*time.Second, status(503)), status(200)}, rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"an attempt timeout":             {responses: []answer{faults.Hang(), status(200)}, rule: policy.Rule{AttemptTimeout: time.Second}, steps: []step{{nothing, flying}, {closeIt, landed}}},
		"a base that panics":             {responses: []answer{func(*http.Request) (*http.Response, error) { panic("base") }}, panics: true, steps: []step{{nothing, landed}}},
		"a base that panics at a retry":  {responses: []answer{status(503), func(*http.Request) (*http.Response, error) { panic("base") }}, panics: true, steps: []step{{nothing, landed}}},
		"neither response nor error":     {responses: []answer{func(*http.Request) (*http.Response, error) { return nil, nil }}, steps: []step{{nothing, landed}}},
		"response and error": {responses: []answer{func(r *http.Request) (*http.Response, error) {
			return newResponse(r, 200, http.NoBody), errors.New("both")
		}}, steps: []step{{nothing, landed}}},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			rule := row.rule
			rule.Concurrency, rule.MaxAttempts = policy.Concurrency{Max: 2}, 5
			tr := mustNew(t, transport.Config{Base: script(row.responses...), Rule: rule})
			method := row.method
			if method == "" {
				method = http.MethodGet
			}
			req := headed(t, method, "http://h.test/", row.header)
			resp, err := func() (resp *http.Response, err error) {
				defer func() { assert.Equal(t, row.panics, recover() != nil) }()
				return tr.RoundTrip(req)
			}()
			if err != nil {
				assert.Nil(t, resp)
			}
			for i, s := range row.steps {
				s.do(resp)
				synctest.Wait()
				got := stateOf(t, tr)
				assert.Equal(t, s.want, got.ConcurrencyInUse, "step %d", i)
				assert.Zero(t, got.InFlight, "requests in flight")
			}
			time.Sleep(2 * time.Minute)
		})
	}
}

type rwcBody struct{ io.ReadWriter }

func (rwcBody) Close() error { return nil }
