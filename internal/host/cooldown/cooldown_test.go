package cooldown

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/soak"
)

const (
	ms  = hosttest.Ms
	sec = hosttest.Sec
)

// exact has no jitter.
var exact = Config{Spread: -1}

func mustPass(t *testing.T, c *Cooldown, now instant.Instant, key uint64, w *queue.Waiter) {
	t.Helper()
	if a := c.Enter(now, key, w); a.Verb != queue.Go {
		t.Fatalf("at %v: %+v, want Go", now, a)
	}
}

func mustHold(t *testing.T, c *Cooldown, now instant.Instant, key uint64, w *queue.Waiter, until instant.Instant) {
	t.Helper()
	if a := c.Enter(now, key, w); a.Verb != queue.Wait || a.Until != until {
		t.Fatalf("at %v: %+v, want queue.Wait until %v", now, a, until)
	}
}

func TestCooldownHoldsAScope(t *testing.T) {
	var c Cooldown
	if !c.Quiet() {
		t.Error("new and not quiet")
	}
	mustPass(t, &c, 0, 1, nil)
	if got, _ := c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, exact, 0); got != sec {
		t.Errorf("held until %v", got)
	}
	if c.Quiet() {
		t.Error("quiet with a hold")
	}
	mustHold(t, &c, 1, 1, nil, sec)
	mustHold(t, &c, sec-1, 1, nil, sec)
	mustPass(t, &c, sec-1, 2, nil) // another scope
	mustPass(t, &c, sec, 1, nil)
	if until, refused := c.Held(sec/2, 1); until != sec || refused {
		t.Errorf("held until %v, refused %v", until, refused)
	}
	if until, _ := c.Held(sec, 1); until != 0 {
		t.Errorf("held until %v", until)
	}
	if n, until := c.Holds(0); n != 1 || until != sec {
		t.Errorf("%d holds until %v", n, until)
	}
	// The ramp ends after 10 s, and then nothing is known of the scope.
	mustPass(t, &c, 11*sec, 3, nil)
	if !c.Quiet() {
		t.Error("not quiet after the ramp")
	}
}

func TestCooldownExtends(t *testing.T) {
	for _, tt := range []struct {
		name string
		hold func(c *Cooldown)
		want time.Duration // the hold's end
	}{
		{"a wait of nothing holds nothing", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: 0}, exact, 0)
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: -sec}, exact, 0)
		}, 0},
		{"a longer wait extends", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, exact, 0)
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: 3 * sec}, exact, 0)
		}, 3 * sec},
		{"a shorter wait does not shorten", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: 3 * sec}, exact, 0)
			c.Hold(sec, 1, Refusal{Code: TooMany, Wait: sec}, exact, 0)
		}, 3 * sec},
		{"nor does one of the other code", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: Unavailable, Wait: 3 * sec}, exact, 0)
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, exact, 0)
		}, 3 * sec},
		{"never longer than Max", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: 365 * 24 * time.Hour}, exact, 0)
		}, time.Minute},
		{"without Max as long as asked", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: time.Hour}, Config{Max: -1, Spread: -1}, 0)
		}, time.Hour},
		{"no overflow", func(c *Cooldown) {
			c.Hold(sec, 1, Refusal{Code: TooMany, Wait: instant.Forever}, Config{Max: -1, Spread: -1}, 0)
		}, instant.Forever},
		{"jitter goes upward, by half the wait", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0.5)
		}, 1250 * ms},
		{"and by a second at most", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: 30 * sec}, Config{}, 0.5)
		}, 30*sec + 500*ms},
		{"one jitter per run of holds", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0.5)
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0.9)
			c.Hold(sec, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0.9)
		}, 2250 * ms},
		{"a spread of one's own", func(c *Cooldown) {
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{Spread: 10 * sec}, 0.5)
		}, 6 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Cooldown
			tt.hold(&c)
			if until, _ := c.Held(0, 1); until != instant.At(tt.want) {
				t.Errorf("held until %v, want %v", until, tt.want)
			}
		})
	}
}

func TestCooldownRefuses(t *testing.T) {
	conf := Config{Max: time.Minute, Stop: true, Spread: -1}
	const year = 365 * 24 * time.Hour
	var c Cooldown
	w, v := queue.NewWaiter(), queue.NewWaiter()
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, conf, 0)
	mustHold(t, &c, 0, 1, w, sec)
	mustHold(t, &c, 0, 1, v, sec)

	c.Hold(ms, 1, Refusal{Code: TooMany, Wait: year}, conf, 0)
	for _, x := range []*queue.Waiter{w, v} { // both hear of the refusal at once, one after the other
		if !hosttest.Woken(x) {
			t.Fatal("not woken")
		}
		if a := c.Enter(ms, 1, x); a.Verb != queue.Refuse || a.Until != instant.At(ms+year) {
			t.Fatalf("%+v", a)
		}
	}
	if until, refused := c.Held(sec, 1); !refused || until != instant.At(ms+year) {
		t.Errorf("%v, %v", until, refused)
	}
	if a := c.Enter(instant.At(time.Minute), 1, w); a.Verb != queue.Refuse {
		t.Errorf("%+v", a)
	}
	mustPass(t, &c, instant.At(time.Minute+ms), 1, w) // then the first request passes
	mustHold(t, &c, instant.At(time.Minute+ms), 1, w, instant.At(time.Minute+ms+rampStep))
	c.Leave(1, w)

	// The time that an earlier hold named is not repeated.
	c.Hold(instant.At(2*time.Minute), 1, Refusal{Code: TooMany, Wait: 2 * time.Minute}, conf, 0)
	if a := c.Enter(instant.At(2*time.Minute), 1, w); a.Verb != queue.Refuse || a.Until != instant.At(4*time.Minute) {
		t.Errorf("%+v", a)
	}
	// Requests wait for a time that is not too long, in stop mode as well.
	c.Hold(0, 2, Refusal{Code: TooMany, Wait: time.Minute}, conf, 0)
	mustHold(t, &c, 0, 2, nil, instant.At(time.Minute))
}

