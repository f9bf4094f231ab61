package throttle

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/soak"
)

const ms, sec = hosttest.Ms, hosttest.Sec

// exact has no jitter.
var exact = Config{Jitter: -1}

func mustPass(t *testing.T, c *Throttle, now instant.Instant, key uint64, w *queue.Waiter) {
	t.Helper()
	require.Equal(t, queue.Go, c.Enter(now, key, w).Verb, "at %v", now)
}

func mustHold(t *testing.T, c *Throttle, now instant.Instant, key uint64, w *queue.Waiter, until instant.Instant) {
	t.Helper()
	a := c.Enter(now, key, w)
	require.True(t, a.Verb == queue.Wait && a.Until == until, "at %v: %+v, want queue.Wait until %v", now, a, until)
}

// The figures are those that the comments name.
func TestFigures(t *testing.T) {
	assert.Equal(t, [...]time.Duration{sec, 100 * ms, 10 * sec, 100 * ms / 280, 19 * (100 * ms / 280)},
		[...]time.Duration{sweepEvery, rampStep, rampTime, rampGap, rampBurst})
}

func TestThrottleHoldsAScope(t *testing.T) {
	var c Throttle
	assert.True(t, c.Quiet(), "new and not quiet")
	mustPass(t, &c, 0, 1, nil)
	assert.EqualValues(t, sec, c.Hold(0, 1, sec, exact, 0))
	assert.False(t, c.Quiet(), "quiet with a hold")
	mustHold(t, &c, 1, 1, nil, sec)
	mustHold(t, &c, sec-1, 1, nil, sec)
	mustPass(t, &c, sec-1, 2, nil) // another scope
	mustPass(t, &c, sec, 1, nil)
	assert.Equal(t, []State{{Named: sec, Open: sec}, {}}, []State{c.State(1), c.State(2)})
	assert.True(t, c.Holding(sec-1) && !c.Holding(sec))
	n, until := c.Holds(0)
	assert.True(t, n == 1 && until == sec, "%d holds until %v", n, until)
	// The ramp ends after 10 s, and then nothing is known of the scope.
	mustPass(t, &c, 11*sec, 3, nil)
	assert.True(t, c.Quiet(), "not quiet after the ramp")
}

func TestThrottleExtends(t *testing.T) {
	type hold struct {
		at   instant.Instant
		wait time.Duration
		conf Config
		u    float64
	}
	endless := Config{Max: -1, Jitter: -1}
	for name, row := range map[string]struct {
		holds []hold
		want  time.Duration // the end
	}{
		"a wait of nothing holds nothing":      {[]hold{{0, 0, exact, 0}, {0, -sec, exact, 0}}, 0},
		"a longer wait extends":                {[]hold{{0, sec, exact, 0}, {0, 3 * sec, exact, 0}}, 3 * sec},
		"a shorter wait does not shorten":      {[]hold{{0, 3 * sec, exact, 0}, {sec, sec, exact, 0}}, 3 * sec},
		"never longer than Max":                {[]hold{{0, 365 * 24 * time.Hour, exact, 0}}, time.Minute},
		"without Max as long as asked":         {[]hold{{0, time.Hour, endless, 0}}, time.Hour},
		"no overflow":                          {[]hold{{sec, instant.Forever, endless, 0}}, instant.Forever},
		"jitter goes upward, by half the wait": {[]hold{{0, sec, Config{}, 0.5}}, 1250 * ms},
		"and by a second at most":              {[]hold{{0, 30 * sec, Config{}, 0.5}}, 30*sec + 500*ms},
		"one jitter per run of holds":          {[]hold{{0, sec, Config{}, 0.5}, {0, sec, Config{}, 0.9}, {sec, sec, Config{}, 0.9}}, 2250 * ms},
		"a run ends with its jitter":           {[]hold{{0, sec, Config{}, 0.5}, {1250 * ms, sec, Config{}, 0.9}}, 2700 * ms},
		"a spread of one's own":                {[]hold{{0, sec, Config{Jitter: 10 * sec}, 0.5}}, 6 * sec},
	} {
		var c Throttle
		for _, h := range row.holds {
			c.Hold(h.at, 1, h.wait, h.conf, h.u)
		}
		assert.Equal(t, instant.At(row.want), c.State(1).Open, name)
	}
}

// A request waits for holds as long as it was told, however often they are renewed, and goes
// out of its turn then. Others wait on.
func TestThrottlePatience(t *testing.T) {
	var c Throttle
	c.Hold(0, 1, 10*sec, exact, 0)
	first, patient := queue.NewWaiter(), queue.NewWaiter()
	first.Until, patient.Until = 40*sec, 15*sec
	mustHold(t, &c, sec, 1, first, 10*sec)
	mustHold(t, &c, sec, 1, patient, 10*sec)
	c.Hold(9*sec, 1, 10*sec, exact, 0)
	a := c.Enter(9*sec, 1, patient)
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: 15 * sec, Until: 15 * sec, Open: 19 * sec}, a)
	mustHold(t, &c, 15*sec, 1, first, 19*sec)
	mustPass(t, &c, 15*sec, 1, patient)
	mustHold(t, &c, 15*sec, 1, first, 19*sec)
}

