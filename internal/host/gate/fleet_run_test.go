package gate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// A fleetRun is several processes with a gate each, their ledger, and a network between
// them that delays and loses messages, all in virtual time.
type fleetRun struct {
	t         *testing.T
	seed      uint64
	rng       *rand.Rand
	clock     hosttest.Clock
	ledger    ledger.Host
	processes []*process

	delay  time.Duration // a message takes up to that long
	loss   float64       // the share of lost messages
	cut    bool          // all messages are lost
	works  bool          // the host works
	frozen bool          // if it does not work, requests get no response

	probes, denied, outages, objections, released int
	most                                          int // probes with a permit at the same time, until the cut
}

type process struct {
	run     *fleetRun
	id      int64
	gate    Gate
	sick    bool // it does not reach the host
	dead    bool // it was killed
	refuses bool // its requests do not wait
	sent    int
}

// post lets a message arrive, or loses it.
func (r *fleetRun) post(arrive func()) {
	if r.cut || r.rng.Float64() < r.loss {
		return
	}
	r.clock.At(r.clock.Now.Add(time.Duration(r.rng.Int64N(int64(r.delay)+1))), arrive)
}

func (r *fleetRun) toAll(hear func(p *process)) {
	for _, p := range r.processes {
		r.post(func() { hear(p) })
	}
}

// ask does the part of the transport after a request was told to wait.
func (p *process) ask() {
	if p.gate.AskPermit(p.run.clock.Now) {
		p.probe()
	}
}

// probe asks the ledger for a permit, or renews it.
func (p *process) probe() {
	r := p.run
	r.post(func() {
		granted, wait := r.ledger.Probe(r.clock.Now, p.id, len(r.processes))
		if granted {
			r.probes++
		} else {
			r.denied++
		}
		r.post(func() {
			if used := p.gate.Permit(r.clock.Now, granted, wait); granted && !used {
				p.probeFailed()
			}
		})
	})
}

func (p *process) probeFailed() {
	p.run.post(func() { p.run.ledger.ProbeFailed(p.run.clock.Now, p.id) })
}

func (p *process) working() {
	r := p.run
	r.post(func() {
		if r.ledger.Working(r.clock.Now, p.id) {
			spread := ledger.ReturnTime(len(r.processes))
			r.toAll(func(p *process) {
				p.gate.Up(r.clock.Now, r.clock.Now.Add(time.Duration(r.rng.Float64()*float64(spread))))
			})
		}
	})
}

// tell does the part of the transport after a gate has news.
func (p *process) tell(news bool) {
	r := p.run
	if !news {
		return
	}
	n := p.gate.News()
	if n.Working {
		p.working()
		return
	}
	if n.ProbeFailed {
		p.probeFailed()
	}
	if n.Failures > 0 {
		r.post(func() {
			if down, since := r.ledger.Failing(r.clock.Now, p.id, n.Failures, n.Since, len(r.processes)); down {
				r.outages++
				r.toAll(func(p *process) { p.down(since) })
			}
		})
	}
}

// down tells a process that the host is down. Nobody stops a process that had a success.
func (p *process) down(since instant.Instant) {
	r, g := p.run, &p.gate
	worked, failed, closed := g.pulse.last > 0 && g.pulse.sent > since+sec, g.pulse.last <= since, g.outage.closed
	switch works := g.Down(r.clock.Now, since); {
	case worked && !works, failed && works, works && g.outage.closed != closed:
		r.t.Fatalf("seed %d: closed %v by a Down since %v, with a success at %v", r.seed, g.outage.closed, since, g.pulse.last)
	case works:
		r.objections++
		p.working()
	}
}

// A traveller is a request of a process.
type traveller struct {
	p      *process
	slot   Slot
	w      *queue.Waiter
	stays  bool // it waits until it goes
	gone   bool
	asks   int
	second instant.Instant // in which asks were counted
}

