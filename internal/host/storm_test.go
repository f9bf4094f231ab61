// The storm simulation shows, in virtual time, whether a host that failed under load
// recovers.

package host_test

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// A storm is a server that is frozen for a while, and its clients, which share
// one host's machines. A response takes 100 ms while at most 30 requests are in
// progress, and 1.05^((concurrency − limit)/15) times as long beyond. Each request
// checks every 50 ms whether it is done. The server goes on working for clients that
// have left. After the freeze it serves the requests that reached its socket.
type storm struct {
	clients  int
	think    time.Duration // mean, exponential; zero: open arrivals instead
	arrivals float64       // per second, for open arrivals
	timeout  time.Duration // of an attempt; zero: none
	gated    bool
	refuses  bool // instead of freezing, the server responds with 503 after 5 ms
	freeze   instant.Instant
	resume   instant.Instant
	end      instant.Instant
	seed     uint64

	// The machine of the clients is busy. Again and again all clients stand still
	// for up to stall. At the end they do in the same order what came due
	// meanwhile. lag is how long each step of a client takes in addition, on
	// average.
	stall, apart, lag time.Duration

	hosttest.Clock
	rng    *rand.Rand
	frozen bool
	socket []*simAttempt // arrived while frozen
	busy   int           // what the server works on

	stalls  []span // in order
	gate    gate.Gate
	budget  budget.Budget
	begun   uint64        // requests
	waiting []*simRequest // by Waiter.ID
	unused  []int

	sent      int // during the freeze
	peak      int // worked on after the resume
	peakLimit int // of the gate before the freeze
	atWake    int // requests that the server found when it woke
	highest   int // limit in the last part of the run
	lost      int
	done      []time.Duration // when requests succeeded
}

type simRequest struct {
	slot    gate.Slot
	waiter  *queue.Waiter
	attempt int
	client  bool // a client thinks after it
}

type simAttempt struct {
	req     *simRequest
	slot    gate.Slot
	started instant.Instant
	over    bool // for the client: it has the response or has given up
}

func (s *storm) run() {
	s.rng = rand.New(rand.NewPCG(s.seed, 1))
	s.stand()
	for range s.clients {
		s.client(instant.At(s.exp(s.think)), func() { s.begin(true) })
	}
	if s.arrivals > 0 {
		s.arrive()
	}
	s.At(s.freeze, func() {
		s.frozen = true
		s.peakLimit = s.gate.State().Limit
	})
	s.At(s.resume, s.wake)
	s.RunTo(s.end)
}

func (s *storm) exp(mean time.Duration) time.Duration {
	return time.Duration(s.rng.ExpFloat64() * float64(mean))
}

func (s *storm) arrive() {
	s.begin(false)
	s.At(s.Now.Add(s.exp(time.Duration(float64(time.Second)/s.arrivals))), s.arrive)
}

// begin starts a request.
func (s *storm) begin(client bool) {
	s.begun++
	s.budget.CountTo(s.begun)
	r := &simRequest{client: client}
	s.enter(r)
}

// enter asks the gate, and sends or waits.
func (s *storm) enter(r *simRequest) {
	if !s.gated {
		s.send(r)
		return
	}
	if r.waiter == nil {
		r.waiter = &queue.Waiter{ID: s.id(r), Woken: func(w *queue.Waiter) {
			s.client(s.Now, func() { s.ask(w) })
		}}
	}
	a := s.gate.Enter(s.Now, &r.slot, r.waiter, gate.Config{})
	if a.Verb == queue.Go {
		s.waiting[r.waiter.ID] = nil
		s.unused = append(s.unused, r.waiter.ID)
		r.waiter = nil
		s.send(r)
	} else if a.Ask != instant.Never {
		w := r.waiter
		s.client(a.Ask, func() { s.ask(w) })
	}
}

func (s *storm) ask(w *queue.Waiter) {
	if r := s.waiting[w.ID]; r != nil && r.waiter == w {
		s.enter(r)
	}
}

func (s *storm) id(r *simRequest) int {
	if n := len(s.unused); n > 0 {
		id := s.unused[n-1]
		s.unused = s.unused[:n-1]
		s.waiting[id] = r
		return id
	}
	s.waiting = append(s.waiting, r)
	return len(s.waiting) - 1
}