// A waiter with a deadline asks at the end that it was told. So it hears then that the hold has
// become longer than its time.
func TestThrottleLengthened(t *testing.T) {
	var c Throttle
	c.Hold(0, 1, sec, exact, 0)
	first, w := queue.NewWaiter(), queue.NewWaiter()
	w.By = 3 * sec
	mustHold(t, &c, 0, 1, first, sec)
	assert.EqualValues(t, sec, c.Enter(0, 1, w).Ask)
	c.Hold(500*ms, 1, 4500*ms, exact, 0)
	mustHold(t, &c, sec, 1, w, 5*sec)
	mustHold(t, &c, sec, 1, first, 5*sec)
}

// A deadline behind the hold leaves half of the time between them to the jitter. The ramp of a
// scope that nobody waits for is forgotten at its end.
func TestThrottleJitterBeforeADeadline(t *testing.T) {
	var c Throttle
	assert.EqualValues(t, sec, c.Hold(sec, 1, 0, exact, 0), "no wait holds nothing")
	assert.EqualValues(t, 2*sec, c.Hold(0, 1, sec, Config{Jitter: time.Second}, 1))
	w := queue.NewWaiter()
	w.By = 1500 * ms
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: 1250 * ms, Until: sec, Open: 2 * sec}, c.Enter(0, 1, w))
	assert.EqualValues(t, 2*sec, c.Enter(0, 1, queue.NewWaiter()).Ask)
	assert.Equal(t, State{Named: sec, Open: 2 * sec, Waiting: 2}, c.State(1))
	mustPass(t, &c, 1250*ms, 1, w)
	w.By = sec // it has no time for the jitter
	assert.EqualValues(t, 2*sec, c.Enter(sec, 1, w).Ask)
	w.By, w.Until = 0, sec // its patience is over when the hold is
	assert.EqualValues(t, 2*sec, c.Enter(sec, 1, w).Ask)
	c.Leave(w)

	var over Throttle
	w = queue.NewWaiter()
	over.Hold(0, 1, sec, exact, 0)
	mustHold(t, &over, 0, 1, w, sec)
	mustPass(t, &over, 10500*ms, 2, nil) // looks for what is over
	mustPass(t, &over, 11*sec, 1, w)
	assert.True(t, over.Quiet())
}

// At most 300 requests go in any 100 ms, whatever is answered. Requests that come 10 s after the
// hold go at once.
func TestThrottleMost(t *testing.T) {
	var c Throttle
	cl := &hosttest.Clock{}
	var went []instant.Instant
	c.Hold(0, 1, sec, exact, 0)
	start := func(onGo func()) func() {
		return func() { (&throttleRequest{clock: cl, c: &c, key: 1, onGo: onGo}).start() }
	}
	const n = 5000
	for range n {
		cl.At(0, start(func() {
			went = append(went, cl.Now)
			sent := cl.Now
			cl.At(sent.Add(ms), func() { c.Answered(cl.Now, 1, sent) })
		}))
	}
	cl.RunTo(5 * sec)
	assert.Len(t, went, n)
	for i := range went[:n-300] {
		require.GreaterOrEqual(t, went[i+300].Sub(went[i]), 100*time.Millisecond, "number %d", i)
	}
	late := 0
	for range n {
		cl.At(11*sec, start(func() { late++ }))
	}
	cl.RunTo(11 * sec)
	assert.Equal(t, n, late)
}

func TestThrottleUnusedSlotsAreNotSaved(t *testing.T) {
	var c Throttle
	c.Hold(0, 1, sec, exact, 0)
	mustPass(t, &c, 4*sec, 1, nil)
	mustHold(t, &c, 4*sec, 1, nil, instant.At(4*sec+rampStep))
	mustPass(t, &c, instant.At(4*sec+rampStep+30*ms), 1, nil) // a little late
	mustHold(t, &c, instant.At(4*sec+rampStep+30*ms), 1, nil, instant.At(4*sec+2*rampStep))
	mustPass(t, &c, instant.At(4*sec+3*rampStep), 1, nil) // a whole step late
	mustHold(t, &c, instant.At(4*sec+3*rampStep), 1, nil, instant.At(4*sec+4*rampStep))
}

// What is over is looked for once a second at most.
func TestThrottleSweep(t *testing.T) {
	var c Throttle
	c.Hold(0, 1, ms, exact, 0)
	mustPass(t, &c, 10*sec, 2, nil) // looks, a millisecond too early
	mustPass(t, &c, 11*sec-1, 2, nil)
	assert.False(t, c.Quiet())
	mustPass(t, &c, 11*sec, 2, nil)
	assert.True(t, c.Quiet())
}

