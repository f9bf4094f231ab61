package concurrency

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// The figures are those that the comments name.
func TestFigures(t *testing.T) {
	assert.Equal(t, [...]time.Duration{2 * sec, 500 * ms, sec, 5 * sec, 10 * ms, 10 * sec, 200 * ms, sec, 10 * sec, 10 * sec, 500 * ms, 100 * ms},
		[...]time.Duration{pressTime, probeGap, failTime, longestGap, quickStep, useWindow, soonestSlot, latestSlot, probeTime, bodyTime, streamTime, callerTime})
	assert.Equal(t, [...]time.Duration{250 * ms, sec, 10 * sec, 250 * ms, 30 * sec, 120 * sec, 600 * ms, 300 * ms},
		[...]time.Duration{failingEvery, silentTime, latestReturn, permitTime, refusalTime, longestNo, permitLife, RenewTime})
	assert.Equal(t, [...]int{10, 10, 2, 32, 16, 2, 10, 20, 100, 4, 8, 4},
		[...]int{start, room, rounds, share, swift, double, failRun, failGaps, failMany, failRounds, quickShare, slotsPerGap})
}

// A limit grows after so many successes.
func TestGrow(t *testing.T) {
	for name, row := range map[string]struct {
		l         growth
		trip      time.Duration
		successes int
		limit     int
	}{
		"slow start":            {growth{limit: 10, threshold: 100}, 0, 1, 11},
		"linear":                {growth{limit: 64, threshold: 64}, 0, 128, 66},
		"a small limit":         {growth{limit: 4, threshold: 4}, 0, 8, 5},
		"at Max":                {growth{limit: 199, threshold: 64}, 0, 398, 200},
		"calm":                  {growth{limit: 64, threshold: 64, calm: true, usual: 16}, 17, 8, 66},
		"calm, and slower":      {growth{limit: 64, threshold: 64, calm: true, usual: 16}, 18, 128, 66},
		"calm, and has doubled": {growth{limit: 128, threshold: 64, calm: true, usual: 16}, 16, 256, 132},
		"wary":                  {growth{limit: 64, threshold: 64, calm: true, wary: true, usual: 16}, 16, 128, 66},
	} {
		l := row.l
		for range row.successes - 1 {
			l.grow(200, row.trip)
		}
		assert.Equal(t, row.l.limit, l.limit, name)
		l.grow(200, row.trip)
		assert.Equal(t, []int{row.limit, 0}, []int{l.limit, int(l.grown)}, name)
	}
	l := growth{limit: 3, grown: 5, full: true, calm: true}
	l.cutDown()
	assert.Equal(t, growth{limit: 1, threshold: 2, cut: true, wary: true}, l)
	for _, wanted := range []bool{false, true} {
		l := growth{limit: 10, full: true}
		l.free(5, 9, wanted)
		assert.Equal(t, growth{limit: 10, full: wanted, freeAt: 5}, l)
	}
}

// What the successes tell of the requests that had none.
func TestPulse(t *testing.T) {
	p := pulse{last: 10 * sec, sent: 9800 * ms, trip: 250 * ms, gap: 2 * sec}
	assert.True(t, p.passed(9500*ms-1) && !p.passed(9500*ms), "two round trips")
	assert.False(t, (&pulse{last: 10 * sec, sent: 9 * sec}).passed(9*sec), "sent later")
	for late, want := range map[bool]instant.Instant{false: 43 * sec, true: 43*sec + 500*ms} {
		assert.Equal(t, want, (&outage{since: 3 * sec, run: 10, late: late}).due(10, &p), "late %v", late)
	}
	for trip, want := range map[time.Duration]time.Duration{0: 100 * ms, 250 * ms: 500 * ms, sec: sec} {
		assert.EqualValues(t, want, (&pulse{trip: trip}).overlap(), trip)
	}
	for gap, want := range map[time.Duration]time.Duration{0: 200 * ms, 2 * sec: 500 * ms, 9 * sec: sec} {
		assert.EqualValues(t, want, (&pulse{gap: gap}).lostSlotTime(), gap)
	}
	p.beat(11*sec, 11*sec)
	assert.Equal(t, pulse{last: 11 * sec, sent: 11 * sec, trip: 218750 * time.Microsecond, gap: 1875 * ms}, p)
	p = pulse{last: 10 * sec, sent: 9800 * ms, trip: 250 * ms, gap: 2 * sec}
	p.beat(9*sec, 10*sec)
	assert.Equal(t, pulse{last: 9 * sec, sent: 10 * sec, trip: 218750 * time.Microsecond, gap: 1750 * ms}, p, "the time goes back")
	p = pulse{last: 10 * sec, sent: 9800 * ms, trip: 250 * ms, gap: 2 * sec}
	p.beat(12*sec, 11*sec)
	assert.Equal(t, pulse{last: 12 * sec, sent: 11 * sec, trip: 343750 * time.Microsecond, gap: 2 * sec, quick: 10 * ms}, p)
}

