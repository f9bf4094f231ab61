package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	"github.com/aplomb-go/aplomb/transport"
)

// A load is requests that come whether or not others have ended. It counts how they end.
type load struct {
	tr         *transport.Transport
	deadline   time.Duration // of each; 0: none
	all        sync.WaitGroup
	good, lost atomic.Int64
}

// send sends n requests, a gap apart, and does not wait for them.
func (l *load) send(t *testing.T, n int, gap time.Duration) {
	for range n {
		l.all.Go(func() {
			ctx := t.Context()
			if l.deadline > 0 {
				with, cancel := context.WithTimeout(ctx, l.deadline)
				defer cancel()
				ctx = with
			}
			if closing(get(t, l.tr, ctx)) != nil {
				l.lost.Add(1)
			} else {
				l.good.Add(1)
			}
		})
		synctest.Wait() // each finds those before it
		time.Sleep(gap)
	}
}

// takes is a host whose responses take a time.
func takes(d time.Duration) answer { return status(200).Delay(d) }

// TestMaxAtOnce: Max requests go at once, from the first on, whatever a response takes. Nothing waits and
// nothing is refused below Max, whatever came before.
func TestMaxAtOnce(t *testing.T) {
	for name, row := range map[string]struct {
		max          int
		took         time.Duration
		quiet        time.Duration // with a request per second
		bursts, size int
		gap, pause   time.Duration // between two requests, and two bursts
	}{
		"all at the start":            {100, 10 * time.Second, 0, 1, 100, 0, 0},
		"10 s for each":               {100, 10 * time.Second, 0, 1, 600, 101 * time.Millisecond, 0},
		"2 s for each":                {500, 2 * time.Second, 0, 1, 6000, 5 * time.Millisecond, 0},
		"100 ms for each":             {200, 100 * time.Millisecond, 0, 1, 9000, time.Second / 300, 0},
		"100 ms for each, after 12 s": {200, 100 * time.Millisecond, 12 * time.Second, 1, 9000, time.Second / 300, 0},
		"bursts":                      {50, 100 * time.Millisecond, 0, 60, 40, 0, time.Second},
		"rare bursts":                 {50, 100 * time.Millisecond, time.Minute, 10, 50, 0, 15 * time.Second},
	} {
		for _, fails := range []policy.Switch{policy.Off, policy.On} {
			inBubble(t, fmt.Sprint(name, ", refusing ", fails), func(t *testing.T) {
				server := script(takes(row.took))
				l := &load{tr: mustNew(t, transport.Config{Base: server, Rule: policy.Rule{MaxAttempts: 1, Concurrency: policy.Concurrency{Max: row.max, FailFast: fails}}})}
				l.send(t, int(row.quiet/time.Second), time.Second)
				for range row.bursts {
					l.send(t, row.size, row.gap)
					assert.Zero(t, stateOf(t, l.tr).ConcurrencyWaiting)
					time.Sleep(row.pause)
				}
				assert.Equal(t, row.max, stateOf(t, l.tr).ConcurrencyLimit)
				l.all.Wait()
				assert.Zero(t, l.lost.Load())
			})
		}
	}
}

// TestFullMax: one more than Max is refused, or waits for a place.
func TestFullMax(t *testing.T) {
	for _, fails := range []policy.Switch{policy.Off, policy.On} {
		inBubble(t, fmt.Sprint(fails), func(t *testing.T) {
			l := &load{tr: mustNew(t, transport.Config{Base: script(takes(time.Second)), Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 20, FailFast: fails}}})}
			l.send(t, 25, 0)
			start := time.Now()
			l.all.Wait()
			if fails == policy.On {
				assert.Equal(t, []int64{20, 5}, []int64{l.good.Load(), l.lost.Load()})
				return
			}
			assert.Equal(t, []int64{25, 0}, []int64{l.good.Load(), l.lost.Load()})
			assert.Equal(t, 2*time.Second, time.Since(start))
		})
	}
}

// TestCallersWhoLeave: a tenant whose deadlines are shorter than a response takes its places for as long as its
// requests last, and no longer. The requests of others are neither refused nor late.
func TestCallersWhoLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: script(takes(100 * time.Millisecond)), Rule: policy.Rule{MaxAttempts: 1, Concurrency: policy.Concurrency{Max: 20, FailFast: policy.On}}})
		hasty, others := &load{tr: tr, deadline: 50 * time.Millisecond}, &load{tr: tr}
		for range 3000 { // they need 5 and 10 places
			hasty.send(t, 1, 0)
			others.send(t, 1, 10*time.Millisecond)
		}
		hasty.all.Wait()
		others.all.Wait()
		assert.Equal(t, []int64{0, 3000, 3000, 0}, []int64{hasty.good.Load(), hasty.lost.Load(), others.good.Load(), others.lost.Load()})
		assert.Zero(t, stateOf(t, tr).ConcurrencyInUse)
	})
}