// Responses to requests from before the hold do not make the ramp steeper. Failures do
// not either, because they are not reported.
func TestThrottleOldResponses(t *testing.T) {
	var c Throttle
	c.Hold(sec, 1, sec, exact, 0)
	mustPass(t, &c, 2*sec, 1, nil)
	for range 10 {
		c.Answered(2*sec+ms, 1, 0)
		c.Answered(2*sec+ms, 1, sec)
	}
	mustHold(t, &c, 2*sec+ms, 1, nil, instant.At(2*sec+rampStep))
	c.Answered(2*sec+ms, 1, 2*sec)
	mustPass(t, &c, 2*sec+ms, 1, nil)
	mustPass(t, &c, 2*sec+ms, 1, nil)
	mustHold(t, &c, 2*sec+ms, 1, nil, instant.At(2*sec+rampStep))
	c.Hold(3*sec, 1, sec, exact, 0)
	c.Answered(4*sec, 1, 4*sec)
	for range 3 {
		mustPass(t, &c, 4*sec, 1, nil) // as early as may be
	}
}

// If the credentials change with every request, memory stays bounded. A hold for which
// somebody waits stays. Of the others the hold that ends first makes room. No scope is
// held by the refusals of others.
func TestThrottleIsBounded(t *testing.T) {
	var c Throttle
	const hour = time.Hour
	for i := range uint64(10) {
		c.Hold(0, i, hour, Config{Max: -1, Jitter: -1}, 0)
	}
	w := queue.NewWaiter()
	mustHold(t, &c, 0, 3, w, instant.At(time.Hour))
	for i := range soak.Size[uint64](8*queue.MaxScopes, 20_000) {
		now := time.Duration(i) * ms
		c.Hold(instant.At(now), 100+i, 50*ms, exact, 0)
		require.LessOrEqual(t, len(c.holds.All()), queue.MaxScopes, "scopes")
	}
	for i := range uint64(10) {
		assert.Equal(t, instant.At(time.Hour), c.State(i).Open, "scope %d", i)
	}
	// All holds are running.
	for i := range uint64(queue.MaxScopes + 20) {
		c.Hold(200*sec, 1_000_000+i, 2*time.Hour, Config{Max: -1, Jitter: -1}, 0)
	}
	assert.Equal(t, instant.At(time.Hour), c.State(3).Open)
	n, _ := c.Holds(200 * sec)
	assert.True(t, n == queue.MaxScopes && !hosttest.Woken(w), "%d scopes", n)
	c.Leave(w)
	// When all holds are over, nothing is kept.
	c.Enter(instant.At(4*time.Hour), 5, nil)
	assert.True(t, c.Quiet() && c.holds.All() == nil, "%d scopes at the end", len(c.holds.All()))

	// If somebody waits for each of them, a further scope is not held, and nor is any other.
	for i := range uint64(queue.MaxScopes) {
		c.Hold(instant.At(5*time.Hour), i, hour, Config{Max: -1}, 0)
		c.Enter(instant.At(5*time.Hour), i, queue.NewWaiter())
	}
	assert.Equal(t, instant.At(5*time.Hour), c.Hold(instant.At(5*time.Hour), 1000, hour, Config{Max: -1}, 0))
	mustPass(t, &c, instant.At(5*time.Hour), 1000, nil)
	mustPass(t, &c, instant.At(5*time.Hour), 1001, nil)
}

// A throttleRequest goes through a throttle in virtual time.
type throttleRequest struct {
	clock *hosttest.Clock
	c     *Throttle
	key   uint64
	onGo  func()

	w    *queue.Waiter
	gone bool
}

func (r *throttleRequest) start() {
	r.w = &queue.Waiter{Woken: func(*queue.Waiter) { r.clock.At(r.clock.Now, r.ask) }}
	r.ask()
}

func (r *throttleRequest) leave() {
	r.gone = true
	r.c.Leave(r.w)
}

func (r *throttleRequest) ask() {
	if r.gone {
		return
	}
	switch a := r.c.Enter(r.clock.Now, r.key, r.w); a.Verb {
	case queue.Go:
		r.gone = true
		r.onGo()
	case queue.Wait:
		r.clock.At(a.Ask, r.ask)
	}
}