func TestLimiterGrowsOnlyInFullUse(t *testing.T) {
	var g Limiter
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

// cut40 fails 40 attempts 3 s after the start, so that the limit of 40 is cut.
func cut40(t *testing.T, g *Limiter) {
	t.Helper()
	fill(t, g, 0, 1)[0].end(0, Success)
	g.growth.limit = 40
	for _, v := range fill(t, g, instant.At(time.Second), 40) {
		v.end(instant.At(3*time.Second), Lost)
	}
}

func TestLimiterSlowStartThenLinear(t *testing.T) {
	var g Limiter
	cut40(t, &g)
	wantLimit(t, &g, 1)
	var limits []int
	now := 3*time.Second + probeGap
	for range 14 {
		limits = append(limits, round(t, &g, instant.At(now)))
		now += 100 * time.Millisecond
	}
	want := []int{2, 4, 8, 16, 20, 20, 21, 21, 22, 22, 23, 23, 24, 24}
	assert.Equal(t, want, limits, "limits")
}

// After a cut the growth stays linear for as long as the limit is used up. The server has
// failed at a limit not much above the threshold, and the backlog has not shown otherwise.
func TestLimiterGrowsLinearlyWhileABacklogLasts(t *testing.T) {
	var g Limiter
	cut40(t, &g)
	now := instant.At(3*time.Second + probeGap)
	for range 40 {
		round(t, &g, now)
		now = now.Add(time.Second)
	}
	assert.Less(t, g.State().Limit, 40, "limit")

	for range 3 { // the backlog is gone
		now = now.Add(useWindow)
		fill(t, &g, now, 1)[0].end(now, Success)
	}
	low := g.State().Limit
	for range 40 {
		round(t, &g, now)
		now = now.Add(100 * time.Millisecond)
	}
	assert.Greater(t, g.State().Limit, 2*low, "limit")
}

// A healthy limiter whose limit is used up grows for as long as responses come as soon as before.
// If they take longer, it grows slowly, because a server that gets slower may soon collapse, and
// failures would show that too late.
func TestLimiterGrowsSlowlyWhileResponsesTakeLonger(t *testing.T) {
	grown := func(took time.Duration) float64 {
		g := calmLimiter(t)
		g.growth.limit, g.growth.peak, g.pulse.trip = 100, 90, 100*ms
		now := instant.At(2 * useWindow)
		fill(t, g, now, 1)[0].end(now.Add(100*ms), Success)
		before := g.State().Limit
		for range 9 {
			now = backlog(t, g, now, took)
		}
		return float64(g.State().Limit) / float64(before)
	}
	assert.Greater(t, grown(100*ms), 2., "as before")
	assert.Greater(t, grown(110*ms), 1., "longer")
	assert.Less(t, grown(110*ms), 1.2, "longer")
}

// backlog plays a second in which a request always waits. The responses take a time.
func backlog(t *testing.T, g *Limiter, now instant.Instant, took time.Duration) instant.Instant {
	in := fill(t, g, now, 1) // may begin a window, which moves the limit
	in = append(in, fill(t, g, now, g.State().Limit-1)...)
	next := visit(t, g)
	next.enter(now)
	for _, v := range in {
		v.end(now.Add(took), Success)
	}
	g.Leave(next.w)
	return now.Add(time.Second)
}

// A concurrency limit whose limit was used up before its first calm window ended grows as well.
func TestLimiterGrowsFromAFullStart(t *testing.T) {
	g := calmLimiter(t)
	g.growth.limit, g.growth.threshold, g.growth.calm = 100, 100, false
	now := instant.At(useWindow)
	g.growth.window = now
	for now < instant.At(2*useWindow) {
		now = backlog(t, g, now, 300*ms)
	}
	early := g.State().Limit
	for range 9 {
		now = backlog(t, g, now, 300*ms)
	}
	assert.Greater(t, g.State().Limit, 2*early, "limit")
}

// The limit at most doubles in a window before it grows linearly, however fast some responses are.
func TestLimiterDoublesOnce(t *testing.T) {
	g := calmLimiter(t)
	g.growth.limit, g.growth.peak, g.pulse.trip = 100, 90, 155*ms
	now := instant.At(2 * useWindow)
	fill(t, g, now, 1)[0].end(now.Add(155*ms), Success)
	before := g.State().Limit
	ends := map[*visitor]instant.Instant{}
	for n := 0; now < instant.At(3*useWindow-time.Second); {
		for ; len(ends) < g.State().Limit; n++ {
			ends[fill(t, g, now, 1)[0]] = now.Add([]time.Duration{10 * ms, 400 * ms}[n%2])
		}
		next := visit(t, g) // a request always waits
		next.enter(now)
		var first *visitor
		for v, at := range ends {
			if first == nil || at < ends[first] {
				first = v
			}
		}
		now = max(now, ends[first])
		first.end(now, Success)
		delete(ends, first)
		g.Leave(next.w)
	}
	assert.Less(t, g.State().Limit, 4*before, "limit")
}

func TestLimiterCutsOncePerRound(t *testing.T) {
	var g Limiter
	fill(t, &g, 0, 1)[0].end(0, Success)
	g.growth.limit = 40
	in := fill(t, &g, 0, 40)
	for _, v := range in[:36] {
		v.end(instant.At(2*time.Second), Lost)
	}
	wantLimit(t, &g, 1)
	assert.Equal(t, 20, g.growth.threshold, "threshold")
	probe := visit(t, &g)
	probe.mustGo(instant.At(3 * time.Second))
	probe.end(instant.At(3*time.Second), Success)
	wantLimit(t, &g, 2)
	for _, v := range in[36:38] { // they were sent before the cut
		v.end(instant.At(3*time.Second), Lost)
	}
	wantLimit(t, &g, 2)
	assert.Equal(t, 20, g.growth.threshold, "threshold")
	for _, v := range in[38:] {
		v.end(instant.At(3*time.Second), Success)
	}
	wantLimit(t, &g, 2) // nor do they make it grow
	assert.Zero(t, g.State().InFlight, "in flight")
}

// A route that fails among others that work does not open the circuit, whatever its
// share is and however it fails. If four fifths of all requests hang, they keep others
// out, and the circuit is open for a small share of the arrivals.
func TestLimiterBadRoute(t *testing.T) {
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
			var g Limiter
			rng := rand.New(rand.NewPCG(1, 1))
			c := &hosttest.Clock{}
			arrived, closed := 0, 0
			var arrive func()
			arrive = func() {
				v := &limitedRequest{clock: c, limiter: &g, result: Success, takes: 20 * time.Millisecond}
				if rng.Float64() < tt.share {
					v.result, v.takes = tt.how, tt.takes
				}
				v.start()
				arrived++
				if g.State().CircuitOpen {
					closed++
				}
				c.At(c.Now.Add(time.Duration(rng.ExpFloat64()/tt.rate*float64(time.Second))), arrive)
			}
			c.At(0, arrive)
			c.RunTo(instant.At(min(20*time.Minute, time.Duration(soak.Size(5_000., 20_000)/tt.rate*float64(time.Second)))))
			assert.LessOrEqual(t, float64(closed), tt.most*float64(arrived), "closed at %d of %d arrivals", closed, arrived)
		})
	}
}