func TestCooldownEndsEarly(t *testing.T) {
	for _, tt := range []struct {
		name    string
		code    Code
		sent    instant.Instant
		success bool
		want    time.Duration // the hold's end as seen at 2 s
	}{
		{"a success of one that was sent after the 503", Unavailable, 1500 * ms, true, 0},
		{"of a request that was sent before it, with a response after it", Unavailable, 500 * ms, true, 0},
		{"of one whose time is not known", Unavailable, 0, true, 0},
		{"a 404 is no success here", Unavailable, 1500 * ms, false, 11 * sec},
		{"a 429 stands", TooMany, 1500 * ms, true, 11 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Cooldown
			c.Hold(sec, 1, Refusal{Code: tt.code, Wait: 10 * sec}, exact, 0)
			w := queue.NewWaiter()
			mustHold(t, &c, sec, 1, w, 11*sec)
			c.Answered(2*sec, 1, tt.sent, tt.success)
			if until, _ := c.Held(2*sec, 1); until != instant.At(tt.want) {
				t.Errorf("held until %v, want %v", until, tt.want)
			}
			if tt.want == 0 {
				<-w.Ready
				mustPass(t, &c, 2*sec, 1, w)
			}
		})
	}

	t.Run("what a 429 asked stays", func(t *testing.T) {
		var c Cooldown
		c.Hold(0, 1, Refusal{Code: Unavailable, Wait: 10 * sec}, exact, 0)
		c.Hold(0, 1, Refusal{Code: TooMany, Wait: 5 * sec}, exact, 0)
		c.Answered(2*sec, 1, sec, true)
		if until, _ := c.Held(2*sec, 1); until != 5*sec {
			t.Errorf("held until %v", until)
		}
	})
}

// A cooldownRequest goes through a cooldown in virtual time.
type cooldownRequest struct {
	clock *hosttest.Clock
	c     *Cooldown
	key   uint64
	onGo  func()
	onNo  func(queue.Answer)

	w    *queue.Waiter
	gone bool
}

func (r *cooldownRequest) start() {
	r.w = &queue.Waiter{Woken: func(*queue.Waiter) { r.clock.At(r.clock.Now, r.ask) }}
	r.ask()
}

func (r *cooldownRequest) leave() {
	r.gone = true
	r.c.Leave(r.key, r.w)
}

func (r *cooldownRequest) ask() {
	if r.gone {
		return
	}
	switch a := r.c.Enter(r.clock.Now, r.key, r.w); a.Verb {
	case queue.Go:
		r.gone = true
		r.onGo()
	case queue.Refuse:
		r.gone = true
		r.onNo(a)
	case queue.Wait:
		r.clock.At(a.Ask, r.ask)
	}
}

// One request is told 429 with a wait of 1 s, then 49 others start. They are sent
// after that second, in a ramp that their responses make steeper.
func TestCooldownRamp(t *testing.T) {
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
				c        Cooldown
				cl       = &hosttest.Clock{}
				arrivals []time.Duration
				order    []int
			)
			open, _ := c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0.3)
			for i := range 50 {
				r := &cooldownRequest{clock: cl, c: &c, key: 1}
				r.onGo = func() {
					arrivals, order = append(arrivals, cl.Now.Since()), append(order, i)
					sent := cl.Now
					if tt.response > 0 {
						cl.At(cl.Now.Add(tt.response), func() { c.Answered(cl.Now, 1, sent, true) })
					}
				}
				cl.At(instant.At(time.Duration(i)*10*ms), r.start)
			}
			for i, want := range tt.want {
				cl.RunTo(open.Add(time.Duration(i+1)*100*ms) - 1)
				if got := len(arrivals); got != want {
					t.Errorf("%d arrivals %d ms after the hold, want %d", got, (i+1)*100, want)
				}
			}
			cl.RunTo(open.Add(rampTime))
			if len(arrivals) != 50 || arrivals[0] < sec || !slices.IsSorted(order) {
				t.Errorf("%d arrivals, the first at %v, in the order %v", len(arrivals), arrivals[0], order)
			}
			c.Enter(open.Add(rampTime)+sec, 9, nil)
			if !c.Quiet() {
				t.Error("not quiet at the end")
			}
		})
	}
}

// A waiter hears at once of a longer hold that ends after its deadline, so that it can
// give up. The other waiters are not woken. They keep their order and ask at the time
// that they were told.
func TestCooldownLengthened(t *testing.T) {
	var c Cooldown
	var left, woken []int
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, exact, 0)
	ws := make([]*queue.Waiter, 20)
	for i := range ws {
		ws[i] = &queue.Waiter{ID: i, Woken: func(w *queue.Waiter) { woken = append(woken, w.ID) }}
		if i%4 == 3 {
			ws[i].By = instant.At(time.Duration(20-i) * sec / 2) // the later, the nearer
		}
		mustHold(t, &c, 0, 1, ws[i], sec)
	}
	c.Hold(500*ms, 1, Refusal{Code: TooMany, Wait: 4500 * ms}, exact, 0)
	for ; len(woken) > 0; woken = woken[1:] {
		w := ws[woken[0]]
		if a := c.Enter(500*ms, 1, w); a.Verb != queue.Wait || a.Until != 5*sec {
			t.Errorf("%+v, want to wait until 5 s", a)
		}
		if w.By == 0 || w.By > 5*sec {
			t.Errorf("waiter %d was woken", w.ID)
		}
		c.Leave(1, w)
		left = append(left, w.ID)
	}
	if !slices.Equal(left, []int{19, 15, 11}) {
		t.Errorf("%v gave up", left)
	}
	mustHold(t, &c, sec, 1, ws[0], 5*sec)
	mustPass(t, &c, 5*sec, 1, ws[0])
}

func TestCooldownUnusedSlotsAreNotSaved(t *testing.T) {
	var c Cooldown
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, exact, 0)
	mustPass(t, &c, 4*sec, 1, nil)
	mustHold(t, &c, 4*sec, 1, nil, instant.At(4*sec+rampStep))
	mustPass(t, &c, instant.At(4*sec+rampStep+30*ms), 1, nil) // a little late
	mustHold(t, &c, instant.At(4*sec+rampStep+30*ms), 1, nil, instant.At(4*sec+2*rampStep))
}

// Responses to requests from before the hold do not make the ramp steeper. Failures do
// not either, because they are not reported.
func TestCooldownOldResponses(t *testing.T) {
	var c Cooldown
	c.Hold(sec, 1, Refusal{Code: TooMany, Wait: sec}, exact, 0)
	mustPass(t, &c, 2*sec, 1, nil)
	for range 10 {
		c.Answered(2*sec+ms, 1, 0, true)
		c.Answered(2*sec+ms, 1, sec, true)
	}
	mustHold(t, &c, 2*sec+ms, 1, nil, instant.At(2*sec+rampStep))
	c.Answered(2*sec+ms, 1, 2*sec, false)
	mustPass(t, &c, 2*sec+ms, 1, nil)
	mustPass(t, &c, 2*sec+ms, 1, nil)
	mustHold(t, &c, 2*sec+ms, 1, nil, instant.At(2*sec+rampStep))
}

