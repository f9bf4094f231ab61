package gate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/soak"
)

const (
	ms  = hosttest.Ms
	sec = hosttest.Sec
)

// A visitor drives one request through a gate by hand.
type visitor struct {
	t    *testing.T
	gate *Gate
	conf Config
	slot Slot
	w    *queue.Waiter
}

func visit(t *testing.T, g *Gate) *visitor {
	return &visitor{t: t, gate: g, w: queue.NewWaiter()}
}

func (v *visitor) enter(now instant.Instant) queue.Answer {
	return v.gate.Enter(now, &v.slot, v.w, v.conf)
}

func (v *visitor) end(now instant.Instant, r Result) {
	v.gate.Result(now, &v.slot, r)
	v.gate.Done(now, &v.slot)
}

func (v *visitor) woken() bool { return hosttest.Woken(v.w) }

func (v *visitor) mustGo(now instant.Instant) {
	v.t.Helper()
	if a := v.enter(now); a.Verb != queue.Go {
		v.t.Fatalf("at %v: %+v, want Go", now, a)
	}
}

func (v *visitor) mustWait(now, ask instant.Instant) {
	v.t.Helper()
	if a := v.enter(now); a.Verb != queue.Wait || a.Ask != ask {
		v.t.Fatalf("at %v: %+v, want queue.Wait until %v", now, a, ask)
	}
}

// fill sends n requests.
func fill(t *testing.T, g *Gate, now instant.Instant, n int) []*visitor {
	t.Helper()
	vs := make([]*visitor, n)
	for i := range vs {
		vs[i] = visit(t, g)
		vs[i].mustGo(now)
	}
	return vs
}

// closeGate makes a gate with the first limit fail wholesale, so that it is closed at
// that time.
func closeGate(t *testing.T, g *Gate, at instant.Instant) {
	t.Helper()
	g.gap = 0 // as if there had been much traffic before
	for _, v := range fill(t, g, at.Add(-2*time.Second), 10) {
		v.end(at, Lost)
	}
	if !g.State().Closed {
		t.Fatalf("not closed: %+v", g.State())
	}
}

func wantLimit(t *testing.T, g *Gate, want int) {
	t.Helper()
	if got := g.State().Limit; got != want {
		t.Fatalf("limit %d, want %d", got, want)
	}
}

func TestGateStartsAtTenAndHolds(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	waiting := make([]*visitor, 5)
	for i := range waiting {
		waiting[i] = visit(t, &g)
		waiting[i].mustWait(0, instant.Never)
	}
	if a := g.Enter(0, new(Slot), nil, Config{}); a.Verb != queue.Wait || g.State().Waiting != 5 {
		t.Errorf("one that does not wait: %+v, %+v", a, g.State())
	}
	in[0].end(1, Neutral)
	if !waiting[0].woken() || waiting[1].woken() {
		t.Error("not the first was woken, or not alone")
	}
	newcomer := visit(t, &g)
	newcomer.mustWait(1, instant.Never) // although a slot is free, because the first waiter gets it
	waiting[0].mustGo(1)
	if waiting[1].woken() {
		t.Error("the second was woken without a slot")
	}
	g.Leave(waiting[1].w) // gave up
	in[1].end(2, Neutral)
	waiting[2].mustGo(2)
	if got := g.State(); got != (State{Limit: 10, InFlight: 10, Waiting: 3}) {
		t.Errorf("%+v", got)
	}
}

func TestGateLeaveHandsTheTurnOn(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	a, b := visit(t, &g), visit(t, &g)
	a.mustWait(0, instant.Never)
	b.mustWait(0, instant.Never)
	in[0].end(1, Neutral) // wakes a, which is about to give up
	g.Leave(a.w)
	if !b.woken() {
		t.Fatal("b was not woken")
	}
	b.mustGo(1)
	g.Leave(a.w) // harmless
	g.Leave(b.w)
}

func TestGateGrowsOnlyInFullUse(t *testing.T) {
	var g Gate
	for i := range 1000 {
		v := fill(t, &g, instant.At(time.Duration(i)), 1)[0]
		v.end(instant.At(time.Duration(i)), Success)
	}
	wantLimit(t, &g, 10)

	in := fill(t, &g, 1000, 9)
	for _, v := range in {
		v.end(1000, Success)
	}
	wantLimit(t, &g, 10)

	in = fill(t, &g, 1000, 10)
	waiting := visit(t, &g)
	waiting.mustWait(1000, instant.Never)
	in[0].end(1001, Success)
	wantLimit(t, &g, 11)
}

// round uses up the limit with successes once, and returns the limit after that.
func round(t *testing.T, g *Gate, now instant.Instant) int {
	t.Helper()
	in := fill(t, g, now, g.State().Limit)
	next := visit(t, g) // a request always waits, so the limit is used up
	next.enter(now)
	for _, v := range in {
		v.end(now, Success)
	}
	g.Leave(next.w)
	return g.State().Limit
}