// A connection breaks with all its requests. This is an event and no outage.
func TestLimiterBrokenConnection(t *testing.T) {
	for _, n := range []int{10, 50, 200} {
		g := Limiter{}
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
		assert.False(t, g.State().CircuitOpen, "open after %d at once", n)
	}
}

func TestCircuitOpensOnFailures(t *testing.T) {
	var g Limiter
	fails := 0
	var now instant.Instant
	for ; !g.State().CircuitOpen; now = now.Add(10 * time.Millisecond) {
		fill(t, &g, now, 1)[0].end(now, Failed)
		fails++
	}
	assert.False(t, fails != 100 && now < instant.At(time.Second), "closed after %d failures and %v", fails, now)
	// At a high rate it does not take the second.
	g = Limiter{}
	for fails = 0; !g.State().CircuitOpen; fails++ {
		fill(t, &g, 0, 1)[0].end(0, Failed)
	}
	assert.Equal(t, 100, fails, "closed after %d failures at once", fails)
}

// Bodies that are read for long keep their slots, but further streams may start.
// Failures become an outage only after some time, and no request asks at that time. A
// request that comes an hour later is the probe and goes at once, because the limiter
// counts as closed since then.
func TestCircuitOpensWhenNobodyAsks(t *testing.T) {
	var g Limiter
	for i := range time.Duration(failRun) {
		fill(t, &g, instant.At(i*10*time.Millisecond), 1)[0].end(instant.At(i*10*time.Millisecond), Failed)
	}
	require.False(t, g.State().CircuitOpen, "open too early for this test")
	probe := visit(t, &g)
	probe.mustGo(instant.At(time.Hour))
	assert.True(t, g.State().CircuitOpen, "the circuit is closed")
	visit(t, &g).mustWait(instant.At(time.Hour), instant.At(time.Hour+probeTime))
}

