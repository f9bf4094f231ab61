package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
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
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/cooldown"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	credentials "github.com/aplomb-go/aplomb/internal/scope"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A riot is the treatment of a host by TestNoSlotTokenOrWaiterIsLost. The callers and the
// base transport have every bad habit, callbacks panic, and rules change meanwhile.
type riot struct {
	tr   *transport.Transport
	seed uint64
	dice atomic.Uint64
	calm atomic.Bool // the riot is over
	ends context.Context
	sent atomic.Int64
	out  struct{ panics, forgotten, hung, canceled, updates atomic.Int64 }
}

// n returns a random number below max.
func (r *riot) n(max int) int {
	return rand.New(rand.NewPCG(r.seed, r.dice.Add(1))).IntN(max)
}

// oneIn reports true once in max times, on average.
func (r *riot) oneIn(max int) bool { return r.n(max) == 0 }

// wait sleeps for a time at random.
func (r *riot) wait(most time.Duration) { time.Sleep(time.Duration(r.n(int(most)))) }

// slip panics, or ends its goroutine, now and then.
func (r *riot) slip() {
	switch {
	case r.calm.Load():
	case r.oneIn(60):
		r.out.panics.Add(1)
		panic("riot")
	case r.oneIn(120):
		r.out.panics.Add(1)
		runtime.Goexit()
	}
}

// rule makes a rule at random, with callbacks that slip.
func (r *riot) rule() policy.Rule {
	rule := policy.Rule{
		Gate:     policy.Gate{Mode: policy.GateWait, Start: 1 + r.n(4)},
		Attempts: 1 + r.n(4),
		Cooldown: policy.On,
		Backoff:  backoff.Constant(time.Duration(1+r.n(2000)) * time.Millisecond),
		Scope:    func(req *http.Request) string { r.slip(); return req.Header.Get("Authorization") },
		Idempotent: func(req *http.Request) bool {
			r.slip()
			return req.Method != http.MethodPost
		},
		Classify: func(classify.Outcome) classify.Verdict { r.slip(); return classify.Unknown },
		Hint:     func(o classify.Outcome) (time.Duration, bool) { r.slip(); return classify.DefaultHint(o) },
	}
	if r.oneIn(2) {
		rule.Gate.Max = rule.Gate.Start + r.n(3)
	}
	if r.oneIn(4) {
		rule.Gate.Mode = policy.GateRefuse
	}
	if r.oneIn(3) {
		rule.Rate.PerSecond, rule.Rate.Burst = float64(1+r.n(50)), 1+r.n(5)
	}
	if r.oneIn(3) {
		rule.Pacing = policy.On
	}
	if r.oneIn(2) {
		rule.Hedge = policy.Hedge{After: time.Duration(1+r.n(1000)) * time.Millisecond}
	}
	if r.oneIn(2) {
		rule.AttemptTimeout = time.Duration(1+r.n(5000)) * time.Millisecond
	}
	if r.oneIn(5) {
		rule.MaxElapsed = time.Duration(1+r.n(10)) * time.Second
	}
	if r.oneIn(8) {
		rule.Gate = policy.Gate{} // off
	}
	return rule
}

// RoundTrip is the base transport.
func (r *riot) RoundTrip(req *http.Request) (*http.Response, error) {
	r.sent.Add(1)
	if req.Body != nil {
		if !r.calm.Load() && r.oneIn(4) { // an early answer
			go func() {
				r.wait(time.Second)
				_ = req.Body.Close()
			}()
		} else {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
		}
	}
	if r.calm.Load() {
		return play(req, status(200))
	}
	r.slip()
	if r.oneIn(3) {
		r.wait(time.Second)
	}
	switch r.n(16) {
	case 0:
		r.out.hung.Add(1)
		return nil, pause(req, 5*time.Minute)
	case 1:
		r.out.hung.Add(1)
		r.wait(2 * time.Minute) // deaf
	case 2:
		return nil, []error{syscall.ECONNREFUSED, syscall.ECONNRESET, io.ErrUnexpectedEOF, errors.New("own fault")}[r.n(4)]
	case 3:
		return r.newResponse(req, 429, fmt.Sprintf("Retry-After: %d", r.n(5))), nil
	case 4:
		return r.newResponse(req, 503, fmt.Sprintf("Retry-After: %d", r.n(3))), nil
	case 5, 6:
		return r.newResponse(req, []int{408, 425, 500, 501, 502, 504}[r.n(6)]), nil
	case 7:
		return r.newResponse(req, 200, fmt.Sprintf("RateLimit: \"a\";r=%d;t=%d", r.n(5), 1+r.n(5)), "RateLimit-Policy: \"a\";q=10;w=5"), nil
	case 8:
		return r.newResponse(req, 404), nil
	case 9:
		return newResponse(req, 204, http.NoBody), nil
	}
	return r.newResponse(req, 200, `ETag: "v"`), nil
}

func (r *riot) newResponse(req *http.Request, code int, header ...string) *http.Response {
	return newResponse(req, code, &riotBody{riot: r, ctx: req.Context(), closed: make(chan struct{}), left: r.n(20)}, header...)
}