func TestGateSlowStartThenLinear(t *testing.T) {
	var g Gate
	fill(t, &g, 0, 1)[0].end(0, Success)
	g.limit = 40
	for _, v := range fill(t, &g, instant.At(time.Second), 40) {
		v.end(instant.At(3*time.Second), Lost)
	}
	wantLimit(t, &g, 1)
	var limits []int
	now := 3*time.Second + probeGap
	for range 14 {
		limits = append(limits, round(t, &g, instant.At(now)))
		now += 100 * time.Millisecond
	}
	want := []int{2, 4, 8, 16, 20, 20, 21, 21, 22, 22, 23, 23, 24, 24}
	if !slices.Equal(limits, want) {
		t.Errorf("limits %v, want %v", limits, want)
	}
}

func TestGateProbes(t *testing.T) {
	var g Gate
	const cut = 10 * time.Second
	closeGate(t, &g, instant.At(cut))
	a, b, c := visit(t, &g), visit(t, &g), visit(t, &g)
	a.mustWait(instant.At(cut), instant.At(cut+probeGap))
	b.mustWait(instant.At(cut), instant.Never) // a is asked first
	a.mustGo(instant.At(cut + probeGap))
	b.mustWait(instant.At(cut+probeGap), instant.At(cut+probeGap+probeTime)) // the probe may hang
	c.mustWait(instant.At(cut+probeGap), instant.Never)

	end := cut + probeGap + 2*time.Second
	a.end(instant.At(end), Lost)
	if !b.woken() || c.woken() {
		t.Error("the next probe was not woken, or not alone")
	}
	b.mustWait(instant.At(end), instant.At(end+probeGap))
	b.mustGo(instant.At(end + probeGap))
	end += probeGap + time.Millisecond
	b.end(instant.At(end), Failed)
	if !c.woken() {
		t.Error("c was not woken")
	}
	c.mustWait(instant.At(end), instant.At(end+probeGap))
	c.mustGo(instant.At(end + probeGap))
	c.end(instant.At(end+probeGap), Success)
	if got := g.State(); got.Closed || got.Limit != 2 {
		t.Errorf("after a success: %+v", got)
	}
}

// The gap between probes is well below the second that is allowed.
func TestGateProbeGap(t *testing.T) {
	if probeGap > time.Second {
		t.Error(probeGap)
	}
}

func TestGateCutsOncePerRound(t *testing.T) {
	var g Gate
	fill(t, &g, 0, 1)[0].end(0, Success)
	g.limit = 40
	in := fill(t, &g, 0, 40)
	for _, v := range in[:36] {
		v.end(instant.At(2*time.Second), Lost)
	}
	wantLimit(t, &g, 1)
	if g.threshold != 20 {
		t.Errorf("threshold %d", g.threshold)
	}
	probe := visit(t, &g)
	probe.mustGo(instant.At(3 * time.Second))
	probe.end(instant.At(3*time.Second), Success)
	wantLimit(t, &g, 2)
	for _, v := range in[36:38] { // they were sent before the cut
		v.end(instant.At(3*time.Second), Lost)
	}
	wantLimit(t, &g, 2)
	if g.threshold != 20 {
		t.Errorf("threshold %d", g.threshold)
	}
	for _, v := range in[38:] {
		v.end(instant.At(3*time.Second), Success)
	}
	wantLimit(t, &g, 2) // nor do they make it grow
	if got := g.State().InFlight; got != 0 {
		t.Errorf("%d in flight", got)
	}
}

// Streams from before the cut neither count as probes nor keep probes out. If a request
// that was sent before the cut succeeds, the next probe goes at once.
func TestGateOldRequests(t *testing.T) {
	var g Gate
	streams := fill(t, &g, 0, 3)
	for _, v := range streams {
		g.Result(0, &v.slot, Success)
	}
	slow := visit(t, &g)
	slow.mustGo(instant.At(time.Millisecond))
	for _, v := range fill(t, &g, instant.At(time.Second), 6) {
		v.end(instant.At(10*time.Second), Lost)
	}
	now := 10 * time.Second
	for range 4 { // the slots come back one after the other
		v := visit(t, &g)
		v.mustWait(instant.At(now), instant.At(now+soonestSlot))
		v.mustGo(instant.At(now + soonestSlot))
		now += 2 * time.Second
		v.end(instant.At(now), Lost)
	}
	if got := g.State(); !got.Closed || got.InFlight != 4 {
		t.Fatalf("%+v", got)
	}
	probe := visit(t, &g)
	probe.mustWait(instant.At(now), instant.At(now+probeGap))
	slow.end(instant.At(now+1), Success)
	if got := g.State(); !got.Closed {
		t.Errorf("opened by an old request: %+v", got)
	}
	if !probe.woken() {
		t.Error("the probe was not woken")
	}
	probe.mustGo(instant.At(now + 1))
}