// Responses that wait for their readers look like streams. Further requests may go
// beside them, but the limit stays.
func TestLimiterUnreadResponsesDoNotRaiseTheLimit(t *testing.T) {
	var g Limiter
	in := fill(t, &g, 0, 10)
	for range 4 {
		for _, v := range in {
			if !v.slot.answered {
				g.Result(instant.At(time.Millisecond), &v.slot, Neutral)
				v.slot.answered = true // without the growth of a success
				g.slots.answered++
			}
		}
		in = append(in, fill(t, &g, instant.At(time.Millisecond), 1)...)
	}
	wantLimit(t, &g, 10)
	assert.Equal(t, 14, g.State().InFlight, "in flight")
	in[0].end(instant.At(time.Millisecond), Neutral)
	assert.EqualValues(t, 3, g.slots.beside, "beside the limit")
	for _, v := range in {
		v.end(instant.At(time.Second), Neutral)
	}
	wantLimit(t, &g, 10)
	fill(t, &g, instant.At(time.Second), 10)
	visit(t, &g).mustWait(instant.At(time.Second), instant.Never)
}

// A burst is no reason to grow, but pressure that lasts is.
func TestLimiterGrowsUnderLastingPressureOnly(t *testing.T) {
	g := calmLimiter(t)
	for now := instant.At(11 * sec); now < 30*sec; now += 3 * sec {
		for at := now; at < now.Add(pressTime); at += 100 * ms { // a burst of 200
			round(t, g, at)
		}
		fill(t, g, now.Add(pressTime), 1)[0].end(now.Add(pressTime), Success) // its end
	}
	wantLimit(t, g, 10)
	g = calmLimiter(t)
	for now := instant.At(11 * sec); now < 15*sec; now += 100 * ms {
		round(t, g, now)
	}
	assert.GreaterOrEqual(t, g.State().Limit, 20, "limit")
}