func (p *process) start(stays bool) *traveller {
	v := &traveller{p: p, stays: stays}
	r := p.run
	if !p.refuses || stays {
		v.w = &queue.Waiter{Woken: func(*queue.Waiter) { r.clock.At(r.clock.Now, v.ask) }}
	}
	if !stays && v.w != nil && r.rng.IntN(2) == 0 {
		r.clock.At(r.clock.Now.Add(time.Duration(r.rng.IntN(2000))*ms), func() {
			if !v.gone {
				v.gone = true
				p.tell(p.gate.Leave(v.w))
			}
		})
	}
	v.ask()
	return v
}

func (v *traveller) ask() {
	if v.gone || v.p.dead {
		return
	}
	p, r := v.p, v.p.run
	now := r.clock.Now
	if now/sec != v.second {
		v.asks, v.second = 0, now/sec
	}
	if v.asks++; v.asks > 500 {
		r.t.Fatalf("seed %d: a request asks %d times in a second", r.seed, v.asks)
	}
	a := p.gate.Enter(now, &v.slot, v.w, Config{Fleet: true})
	if a.Verb == queue.Go {
		v.gone = true
		if !v.stays && r.rng.IntN(8) == 0 { // its deadline is too near
			r.released++
			p.tell(p.gate.Release(now, &v.slot))
			return
		}
		v.send()
		return
	}
	p.ask()
	switch {
	case v.w == nil:
		v.gone = true
	case a.Ask < instant.Never:
		r.clock.At(a.Ask, v.ask)
	}
}

func (v *traveller) send() {
	p, r := v.p, v.p.run
	p.sent++
	result, takes := Success, time.Duration(20*ms)
	switch {
	case r.works && !p.sick:
	case r.frozen:
		result, takes = Lost, sec
	default:
		result, takes = Failed, 5*ms
	}
	leased := 0
	for _, p := range r.processes {
		if !r.cut && p.gate.outage.closed && p.gate.slots.inFlight > 0 && p.gate.fleet.permit == lent {
			leased++
		}
	}
	r.most = max(r.most, leased)
	over := false
	r.clock.At(r.clock.Now.Add(takes), func() {
		if over = true; !p.dead {
			p.tell(p.gate.End(r.clock.Now, &v.slot, result))
		}
	})
	var renew func()
	renew = func() {
		if !over && !p.dead && p.gate.Renew() {
			p.probe()
			r.clock.At(r.clock.Now.Add(RenewTime), renew)
		}
	}
	r.clock.At(r.clock.Now.Add(RenewTime), renew)
}

// noise is news that nobody should send.
func (r *fleetRun) noise() {
	g := &r.processes[r.rng.IntN(len(r.processes))].gate
	now := r.clock.Now
	wild := []time.Duration{math.MinInt64, -sec, 0, ms, sec, time.Hour, instant.Forever}[r.rng.IntN(7)]
	switch r.rng.IntN(5) {
	case 0:
		g.Up(now, instant.At(wild))
	case 1:
		g.Permit(now, false, wild)
	case 2:
		g.Permit(now, true, wild)
	case 3:
		g.Down(now, min(now, instant.At(wild)))
	default:
		g.News()
	}
}

// runFleet plays an outage of 30 s. From its end on all news is lost, and a request waits
// in each process. It returns how long it took until all of these requests were sent.
func runFleet(t *testing.T, seed uint64, noisy bool) (r *fleetRun, took time.Duration) {
	const begin, end = 5 * sec, 35 * sec
	rng := rand.New(rand.NewPCG(seed, 3))
	r = &fleetRun{t: t, seed: seed, rng: rng, works: true, frozen: rng.IntN(2) == 0,
		delay: []time.Duration{0, ms, 100 * ms, 400 * ms, 3 * sec}[rng.IntN(5)],
		loss:  []float64{0, 0, 0.1, 0.5}[rng.IntN(4)]}
	for i := range 1 + rng.IntN(12) {
		p := &process{run: r, id: int64(i + 1), sick: rng.IntN(6) == 0, refuses: rng.IntN(5) == 0}
		r.processes = append(r.processes, p)
		every := []time.Duration{5 * sec, 500 * ms, 50 * ms}[rng.IntN(3)]
		for at := instant.Instant(0); at < end; at = at.Add(time.Duration(rng.Int64N(int64(2 * every)))) {
			r.clock.At(at, func() { p.start(false) })
		}
	}
	if noisy {
		for range 200 {
			r.clock.At(instant.At(time.Duration(rng.Int64N(int64(end)))), r.noise)
		}
	}
	r.clock.At(begin, func() { r.works = false })
	var last []*traveller
	r.clock.At(end, func() {
		r.works, r.cut = true, true
		for _, p := range r.processes {
			p.sick = false
			last = append(last, p.start(true))
		}
	})
	r.clock.RunTo(end)
	for step := time.Duration(100 * ms); took < 10*time.Minute; took += step {
		waiting := 0
		for _, v := range last {
			if !v.gone {
				waiting++
			}
		}
		if waiting == 0 {
			break
		}
		r.clock.RunTo(r.clock.Now.Add(step))
	}
	r.clock.RunTo(r.clock.Now + 2*sec)
	for _, p := range r.processes {
		if s := p.gate.State(); s.Closed || s.Waiting > 0 || s.InFlight > 0 {
			t.Fatalf("seed %d: after %v process %d is left with %+v", seed, took, p.id, s)
		}
	}
	return r, took
}