func (s *storm) send(r *simRequest) {
	if s.frozen {
		s.sent++
	}
	x := &simAttempt{req: r, slot: r.slot}
	if s.frozen && s.refuses {
		s.At(s.Now.Add(5*time.Millisecond), func() { s.abandon(x, gate.Failed) })
		return
	}
	if s.timeout > 0 {
		s.client(s.Now.Add(s.timeout), func() { s.abandon(x, gate.Lost) })
	}
	if s.frozen {
		s.socket = append(s.socket, x)
		return
	}
	s.accept(x)
}

// client plans a step of a client: later than asked if its machine stands still.
func (s *storm) client(t instant.Instant, do func()) {
	if s.lag > 0 {
		t = t.Add(s.exp(s.lag))
	}
	i := sort.Search(len(s.stalls), func(i int) bool { return s.stalls[i].to > t })
	if i < len(s.stalls) && s.stalls[i].from <= t {
		t = s.stalls[i].to
	}
	s.At(t, do)
}

// stand plans when the clients' machine stands still.
func (s *storm) stand() {
	for t := time.Duration(0); s.apart > 0; {
		t += s.exp(s.apart)
		if instant.At(t) > s.end {
			break
		}
		to := t + time.Duration(s.rng.Float64()*float64(s.stall))
		s.stalls = append(s.stalls, span{instant.At(t), instant.At(to)})
		t = to
	}
}

type span struct{ from, to instant.Instant }

// The server.

func (s *storm) accept(x *simAttempt) {
	s.busy++
	if s.Now >= s.resume {
		s.peak = max(s.peak, s.busy)
	}
	x.started = s.Now
	s.At(s.Now.Add(50*time.Millisecond), func() { s.step(x) })
}

func (s *storm) step(x *simAttempt) {
	if s.frozen {
		s.socket = append(s.socket, x)
		return
	}
	over := max(0, float64(s.busy-30))
	delay := time.Duration(float64(100*time.Millisecond) * math.Pow(1.05, over/15))
	if s.Now.Sub(x.started) < delay {
		s.At(s.Now.Add(50*time.Millisecond), func() { s.step(x) })
		return
	}
	s.busy--
	s.client(s.Now, func() { s.respond(x) })
}

func (s *storm) wake() {
	s.frozen = false
	s.atWake = len(s.socket)
	for _, x := range s.socket {
		if x.started == 0 {
			s.accept(x)
		} else {
			s.step(x)
		}
	}
	s.socket = nil
}

// The client.

func (s *storm) respond(x *simAttempt) {
	if x.over {
		return
	}
	x.over = true
	s.gate.Result(s.Now, &x.slot, gate.Success)
	s.client(s.Now, func() { s.gate.Done(s.Now, &x.slot) })
	s.done = append(s.done, s.Now.Since())
	s.rest(x.req)
}

func (s *storm) abandon(x *simAttempt, why gate.Result) {
	if x.over {
		return
	}
	x.over = true
	s.gate.Result(s.Now, &x.slot, why)
	s.gate.Done(s.Now, &x.slot)
	r := x.req
	r.attempt++
	if r.attempt < 6 && s.budget.Take(s.Now, s.Now, budget.Config{}) != nil {
		wait := time.Duration(min(math.Pow(2, float64(r.attempt-1)), 31)*1e9 + s.rng.Float64()*1e9)
		s.At(s.Now.Add(wait), func() { s.enter(r) })
		return
	}
	s.lost++
	s.rest(r)
}

func (s *storm) rest(r *simRequest) {
	if r.client {
		s.client(s.Now.Add(s.exp(s.think)), func() { s.begin(true) })
	}
}

// recovered returns the time from the resume to the first 2 s at 95 % of rate
// that stay so for 5 s, measured every 0.1 s; -1 where there are none.
func (s *storm) recovered(perSecond float64) time.Duration {
	within := func(from, to instant.Instant) int {
		i := sort.Search(len(s.done), func(i int) bool { return instant.At(s.done[i]) >= from })
		j := sort.Search(len(s.done), func(i int) bool { return instant.At(s.done[i]) >= to })
		return j - i
	}
	for t := s.resume; t < s.end.Add(-7*time.Second); t = t.Add(100 * time.Millisecond) {
		good := true
		for u := t; good && u <= t.Add(5*time.Second); u = u.Add(time.Second) {
			good = float64(within(u, u.Add(2*time.Second))) >= 0.95*2*perSecond
		}
		if good {
			return t.Sub(s.resume)
		}
	}
	return -1
}

