package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
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

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A freezer is a server that works on 30 requests at a time, 100 ms each, and freezes
// for a while. It also works for clients that have left. When it wakes, all requests
// that arrived meanwhile are in its socket.
type freezer struct {
	freeze, wake time.Duration

	begun  time.Time
	slots  chan struct{}
	awake  chan struct{}
	mu     sync.Mutex
	queued int // in the socket when it woke
	served []time.Duration
}

func newFreezer(freeze, wake time.Duration) *freezer {
	f := &freezer{freeze: freeze, wake: wake, begun: time.Now(), slots: make(chan struct{}, 30), awake: make(chan struct{})}
	time.AfterFunc(wake, func() { close(f.awake) })
	return f
}

func (f *freezer) RoundTrip(req *http.Request) (*http.Response, error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		stuck := f.stuck(false)
		f.slots <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		f.stuck(stuck)
		<-f.slots
	}()
	select {
	case <-done:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.served = append(f.served, time.Since(f.begun))
		return play(req, status(200))
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
}

// stuck waits while the server is frozen. It counts the request unless the request was
// counted before.
func (f *freezer) stuck(before bool) bool {
	if at := time.Since(f.begun); at < f.freeze || at >= f.wake {
		return before
	}
	f.mu.Lock()
	if !before {
		f.queued++
	}
	f.mu.Unlock()
	<-f.awake
	return true
}

func (f *freezer) between(from, to time.Duration) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.served {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// TestLimiterAgainstAHangingServer is the requirement of the limiter. 100 requests per second
// arrive, whether or not other requests get a response.
func TestLimiterAgainstAHangingServer(t *testing.T) {
	const freeze, wake, end = 20 * time.Second, 40 * time.Second, 50 * time.Second
	rows := map[string]struct {
		rule     policy.Rule
		deadline time.Duration // of each caller
		more     int           // beyond the limit: requests that were given up are still in the server's socket, and a probe per 2.5 s
	}{
		"no attempt timeout":          {rule: policy.Rule{Concurrency: policy.Concurrency{Initial: 10}}},
		"attempt timeout":             {rule: policy.Rule{Concurrency: policy.Concurrency{Initial: 10}, AttemptTimeout: 2 * time.Second}, more: 8},
		"deadlines":                   {rule: policy.Rule{Concurrency: policy.Concurrency{Initial: 10}}, deadline: 5 * time.Second, more: 40},
		"attempt timeout, no limiter": {rule: policy.Rule{AttemptTimeout: 2 * time.Second}},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			server := newFreezer(freeze, wake)
			tr := mustNew(t, transport.Config{Base: server, Rule: row.rule})
			var limit, left int
			time.AfterFunc(freeze-1, func() { limit = stateOf(t, tr).ConcurrencyLimit })
			var wg sync.WaitGroup
			for at := time.Duration(0); at < end; {
				gap := time.Duration(rand.ExpFloat64() * float64(10*time.Millisecond))
				time.Sleep(gap)
				at += gap
				wg.Go(func() {
					ctx := t.Context()
					if row.deadline > 0 {
						with, cancel := context.WithTimeout(ctx, row.deadline)
						defer cancel()
						ctx = with
					}
					if resp, err := get(t, tr, ctx); err == nil {
						_ = resp.Body.Close()
					} else {
						server.mu.Lock()
						left++
						server.mu.Unlock()
					}
				})
			}
			third := server.between(wake+2*time.Second, wake+3*time.Second)
			wg.Wait()
			t.Logf("limit %d, found at the wake %d, served in the seconds after it %d %d %d, without a response %d", limit, server.queued,
				server.between(wake, wake+time.Second), server.between(wake+time.Second, wake+2*time.Second), third, left)
			time.Sleep(time.Minute) // the server finishes
			s := stateOf(t, tr)
			assert.Zero(t, s.ConcurrencyInUse, "slots in use")
			assert.Zero(t, s.ConcurrencyWaiting)
			if row.rule.Concurrency == (policy.Concurrency{}) {
				assert.Greater(t, server.queued, 1000)
				return
			}
			assert.LessOrEqual(t, server.queued, limit+row.more)
			assert.Greater(t, third, 75, "full throughput, give or take")
		})
	}
}