func TestGateLostRequestsKeepTheirSlot(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	waiting := visit(t, &g)
	waiting.mustWait(0, instant.Never)
	for _, v := range in[:4] {
		v.end(instant.At(2*time.Second), Lost)
	}
	waiting.mustWait(instant.At(2*time.Second), instant.At(2*time.Second+soonestSlot))
	waiting.woken()
	in[4].end(instant.At(2*time.Second), Success) // the server works off its queue
	if !waiting.woken() {
		t.Fatal("no slot after a success")
	}
	in[5].end(instant.At(2*time.Second), Success)
	for _, v := range fill0(t, &g, waiting, instant.At(2*time.Second), 6) {
		v.end(instant.At(2*time.Second), Neutral)
	}
}

// fill0 lets the first waiter go, and then n−1 more requests.
func fill0(t *testing.T, g *Gate, first *visitor, now instant.Instant, n int) []*visitor {
	t.Helper()
	first.mustGo(now)
	return append([]*visitor{first}, fill(t, g, now, n-1)...)
}

// A route that fails among others that work does not close the gate, whatever its
// share is and however it fails. If four fifths of all requests hang, they keep others
// out, and the gate is closed for a small share of the arrivals.
func TestGateBadRoute(t *testing.T) {
	for _, tt := range []struct {
		name  string
		share float64       // of the bad route
		rate  float64       // requests per second
		takes time.Duration // for the bad route to fail
		how   Result
		most  float64 // the share of arrivals that may find it closed
	}{
		{"half of 100/s get a 503", 0.5, 100, 5 * time.Millisecond, Failed, 0},
		{"80 % of 100/s get a 503", 0.8, 100, 5 * time.Millisecond, Failed, 0},
		{"half of 1000/s get a 503", 0.5, 1000, 5 * time.Millisecond, Failed, 0},
		{"half of 10/s get a 503", 0.5, 10, 5 * time.Millisecond, Failed, 0},
		{"half of 1/s get a 503", 0.5, 1, 5 * time.Millisecond, Failed, 0},
		{"a tenth of 50/s hangs for 2 s", 0.1, 50, 2 * time.Second, Lost, 0},
		{"half of 10/s hangs for 2 s", 0.5, 10, 2 * time.Second, Lost, 0},
		{"80 % of 2/s hang for 2 s", 0.8, 2, 2 * time.Second, Lost, 0.02},
		{"80 % of 5/s hang for 2 s", 0.8, 5, 2 * time.Second, Lost, 0.02},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var g Gate
			rng := rand.New(rand.NewPCG(1, 1))
			c := &hosttest.Clock{}
			arrived, closed := 0, 0
			var arrive func()
			arrive = func() {
				v := &gateRequest{clock: c, gate: &g, result: Success, takes: 20 * time.Millisecond}
				if rng.Float64() < tt.share {
					v.result, v.takes = tt.how, tt.takes
				}
				v.start()
				arrived++
				if g.State().Closed {
					closed++
				}
				c.At(c.Now.Add(time.Duration(rng.ExpFloat64()/tt.rate*float64(time.Second))), arrive)
			}
			c.At(0, arrive)
			c.RunTo(instant.At(min(20*time.Minute, time.Duration(soak.Size(5_000., 20_000)/tt.rate*float64(time.Second)))))
			if float64(closed) > tt.most*float64(arrived) {
				t.Errorf("closed at %d of %d arrivals", closed, arrived)
			}
		})
	}
}

// A connection breaks with all its requests. This is an event and no outage.
func TestGateBrokenConnection(t *testing.T) {
	for _, n := range []int{10, 50, 200} {
		g := Gate{}
		conf := Config{Start: n}
		vs := make([]*visitor, n)
		for i := range vs {
			vs[i] = visit(t, &g)
			vs[i].conf = conf
			vs[i].mustGo(0)
		}
		for _, v := range vs {
			v.end(instant.At(time.Second), Failed)
		}
		if g.State().Closed {
			t.Errorf("closed after %d at once", n)
		}
	}
}

func TestGateClosesOnFailures(t *testing.T) {
	var g Gate
	fails := 0
	var now instant.Instant
	for ; !g.State().Closed; now = now.Add(10 * time.Millisecond) {
		fill(t, &g, now, 1)[0].end(now, Failed)
		fails++
	}
	if fails != 100 && now < instant.At(time.Second) {
		t.Errorf("closed after %d failures and %v", fails, now)
	}
	// At a high rate it does not take the second.
	g = Gate{}
	for fails = 0; !g.State().Closed; fails++ {
		fill(t, &g, 0, 1)[0].end(0, Failed)
	}
	if fails != 100 {
		t.Errorf("closed after %d failures at once", fails)
	}
}

// Bodies that are read for long keep their slots, but further streams may start.
// Failures become an outage only after some time, and no request asks at that time. A
// request that comes an hour later is the probe and goes at once, because the gate
// counts as closed since then.
func TestGateClosesWhenNobodyAsks(t *testing.T) {
	var g Gate
	for i := range time.Duration(failRun) {
		fill(t, &g, instant.At(i*10*time.Millisecond), 1)[0].end(instant.At(i*10*time.Millisecond), Failed)
	}
	if g.State().Closed {
		t.Fatal("closed too early for this test")
	}
	probe := visit(t, &g)
	probe.mustGo(instant.At(time.Hour))
	if !g.State().Closed {
		t.Error("the gate is open")
	}
	visit(t, &g).mustWait(instant.At(time.Hour), instant.At(time.Hour+probeTime))
}