// If the credentials change with every request, memory stays bounded. A hold for which
// somebody waits stays. Of the others the hold that ends first makes room. No scope is
// held by the refusals of others.
func TestCooldownIsBounded(t *testing.T) {
	var c Cooldown
	hour := Refusal{Wait: time.Hour}
	for i := range uint64(10) {
		c.Hold(0, i, hour, Config{Max: -1, Spread: -1}, 0)
	}
	w := queue.NewWaiter()
	mustHold(t, &c, 0, 3, w, instant.At(time.Hour))
	for i := range soak.Size[uint64](8*queue.MaxScopes, 20_000) {
		now := time.Duration(i) * ms
		c.Hold(instant.At(now), 100+i, Refusal{Wait: 50 * ms}, exact, 0)
		if n := len(c.holds); n > queue.MaxScopes {
			t.Fatalf("%d scopes", n)
		}
	}
	for i := range uint64(10) {
		if until, _ := c.Held(20*sec, i); until != instant.At(time.Hour) {
			t.Errorf("scope %d: held until %v", i, until)
		}
	}
	// All holds are running.
	for i := range uint64(queue.MaxScopes + 20) {
		c.Hold(200*sec, 1_000_000+i, Refusal{Wait: 2*time.Hour + time.Duration(i)}, Config{Max: -1, Spread: -1}, 0)
	}
	for key, want := range map[uint64]time.Duration{3: time.Hour, 4: 0, 77: 0, 1_000_020: 0, 1_000_021: 2*time.Hour + 200*sec + 21} {
		if until, _ := c.Held(200*sec, key); until != instant.At(want) {
			t.Errorf("scope %d: held until %v, want %v", key, until, want)
		}
	}
	if n, _ := c.Holds(200 * sec); n != queue.MaxScopes || hosttest.Woken(w) {
		t.Errorf("%d scopes", n)
	}
	c.Leave(3, w)
	// When all holds are over, nothing is kept.
	c.Enter(instant.At(4*time.Hour), 5, nil)
	if !c.Quiet() || c.holds != nil {
		t.Errorf("%d scopes at the end", len(c.holds))
	}

	// If somebody waits for each of them, a further scope is not held, and nor is any other.
	for i := range uint64(queue.MaxScopes) {
		c.Hold(instant.At(5*time.Hour), i, hour, Config{Max: -1}, 0)
		c.Enter(instant.At(5*time.Hour), i, queue.NewWaiter())
	}
	c.Hold(instant.At(5*time.Hour), 1000, hour, Config{Max: -1}, 0)
	mustPass(t, &c, instant.At(5*time.Hour), 1000, nil)
	mustPass(t, &c, instant.At(5*time.Hour), 1001, nil)
}

