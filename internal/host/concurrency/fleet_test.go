package concurrency

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

var inFleet = Config{Fleet: true}

// member is a request at a concurrency limit that belongs to a fleet.
func member(t *testing.T, g *Limiter) *visitor {
	v := visit(t, g)
	v.conf = inFleet
	return v
}

// openInFleet returns a limiter whose host failed wholesale, and whose circuit opened at that time.
func openInFleet(t *testing.T, at instant.Instant) *Limiter {
	t.Helper()
	g := new(Limiter)
	g.configure(0, inFleet)
	var slots [10]Slot
	for i := range slots {
		require.Equal(t, queue.Go, g.Enter(at-2*sec, &slots[i], nil, inFleet).Verb)
	}
	for i := range slots {
		g.End(at, &slots[i], Lost)
	}
	require.True(t, g.State().CircuitOpen, "the circuit is not open")
	g.News()
	return g
}

// mustAsk lets the owner ask for a permit.
func mustAsk(t *testing.T, g *Limiter, now instant.Instant) {
	t.Helper()
	require.True(t, g.AskPermit(now), "at %v: asks for no permit", now)
	require.False(t, g.AskPermit(now), "at %v: asks for two permits", now)
}

func mustNotAsk(t *testing.T, g *Limiter, now instant.Instant) {
	t.Helper()
	require.False(t, g.AskPermit(now), "at %v: asks for a permit", now)
}

func wantNews(t *testing.T, g *Limiter, want News) {
	t.Helper()
	require.Equal(t, want, g.News(), "news")
	require.Equal(t, News{}, g.News(), "news for the second time")
}

const (
	cutAt   = 10 * sec
	askAt   = instant.Instant(cutAt + probeGap - permitTime)
	probeAt = instant.Instant(cutAt + probeGap)
)

// Down opens the circuits of limiters that had no success, or none that was sent later by a moment.
func TestLimiterDown(t *testing.T) {
	for name, tt := range map[string]struct {
		success instant.Instant // 0: there was none
		since   instant.Instant
		works   bool
	}{
		"no success":                    {0, 5 * sec, false},
		"no success, before the epoch":  {0, -5 * sec, false},
		"no success, an absurd time":    {0, math.MinInt64, false},
		"a success before":              {4 * sec, 5 * sec, false},
		"a success at the same time":    {5 * sec, 5 * sec, false},
		"a success a moment later":      {5*sec + 100*ms, 5 * sec, false},
		"a success later":               {5*sec + 100*ms + 1, 5 * sec, true},
		"a success, before the epoch":   {ms, -sec, true},
		"a success, and a time to come": {9 * sec, 11 * sec, false},
	} {
		t.Run(name, func(t *testing.T) {
			var g Limiter
			if tt.success > 0 {
				v := member(t, &g)
				v.mustGo(tt.success)
				v.end(tt.success, Success)
			}
			waiting := visit(t, &g)
			assert.Equal(t, tt.works, g.Down(10*sec, tt.since), "works")
			got := g.State()
			assert.True(t, got.CircuitOpen != tt.works && (tt.works || got.Since == tt.since), "%+v", got)
			if tt.works {
				waiting.mustGo(10 * sec)
			}
		})
	}
}

// A second Down neither cuts the limit again nor puts the next probe off.
func TestLimiterDownTwice(t *testing.T) {
	var g Limiter
	fill(t, &g, 0, 1)[0].end(0, Neutral)
	g.growth.limit = 40
	g.Down(cutAt, 9*sec)
	first := member(t, &g)
	first.mustWait(cutAt, askAt)
	for now := instant.At(cutAt); now < probeAt; now += 50 * ms {
		g.Down(now, 9*sec)
	}
	first.woken()
	assert.Equal(t, 20, g.growth.threshold, "threshold")
	first.mustWait(askAt, probeAt)
	mustAsk(t, &g, askAt)
	first.mustGo(probeAt)
}

// Down wakes the first waiter, which did not know that it may become a probe.
func TestLimiterDownWakes(t *testing.T) {
	var g Limiter
	fill(t, &g, 0, 10)
	first, second := member(t, &g), member(t, &g)
	first.mustWait(0, instant.Never)
	second.mustWait(0, instant.Never)
	g.Down(cutAt, 9*sec)
	assert.True(t, first.woken() && !second.woken(), "the first waiter was not woken, or not alone")
}