func TestGateStreams(t *testing.T) {
	var g Gate
	closeGate(t, &g, instant.At(10*time.Second))
	now := 20 * time.Second
	streams := 0
	for range 50 {
		v := visit(t, &g)
		if a := v.enter(instant.At(now)); a.Verb != queue.Go {
			t.Fatalf("after %d streams: %+v, %+v", streams, a, g.State())
		}
		g.Result(instant.At(now), &v.slot, Success) // and never Done
		streams++
	}
	v := visit(t, &g)
	v.mustGo(instant.At(now)) // has no response yet, and the next request waits for it
	w := visit(t, &g)
	w.mustWait(instant.At(now), instant.At(10*time.Second+2*useWindow)) // the limit goes back to the start
	g.Result(instant.At(now), &v.slot, Success)
	if !w.woken() {
		t.Error("not woken")
	}
	w.mustGo(instant.At(now))

	g2 := Gate{}
	conf := Config{Max: 12}
	for i := range 12 {
		v := visit(t, &g2)
		v.conf = conf
		v.mustGo(instant.At(time.Duration(i)))
		g2.Result(instant.At(time.Duration(i)), &v.slot, Success)
	}
	v = visit(t, &g2)
	v.conf = conf
	v.mustWait(20, instant.At(bodyTime)) // Max holds for streams as well
}

// Responses that wait for their readers look like streams. Further requests may go
// beside them, but the limit stays.
func TestGateUnreadResponsesDoNotRaiseTheLimit(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	for range 4 {
		for _, v := range in {
			if !v.slot.answered {
				g.Result(instant.At(time.Millisecond), &v.slot, Neutral)
				v.slot.answered = true // without the growth of a success
				g.answered++
			}
		}
		in = append(in, fill(t, &g, instant.At(time.Millisecond), 1)...)
	}
	wantLimit(t, &g, 10)
	if got := g.State().InFlight; got != 14 {
		t.Errorf("%d in flight", got)
	}
	for _, v := range in {
		v.end(instant.At(time.Second), Neutral)
	}
	wantLimit(t, &g, 10)
	fill(t, &g, instant.At(time.Second), 10)
	visit(t, &g).mustWait(instant.At(time.Second), instant.Never)
}

// calmGate is a gate that has been healthy for a window.
func calmGate(t *testing.T) *Gate {
	g := &Gate{}
	for _, now := range []time.Duration{0, useWindow} {
		fill(t, g, instant.At(now), 1)[0].end(instant.At(now+100*ms), Success)
	}
	return g
}

// A burst is no reason to grow, but pressure that lasts is.
func TestGateGrowsUnderLastingPressureOnly(t *testing.T) {
	g := calmGate(t)
	for now := instant.At(11 * sec); now < 30*sec; now += 3 * sec {
		for at := now; at < now.Add(pressTime); at += 100 * ms { // a burst of 200
			round(t, g, at)
		}
		fill(t, g, now.Add(pressTime), 1)[0].end(now.Add(pressTime), Success) // its end
	}
	wantLimit(t, g, 10)
	g = calmGate(t)
	for now := instant.At(11 * sec); now < 15*sec; now += 100 * ms {
		round(t, g, now)
	}
	if got := g.State().Limit; got < 20 {
		t.Errorf("limit %d", got)
	}
}

// Waiters that are slow to take free slots do not wait for the limit.
func TestGateDoesNotGrowForAnIdleQueue(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	waiting := visit(t, &g)
	waiting.mustWait(0, instant.Never)
	for _, v := range in[:5] {
		v.end(100*ms, Success)
	}
	limit := g.State().Limit
	for _, v := range in[5:] {
		v.end(300*ms, Success)
	}
	wantLimit(t, &g, limit)
}

// Whatever a caller does with a body, its slot ends once.
func TestGateRest(t *testing.T) {
	var g Gate
	conf := Config{Start: 2, Max: 2}
	var a, b, c Slot
	g.Enter(0, &a, nil, conf)
	g.Enter(0, &b, nil, conf)
	g.Idle(0, &a) // has no response yet
	g.Result(0, &a, Success)
	g.Result(0, &b, Success)
	g.Reading(0, &b, false)
	w := visit(t, &g)
	w.conf = conf
	w.mustWait(sec, instant.At(bodyTime))
	g.Idle(2*sec, &b)
	if w.woken() {
		t.Error("woken without need")
	}
	w.mustGo(instant.At(bodyTime)) // with the slot of a
	if got := g.State(); got.InFlight != 3 {
		t.Errorf("%+v", got)
	}
	if v := g.Enter(instant.At(bodyTime), &c, nil, conf); v.Verb != queue.Wait {
		t.Errorf("%+v: b is not forgotten yet", v)
	}
	if v := g.Enter(instant.At(bodyTime+2*sec), &c, nil, conf); v.Verb != queue.Go {
		t.Errorf("%+v", v)
	}
	g.Reading(instant.At(bodyTime+2*sec), &a, true) // too late
	g.Idle(instant.At(2*bodyTime), &a)
	for _, p := range []*Slot{&a, &b, &c, &w.slot, &a} {
		g.Done(instant.At(2*bodyTime), p)
	}
	if got := g.State(); got.InFlight != 0 || g.used() != 0 || g.idle != (slotList{}) || g.streams != (slotList{}) || g.uploads != (slotList{}) {
		t.Errorf("%+v", got)
	}
}