// TestCircuitOpensWhateverTheFailure: the limiter counts errors, responses without a body,
// and responses whose body a classifier has read to its end.
func TestCircuitOpensWhateverTheFailure(t *testing.T) {
	rows := map[string]struct {
		response answer
		rule     policy.Rule
		closes   bool
	}{
		"refused":          {response: faults.Fail(syscall.ECONNREFUSED), closes: true},
		"reset":            {response: faults.Fail(syscall.ECONNRESET), closes: true},
		"attempt timeouts": {response: func(r *http.Request) (*http.Response, error) { return nil, pause(r, time.Hour) }, rule: policy.Rule{AttemptTimeout: time.Second}, closes: true},
		"callers' timeouts": {response: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context()) // as net/http does
		}, closes: true},
		"an empty 503": {response: faults.Status(503), closes: true},
		"a 503":        {response: status(503), closes: true},
		"a body classifier": {response: status(503), closes: true, rule: policy.Rule{
			Classify: classify.OnBody(classify.Refused, "no such text"),
		}},
		"404":             {response: faults.Status(404)},
		"429":             {response: faults.Status(429)},
		"501":             {response: faults.Status(501)},
		"own faults":      {response: faults.Fail(errors.New("bad request of the caller's"))},
		"cancelled below": {response: func(r *http.Request) (*http.Response, error) { return nil, context.Canceled }},
	}
	for name, row := range rows {
		for _, hedge := range []time.Duration{0, 10 * time.Millisecond} {
			inBubble(t, fmt.Sprintf("%s, hedged after %v", name, hedge), func(t *testing.T) {
				rule := row.rule
				rule.Concurrency, rule.MaxAttempts = policy.Concurrency{Initial: 10}, 2
				rule.Backoff, rule.Hedge = backoff.Constant(10*time.Millisecond), policy.Hedge{Delay: hedge}
				tr := mustNew(t, transport.Config{Base: script(row.response), Rule: rule})
				closed := false
				for range 200 {
					ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errors.New("too slow"))
					if resp, err := get(t, tr, ctx); err == nil {
						_ = resp.Body.Close()
					}
					cancel()
					closed = closed || stateOf(t, tr).CircuitOpen
					time.Sleep(20 * time.Millisecond)
				}
				assert.Equal(t, row.closes, closed)
				assert.Zero(t, stateOf(t, tr).ConcurrencyInUse, "slots in use")
			})
		}
	}
}

// TestLimiterProbes: a host that is down gets a single probe at a time. The next probe
// begins within a second after the end of the last probe. The first success opens the
// limiter.
func TestLimiterProbes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		server := script(func(req *http.Request) (*http.Response, error) {
			if down.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return play(req, status(200))
		})
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Concurrency: policy.Concurrency{Initial: 10}}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if resp, err := get(t, tr, ctx); err == nil {
						_ = resp.Body.Close()
					}
					_ = pause(newRequest(t, http.MethodGet, "/", nil).WithContext(ctx), 100*time.Millisecond)
				}
			})
		}
		time.Sleep(20 * time.Second)
		require.True(t, stateOf(t, tr).CircuitOpen)
		for from := 10 * time.Second; from <= 19*time.Second; from += 100 * time.Millisecond {
			n := server.between(from, from+time.Second)
			assert.True(t, n == 1 || n == 2, "%d probes within a second", n)
		}
		down.Store(false)
		time.Sleep(2 * time.Second)
		s := stateOf(t, tr)
		assert.False(t, s.CircuitOpen)
		assert.GreaterOrEqual(t, s.ConcurrencyLimit, 5)
		cancel()
		wg.Wait()
	})
}

func TestFailFast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ev := &recorder{}
		tr := mustNew(t, transport.Config{Base: script(status(200)), Rule: policy.Rule{Concurrency: policy.Concurrency{FailFast: policy.On, Initial: 1, Max: 1}}})
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
			RateLimit: policy.RateLimit{PerSecond: 1, Burst: 1}, Concurrency: policy.Concurrency{FailFast: policy.On, Initial: 10},
		}})
		for range 2 {
			responds(t, tr, http.MethodGet, "http://h.test/")
		}
		together(3, func(int) { // there are free slots
			responds(t, tr, http.MethodGet, "http://h.test/")
		})
	})
}