// A riotBody is a response's body: slow, stalled, cut, or rude.
type riotBody struct {
	*riot
	ctx    context.Context
	once   sync.Once
	closed chan struct{}
	left   int
}

func (b *riotBody) Read(p []byte) (int, error) {
	b.slip()
	stall := time.Duration(0)
	if b.oneIn(20) {
		stall = time.Duration(b.n(int(5 * time.Minute)))
	}
	timer := time.NewTimer(stall)
	defer timer.Stop()
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-b.closed:
		return 0, http.ErrBodyReadAfterClose
	case <-timer.C:
	}
	switch {
	case b.oneIn(20):
		return 0, syscall.ECONNRESET
	case b.left == 0:
		return 0, io.EOF
	}
	b.left--
	return copy(p, "x"), nil
}

func (b *riotBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	if b.oneIn(10) {
		b.wait(time.Second)
	}
	b.slip()
	return nil
}

// call sends a request and treats it as a bad caller does.
func (r *riot) call() {
	defer func() { _ = recover() }()
	ctx := r.ends
	if r.oneIn(2) {
		with, cancel := context.WithTimeout(ctx, time.Duration(1+r.n(20_000))*time.Millisecond)
		if r.oneIn(2) {
			defer cancel()
		} else {
			context.AfterFunc(with, cancel)
		}
		ctx = with
	}
	if r.oneIn(4) {
		with, cancel := context.WithCancel(ctx)
		defer cancel()
		time.AfterFunc(time.Duration(r.n(int(5*time.Second))), func() { r.out.canceled.Add(1); cancel() })
		ctx = with
	}
	if r.oneIn(3) {
		ctx = transport.WithTrace(ctx, &transport.Trace{Event: func(transport.Event) { r.slip() }})
	}
	resp, err := r.tr.RoundTrip(r.request(ctx))
	if err != nil {
		return
	}
	switch r.n(6) {
	case 0:
		r.out.forgotten.Add(1) // forever
	case 1:
		r.out.forgotten.Add(1)
		_, _ = resp.Body.Read(make([]byte, 1))
	case 2:
		_ = resp.Body.Close()
	case 3:
		go func() {
			defer func() { _ = recover() }()
			r.wait(time.Second)
			_ = resp.Body.Close()
		}()
		fallthrough
	default:
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(io.Discard, resp.Body)
	}
}

func (r *riot) request(ctx context.Context) *http.Request {
	method := []string{http.MethodGet, http.MethodGet, http.MethodPut, http.MethodPost}[r.n(4)]
	var body io.Reader
	if method == http.MethodPut || method == http.MethodPost {
		body = []io.Reader{nil, bytes.NewReader([]byte("text")), io.MultiReader(strings.NewReader("text")), seekable("text")}[r.n(4)]
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://h.test/", body)
	if err != nil {
		panic(err)
	}
	if r.oneIn(2) {
		req.Header.Set("Authorization", []string{"Bearer a", "Bearer b"}[r.n(2)])
	}
	if req.GetBody != nil && r.oneIn(3) {
		getBody := req.GetBody
		req.GetBody = func() (io.ReadCloser, error) { r.slip(); return getBody() }
	}
	return req
}

// run lets the riot happen and ends it. All contexts and all hanging requests end, and an
// hour passes.
func (r *riot) run(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	r.ends = ctx
	r.tr = mustNew(t, transport.Config{Base: r, Rule: r.rule()})
	var callers sync.WaitGroup
	for range 20 {
		callers.Add(1)
		go func() { // a caller that ends its goroutine is followed by the next one
			defer callers.Done()
			for range 15 {
				one := make(chan struct{})
				go func() {
					defer close(one)
					r.call()
				}()
				<-one
				r.wait(2 * time.Second)
			}
		}()
	}
	for range 20 {
		r.wait(5 * time.Second)
		require.NoError(t, r.tr.Update(r.rule(), nil))
		r.out.updates.Add(1)
	}
	r.calm.Store(true)
	time.Sleep(time.Second)
	end()
	callers.Wait()
	time.Sleep(time.Hour)
}

// lost returns complaints about a host that has no requests under way. It complains of
// slots in use, requests, waiters, and turns that no request gets. The base has to respond
// at once.
func lost(t *testing.T, tr *transport.Transport) (complaints []string) {
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	for name, rule := range map[string]policy.Rule{
		"gate":   {Gate: policy.Gate{Start: 4, Max: 4}},
		"rate":   {Rate: policy.Rate{PerSecond: 10, Burst: 1}},
		"pacing": {Pacing: policy.On, Gate: policy.Gate{Start: 4}},
	} {
		require.NoError(t, tr.Update(sharing.Or(rule), nil))
		if name == "gate" {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if resp, err := get(t, tr, ctx); err != nil { // so that the new rule is in force
				complain("the first request: %v", err)
			} else {
				_ = resp.Body.Close()
			}
			cancel()
			if s := stateOf(t, tr); s.GateSlots != 0 || s.GateQueue != 0 || s.InFlight != 0 {
				complain("%d slots in use, %d waiting, %d requests under way", s.GateSlots, s.GateQueue, s.InFlight)
			}
		}
		holdAndSend(t, tr, func(err error) { complain("%s: %v", name, err) })
	}
	return complaints
}

// holdAndSend sends eight requests of each scope that a riot has, after a hold of
// a second. It complains of requests that do not get their turn within ten seconds.
func holdAndSend(t *testing.T, tr *transport.Transport, complain func(error)) {
	state := tr.Hosts().Acquire(&url.URL{Scheme: "http", Host: "h.test"})
	scopes := []string{"", "Bearer a", "Bearer b"}
	for _, scope := range scopes {
		key := credentials.Key(tr.Seed(), http.Header{"Authorization": {scope}})
		if scope == "" {
			key = credentials.Key(tr.Seed(), http.Header{})
		}
		state.Machines().Cooldown.Hold(tr.Now(), key, time.Second, cooldown.Config{Max: time.Minute}, 0)
	}
	state.Release()
	var mu sync.Mutex
	together(8*len(scopes), func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req := newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx)
		if scope := scopes[i%len(scopes)]; scope != "" {
			req.Header.Set("Authorization", scope)
		}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		complain(err)
	})
	time.Sleep(time.Minute)
}