// A waiter knows of no time at which a slot may come free. When the caller stops
// reading a body, the waiter is woken and learns such a time.
func TestGateRestTellsWhoWaits(t *testing.T) {
	var g Gate
	conf := Config{Start: 1, Max: 1}
	var a Slot
	g.Enter(0, &a, nil, conf)
	g.Result(0, &a, Success)
	g.Reading(0, &a, false)
	w := visit(t, &g)
	w.conf = conf
	w.mustWait(0, instant.Never)
	g.Idle(sec, &a)
	if !w.woken() {
		t.Fatal("not woken")
	}
	w.mustWait(sec, instant.At(sec+bodyTime))
	w.mustGo(instant.At(sec + bodyTime))
}

// The slots of lost requests come back by time, however many requests ask.
func TestGateLostSlotsComeBackByTime(t *testing.T) {
	var g Gate
	for _, v := range fill(t, &g, 0, 9) {
		v.end(instant.At(2*time.Second), Lost)
	}
	if g.lost != 9 {
		t.Fatalf("%d slots kept", g.lost)
	}
	fill(t, &g, instant.At(time.Hour), 10)
	if g.lost != 0 {
		t.Errorf("%d slots kept", g.lost)
	}
}

// The estimate of a response's time follows the fast responses among slow ones. It
// also follows a host that becomes slower.
func TestGateQuick(t *testing.T) {
	var g Gate
	respond := func(took time.Duration) time.Duration {
		v := fill(t, &g, 0, 1)[0]
		v.end(instant.At(took), Success)
		var p Slot
		a := g.Enter(0, &p, nil, Config{})
		g.Done(0, &p)
		return a.Until.Since()
	}
	for range 3 {
		respond(30 * sec)
	}
	for range 50 {
		if got := respond(10 * ms); got > 50*ms {
			t.Fatalf("%v after a fast one", got)
		}
		if got := respond(30 * sec); got > 50*ms {
			t.Fatalf("%v after a slow one", got)
		}
	}
	for range 200 {
		respond(2 * sec)
	}
	if got := respond(2 * sec); got != 2*sec {
		t.Errorf("%v, when all take 2 s", got)
	}
}

func TestGateLimitGoesBack(t *testing.T) {
	var g Gate
	fill(t, &g, 0, 1)[0].end(0, Success)
	for range 8 {
		round(t, &g, 0)
	}
	high := g.State().Limit
	if high < 100 {
		t.Fatalf("limit %d", high)
	}
	now := time.Duration(0)
	var limits []int
	for range 7 {
		now += useWindow
		fill(t, &g, instant.At(now), 1)[0].end(instant.At(now), Success)
		limits = append(limits, g.State().Limit)
	}
	if !slices.IsSortedFunc(limits, func(a, b int) int { return b - a }) || limits[6] != 10 {
		t.Errorf("from %d: %v, want down to 10", high, limits)
	}

	// The limit also goes up to the start again if it was not used up after a cut.
	closeGate(t, &g, instant.At(now+2*time.Second))
	now += 3 * time.Second
	fill(t, &g, instant.At(now), 1)[0].end(instant.At(now), Success)
	wantLimit(t, &g, 2)
	for range 3 {
		now += useWindow
		fill(t, &g, instant.At(now), 1)[0].end(instant.At(now), Success)
	}
	wantLimit(t, &g, 10)
}

// If the question of a newcomer makes room, the first waiter hears of it.
func TestGateTellsOfRoom(t *testing.T) {
	var g Gate
	closeGate(t, &g, instant.At(2*time.Second))
	fill(t, &g, instant.At(3*time.Second), 1)[0].end(instant.At(3*time.Second), Success)
	wantLimit(t, &g, 2)
	fill(t, &g, instant.At(3*time.Second), 2) // slow requests, which use up the limit
	first := visit(t, &g)
	first.mustWait(instant.At(3*time.Second), instant.At(useWindow))
	first.woken()
	for now := 4 * time.Second; g.State().Limit == 2; now += time.Second {
		if now > time.Minute {
			t.Fatal("the limit never went back")
		}
		visit(t, &g).enter(instant.At(now))
	}
	if !first.woken() {
		t.Errorf("not woken: %+v", g.State())
	}
}