// TestRateIsNoGate: requests that wait for their rate wait for no slot, and say nothing about
// the limiter's limit.
func TestRateIsNoGate(t *testing.T) {
	for name, f := range map[string]*memFleet{"alone": nil, "fleet": newMemFleet(0)} {
		inBubble(t, name, func(t *testing.T) {
			w := &witness{t: t}
			c := transport.Config{Base: script(status(200).Delay(100 * time.Millisecond)), Traces: []*transport.Trace{w.trace()}, Rule: policy.Rule{
				Concurrency: policy.Concurrency{Max: 50}, RateLimit: policy.RateLimit{PerSecond: 1, Burst: 1},
			}.Or(exact)}
			if f != nil {
				f = newMemFleet(2 * time.Millisecond)
				c.Fleet = fleettest.Link(f.member())
			}
			tr := mustNew(t, c)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { _, err := send(t, tr, http.MethodGet, "http://h.test/"); assert.NoError(t, err) })
			}
			for range 18 {
				time.Sleep(time.Second)
				state := stateOf(t, tr)
				assert.Zero(t, state.ConcurrencyWaiting)
				assert.Equal(t, 10, state.ConcurrencyLimit)
			}
			all.Wait()
			last := w.ends[len(w.ends)-1]
			assert.Equal(t, transport.ReasonRateLimit, last.WaitedFor)
			assert.InDelta(t, 19, last.Waited.Seconds(), 0.1)
		})
	}
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
			rule.Concurrency, rule.MaxAttempts = policy.Concurrency{Initial: 2, Max: 2}, 5
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

// TestLimiterServesInOrder: waiting requests pass in the order of their arrival, also when
// some of them leave.
func TestLimiterServesInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		server := script(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			order = append(order, req.URL.Path)
			mu.Unlock()
			time.Sleep(time.Second)
			return play(req, status(200))
		})
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Concurrency: policy.Concurrency{Initial: 1, Max: 1}}})
		var wg sync.WaitGroup
		var want []string
		for i := range 30 {
			path := "/" + strings.Repeat("i", i+1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 1 { // its deadline is nearer than its turn
				ctx, cancel = context.WithTimeout(ctx, 900*time.Millisecond)
				defer cancel()
			} else {
				want = append(want, path)
			}
			wg.Go(func() {
				start := time.Now()
				resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test"+path, nil).WithContext(ctx))
				if i%3 == 1 {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Equal(t, 900*time.Millisecond, time.Since(start), "waits as long as it can")
					e, ok := errors.AsType[*transport.Error](err)
					assert.True(t, ok && e.Timeout() && e.Reason == transport.ReasonConcurrency)
					return
				}
				if assert.NoError(t, err) {
					_ = resp.Body.Close()
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		assert.Equal(t, want, order)
		assert.Zero(t, stateOf(t, tr).ConcurrencyWaiting)
	})
}

// TestBadRouteAmongGoodOnes does not open the circuit, whether it fails or hangs.
func TestBadRouteAmongGoodOnes(t *testing.T) {
	for name, bad := range map[string]answer{"fails": status(503), "hangs": faults.Hang()} {
		inBubble(t, name, func(t *testing.T) {
			var took []time.Duration
			var mu sync.Mutex
			server := rt(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/bad" {
					return play(req, bad)
				}
				time.Sleep(20 * time.Millisecond)
				return play(req, status(200))
			})
			tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{
				Concurrency: policy.Concurrency{Initial: 10}, AttemptTimeout: time.Second, MaxAttempts: 2,
			}})
			var wg sync.WaitGroup
			for range 3000 { // 50 per second for a minute, a third of them bad
				path := "/good"
				if rand.IntN(3) == 0 {
					path = "/bad"
				}
				wg.Go(func() {
					start := time.Now()
					_, err := send(t, tr, http.MethodGet, "http://h.test"+path)
					if path == "/good" && assert.NoError(t, err) {
						mu.Lock()
						took = append(took, time.Since(start))
						mu.Unlock()
					}
				})
				time.Sleep(20 * time.Millisecond)
				require.False(t, stateOf(t, tr).CircuitOpen, "closed")
			}
			wg.Wait()
			slices.Sort(took)
			t.Logf("good ones: median %v, p99 %v; %v", took[len(took)/2], took[len(took)*99/100], stateOf(t, tr))
			assert.Less(t, took[len(took)/2], 2*time.Second)
		})
	}
}

// A response without a body makes the limiter grow as a response with a body does.
func TestLimiterGrowsWithAndWithoutBodies(t *testing.T) {
	for name, a := range map[string]answer{"without": faults.Status(200), "with": status(200)} {
		inBubble(t, name, func(t *testing.T) {
			tr := over(t, transport.Config{Rule: policy.Rule{Concurrency: policy.Concurrency{Enabled: policy.On}, MaxAttempts: 1}},
				script(deafly(10*time.Millisecond, a)))
			together(50, func(int) {
				for range 20 {
					responds(t, tr, http.MethodGet, "http://h.test/")
				}
			})
			assert.Greater(t, stateOf(t, tr).ConcurrencyLimit, 20)
		})
	}
}