// Whatever happens, at most two requests pass during a run of holds. Waiters pass in
// order and at most as fast as the ramp allows. All of them pass in the end.
func runCooldown(t *testing.T, seed uint64, n int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	var (
		c        Cooldown
		cl       = &hosttest.Clock{}
		closed   instant.Instant // an oracle without 503s: no request before this
		waiting  []int
		passed   int
		left     int
		since    instant.Instant // the hold's end
		allowed  float64         // by responses since then
		through  int             // since then
		lastHold instant.Instant
		early    int // passed in this run of holds
	)
	for range 1 + rng.IntN(5) {
		cl.At(instant.At(time.Duration(rng.IntN(8000))*ms), func() {
			wait := time.Duration(1+rng.IntN(3000)) * ms
			if cl.Now >= closed {
				early = 0
			}
			closed = max(closed, cl.Now.Add(wait))
			since, allowed, through = closed, 0, 0
			lastHold = cl.Now
			c.Hold(cl.Now, 1, Refusal{Code: TooMany, Wait: wait}, exact, 0)
		})
	}
	for i := range n {
		cl.At(instant.At(time.Duration(rng.IntN(10_000))*ms), func() {
			r := &cooldownRequest{clock: cl, c: &c, key: 1}
			waiting = append(waiting, i)
			remove := func() int {
				at := slices.Index(waiting, i)
				waiting = slices.Delete(waiting, at, at+1)
				return at
			}
			r.onGo = func() {
				at := remove()
				passed++
				if cl.Now < closed {
					// A probe, which this server refuses until the hold is over.
					if early++; early > maxProbes || at != 0 {
						t.Fatalf("seed %d: %d passed at %v, held until %v, as number %d", seed, i, cl.Now, closed, early)
					}
					cl.At(cl.Now.Add(time.Duration(rng.IntN(400))*ms), func() {
						if cl.Now < closed {
							c.Hold(cl.Now, 1, Refusal{Code: TooMany, Wait: closed.Sub(cl.Now)}, exact, 0)
						}
					})
					return
				}
				if lastHold == 0 || cl.Now >= since.Add(rampTime) {
					return
				}
				if at != 0 {
					t.Fatalf("seed %d: %d passed before its turn", seed, i)
				}
				through++
				if most := 1 + cl.Now.Sub(since).Seconds()*10 + allowed; float64(through) > most+1e-9 {
					t.Fatalf("seed %d: %d passed %v after the hold, at most %v", seed, through, cl.Now-since, most)
				}
				sent := cl.Now
				cl.At(cl.Now.Add(time.Duration(rng.IntN(400))*ms), func() {
					if sent >= since {
						allowed += rampGrowth
					}
					c.Answered(cl.Now, 1, sent, true)
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
	if passed+left != n {
		t.Fatalf("seed %d: %d passed and %d left of %d", seed, passed, left, n)
	}
}

func TestCooldownLetsEverybodyPass(t *testing.T) {
	for seed := range uint64(300) {
		runCooldown(t, seed, 100)
	}
}

func FuzzCooldown(f *testing.F) {
	f.Add(uint64(1), uint8(50))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) { runCooldown(t, seed, int(n)) })
}

func TestCooldownCosts(t *testing.T) {
	var c Cooldown
	if n := testing.AllocsPerRun(100, func() {
		if !c.Quiet() {
			t.Error("not quiet")
		}
		c.Held(0, 1)
		c.Enter(0, 1, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, exact, 0)
	if n := testing.AllocsPerRun(100, func() { c.Enter(0, 1, nil) }); n != 0 {
		t.Errorf("%v allocations while held", n)
	}
	if n := unsafe.Sizeof(c); n > 40 {
		t.Errorf("%d bytes", n)
	}
	if n := unsafe.Sizeof(hold{}); n > 232 {
		t.Errorf("a scope has %d bytes", n)
	}
}

func BenchmarkCooldownQuiet(b *testing.B) {
	var c Cooldown
	for b.Loop() {
		if !c.Quiet() {
			b.Fatal()
		}
	}
}

func TestCooldownLeaveHandsTheTurnOn(t *testing.T) {
	var c Cooldown
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0)
	first, second := queue.NewWaiter(), queue.NewWaiter()
	c.Enter(0, 1, first)
	c.Enter(0, 1, second)
	c.Leave(1, first)
	if !hosttest.Woken(second) {
		t.Error("the second in the queue was not woken")
	}
}

// The news of a longer hold reaches every waiter with a deadline before its end, even if
// the waiter that has to pass it on gives up before it asks.
func TestCooldownLeavePassesTheWordOn(t *testing.T) {
	var c Cooldown
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0)
	ws := []*queue.Waiter{queue.NewWaiter(), queue.NewWaiter(), queue.NewWaiter()}
	for i, w := range ws {
		w.By = instant.At(time.Duration(i+2) * sec)
		c.Enter(0, 1, w)
	}
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: 30 * sec}, Config{}, 0)
	for i, w := range ws {
		if !hosttest.Woken(w) {
			t.Errorf("waiter %d still counts on 1 s", i)
		}
		c.Leave(1, w)
	}
}

// Whatever happens, two things hold when all woken waiters have asked. No waiter waits
// for a time after its deadline. And the waiter with the nearest deadline knows when
// its own turn comes at the latest.
func TestCooldownDeadlines(t *testing.T) {
	hurries := 0
	for seed := range uint64(500) {
		var c Cooldown
		rng := rand.New(rand.NewPCG(seed, 1))
		now := instant.At(sec)
		waiting := map[*queue.Waiter]bool{}
		var all, woken []*queue.Waiter // all in the order of their coming, for the same run with the same seed
		ask := func(w *queue.Waiter) {
			key := uint64(w.ID)
			a := c.Enter(now, key, w)
			switch {
			case a.Verb != queue.Wait:
				delete(waiting, w)
			case w.By > 0 && (a.Until >= w.By || now >= w.By):
				c.Leave(key, w)
				delete(waiting, w)
			}
		}
		for range 100 {
			switch op := rng.IntN(8); {
			case op < 3:
				w := &queue.Waiter{ID: 1 + rng.IntN(2), Woken: func(w *queue.Waiter) { woken = append(woken, w) }}
				if rng.IntN(3) > 0 {
					w.By = now.Add(time.Duration(1 + rng.Int64N(int64(20*sec))))
				}
				all, waiting[w] = append(all, w), true
				ask(w)
			case op == 3:
				c.Hold(now, uint64(1+rng.IntN(2)), Refusal{Code: Code(rng.IntN(2)), Wait: time.Duration(rng.Int64N(int64(8 * sec)))}, Config{Spread: 4 * sec, Max: 6 * sec, Stop: rng.IntN(6) == 0}, rng.Float64())
			case op == 4:
				c.Answered(now, uint64(1+rng.IntN(2)), now.Add(-time.Duration(rng.Int64N(int64(3*sec)))), rng.IntN(3) > 0)
			case op == 5:
				if len(all) > 0 {
					w := all[rng.IntN(len(all))]
					c.Leave(uint64(w.ID), w)
					delete(waiting, w)
				}
			default:
				now = now.Add(time.Duration(rng.Int64N(int64(2 * sec))))
				for _, w := range all {
					if waiting[w] && (w.Told <= now || w.By > 0 && w.By <= now) {
						ask(w)
					}
				}
			}
			for ; len(woken) > 0; woken = woken[1:] {
				if waiting[woken[0]] {
					ask(woken[0])
				}
			}
			for key, h := range c.holds {
				if w := h.hurried(); w != nil && !h.undecided(now) {
					t.Fatalf("seed %d, at %v: a waiter of scope %d with the deadline %v asks at %v; named %v, opens %v", seed, now, key, w.By, w.Told, h.named(), h.opens(w))
				}
				for w := range waiting {
					if h.queue.Has(w) && w.By > now && w.By <= h.named() && !h.undecided(now) {
						t.Fatalf("seed %d, at %v: a waiter with the deadline %v waits until %v", seed, now, w.By, h.named())
					}
					if h.queue.Has(w) && h.opens(w) < h.open {
						hurries++
					}
				}
			}
		}
	}
	if hurries < 100 {
		t.Errorf("only %d waiters had a nearer turn of their own", hurries)
	}
}

// A success that ends a hold is no named end. So the waiters with a deadline return in
// the ramp like the others, whatever their deadlines are.
func TestCooldownRampAfterAnEarlyEnd(t *testing.T) {
	const begin = time.Hour
	var c Cooldown
	c.Hold(instant.At(begin), 1, Refusal{Code: TooMany, Wait: 20 * sec}, exact, 0)
	ws := make([]*queue.Waiter, 10)
	for i := range ws {
		ws[i] = queue.NewWaiter()
		ws[i].By = instant.At(begin + time.Minute)
		mustHold(t, &c, instant.At(begin), 1, ws[i], instant.At(begin+20*sec))
	}
	for range minDoubt {
		c.Answered(instant.At(begin+sec), 1, 0, true)
	}
	mustPass(t, &c, instant.At(begin+sec), 1, ws[0]) // the probe
	c.Answered(instant.At(begin+2*sec), 1, instant.At(begin+sec), true)
	passed := 0
	for _, w := range ws[1:] {
		if c.Enter(instant.At(begin+2*sec), 1, w).Verb == queue.Go {
			passed++
		}
	}
	if passed != rampGrowth {
		t.Errorf("%d requests return at once, want %d", passed, rampGrowth)
	}
}

// The last turn of a ramp is not after the ramp's end.
func TestCooldownRampEnds(t *testing.T) {
	var c Cooldown
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0)
	now := instant.At(sec).Add(rampTime) - 20*ms
	c.Enter(now, 1, nil)
	if a := c.Enter(now, 1, queue.NewWaiter()); a.Ask > instant.At(sec+rampTime) {
		t.Errorf("%+v, the ramp ends at %v", a, sec+rampTime)
	}
}

// A request that comes after the time that the server named is not spread. Requests
// that were held are spread.
func TestCooldownArrive(t *testing.T) {
	var c Cooldown
	if !c.Arrive(0, 1) {
		t.Error("nothing is held")
	}
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0.9) // open at 1450 ms
	w, v := queue.NewWaiter(), queue.NewWaiter()
	mustHold(t, &c, 0, 1, w, sec)
	mustHold(t, &c, 0, 1, v, sec)
	if c.Arrive(sec-1, 1) {
		t.Error("passed during the hold")
	}
	for range 5 {
		if !c.Arrive(sec, 1) {
			t.Error("held after the time that was named")
		}
	}
	mustHold(t, &c, sec, 1, w, sec)
	mustPass(t, &c, 1450*ms, 1, w)
	if a := c.Enter(1450*ms, 1, v); a.Verb != queue.Wait {
		t.Errorf("%+v: the ramp lets one go", a)
	}
	if !c.Arrive(1450*ms, 1) {
		t.Error("held by the ramp")
	}
}