// TestDeadlineInTheLine: a deadline that ends while its request waits is no failure of the host. The request
// waits as long as it can, however long a response takes.
func TestDeadlineInTheLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []transport.Reason
		trace := &transport.Trace{HostChange: func(_ context.Context, c transport.HostChange) { told = append(told, c.Reason) }}
		server := script(takes(30 * time.Second))
		tr := mustNew(t, transport.Config{Base: server, Traces: []*transport.Trace{trace}, Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}}})
		first, hasty, last := &load{tr: tr}, &load{tr: tr, deadline: 25 * time.Second}, &load{tr: tr, deadline: 35 * time.Second}
		first.send(t, 1, 0)
		hasty.send(t, 50, 100*time.Millisecond)
		last.send(t, 1, 0)
		start := time.Now()
		last.all.Wait()
		assert.Equal(t, 35*time.Second, time.Since(start), "it got the place when the first had ended")
		assert.EqualValues(t, 50, hasty.lost.Load())
		assert.Equal(t, 2, server.between(0, time.Hour))
		s := stateOf(t, tr)
		assert.Equal(t, []int{0, 0}, []int{s.ConcurrencyInUse, s.ConcurrencyWaiting})
		assert.False(t, s.CircuitOpen)
		assert.NotContains(t, told, transport.ReasonCircuitOpen)
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
	})
}

// TestUpdateOfTheQueue: who comes after an Update does not wait for a rate that it removed or raised, or for a Max
// that it raised, although 200 others wait before.
func TestUpdateOfTheQueue(t *testing.T) {
	slow, wide := policy.RateLimit{PerSecond: 0.1, Burst: 1}, policy.Concurrency{Max: 100}
	for name, row := range map[string][2]policy.Rule{
		"rate off":                     {{Concurrency: wide, RateLimit: slow}, {Concurrency: wide}},
		"rate off by name":             {{Concurrency: wide, RateLimit: slow}, {Concurrency: wide, RateLimit: policy.RateLimit{Enabled: policy.Off, PerSecond: 0.1}}},
		"rate and limit off":           {{Concurrency: wide, RateLimit: slow}, {}},
		"rate raised":                  {{Concurrency: wide, RateLimit: slow}, {Concurrency: wide, RateLimit: policy.RateLimit{PerSecond: 1000}}},
		"rate off, without a limit":    {{RateLimit: slow}, {}},
		"rate raised, without a limit": {{RateLimit: slow}, {RateLimit: policy.RateLimit{PerSecond: 1000}}},
		"Max raised":                   {{Concurrency: policy.Concurrency{Max: 1}}, {Concurrency: wide}},
	} {
		inBubble(t, name, func(t *testing.T) {
			tr := mustNew(t, transport.Config{Base: script(takes(50 * time.Millisecond)), Rule: row[0]})
			before, after := &load{tr: tr}, &load{tr: tr, deadline: time.Second}
			before.send(t, 200, 0)
			time.Sleep(time.Second)
			require.NoError(t, tr.Update(row[1], nil))
			start := time.Now()
			after.send(t, 60, 10*time.Millisecond)
			after.all.Wait()
			before.all.Wait()
			assert.Equal(t, []int64{200, 60, 0}, []int64{before.good.Load(), after.good.Load(), after.lost.Load()})
			assert.Less(t, time.Since(start), time.Second, "those before went with them")
		})
	}
}

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

// TestRateIsNoLimiter: requests that wait for their rate wait for no slot.
func TestRateIsNoLimiter(t *testing.T) {
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
				assert.Equal(t, 50, state.ConcurrencyLimit)
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
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}}})
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

// A request that the limiter refuses takes no token of the rate and is refused at once.
func TestRequestRefusedByTheLimiterTakesNoToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		block := make(chan struct{})
		tr := over(t, transport.Config{Rule: policy.Rule{
			RateLimit: policy.RateLimit{PerSecond: 0.01, Burst: 5}, Concurrency: policy.Concurrency{FailFast: policy.On, Max: 1},
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