// One request is told 429 with a wait of 1 s, then 49 others start. They are sent
// after that second, in a ramp that their responses make steeper.
func TestThrottleRamp(t *testing.T) {
	for _, tt := range []struct {
		name     string
		response time.Duration // how long a response takes; zero: there is none
		want     []int         // arrivals by the end of each 100 ms after the hold
	}{
		{"responds after 30 ms", 30 * ms, []int{15, 50}},
		{"responds after 150 ms", 150 * ms, []int{1, 4, 7, 14, 29, 44, 50}},
		{"no response", 0, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var (
				c        Throttle
				cl       = &hosttest.Clock{}
				arrivals []time.Duration
				order    []int
			)
			open := c.Hold(0, 1, sec, Config{}, 0.3)
			for i := range 50 {
				r := &throttleRequest{clock: cl, c: &c, key: 1}
				r.onGo = func() {
					arrivals, order = append(arrivals, cl.Now.Since()), append(order, i)
					sent := cl.Now
					if tt.response > 0 {
						cl.At(cl.Now.Add(tt.response), func() { c.Answered(cl.Now, 1, sent) })
					}
				}
				cl.At(instant.At(time.Duration(i)*10*ms), r.start)
			}
			for i, want := range tt.want {
				cl.RunTo(open.Add(time.Duration(i+1)*100*ms) - 1)
				assert.Equal(t, want, len(arrivals), "arrivals %d ms after the hold", (i+1)*100)
			}
			cl.RunTo(open.Add(rampTime))
			assert.True(t, len(arrivals) == 50 && arrivals[0] >= sec && slices.IsSorted(order), "%d arrivals, the first at %v, in the order %v", len(arrivals), arrivals[0], order)
			c.Enter(open.Add(rampTime)+sec, 9, nil)
			assert.True(t, c.Quiet(), "not quiet at the end")
		})
	}
}

// Whatever happens, nothing passes during a hold. Waiters pass in order and at most as fast as
// the ramp allows. All of them pass in the end.
func runThrottle(t *testing.T, seed uint64, n int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	var (
		c        Throttle
		cl       = &hosttest.Clock{}
		closed   instant.Instant // no request before this
		waiting  []int
		passed   int
		left     int
		since    instant.Instant // the hold's end
		allowed  float64         // by responses since then
		through  int             // since then
		lastHold instant.Instant
	)
	for range 1 + rng.IntN(5) {
		cl.At(instant.At(time.Duration(rng.IntN(8000))*ms), func() {
			wait := time.Duration(1+rng.IntN(3000)) * ms
			closed = max(closed, cl.Now.Add(wait))
			since, allowed, through = closed, 0, 0
			lastHold = cl.Now
			c.Hold(cl.Now, 1, wait, exact, 0)
		})
	}
	for i := range n {
		cl.At(instant.At(time.Duration(rng.IntN(10_000))*ms), func() {
			r := &throttleRequest{clock: cl, c: &c, key: 1}
			waiting = append(waiting, i)
			remove := func() int {
				at := slices.Index(waiting, i)
				waiting = slices.Delete(waiting, at, at+1)
				return at
			}
			r.onGo = func() {
				at := remove()
				passed++
				require.GreaterOrEqual(t, cl.Now, closed, "seed %d: %d passed", seed, i)
				if lastHold == 0 || cl.Now >= since.Add(rampTime) {
					return
				}
				require.Zero(t, at, "seed %d: %d passed before its turn", seed, i)
				through++
				if most := 1 + cl.Now.Sub(since).Seconds()*10 + allowed; float64(through) > most+1e-9 {
					t.Fatalf("seed %d: %d passed %v after the hold, at most %v", seed, through, cl.Now.Sub(since), most)
				}
				sent := cl.Now
				cl.At(cl.Now.Add(time.Duration(rng.IntN(400))*ms), func() {
					if sent >= since {
						allowed += rampGrowth
					}
					c.Answered(cl.Now, 1, sent)
				})
			}
			r.start()
			if rng.IntN(3) == 0 {
				cl.At(cl.Now.Add(time.Duration(rng.IntN(3000))*ms), func() {
					if !r.gone {
						remove()
						left++
						r.leave()
					}
				})
			}
		})
	}
	cl.RunTo(instant.At(time.Minute))
	require.Equal(t, n, passed+left, "seed %d: %d passed and %d left", seed, passed, left)
}

func TestThrottleLetsEverybodyPass(t *testing.T) {
	for seed := range uint64(300) {
		runThrottle(t, seed, 100)
	}
}

func FuzzThrottle(f *testing.F) {
	f.Add(uint64(1), uint8(50))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) { runThrottle(t, seed, int(n)) })
}

func TestThrottleCosts(t *testing.T) {
	var c Throttle
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		assert.True(t, c.Quiet(), "not quiet")
		c.State(1)
		c.Enter(0, 1, nil)
	}), "allocations")
	c.Hold(0, 1, sec, exact, 0)
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.Enter(0, 1, nil) }), "allocations while held")
	assert.LessOrEqual(t, unsafe.Sizeof(c), uintptr(40), "bytes")
	assert.LessOrEqual(t, unsafe.Sizeof(hold{}), uintptr(96), "bytes of a scope")
}