// A request that the limiter refuses takes no token of the rate and is refused at once.
func TestRequestRefusedByTheGateTakesNoToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		block := make(chan struct{})
		tr := over(t, transport.Config{Rule: policy.Rule{
			RateLimit: policy.RateLimit{PerSecond: 0.01, Burst: 5}, Concurrency: policy.Concurrency{FailFast: policy.On, Initial: 1, Max: 1},
		}}, script(func(req *http.Request) (*http.Response, error) {
			<-block
			return play(req, faults.Status(200))
		}, faults.Status(200)))
		go responds(t, tr, http.MethodGet, "http://h.test/")
		synctest.Wait()
		start := time.Now()
		for range 10 {
			_, err := get(t, tr, t.Context())
			assert.ErrorIs(t, err, transport.ErrNotSent)
		}
		close(block)
		synctest.Wait()
		for range 4 { // the tokens that the first request left
			responds(t, tr, http.MethodGet, "http://h.test/")
		}
		assert.Equal(t, start, time.Now())
	})
}

// A failure that the rule calls final gives its slot back, although no retry follows.
func TestSlotOfAFinalFailure(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		bubble(t, func(t *testing.T) {
			tr := over(t, transport.Config{Rule: policy.Rule{
				AttemptTimeout: timeout,
				Concurrency:    policy.Concurrency{Max: 1},
				Classify:       func(classify.Outcome) classify.Class { return classify.Final },
			}}, script(status(500), status(500), status(200)))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 3 {
				_, err := fetch(t, tr, ctx, "http://h.test/")
				assert.NoError(t, err, "timeout %v", timeout)
			}
		})
	}
}

// TestLateSuccesses: requests that were sent before an outage may succeed during it, for
// instance because the host finishes them before it goes. They say nothing about the host as
// it is now, and neither closed circuits nor keep them open.
func TestLateSuccesses(t *testing.T) {
	const members, begin, end = 10, 10 * time.Second, 40 * time.Second
	for name, tt := range map[string]struct {
		fleet, late bool
		most        int
	}{
		"a fleet":                      {true, false, 150},
		"a fleet with late successes":  {true, true, 150},
		"separate":                     {false, false, 710},
		"separate with late successes": {false, true, 710},
	} {
		for _, silent := range []bool{false, true} {
			inBubble(t, name+map[bool]string{true: ", silent"}[silent], func(t *testing.T) {
				var f *memFleet
				if tt.fleet {
					f = newMemFleet(2 * time.Millisecond)
				}
				began := time.Now()
				var arrived atomic.Int32
				rule := policy.Rule{MaxAttempts: 1, Concurrency: policy.Concurrency{Initial: 100}}
				if silent {
					rule.AttemptTimeout = time.Second
				}
				c := newCrew(t, members, f, rule, func(_ int, req *http.Request) (*http.Response, error) {
					if d := req.Header.Get("Slow"); d != "" {
						until, _ := time.ParseDuration(d)
						time.Sleep(time.Until(began.Add(until)))
						return play(req, faults.Status(200))
					}
					if at := time.Since(began); at >= begin && at < end {
						arrived.Add(1)
						if silent {
							<-req.Context().Done()
							return nil, req.Context().Err()
						}
						return nil, syscall.ECONNREFUSED
					}
					time.Sleep(10 * time.Millisecond)
					return play(req, faults.Status(200))
				})
				var all sync.WaitGroup
				for i := range members {
					all.Go(func() {
						for time.Since(began) < end+20*time.Second {
							c.get(t, i)
							time.Sleep(250 * time.Millisecond)
						}
					})
				}
				if tt.late {
					time.Sleep(begin - time.Second)
					for at := begin; at < end; at += time.Second {
						all.Go(func() {
							i := int(at/time.Second) % members
							_ = closing(c.transports[i].RoundTrip(headed(t, http.MethodGet, "http://h.test/", "Slow: "+(at+500*time.Millisecond).String())))
						})
					}
				}
				all.Wait()
				t.Logf("%d requests arrived in the outage", arrived.Load())
				assert.LessOrEqual(t, int(arrived.Load()), tt.most)
				for i := range members {
					assert.Equal(t, 200, c.get(t, i))
				}
			})
		}
	}
}