// Waiters that are slow to take free slots do not wait for the limit.
func TestLimiterDoesNotGrowForAnIdleQueue(t *testing.T) {
	var g Limiter
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

// The estimate of a response's time follows the fast responses among slow ones. It
// also follows a host that becomes slower.
func TestLimiterQuick(t *testing.T) {
	var g Limiter
	respond := func(took time.Duration) time.Duration {
		v := fill(t, &g, 0, 1)[0]
		v.end(instant.At(took), Success)
		var p Slot
		a := g.Enter(0, &p, nil, Config{})
		g.End(0, &p, Neutral)
		return a.Until.Since()
	}
	for range 3 {
		respond(30 * sec)
	}
	for range 50 {
		assert.LessOrEqual(t, time.Duration(respond(10*ms)), 50*time.Millisecond, "after a fast one")
		assert.LessOrEqual(t, time.Duration(respond(30*sec)), 50*time.Millisecond, "after a slow one")
	}
	for range 200 {
		respond(2 * sec)
	}
	assert.EqualValues(t, 2*sec, respond(2*sec), "when all take 2 s")
}

func TestLimiterLimitGoesBack(t *testing.T) {
	var g Limiter
	fill(t, &g, 0, 1)[0].end(0, Success)
	for range 8 {
		round(t, &g, 0)
	}
	high := g.State().Limit
	require.GreaterOrEqual(t, high, 100, "limit")
	now := time.Duration(0)
	var limits []int
	for range 7 {
		now += useWindow
		fill(t, &g, instant.At(now), 1)[0].end(instant.At(now), Success)
		limits = append(limits, g.State().Limit)
	}
	assert.True(t, slices.IsSortedFunc(limits, func(a, b int) int { return b - a }) && limits[6] == 10, "from %d: %v, want down to 10", high, limits)

	// The limit also goes up to the start again if it was not used up after a cut.
	openCircuit(t, &g, instant.At(now+2*time.Second))
	now += 3 * time.Second
	fill(t, &g, instant.At(now), 1)[0].end(instant.At(now), Success)
	wantLimit(t, &g, 2)
	for range 3 {
		now += useWindow
		fill(t, &g, instant.At(now), 1)[0].end(instant.At(now), Success)
	}
	wantLimit(t, &g, 10)
}

// After an outage the limit returns to the start by itself. A waiter behind slow
// requests hears of it although no other request comes.
func TestLimiterTellsWhenTheLimitIsBack(t *testing.T) {
	var g Limiter
	openCircuit(t, &g, instant.At(2*time.Second))
	fill(t, &g, instant.At(3*time.Second), 1)[0].end(instant.At(3*time.Second), Success)
	wantLimit(t, &g, 2)
	in := fill(t, &g, instant.At(3*time.Second), 2) // slow requests, which use up the limit
	first, second := visit(t, &g), visit(t, &g)
	now := 4 * time.Second
	first.enter(instant.At(now))
	second.enter(instant.At(now))
	in[0].end(instant.At(now), Neutral)
	first.mustGo(instant.At(now))
	require.True(t, second.woken(), "the new first in the queue was told nothing")
	for asks := 0; ; asks++ {
		a := second.enter(instant.At(now))
		if a.Verb == queue.Go {
			break
		}
		require.True(t, a.Ask != instant.Never && asks <= 3, "at %v, asked %d times: %+v", now, asks, a)
		now = a.Ask.Since()
	}
	assert.LessOrEqual(t, now, 4*time.Second+2*useWindow, "late")
}

// Ten failures in less than a second are an outage when the second is over,
// whether or not there is an eleventh.
func TestLimiterTellsWhenTheOutageIsOne(t *testing.T) {
	var g Limiter
	in := fill(t, &g, 0, 10)
	first := visit(t, &g)
	first.mustWait(0, instant.Never)
	for _, v := range in {
		g.Result(100*ms, &v.slot, Failed) // their bodies stay open
	}
	require.True(t, first.woken(), "not woken")
	first.mustWait(100*ms, 1100*ms)
	first.mustWait(1100*ms, instant.At(1100*ms+probeGap))
	first.mustGo(instant.At(1100*ms + probeGap))
}