// TestNoSlotTokenOrWaiterIsLost: when all requests are over, no slot is in use, no request
// waits, and new requests get their turn, whatever happened before.
func TestNoSlotTokenOrWaiterIsLost(t *testing.T) {
	seeds := soak.Size[uint64](15, 60)
	var total riot
	for seed := range seeds {
		r := &riot{seed: seed}
		bubble(t, func(t *testing.T) {
			r.run(t)
			for _, complaint := range lost(t, r.tr) {
				t.Errorf("seed %d: %s", seed, complaint)
			}
		})
		total.sent.Add(r.sent.Load())
		total.out.panics.Add(r.out.panics.Load())
		total.out.forgotten.Add(r.out.forgotten.Load())
		total.out.hung.Add(r.out.hung.Load())
		total.out.canceled.Add(r.out.canceled.Load())
		total.out.updates.Add(r.out.updates.Load())
	}
	t.Logf("%d attempts, %d panics, %d bodies forgotten, %d attempts hung, %d requests cancelled, %d changes of the rule", total.sent.Load(),
		total.out.panics.Load(), total.out.forgotten.Load(), total.out.hung.Load(), total.out.canceled.Load(), total.out.updates.Load())
	for _, n := range []int64{total.out.panics.Load(), total.out.forgotten.Load(), total.out.hung.Load(), total.out.canceled.Load()} {
		assert.Greater(t, n, int64(seeds), "the riot is a riot")
	}
}

// TestWhatIsLostIsFound: the oracle of the test above complains of each kind of
// loss.
func TestWhatIsLostIsFound(t *testing.T) {
	scope := func(tr *transport.Transport) uint64 { return credentials.Key(tr.Seed(), http.Header{}) }
	rows := map[string]func(tr *transport.Transport, m *host.Machines){
		"a slot": func(tr *transport.Transport, m *host.Machines) {
			m.Gate().Enter(tr.Now(), new(gate.Slot), nil, gate.Config{Start: 4, Max: 4})
		},
		"a waiter at the gate": func(tr *transport.Transport, m *host.Machines) {
			full := make([]gate.Slot, 2)
			for i := range full {
				m.Gate().Enter(tr.Now(), &full[i], queue.NewWaiter(), gate.Config{Start: 1, Max: 1})
			}
			m.Gate().Done(tr.Now(), &full[0])
		},
		"a waiter at the cooldown": func(tr *transport.Transport, m *host.Machines) {
			m.Cooldown.Hold(tr.Now(), scope(tr), time.Second, cooldown.Config{Max: time.Minute}, 0)
			m.Cooldown.Enter(tr.Now(), scope(tr), queue.NewWaiter())
		},
		"a waiter at the rate": func(tr *transport.Transport, m *host.Machines) {
			r := m.Rate(rate.Config{PerSecond: 1, Burst: 1})
			r.Enter(tr.Now(), queue.NewWaiter())
			r.Enter(tr.Now(), queue.NewWaiter())
		},
		"a request": func(tr *transport.Transport, _ *host.Machines) {
			tr.Hosts().Acquire(&url.URL{Scheme: "http", Host: "h.test"})
		},
	}
	for name, lose := range rows {
		inBubble(t, name, func(t *testing.T) {
			r := &riot{}
			r.calm.Store(true)
			r.tr = mustNew(t, transport.Config{Base: r, Rule: sharing})
			state := r.tr.Hosts().Acquire(&url.URL{Scheme: "http", Host: "h.test"})
			state.Release()
			require.Empty(t, lost(t, r.tr))
			lose(r.tr, state.Machines())
			assert.NotEmpty(t, lost(t, r.tr))
			synctest.Wait()
		})
	}
}