// The jitter takes at most half of what a deadline leaves after the time that
// was named.
func TestCooldownJitterEndsBeforeTheDeadline(t *testing.T) {
	for by, want := range map[time.Duration]time.Duration{
		0:                1450 * ms, // no deadline
		time.Minute:      1450 * ms,
		sec + 500*ms:     1250 * ms,
		sec + 10*ms:      1005 * ms,
		sec + 900*ms:     1450 * ms,
		sec - 500*ms:     1450 * ms, // the transport refuses it
		sec:              1450 * ms,
		sec + 899*ms - 1: sec + (899*ms-1)/2,
	} {
		var c Cooldown
		c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{}, 0.9)
		first, w := queue.NewWaiter(), queue.NewWaiter()
		w.By = instant.At(by)
		mustHold(t, &c, 0, 1, first, sec)
		mustHold(t, &c, 0, 1, w, sec)
		if a := c.Enter(sec, 1, w); want < 1450*ms && a.Ask != instant.At(want) {
			t.Errorf("by %v: %+v, want to ask at %v", by, a, want)
		}
		a := c.Enter(instant.At(want-1), 1, w)
		b := c.Enter(instant.At(want), 1, w)
		if a.Verb != queue.Wait || (b.Verb == queue.Go) != (want < 1450*ms) {
			t.Errorf("by %v: %+v, then %+v", by, a, b)
		}
	}
}

// sure is a scope that has had many successes until now.
func sure(now instant.Instant) *Cooldown {
	c := &Cooldown{}
	c.Hold(now-5*sec, 1, Refusal{Wait: sec}, exact, 0)
	for range 100 {
		c.Answered(now-4*sec, 1, 0, true)
	}
	return c
}

func goes(c *Cooldown, now instant.Instant, w *queue.Waiter) bool {
	return c.Enter(now, 1, w).Verb == queue.Go
}

// Only refusals in a row hold a scope that has had many successes. A success of a later
// request ends the hold, and a success of an earlier request does not.
func TestCooldownRefusalsInARow(t *testing.T) {
	const now = 100 * sec
	for name, tt := range map[string]struct {
		successes uint64
		refused   []time.Duration // when the refused requests were sent
		sent      instant.Instant // when the request of the success was sent
		ends      bool
	}{
		"a later request":              {100, []time.Duration{now - 50*ms}, now - 40*ms, true},
		"an earlier request":           {100, []time.Duration{now - 50*ms}, now - 60*ms, false},
		"the same time":                {100, []time.Duration{now - 50*ms}, now - 50*ms, false},
		"a time that is not known":     {100, []time.Duration{now - 50*ms}, 0, false},
		"between two refusals":         {100, []time.Duration{now - 50*ms, now - 30*ms}, now - 40*ms, false},
		"they arrive in another order": {100, []time.Duration{now - 30*ms, now - 50*ms}, now - 40*ms, false},
		"after two refusals":           {100, []time.Duration{now - 30*ms, now - 50*ms}, now - 20*ms, true},
		"a refusal of unknown time":    {100, []time.Duration{0}, now - 20*ms, false},
		"three successes":              {3, []time.Duration{now - 50*ms}, now - 40*ms, true},
		"two successes":                {2, []time.Duration{now - 50*ms}, now - 40*ms, false},
		"no success before":            {0, []time.Duration{now - 50*ms}, now - 40*ms, false},
	} {
		t.Run(name, func(t *testing.T) {
			var c Cooldown
			for _, sent := range tt.refused {
				c.Hold(now, 1, Refusal{Wait: 10 * sec, Sent: instant.At(sent), Ended: tt.successes}, exact, 0)
			}
			waiting, next := queue.NewWaiter(), queue.NewWaiter()
			c.Enter(now, 1, waiting)
			c.Enter(now, 1, next)
			ended := c.Answered(now+ms, 1, tt.sent, true)
			if until, _ := c.Held(now+ms, 1); (until == 0) != tt.ends || ended[TooMany] != tt.ends {
				t.Fatalf("held until %v, ended %v", until, ended)
			}
			if tt.ends && (!goes(&c, now+ms, waiting) || !goes(&c, now+ms, next) || goes(&c, now+ms, queue.NewWaiter())) {
				t.Error("a success lets two waiters go")
			}
		})
	}
}

// A scope begins with the successes of its host since the last refusal.
func TestCooldownTrust(t *testing.T) {
	var c Cooldown
	c.Hold(0, 1, Refusal{Wait: sec, Ended: 1000}, exact, 0)
	c.Hold(sec, 2, Refusal{Wait: sec, Ended: 1001}, exact, 0)
	if !goes(&c, instant.At(testimony), queue.NewWaiter()) {
		t.Error("1000 successes: no probe")
	}
	if c.Enter(instant.At(sec+testimony), 2, queue.NewWaiter()).Verb == queue.Go {
		t.Error("a single success since the last refusal: a probe")
	}
	c.Enter(instant.At(time.Minute), 1, nil)
	c.Hold(instant.At(time.Minute), 2, Refusal{Wait: sec, Ended: 900}, exact, 0) // a count that came late
	mustHold(t, &c, instant.At(time.Minute), 2, nil, instant.At(time.Minute+sec))
}