// A request that gets no token of the rate keeps its turn, takes no slot, and counts as no
// waiter of the gate.
func TestGateWaitsForTheRate(t *testing.T) {
	var g Gate
	fill(t, &g, 0, 9)
	rate := rate.New(rate.Config{PerSecond: 1, Burst: 1})
	rate.Take(0)
	a, b := visit(t, &g), visit(t, &g)
	a.conf.Rate, b.conf.Rate = rate, rate
	if got := a.enter(0); got != (queue.Answer{Verb: queue.Wait, Ask: sec, Until: sec, ForRate: true, NoToken: true}) {
		t.Errorf("%+v", got)
	}
	if got := b.enter(0); got.Verb != queue.Wait || got.Ask != instant.Never || !got.ForRate {
		t.Errorf("%+v", got)
	}
	if got := g.State(); got.InFlight != 9 || got.Waiting != 0 {
		t.Errorf("%+v", got)
	}
	b.mustWait(sec, instant.Never) // a is first still
	a.mustGo(sec)
	b.woken()
	if got := b.enter(sec); got.Verb != queue.Wait || got.Ask != 2*sec || got.ForRate {
		t.Errorf("the rate comes first: %+v", got)
	}
	if got := b.enter(2 * sec); got.Verb != queue.Wait || got.Ask != instant.Never || got.ForRate {
		t.Errorf("the limit is used up: %+v", got)
	}
	if got := g.State(); got.InFlight != 10 || got.Waiting != 1 {
		t.Errorf("%+v", got)
	}
	if got := g.RateTime(5 * sec); got != 2*sec {
		t.Errorf("waited %v for the rate", got)
	}
}

func TestGateRelease(t *testing.T) {
	var g Gate
	fill(t, &g, 0, 9)
	a, b := visit(t, &g), visit(t, &g)
	a.mustGo(0)
	b.mustWait(0, instant.Never)
	g.Release(0, &a.slot)
	if got := g.State(); got.InFlight != 9 || got.Waiting != 1 {
		t.Errorf("%+v", got)
	}
	if !b.woken() {
		t.Error("b was not woken")
	}
	b.mustGo(1)
}

func TestGateDoneTwice(t *testing.T) {
	var g Gate
	v := fill(t, &g, 0, 1)[0]
	v.end(0, Success)
	v.end(0, Success)
	g.Done(0, &Slot{})
	g.Result(0, &Slot{}, Failed)
	if got := g.State(); got.InFlight != 0 || got.Limit != 10 {
		t.Errorf("%+v", got)
	}
}

// A gateRequest goes through a gate in virtual time.
type gateRequest struct {
	clock   *hosttest.Clock
	gate    *Gate
	conf    Config
	asks    func() // the fleet for a permit
	result  Result
	takes   time.Duration
	waits   time.Duration // for its caller, from the send on
	reads   time.Duration // the response's body
	streams bool          // the response's body has no length
	gives   time.Duration // up waiting after this; zero: never

	slot    Slot
	used    int // before it asked
	w       *queue.Waiter
	state   int // 0 waiting, 1 sent, 2 left
	onGo    func()
	onLeave func()
	woken   int
}

func (v *gateRequest) start() {
	v.w = &queue.Waiter{Woken: func(*queue.Waiter) {
		v.woken++
		v.clock.At(v.clock.Now, v.ask)
	}}
	if v.gives > 0 {
		v.clock.At(v.clock.Now.Add(v.gives), func() {
			if v.state == 0 {
				v.state = 2
				v.gate.Leave(v.w)
				if v.onLeave != nil {
					v.onLeave()
				}
			}
		})
	}
	v.ask()
}

func (v *gateRequest) ask() {
	if v.state != 0 {
		return
	}
	v.used = v.gate.used()
	a := v.gate.Enter(v.clock.Now, &v.slot, v.w, v.conf)
	if v.asks != nil && v.gate.AskPermit(v.clock.Now) {
		v.asks()
	}
	if a.Verb == queue.Wait {
		if a.Ask != instant.Never {
			v.clock.At(a.Ask, v.ask)
		}
		return
	}
	v.state = 1
	if v.onGo != nil {
		v.onGo()
	}
	if v.waits > 0 {
		v.clock.At(v.clock.Now, func() { v.gate.Await(v.clock.Now, &v.slot) })
		v.clock.At(v.clock.Now.Add(v.waits), func() { v.gate.Resume(v.clock.Now, &v.slot) })
	}
	v.clock.At(v.clock.Now.Add(v.takes), func() {
		v.gate.Result(v.clock.Now, &v.slot, v.result)
		if v.reads > 0 {
			v.gate.Reading(v.clock.Now, &v.slot, v.streams)
		}
		v.clock.At(v.clock.Now.Add(v.reads), func() { v.gate.Done(v.clock.Now, &v.slot) })
	})
}