// Up closes an open circuit at a time, with a limit of 1. There is no probe until then.
func TestLimiterUp(t *testing.T) {
	const spread = 3 * sec
	g := openInFleet(t, cutAt)
	first, second := member(t, g), member(t, g)
	first.enter(askAt)
	second.enter(askAt)
	mustAsk(t, g, askAt)
	g.Up(askAt, askAt+spread)
	assert.True(t, first.woken() && !second.woken(), "the first waiter was not woken, or not alone")
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: askAt + spread, Until: askAt + spread}, first.enter(askAt))
	first.mustWait(askAt+spread-1, askAt+spread)
	mustNotAsk(t, g, askAt+spread-1)
	assert.False(t, g.Permit(askAt, true, 0), "a permit is kept until the return")
	g.Up(askAt+sec, askAt+2*spread) // does not put it off
	first.mustGo(askAt + spread)
	s := g.State()
	assert.True(t, s.Fleet && !s.CircuitOpen && s.Limit == 1 && s.InFlight == 1, "%+v", s)
	assert.Equal(t, queue.Wait, second.enter(askAt+spread).Verb, "two at once")
}

func TestLimiterUpAtAnyTime(t *testing.T) {
	for name, tt := range map[string]struct{ at, opens instant.Instant }{
		"in the past": {-sec, cutAt}, "now": {cutAt, cutAt}, "soon": {cutAt + sec, cutAt + sec},
		"never": {instant.Never, instant.At(cutAt + latestReturn)}, "absurd": {math.MinInt64, cutAt},
	} {
		g := openInFleet(t, cutAt)
		g.Up(cutAt, tt.at)
		v := member(t, g)
		if tt.opens > cutAt {
			v.mustWait(cutAt, tt.opens)
		}
		v.mustGo(tt.opens)
		assert.False(t, g.State().CircuitOpen, "%s: open", name)
	}
	var g Limiter // an open circuit stays as it is
	g.Up(0, instant.At(time.Hour))
	member(t, &g).mustGo(0)
	wantLimit(t, &g, 10)
}

// A Down after Up opens the circuit again, and a probe that hangs does not fill the limit of
// a circuit that Up has closed.
func TestLimiterUpAndDown(t *testing.T) {
	g := openInFleet(t, cutAt)
	v := member(t, g)
	v.enter(askAt)
	mustAsk(t, g, askAt)
	v.mustGo(probeAt) // and hangs
	g.Up(probeAt, probeAt+sec)
	g.Down(probeAt+ms, 9*sec)
	next := member(t, g)
	next.mustWait(probeAt+sec, probeAt.Add(probeTime))
	g.Up(probeAt+sec, probeAt+2*sec)
	assert.True(t, next.woken(), "not woken")
	next.mustWait(probeAt+sec, probeAt+2*sec)
	next.mustGo(probeAt + 2*sec)
}

// A circuit that others opened closes when a request that was sent after the host went down
// succeeds. A request from before may be a response from the pile of a frozen host.
func TestLimiterContradicts(t *testing.T) {
	for _, tt := range []struct {
		sent  instant.Instant
		opens bool
		byOwn bool
	}{
		{sent: 8 * sec, opens: false},
		{sent: 9*sec + 100*ms, opens: false}, // the host may have failed a little later
		{sent: 9*sec + 300*ms, opens: true},
		{sent: 9*sec + 300*ms, byOwn: true, opens: false},
	} {
		var g Limiter
		g.configure(0, inFleet)
		v := member(t, &g)
		v.mustGo(tt.sent)
		if tt.byOwn {
			g.openCircuit(cutAt)
		}
		g.Down(cutAt, 9*sec)
		v.end(cutAt+ms, Success)
		assert.NotEqual(t, tt.opens, g.State().CircuitOpen, "%+v: open", tt)
		wantNews(t, &g, News{Working: tt.opens})
	}
}