func (s *storm) steady() float64 {
	i := sort.Search(len(s.done), func(i int) bool { return instant.At(s.done[i]) >= s.freeze.Add(-15*time.Second) })
	j := sort.Search(len(s.done), func(i int) bool { return instant.At(s.done[i]) >= s.freeze })
	return float64(j-i) / 15
}

func newStorm(seed uint64) *storm {
	return &storm{
		clients: 1000, think: 10 * time.Second, timeout: 2 * time.Second,
		freeze: instant.At(20 * time.Second), resume: instant.At(40 * time.Second), end: instant.At(80 * time.Second),
		seed: seed,
	}
}

// A server that responds with 503 at once instead of freezing.
func TestStormRefusing(t *testing.T) {
	for seed := range soak.Size[uint64](1, 3) {
		s := newStorm(seed)
		s.gated, s.refuses = true, true
		s.run()
		back := s.recovered(s.steady())
		t.Logf("seed %d: sent meanwhile %d, peak %d, back after %v, lost %d", seed, s.sent, s.peak, back, s.lost)
		if s.sent > 250 || s.peak > 45 || back < 0 || back > 5*time.Second {
			t.Errorf("seed %d: sent %d, peak %d, back after %v", seed, s.sent, s.peak, back)
		}
	}
}

// 100 requests per second arrive whether or not the server responds. The server hangs
// for 20 s.
func TestGateAgainstAHang(t *testing.T) {
	for _, timeout := range []time.Duration{0, 2 * time.Second} {
		s := newStorm(1)
		s.clients, s.arrivals, s.gated, s.timeout = 0, 100, true, timeout
		s.run()
		served := func(after time.Duration) int {
			i := sort.Search(len(s.done), func(i int) bool { return instant.At(s.done[i]) >= s.resume.Add(after) })
			j := sort.Search(len(s.done), func(i int) bool { return instant.At(s.done[i]) >= s.resume.Add(after+time.Second) })
			return j - i
		}
		t.Logf("timeout %v: limit %d, found at the wake %d, served in the seconds after it: %d %d %d %d",
			timeout, s.peakLimit, s.atWake, served(0), served(time.Second), served(2*time.Second), served(3*time.Second))
		most := s.peakLimit
		if timeout > 0 {
			// What was given up is in the server's socket still, and one probe
			// per 2.5 s is.
			most += 8
		}
		assert.LessOrEqual(t, s.atWake, most, "timeout %v: the server found %d requests, the limit was %d", timeout, s.atWake, s.peakLimit)
		assert.GreaterOrEqual(t, served(2*time.Second), 100, "timeout %v requests served in the third second", timeout)
	}
}

// If the clients' machine is busy, neither its pauses nor its slow steps make the gate's
// limit grow, because they do not say that the host takes more.
func TestStormOnABusyMachine(t *testing.T) {
	type row struct {
		name              string
		stall, apart, lag time.Duration
		most              int // limit, long after the recovery
	}
	rows := []row{
		{"pauses of 0.25 s", 500 * ms, 3 * sec, 0, 48},
		{"100 ms for each step", 0, 0, 100 * ms, 30},
	}
	rows = soak.Size(rows, append(rows, []row{
		{"at rest", 0, 0, 0, 30},
		{"pauses of 0.1 s", 200 * ms, 2 * sec, 0, 38},
		{"pauses of 0.5 s", sec, 10 * sec, 0, 48},
		{"pauses of 1 s", 2 * sec, 20 * sec, 0, 40},
		{"20 ms for each step", 0, 0, 20 * ms, 30},
		{"pauses and steps", 500 * ms, 3 * sec, 20 * ms, 30},
	}...))
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range soak.Size[uint64](1, 5) {
				s := newStorm(seed)
				s.gated, s.end = true, 160*sec
				s.stall, s.apart, s.lag = tt.stall, tt.apart, tt.lag
				for at := s.resume + 50*sec; at < s.end; at += 20 * ms {
					s.At(at, func() { s.highest = max(s.highest, s.gate.State().Limit) })
				}
				s.run()
				t.Logf("seed %d: limit %d", seed, s.highest)
				assert.LessOrEqual(t, s.highest, tt.most, "seed %d: limit", seed)
			}
		})
	}
}