// When the host works again and all news is lost, each gate opens soon. It waits for no
// longer than the fleet has told it to before, which is a second in a small fleet, or as
// long as a probe or a return was planned then. Nobody stops a process that had a success,
// and nobody asks without end.
func TestFleetFailsOpen(t *testing.T) {
	var sum fleetRun
	var longest time.Duration
	for seed := range soak.Size[uint64](40, 5000) {
		r, took := runFleet(t, seed, false)
		require.True(t, took <= 4*sec, "seed %d: %v until all requests were sent", seed, took)
		// Messages that overtake each other may end the permit of the next probe.
		require.False(t, r.loss == 0 && r.delay == 0 && r.most > 1, "seed %d: %d probes with a permit at the same time", seed, r.most)
		longest = max(longest, took)
		sum.probes += r.probes
		sum.denied += r.denied
		sum.outages += r.outages
		sum.objections += r.objections
		sum.released += r.released
	}
	t.Logf("%d probes, %d denied, %d outages, %d objections, %d released; %v at most",
		sum.probes, sum.denied, sum.outages, sum.objections, sum.released, longest)
	assert.NotZero(t, min(sum.probes, sum.denied, sum.outages, sum.objections, sum.released), "something did not happen")
}

// A process that is killed while it holds the permit to probe delays the return by little:
// the fleet lends the permit for a second only. In each storm a process that has a probe
// under way is killed when the host thaws, in virtual time.
func TestKilledProber(t *testing.T) {
	for seed := range soak.Size[uint64](4, 10) {
		const begin, thaw = 5 * sec, 25 * sec
		r := &fleetRun{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 5)), works: true, frozen: true, delay: 2 * ms}
		for i := range 4 + r.rng.IntN(20) {
			p := &process{run: r, id: int64(i + 1)}
			r.processes = append(r.processes, p)
			for at := instant.Instant(r.rng.Int64N(int64(100 * ms))); at < 60*sec; at += 100 * ms {
				r.clock.At(at, func() {
					if !p.dead {
						p.start(at%sec < 100*ms)
					}
				})
			}
		}
		r.clock.At(begin, func() { r.works = false })
		killed, back := time.Duration(0), time.Duration(0)
		r.clock.At(thaw, func() {})
		for r.clock.Now < 50*sec && back == 0 {
			r.clock.RunTo(r.clock.Now + ms)
			if killed == 0 && r.clock.Now >= thaw {
				for _, p := range r.processes {
					if g := &p.gate; g.outage.closed && g.slots.inFlight > 0 && g.fleet.permit == lent {
						p.dead, killed, r.works = true, r.clock.Now.Since(), true
						break
					}
				}
			}
			for _, p := range r.processes {
				if killed > 0 && !p.dead && p.gate.pulse.last > instant.At(killed) {
					back = r.clock.Now.Since()
				}
			}
		}
		require.True(t, killed != 0 && back != 0, "seed %d: killed at %v, back at %v", seed, killed, back)
		t.Logf("seed %d: %d processes, back after %v", seed, len(r.processes), back-killed)
		assert.True(t, back-killed <= 2*sec, "seed %d: back after %v", seed, back-killed)
	}
}