// Whatever happens, waiters are served in the order of arrival, the limit holds, and a
// closed gate has one probe at most. At the end nothing is left over.
func runGate(t *testing.T, seed uint64, n int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	var g Gate
	c := &hosttest.Clock{}
	var conf Config
	var asks func()
	if conf.Fleet = seed%2 == 1; conf.Fleet { // it says anything at any time, or nothing
		answer := func() { g.Permit(c.Now, rng.IntN(3) > 0, time.Duration(rng.IntN(800))*ms) }
		asks = func() {
			for range rng.IntN(3) {
				c.At(c.Now.Add(time.Duration(rng.IntN(400))*ms), answer)
			}
		}
		for range 40 {
			c.At(instant.At(time.Duration(rng.IntN(20_000))*ms), func() {
				[]func(){
					answer,
					func() { g.Up(c.Now, c.Now.Add(time.Duration(rng.IntN(3000))*ms)) },
					func() { g.Down(c.Now, c.Now.Add(-time.Duration(rng.IntN(5000))*ms)) },
				}[rng.IntN(3)]()
			})
		}
	}
	var waiting []int // in the order of arrival
	served, left := 0, 0
	mood := Success
	idle := time.Duration(0) // for how long there was no probe although a request waits
	for i := range n {
		c.At(instant.At(time.Duration(rng.IntN(20_000))*time.Millisecond), func() {
			v := &gateRequest{clock: c, gate: &g, conf: conf, asks: asks, result: mood, takes: time.Duration(1+rng.IntN(1500)) * time.Millisecond}
			if rng.IntN(10) == 0 {
				v.result = Result(rng.IntN(4))
			}
			if rng.IntN(4) == 0 {
				v.reads, v.streams = time.Duration(rng.IntN(3000))*time.Millisecond, rng.IntN(2) == 0
			}
			if rng.IntN(4) == 0 {
				v.waits = time.Duration(1+rng.IntN(2000)) * time.Millisecond // for its caller
			}
			if rng.IntN(3) == 0 {
				v.gives = time.Duration(1+rng.IntN(4000)) * time.Millisecond
			}
			waiting = append(waiting, i)
			remove := func() int {
				at := slices.Index(waiting, i)
				waiting = slices.Delete(waiting, at, at+1)
				return at
			}
			v.onGo = func() {
				if remove() != 0 {
					t.Fatalf("seed %d: %d went before its turn", seed, i)
				}
				// A slot that comes back from waiting for its caller may exceed the limit.
				if g.closed && g.inFlight != 1 || !g.closed && g.used() > max(g.limit, v.used) {
					t.Fatalf("seed %d: closed %v, limit %d, %d in flight, %d lost", seed, g.closed, g.limit, g.inFlight, g.lost)
				}
				served++
				idle = 0
			}
			v.onLeave = func() { remove(); left++ }
			v.start()
		})
	}
	for at := range 20 {
		c.At(instant.At(time.Duration(at)*time.Second), func() { mood = Result(rng.IntN(4)) })
	}
	c.At(instant.At(20*time.Second), func() { mood = Success })
	for at := instant.Instant(0); at < instant.At(time.Minute); at = at.Add(50 * time.Millisecond) {
		c.At(at, func() {
			if idle += 50 * time.Millisecond; !g.closed || g.queue.Len() == 0 || g.inFlight > 0 {
				idle = 0
			}
			// A gate of a fleet may be told to wait, and it waits for the time to return.
			if idle > time.Second && !conf.Fleet || idle > 15*time.Second {
				t.Fatalf("seed %d: no probe for %v", seed, idle)
			}
		})
	}
	c.RunTo(instant.At(time.Hour))
	if served+left != n || len(waiting) != 0 {
		t.Fatalf("seed %d: %d served, %d left of %d; %d waiting", seed, served, left, n, len(waiting))
	}
	if g.inFlight != 0 || g.answered != 0 || g.old != 0 || g.away != 0 || g.queue != (queue.Queue{}) {
		t.Fatalf("seed %d: left over: %+v", seed, g.State())
	}
}

func TestGateServesEverybody(t *testing.T) {
	for seed := range soak.Size[uint64](25, 100) {
		runGate(t, seed, 300)
	}
}

func FuzzGate(f *testing.F) {
	f.Add(uint64(1), uint8(200))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) { runGate(t, seed, int(n)) })
}