// A hold is tried by at most two probes, and only if most responses are successes. The
// requests in flight have the time of a round trip before.
func TestCooldownProbes(t *testing.T) {
	const now = 100 * sec
	refuse := func(c *Cooldown, now, sent instant.Instant) {
		c.Hold(now, 1, Refusal{Wait: instant.At(110 * sec).Sub(now), Sent: sent}, exact, 0)
	}
	c := sure(now)
	refuse(c, now, now-30*ms)
	first, second := queue.NewWaiter(), queue.NewWaiter()
	if goes(c, now, first) || goes(c, now, second) || goes(c, now+30*ms, nil) {
		t.Error("a probe before the round trip, or a hedge")
	}
	if a := c.Enter(now, 1, first); a.Ask != now+30*ms || a.Until != 0 {
		t.Errorf("%+v", a)
	}
	if until, refused := c.Held(now, 1); until != 110*sec || refused || c.Named(now, 1) != 0 || !c.HeldSince(now, 1, now-1) {
		t.Errorf("held until %v, refused %v", until, refused)
	}
	if !goes(c, now+30*ms, first) || goes(c, now+30*ms, second) {
		t.Error("a single probe after the round trip")
	}
	if c.HeldSince(now+31*ms, 1, now+30*ms) {
		t.Error("the probe is called back")
	}
	refuse(c, now+60*ms, now+30*ms)
	if !hosttest.Woken(second) || !goes(c, now+60*ms, second) {
		t.Error("no second probe after the first was refused")
	}
	third := queue.NewWaiter()
	if a := c.Enter(now+70*ms, 1, third); a.Verb != queue.Wait || a.Until != 0 {
		t.Errorf("%+v", a)
	}
	refuse(c, now+90*ms, now+60*ms)
	for range maxDoubt {
		c.Answered(now+100*ms, 1, now-sec, true) // of requests that were sent before
	}
	mustHold(t, c, now+200*ms, 1, third, 110*sec)
	mustHold(t, c, now+9*sec, 1, third, 110*sec)
	if c.Named(now+100*ms, 1) != 110*sec {
		t.Errorf("named %v", c.Named(now+100*ms, 1))
	}

	// A probe that gets no response is given up after a second.
	c = sure(now)
	refuse(c, now, now-30*ms)
	if !goes(c, now+sec, queue.NewWaiter()) || goes(c, now+2*sec-1, second) || !goes(c, now+2*sec, second) {
		t.Error("no second probe a second after the first")
	}
	mustHold(t, c, now+3*sec, 1, third, 110*sec)

	// The requests in flight were refused as well.
	c = sure(now)
	for i := range time.Duration(6) {
		refuse(c, instant.At(now+i*ms), instant.At(now-30*ms+i*ms))
	}
	mustHold(t, c, now+sec, 1, queue.NewWaiter(), 110*sec)

	// The success of a probe ends the hold, and a failure does not.
	c = sure(now)
	refuse(c, now, now-30*ms)
	c.Enter(now, 1, first)
	c.Enter(now, 1, second)
	goes(c, now+30*ms, first)
	refuse(c, now+40*ms, now-10*ms) // one that was in flight
	if c.Answered(now+50*ms, 1, now+30*ms, false); goes(c, now+50*ms, second) {
		t.Error("the hold is over, and no probe has succeeded")
	}
	if c.Answered(now+60*ms, 1, now+30*ms, true); !hosttest.Woken(second) || !goes(c, now+60*ms, second) {
		t.Error("held after a probe has succeeded")
	}
}

// While a doubt may still end a hold, no request is refused.
func TestCooldownStopsAfterTheDoubt(t *testing.T) {
	const now = 100 * sec
	conf := Config{Stop: true, Spread: -1}
	c := sure(now)
	hour := Refusal{Wait: time.Hour, Sent: now - 30*ms}
	c.Hold(now, 1, hour, conf, 0)
	ws := []*queue.Waiter{queue.NewWaiter(), queue.NewWaiter(), queue.NewWaiter()}
	for _, w := range ws {
		mustHold(t, c, now, 1, w, 0)
	}
	for i, w := range ws[:2] {
		at := now + time.Duration(i+1)*30*ms
		mustPass(t, c, instant.At(at), 1, w)
		c.Hold(instant.At(at+30*ms), 1, Refusal{Wait: time.Hour, Sent: instant.At(at)}, conf, 0)
	}
	if a := c.Enter(now+90*ms, 1, ws[2]); a.Verb != queue.Refuse || !hosttest.Woken(ws[2]) {
		t.Errorf("%+v", a)
	}
}