// Failures are reported when there was no success for a second, a few times per second.
// The next success is reported once.
func TestLimiterReports(t *testing.T) {
	var g Limiter
	ends := func(now instant.Instant, r Result) bool {
		v := member(t, &g)
		v.mustGo(now)
		return g.End(now, &v.slot, r)
	}
	assert.True(t, !ends(sec, Success) && !ends(1900*ms, Failed) && !ends(2500*ms, Failed), "news of a host that worked a second ago")
	assert.True(t, ends(2900*ms, Failed), "no news")
	wantNews(t, &g, News{Failures: 3, Since: 1900 * ms})
	assert.True(t, !ends(instant.At(2900*ms+failingEvery-1), Failed) && ends(instant.At(2900*ms+failingEvery), Failed), "not every 250 ms")
	assert.True(t, ends(4*sec, Success), "the success is no news")
	wantNews(t, &g, News{Working: true})
	assert.False(t, ends(4*sec, Success), "the next success is news")
	// However failures and successes follow each other, there are few reports.
	reports := 0
	for i := range time.Duration(1000) {
		r := Failed
		if i%11 == 10 {
			r = Success
		}
		if ends(instant.At(5*sec+i*ms), r); g.News().Failures > 0 {
			reports++
		}
	}
	assert.LessOrEqual(t, reports, 4, "reports in a second")
}

// An Update may change the rule of the requests while the circuit is open.
func TestLimiterConfigChanges(t *testing.T) {
	g := openInFleet(t, cutAt)
	v := member(t, g)
	v.enter(askAt)
	mustAsk(t, g, askAt)
	alone := visit(t, g) // an Update took the fleet away
	g.Leave(v.w)
	alone.mustWait(askAt, probeAt)
	mustNotAsk(t, g, askAt)
	alone.mustGo(probeAt)
	alone.end(probeAt+sec, Failed)
	back := member(t, g)
	back.mustWait(probeAt+sec, (probeAt + sec).Add(probeGap).Add(-permitTime))
}

// A fleetRun is several processes with a concurrency limit each, their ledger, and a network between
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
	limiter Limiter
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
	if p.limiter.AskPermit(p.run.clock.Now) {
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
			if used := p.limiter.Permit(r.clock.Now, granted, wait); granted && !used {
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
				p.limiter.Up(r.clock.Now, r.clock.Now.Add(time.Duration(r.rng.Float64()*float64(spread))))
			})
		}
	})
}

// tell does the part of the transport after a concurrency limit has news.
func (p *process) tell(news bool) {
	r := p.run
	if !news {
		return
	}
	n := p.limiter.News()
	if n.Working {
		p.working()
		return
	}
	if n.ProbeFailed {
		p.probeFailed()
	}
	if n.Failures > 0 {
		r.post(func() {
			if down, since := r.ledger.Failing(r.clock.Now, p.id, n.Failures, max(n.Since, 1), len(r.processes)); down {
				r.outages++
				r.toAll(func(p *process) { p.down(since) })
			}
		})
	}
}

// down tells a process that the host is down. Nobody stops a process that had a success.
func (p *process) down(since instant.Instant) {
	r, g := p.run, &p.limiter
	worked, failed, closed := g.pulse.last > 0 && g.pulse.sent > since+sec, g.pulse.last <= since, g.outage.open
	switch works := g.Down(r.clock.Now, since); {
	case worked && !works, failed && works, works && g.outage.open != closed:
		r.t.Fatalf("seed %d: closed %v by a Down since %v, with a success at %v", r.seed, g.outage.open, since, g.pulse.last)
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
				p.tell(p.limiter.Leave(v.w))
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
	a := p.limiter.Enter(now, &v.slot, v.w, Config{Fleet: true})
	if a.Verb == queue.Go {
		v.gone = true
		if !v.stays && r.rng.IntN(8) == 0 { // its deadline is too near
			r.released++
			p.tell(p.limiter.Release(now, &v.slot))
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
		if !r.cut && p.limiter.outage.open && p.limiter.slots.inFlight > 0 && p.limiter.fleet.permit == lent {
			leased++
		}
	}
	r.most = max(r.most, leased)
	over := false
	r.clock.At(r.clock.Now.Add(takes), func() {
		if over = true; !p.dead {
			p.tell(p.limiter.End(r.clock.Now, &v.slot, result))
		}
	})
	var renew func()
	renew = func() {
		if !over && !p.dead && p.limiter.Renew() {
			p.probe()
			r.clock.At(r.clock.Now.Add(RenewTime), renew)
		}
	}
	r.clock.At(r.clock.Now.Add(RenewTime), renew)
}

// noise is news that nobody should send.
func (r *fleetRun) noise() {
	g := &r.processes[r.rng.IntN(len(r.processes))].limiter
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
		s := p.limiter.State()
		require.True(t, !s.CircuitOpen && s.Waiting == 0 && s.InFlight == 0, "seed %d: after %v process %d is left with %+v", seed, took, p.id, s)
	}
	return r, took
}

// When the host works again and all news is lost, each circuit closes soon. It waits for no
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