func TestGateCosts(t *testing.T) {
	var g Gate
	var p Slot
	if n := testing.AllocsPerRun(100, func() {
		g.Enter(0, &p, nil, Config{})
		g.Result(0, &p, Success)
		g.Done(0, &p)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := unsafe.Sizeof(g); n > 320 {
		t.Errorf("%d bytes", n)
	}
	if n := unsafe.Sizeof(queue.Waiter{}); n > 96 {
		t.Errorf("a waiter has %d bytes", n)
	}
}

func BenchmarkGate(b *testing.B) {
	var g Gate
	var p Slot
	for b.Loop() {
		g.Enter(0, &p, nil, Config{})
		g.Result(0, &p, Success)
		g.Done(0, &p)
	}
}

// After an outage the limit returns to the start by itself. A waiter behind slow
// requests hears of it although no other request comes.
func TestGateTellsWhenTheLimitIsBack(t *testing.T) {
	var g Gate
	closeGate(t, &g, instant.At(2*time.Second))
	fill(t, &g, instant.At(3*time.Second), 1)[0].end(instant.At(3*time.Second), Success)
	wantLimit(t, &g, 2)
	in := fill(t, &g, instant.At(3*time.Second), 2) // slow requests, which use up the limit
	first, second := visit(t, &g), visit(t, &g)
	now := 4 * time.Second
	first.enter(instant.At(now))
	second.enter(instant.At(now))
	in[0].end(instant.At(now), Neutral)
	first.mustGo(instant.At(now))
	if !second.woken() {
		t.Fatal("the new first in the queue was told nothing")
	}
	for asks := 0; ; asks++ {
		a := second.enter(instant.At(now))
		if a.Verb == queue.Go {
			break
		}
		if a.Ask == instant.Never || asks > 3 {
			t.Fatalf("at %v, asked %d times: %+v", now, asks, a)
		}
		now = a.Ask.Since()
	}
	if now > 4*time.Second+2*useWindow {
		t.Errorf("only at %v", now)
	}
}

// Ten failures in less than a second are an outage when the second is over,
// whether or not there is an eleventh.
func TestGateTellsWhenTheOutageIsOne(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	first := visit(t, &g)
	first.mustWait(0, instant.Never)
	for _, v := range in {
		g.Result(100*ms, &v.slot, Failed) // their bodies stay open
	}
	if !first.woken() {
		t.Fatal("not woken")
	}
	first.mustWait(100*ms, 1100*ms)
	first.mustWait(1100*ms, instant.At(1100*ms+probeGap))
	first.mustGo(instant.At(1100*ms + probeGap))
}

// An Update raised Max. A waiter with the new rule does not wait for a stream although
// a request with the old rule asked last.
func TestGateTellsAfterAnUpdate(t *testing.T) {
	var g Gate
	one, four := Config{Start: 1, Max: 1}, Config{Start: 1, Max: 4}
	var stream Slot
	w := queue.NewWaiter()
	g.Enter(0, &stream, nil, one)
	g.Enter(0, new(Slot), w, one) // behind it, with the old rule
	next := visit(t, &g)
	next.conf = four
	next.mustWait(0, instant.Never)
	g.Done(1, &stream)
	g.Enter(1, &stream, w, one)
	g.Result(2, &stream, Success) // and it streams
	if !next.woken() {
		t.Fatal("not woken")
	}
	next.mustGo(2)
}

// An Update raised Start. A waiter with the new rule that is first now hears of it,
// although the request before it passed with the old rule.
func TestGateTellsAfterAnUpdateOfStart(t *testing.T) {
	var g Gate
	one, ten := Config{Start: 1}, Config{Start: 10}
	var a, b Slot
	w := queue.NewWaiter()
	g.Enter(0, &a, nil, one)
	g.Enter(0, &b, w, one)
	next := visit(t, &g)
	next.conf = ten
	next.mustWait(0, instant.Never)
	g.Done(1, &a)
	if v := g.Enter(1, &b, w, one); v.Verb != queue.Go {
		t.Fatalf("%+v", v)
	}
	if !next.woken() {
		t.Fatal("not woken")
	}
	next.mustWait(1, instant.At(useWindow))
	next.mustGo(instant.At(useWindow))
}

// Requests that get no token of the rate go in the order in which they came.
func TestGateKeepsTheOrderForTheRate(t *testing.T) {
	var g Gate
	in := fill(t, &g, 0, 10)
	rate := rate.New(rate.Config{PerSecond: 1, Burst: 1})
	rate.Take(0)
	first, second := visit(t, &g), visit(t, &g)
	first.conf.Rate, second.conf.Rate = rate, rate
	first.mustWait(0, sec)
	second.mustWait(0, instant.Never)
	in[0].end(1, Neutral)
	in[1].end(1, Neutral)
	second.mustWait(1, instant.Never)
	first.mustWait(1, sec)
	second.mustWait(sec, instant.Never)
	first.mustGo(sec)
	second.mustWait(sec, 2*sec)
}

// End leaves a gate as Result and Done leave it, whatever has happened before.
func TestGateEnd(t *testing.T) {
	for seed := range uint64(200) {
		var gates [2]Gate
		var flying [2][]*Slot
		rng := rand.New(rand.NewPCG(seed, 1))
		conf := Config{Start: 1 + rng.IntN(20), Max: rng.IntN(3) * 20}
		now := instant.At(sec)
		for range 500 {
			now = now.Add(time.Duration(rng.Int64N(int64(200 * ms))))
			if op := rng.IntN(2); op == 0 || len(flying[0]) == 0 {
				for i := range gates {
					if s := new(Slot); gates[i].Enter(now, s, nil, conf).Verb == queue.Go {
						flying[i] = append(flying[i], s)
					}
				}
				continue
			}
			n, r := rng.IntN(len(flying[0])), Result(rng.IntN(4))
			if rng.IntN(3) > 0 {
				r = Failed // an outage now and then
			}
			gates[0].Result(now, flying[0][n], r)
			gates[0].Done(now, flying[0][n])
			gates[1].End(now, flying[1][n], r)
			for i := range flying {
				flying[i] = slices.Delete(flying[i], n, n+1)
			}
			a, b := gates[0].State(), gates[1].State()
			if a != b || len(flying[0]) != len(flying[1]) || gates[0].threshold != gates[1].threshold || gates[0].probe != gates[1].probe {
				t.Fatalf("seed %d: %+v after Result and Done, %+v after End", seed, a, b)
			}
		}
	}
}