// A hold of the fleet holds as a hold of a response to this process does. A process with
// successes of its own sends a single probe. If the probe succeeds, the process does not
// believe the fleet for 10 s, and for longer if it succeeds again.
func TestCooldownHeldByTheFleet(t *testing.T) {
	const now = 100 * sec
	told := Refusal{Wait: 10 * sec}
	conf := Config{Spread: -1, Processes: 2, Probes: 200 * ms}
	var c Cooldown
	c.HoldForFleet(now, 1, told, conf, 0)
	mustHold(t, &c, now+5*sec, 1, queue.NewWaiter(), now+10*sec) // it has no success of its own

	for _, refused := range []bool{false, true} {
		c := sure(now)
		c.HoldForFleet(now, 1, told, conf, 0.25) // the processes are early with this probability
		first, second := queue.NewWaiter(), queue.NewWaiter()
		if a := c.Enter(now, 1, first); a.Ask != instant.At(now+testimony+100*ms) || a.Until != 0 {
			t.Errorf("%+v", a)
		}
		mustHold(t, c, now, 1, second, 0)
		c.HoldForFleet(now+50*ms, 1, told, conf, 1) // the same process
		mustPass(t, c, now+200*ms, 1, first)
		c.HoldForFleet(now+220*ms, 1, told, conf, 1)
		if refused {
			c.Hold(now+230*ms, 1, Refusal{Wait: 5 * sec, Sent: now + 200*ms}, exact, 0)
			mustHold(t, c, now+6*sec, 1, second, now+220*ms+10*sec)
			continue
		}
		c.Answered(now+230*ms, 1, now-50*ms, true) // of a request that was sent before
		mustHold(t, c, now+230*ms, 1, second, 0)
		if ended := c.Answered(now+230*ms, 1, now+200*ms, true); !ended[TooMany] {
			t.Error("the success of the probe does not end the hold")
		}
		mustPass(t, c, now+230*ms, 1, second)
		deaf := instant.At(now + 230*ms + 10*sec)
		told.Ended = 1000
		c.HoldForFleet(now+5*sec, 1, told, conf, 1)
		mustPass(t, c, now+5*sec, 1, nil)
		c.Answered(now+6*sec, 1, now+4*sec, true) // sent before the fleet spoke
		c.HoldForFleet(deaf-ms, 1, told, conf, 1)
		c.Answered(deaf-ms, 1, deaf-ms, true) // sent at the same time
		mustPass(t, c, deaf-ms, 1, nil)
		deafer := sure(now)
		*deafer.holds[1] = *c.holds[1]
		c.HoldForFleet(deaf, 1, told, conf, 1)
		mustHold(t, c, deaf, 1, queue.NewWaiter(), 0)

		deafer.Answered(deaf-ms/2, 1, deaf-ms/2, true)
		deafer.HoldForFleet(deaf+9*sec, 1, told, conf, 1)
		mustPass(t, deafer, deaf+9*sec, 1, nil)
		deafer.HoldForFleet(deaf+10*sec, 1, told, conf, 1)
		mustHold(t, deafer, deaf+10*sec, 1, queue.NewWaiter(), 0)
	}

	// Another process is refused later, even if it names no later end. So this process waits
	// with its probe for four times as long as the hold has lasted.
	again := sure(now)
	again.HoldForFleet(now, 1, told, conf, 0)
	w := queue.NewWaiter()
	mustHold(t, again, now+50*ms, 1, w, 0)
	again.HoldForFleet(instant.At(now+60*ms+testimony), 1, Refusal{Wait: 9 * sec}, conf, 0)
	if a := again.Enter(now+160*ms, 1, w); a.Ask != now+5*160*ms {
		t.Errorf("%+v", a)
	}

	// If this process and another were refused, it sends no probe, whoever was first.
	for _, own := range []time.Duration{0, 50 * ms} {
		both := sure(now)
		both.HoldForFleet(now+25*ms, 1, told, conf, 0)
		if own == 0 {
			both = sure(now)
		}
		both.Hold(instant.At(now+own), 1, Refusal{Wait: 10 * sec, Sent: now - 10*ms}, conf, 0)
		both.HoldForFleet(now+50*ms, 1, told, conf, 0)
		both.HoldForFleet(instant.At(now+2*testimony), 1, told, conf, 0)
		w := queue.NewWaiter()
		if a := both.Enter(now+9*sec, 1, w); a.Verb != queue.Wait || a.Until == 0 {
			t.Errorf("%+v", a)
		}
		// A success in the fleet makes it send one, once.
		both.Free(now+9*sec, 1, now+9*sec)
		mustPass(t, both, now+9*sec, 1, w)
		both.Free(now+9*sec, 1, now+9*sec)
		mustHold(t, both, now+9*sec, 1, queue.NewWaiter(), 0)
		if a := both.Enter(instant.At(now+9*sec+probeWait), 1, nil); a.Verb != queue.Wait {
			t.Errorf("%+v", a)
		}
	}

	// The word of the fleet alone does not use up the doubt, and a refusal to this process
	// makes it believe the fleet again.
	quiet := sure(now)
	for i := range time.Duration(20) {
		at := now + i*20*sec
		told.Ended = 1000
		quiet.HoldForFleet(instant.At(at), 1, told, conf, 0)
		w := queue.NewWaiter()
		mustHold(t, quiet, instant.At(at), 1, w, 0)
		mustPass(t, quiet, instant.At(at+testimony), 1, w)
		quiet.Answered(instant.At(at+2*testimony), 1, instant.At(at+testimony), true)
		quiet.HoldForFleet(instant.At(at+3*testimony), 1, told, conf, 0)
		if until, _ := quiet.Held(instant.At(at+sec), 1); until != 0 {
			t.Fatalf("run %d: held until %v", i, until)
		}
	}
	at := instant.At(now + 381*sec)
	quiet.Hold(at, 1, Refusal{Wait: sec, Sent: at - ms}, exact, 0)
	quiet.HoldForFleet(at, 1, told, exact, 0)
	if until, _ := quiet.Held(at, 1); until != at+10*sec {
		t.Errorf("held until %v", until)
	}
}

// A hold that only the fleet was told has bounds, and refuses no request. A request whose
// deadline lies before its end goes after half of its time.
func TestCooldownHearsay(t *testing.T) {
	var c Cooldown
	c.HoldForFleet(0, 1, Refusal{}, exact, 0)
	c.HoldForFleet(0, 1, Refusal{Wait: -sec}, exact, 0)
	if !c.Quiet() {
		t.Error("held for no time")
	}
	for conf, want := range map[Config]time.Duration{
		{Spread: -1, Max: 3 * sec, Stop: true}: 3 * sec,
		{Spread: -1, Stop: true}:               time.Minute,
		{Spread: -1, Max: -1, Stop: true}:      queue.MaxHeard,
	} {
		var c Cooldown
		c.HoldForFleet(0, 1, Refusal{Wait: instant.Forever}, conf, 0)
		if until, refused := c.Held(0, 1); until != instant.At(want) || refused {
			t.Errorf("%+v: held until %v, refused %v", conf, until, refused)
		}
		if named := c.Named(0, 1); named != 0 {
			t.Errorf("named %v", named)
		}
		w, patient := queue.NewWaiter(), queue.NewWaiter()
		mustHold(t, &c, sec, 1, patient, instant.At(want))
		w.From, w.By = sec, instant.At(want) // just too early
		if a := c.Enter(sec, 1, w); a.Verb != queue.Wait || a.Ask != instant.At(sec+(want-sec)/2) || a.Until != a.Ask {
			t.Errorf("%+v", a)
		}
		mustPass(t, &c, instant.At(sec+(want-sec)/2), 1, w)
		w.By = instant.At(want + 2*sec)
		mustHold(t, &c, sec, 1, w, instant.At(want))
		mustHold(t, &c, instant.At(want-1), 1, w, instant.At(want))
	}

	// What this process was told stands.
	c = Cooldown{}
	c.Hold(0, 1, Refusal{Wait: 6 * sec}, exact, 0)
	w := queue.NewWaiter()
	w.By = 8 * sec
	mustHold(t, &c, 0, 1, w, 6*sec)
	c.HoldForFleet(sec, 1, Refusal{Wait: 30 * sec}, exact, 0)
	if a := c.Enter(sec, 1, w); a.Ask != 6*sec || a.Until != 6*sec {
		t.Errorf("%+v", a)
	}
	w.By = 5 * sec
	if a := c.Enter(sec, 1, w); a.Until < w.By {
		t.Errorf("%+v: the hold of this process lasts longer", a)
	}
}

// A success elsewhere ends the hold of a 503, and what only the fleet was told of a 429.
// What this process was told of a 429 stands, but it sends a probe.
func TestCooldownFree(t *testing.T) {
	own := func(code Code, wait time.Duration) func(*Cooldown) {
		return func(c *Cooldown) { c.Hold(sec, 1, Refusal{Code: code, Wait: wait}, exact, 0) }
	}
	fleet := func(code Code, wait time.Duration) func(*Cooldown) {
		return func(c *Cooldown) { c.HoldForFleet(sec, 1, Refusal{Code: code, Wait: wait}, exact, 0) }
	}
	for name, tt := range map[string]struct {
		holds []func(*Cooldown)
		until instant.Instant
	}{
		"nothing":                          {nil, 0},
		"a 503":                            {[]func(*Cooldown){own(Unavailable, 9*sec)}, 0},
		"a 503 of the fleet":               {[]func(*Cooldown){fleet(Unavailable, 9*sec)}, 0},
		"a 429":                            {[]func(*Cooldown){own(TooMany, 9*sec)}, 10 * sec},
		"a 429 of the fleet":               {[]func(*Cooldown){fleet(TooMany, 9*sec)}, 0},
		"a 429 and a longer 503":           {[]func(*Cooldown){own(TooMany, 5*sec), own(Unavailable, 9*sec)}, 6 * sec},
		"both, of the fleet":               {[]func(*Cooldown){fleet(TooMany, 5*sec), fleet(Unavailable, 9*sec)}, 0},
		"a 429, and a longer of the fleet": {[]func(*Cooldown){own(TooMany, 5*sec), fleet(TooMany, 9*sec)}, 6 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			var c Cooldown
			for _, hold := range tt.holds {
				hold(&c)
			}
			w := queue.NewWaiter()
			held := c.Enter(sec, 1, w).Verb == queue.Wait
			c.Free(sec, 1, 0) // in the same instant
			c.Free(sec, 1, 0)
			if until, _ := c.Held(sec, 1); until != tt.until {
				t.Errorf("held until %v, want %v", until, tt.until)
			}
			if held && !hosttest.Woken(w) {
				t.Error("the first waiter was not woken")
			}
			if a := c.Enter(sec, 1, w); a.Verb != queue.Go {
				t.Errorf("%+v", a)
			}
			if a := c.Enter(sec, 1, nil); a.Verb == queue.Go && tt.until > 0 {
				t.Errorf("%+v", a)
			}
			c.Free(sec, 2, 0) // a scope that is not held
		})
	}
}

// When a success elsewhere ends a hold, the waiters come back in a ramp. After a 503 the ramp goes on that the hold has interrupted.
func TestCooldownFreeIsSpread(t *testing.T) {
	var c Cooldown
	c.HoldForFleet(0, 1, Refusal{Code: TooMany, Wait: 10 * sec}, Config{Spread: 2 * sec}, 0.5)
	first, second := queue.NewWaiter(), queue.NewWaiter()
	mustHold(t, &c, 0, 1, first, 10*sec)
	mustHold(t, &c, 0, 1, second, 10*sec)
	c.Free(3*sec, 1, 4*sec)
	if a := c.Enter(3*sec, 1, first); a.Verb != queue.Wait || a.Ask != 4*sec {
		t.Errorf("%+v", a)
	}
	mustPass(t, &c, 4*sec, 1, first)
	if a := c.Enter(4*sec, 1, second); a.Verb != queue.Wait || a.Ask != instant.At(4*sec+rampStep) {
		t.Errorf("%+v", a)
	}

	c = Cooldown{}
	c.HoldForFleet(0, 1, Refusal{Code: Unavailable, Wait: 10 * sec}, exact, 0)
	for range 100 {
		mustHold(t, &c, 0, 1, queue.NewWaiter(), 10*sec)
	}
	c.Free(3*sec, 1, 0)
	for range 100 {
		mustPass(t, &c, 3*sec, 1, nil) // a server that sheds a little load
	}
}

// The hold ends at the time that Free was told, and no later for another Free. The first
// waiter asks then. A response to this process that asks for a wait puts an end to that.
func TestCooldownFreeLater(t *testing.T) {
	var c Cooldown
	c.HoldForFleet(0, 1, Refusal{Code: Unavailable, Wait: 10 * sec}, exact, 0)
	first, second := queue.NewWaiter(), queue.NewWaiter()
	mustHold(t, &c, 0, 1, first, 10*sec)
	mustHold(t, &c, 0, 1, second, 10*sec)
	c.Free(sec, 1, 3*sec)
	c.Free(sec, 1, 5*sec)
	c.HoldForFleet(2*sec, 1, Refusal{Code: Unavailable, Wait: 10 * sec}, exact, 0)
	if !hosttest.Woken(first) {
		t.Error("the first waiter was not woken")
	}
	if a := c.Enter(2*sec, 1, first); a.Verb != queue.Wait || a.Ask != 3*sec || a.Until != 3*sec {
		t.Errorf("%+v", a)
	}
	mustPass(t, &c, 3*sec, 1, first)
	if !hosttest.Woken(second) {
		t.Error("the second waiter was not woken")
	}
	mustPass(t, &c, 3*sec, 1, second)

	c.HoldForFleet(4*sec, 1, Refusal{Code: Unavailable, Wait: 10 * sec}, exact, 0)
	c.Free(4*sec, 1, 6*sec)
	c.Hold(5*sec, 1, Refusal{Code: Unavailable, Wait: 10 * sec}, exact, 0)
	if until, _ := c.Held(7*sec, 1); until != 15*sec {
		t.Errorf("held until %v", until)
	}
}

// Holds that the fleet brings never hold a scope of which nothing was said. They make room
// for holds of this process.
func TestCooldownOfALargeFleet(t *testing.T) {
	var c Cooldown
	for key := range uint64(2 * queue.MaxScopes) {
		c.HoldForFleet(0, 1000+key, Refusal{Code: TooMany, Wait: 30 * sec}, exact, 0)
	}
	mustPass(t, &c, sec, 1, nil)
	waiting := queue.NewWaiter()
	mustHold(t, &c, sec, 1000, waiting, 30*sec)
	for key := range uint64(queue.MaxScopes - 2) {
		c.Hold(sec, 1+key, Refusal{Code: TooMany, Wait: 30 * sec}, exact, 0)
		mustHold(t, &c, sec, 1+key, nil, 31*sec)
	}
	if len(c.holds) > queue.MaxScopes {
		t.Errorf("%d holds", len(c.holds))
	}
	mustHold(t, &c, sec, 1000, waiting, 30*sec)
	mustPass(t, &c, sec, 999, nil)
	c.HoldForFleet(sec, 2000, Refusal{Code: TooMany, Wait: 30 * sec}, exact, 0) // there is no room
	mustPass(t, &c, sec, 2000, nil)
	c.Leave(1000, waiting)
}
