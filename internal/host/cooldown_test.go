package host

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/aplomb-go/aplomb/internal/soak"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// exact has no jitter.
var exact = CooldownConfig{Spread: -1}

func mustPass(t *testing.T, c *Cooldown, now time.Duration, key uint64, w *Waiter) {
	t.Helper()
	if a := c.Enter(now, key, w); a.Verb != Go {
		t.Fatalf("at %v: %+v, want Go", now, a)
	}
}

func mustHold(t *testing.T, c *Cooldown, now time.Duration, key uint64, w *Waiter, until time.Duration) {
	t.Helper()
	if a := c.Enter(now, key, w); a.Verb != Wait || a.Until != until {
		t.Fatalf("at %v: %+v, want Wait until %v", now, a, until)
	}
}

func TestCooldownHoldsAScope(t *testing.T) {
	var c Cooldown
	if !c.Quiet() {
		t.Error("new and not quiet")
	}
	mustPass(t, &c, 0, 1, nil)
	if got := c.Hold(0, 1, TooMany, sec, exact, 0); got != sec {
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
			c.Hold(0, 1, TooMany, 0, exact, 0)
			c.Hold(0, 1, TooMany, -sec, exact, 0)
		}, 0},
		{"a longer wait extends", func(c *Cooldown) {
			c.Hold(0, 1, TooMany, sec, exact, 0)
			c.Hold(0, 1, TooMany, 3*sec, exact, 0)
		}, 3 * sec},
		{"a shorter wait does not shorten", func(c *Cooldown) {
			c.Hold(0, 1, TooMany, 3*sec, exact, 0)
			c.Hold(sec, 1, TooMany, sec, exact, 0)
		}, 3 * sec},
		{"nor does one of the other code", func(c *Cooldown) {
			c.Hold(0, 1, Unavailable, 3*sec, exact, 0)
			c.Hold(0, 1, TooMany, sec, exact, 0)
		}, 3 * sec},
		{"never longer than Max", func(c *Cooldown) {
			c.Hold(0, 1, TooMany, 365*24*time.Hour, exact, 0)
		}, time.Minute},
		{"without Max as long as asked", func(c *Cooldown) {
			c.Hold(0, 1, TooMany, time.Hour, CooldownConfig{Max: -1, Spread: -1}, 0)
		}, time.Hour},
		{"no overflow", func(c *Cooldown) {
			c.Hold(sec, 1, TooMany, Never, CooldownConfig{Max: -1, Spread: -1}, 0)
		}, Never},
		{"jitter goes upward, by half the wait", func(c *Cooldown) {
			c.Hold(0, 1, TooMany, sec, CooldownConfig{}, 0.5)
		}, 1250 * ms},
		{"and by a second at most", func(c *Cooldown) {
			c.Hold(0, 1, TooMany, 30*sec, CooldownConfig{}, 0.5)
		}, 30*sec + 500*ms},
		{"one jitter per run of holds", func(c *Cooldown) {
			c.Hold(0, 1, TooMany, sec, CooldownConfig{}, 0.5)
			c.Hold(0, 1, TooMany, sec, CooldownConfig{}, 0.9)
			c.Hold(sec, 1, TooMany, sec, CooldownConfig{}, 0.9)
		}, 2250 * ms},
		{"a spread of one's own", func(c *Cooldown) {
			c.Hold(0, 1, TooMany, sec, CooldownConfig{Spread: 10 * sec}, 0.5)
		}, 6 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Cooldown
			tt.hold(&c)
			if until, _ := c.Held(0, 1); until != tt.want {
				t.Errorf("held until %v, want %v", until, tt.want)
			}
		})
	}
}

func TestCooldownRefuses(t *testing.T) {
	conf := CooldownConfig{Max: time.Minute, Stop: true, Spread: -1}
	const year = 365 * 24 * time.Hour
	var c Cooldown
	w, v := NewWaiter(), NewWaiter()
	c.Hold(0, 1, TooMany, sec, conf, 0)
	mustHold(t, &c, 0, 1, w, sec)
	mustHold(t, &c, 0, 1, v, sec)

	c.Hold(ms, 1, TooMany, year, conf, 0)
	for _, x := range []*Waiter{w, v} { // both hear of the refusal at once, one after the other
		if !woken(x) {
			t.Fatal("not woken")
		}
		if a := c.Enter(ms, 1, x); a.Verb != Refuse || a.Until != ms+year {
			t.Fatalf("%+v", a)
		}
	}
	if until, refused := c.Held(sec, 1); !refused || until != ms+year {
		t.Errorf("%v, %v", until, refused)
	}
	if a := c.Enter(time.Minute, 1, w); a.Verb != Refuse {
		t.Errorf("%+v", a)
	}
	mustPass(t, &c, time.Minute+ms, 1, w) // then the first request passes
	mustHold(t, &c, time.Minute+ms, 1, w, time.Minute+ms+rampStep)
	c.Leave(1, w)

	// The time that an earlier hold named is not repeated.
	c.Hold(2*time.Minute, 1, TooMany, 2*time.Minute, conf, 0)
	if a := c.Enter(2*time.Minute, 1, w); a.Verb != Refuse || a.Until != 4*time.Minute {
		t.Errorf("%+v", a)
	}
	// Requests wait for a time that is not too long, in stop mode as well.
	c.Hold(0, 2, TooMany, time.Minute, conf, 0)
	mustHold(t, &c, 0, 2, nil, time.Minute)
}

func TestCooldownEndsEarly(t *testing.T) {
	for _, tt := range []struct {
		name    string
		code    Code
		sent    time.Duration
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
			c.Hold(sec, 1, tt.code, 10*sec, exact, 0)
			w := NewWaiter()
			mustHold(t, &c, sec, 1, w, 11*sec)
			c.Answered(2*sec, 1, tt.sent, tt.success)
			if until, _ := c.Held(2*sec, 1); until != tt.want {
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
		c.Hold(0, 1, Unavailable, 10*sec, exact, 0)
		c.Hold(0, 1, TooMany, 5*sec, exact, 0)
		c.Answered(2*sec, 1, sec, true)
		if until, _ := c.Held(2*sec, 1); until != 5*sec {
			t.Errorf("held until %v", until)
		}
	})
}

// A cooldownRequest goes through a cooldown in virtual time.
type cooldownRequest struct {
	clock *clock
	c     *Cooldown
	key   uint64
	onGo  func()
	onNo  func(Answer)

	w    *Waiter
	gone bool
}

func (r *cooldownRequest) start() {
	r.w = &Waiter{Wake: func(*Waiter) { r.clock.at(r.clock.now, r.ask) }}
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
	switch a := r.c.Enter(r.clock.now, r.key, r.w); a.Verb {
	case Go:
		r.gone = true
		r.onGo()
	case Refuse:
		r.gone = true
		r.onNo(a)
	case Wait:
		r.clock.at(a.Ask, r.ask)
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
				cl       = &clock{}
				arrivals []time.Duration
				order    []int
			)
			open := c.Hold(0, 1, TooMany, sec, CooldownConfig{}, 0.3)
			for i := range 50 {
				r := &cooldownRequest{clock: cl, c: &c, key: 1}
				r.onGo = func() {
					arrivals, order = append(arrivals, cl.now), append(order, i)
					sent := cl.now
					if tt.response > 0 {
						cl.at(cl.now+tt.response, func() { c.Answered(cl.now, 1, sent, true) })
					}
				}
				cl.at(time.Duration(i)*10*ms, r.start)
			}
			for i, want := range tt.want {
				cl.runTo(open + time.Duration(i+1)*100*ms - 1)
				if got := len(arrivals); got != want {
					t.Errorf("%d arrivals %d ms after the hold, want %d", got, (i+1)*100, want)
				}
			}
			cl.runTo(open + rampTime)
			if len(arrivals) != 50 || arrivals[0] < sec || !slices.IsSorted(order) {
				t.Errorf("%d arrivals, the first at %v, in the order %v", len(arrivals), arrivals[0], order)
			}
			c.Enter(open+rampTime+sec, 9, nil)
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
	c.Hold(0, 1, TooMany, sec, exact, 0)
	ws := make([]*Waiter, 20)
	for i := range ws {
		ws[i] = &Waiter{ID: i, Wake: func(w *Waiter) { woken = append(woken, w.ID) }}
		if i%4 == 3 {
			ws[i].By = time.Duration(20-i) * sec / 2 // the later, the nearer
		}
		mustHold(t, &c, 0, 1, ws[i], sec)
	}
	c.Hold(500*ms, 1, TooMany, 4500*ms, exact, 0)
	for ; len(woken) > 0; woken = woken[1:] {
		w := ws[woken[0]]
		if a := c.Enter(500*ms, 1, w); a.Verb != Wait || a.Until != 5*sec {
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
	c.Hold(0, 1, TooMany, sec, exact, 0)
	mustPass(t, &c, 4*sec, 1, nil)
	mustHold(t, &c, 4*sec, 1, nil, 4*sec+rampStep)
	mustPass(t, &c, 4*sec+rampStep+30*ms, 1, nil) // a little late
	mustHold(t, &c, 4*sec+rampStep+30*ms, 1, nil, 4*sec+2*rampStep)
}

// Responses to requests from before the hold do not make the ramp steeper. Failures do
// not either, because they are not reported.
func TestCooldownOldResponses(t *testing.T) {
	var c Cooldown
	c.Hold(sec, 1, TooMany, sec, exact, 0)
	mustPass(t, &c, 2*sec, 1, nil)
	for range 10 {
		c.Answered(2*sec+ms, 1, 0, true)
		c.Answered(2*sec+ms, 1, sec, true)
	}
	mustHold(t, &c, 2*sec+ms, 1, nil, 2*sec+rampStep)
	c.Answered(2*sec+ms, 1, 2*sec, false)
	mustPass(t, &c, 2*sec+ms, 1, nil)
	mustPass(t, &c, 2*sec+ms, 1, nil)
	mustHold(t, &c, 2*sec+ms, 1, nil, 2*sec+rampStep)
}

// If the credentials change with every request, memory stays bounded, and running
// holds are the last to go.
func TestCooldownIsBounded(t *testing.T) {
	var c Cooldown
	for i := range uint64(10) {
		c.Hold(0, i, TooMany, time.Hour, CooldownConfig{Max: -1, Spread: -1}, 0)
	}
	w := NewWaiter()
	mustHold(t, &c, 0, 3, w, time.Hour)
	for i := range soak.Size[uint64](8*maxScopes, 20_000) {
		now := time.Duration(i) * ms
		c.Hold(now, 100+i, TooMany, 50*ms, exact, 0)
		if n := len(c.holds); n > maxScopes {
			t.Fatalf("%d scopes", n)
		}
	}
	for i := range uint64(10) {
		if until, _ := c.Held(20*sec, i); until != time.Hour {
			t.Errorf("scope %d: held until %v", i, until)
		}
	}
	// All holds are running, so none of them goes. The other scopes share one.
	for i := range uint64(maxScopes + 20) {
		c.Hold(200*sec, 1_000_000+i, TooMany, 2*time.Hour, CooldownConfig{Max: -1, Spread: -1}, 0)
	}
	if until, _ := c.Held(200*sec, 3); woken(w) || until != time.Hour {
		t.Errorf("a running hold was given up, held until %v", until)
	}
	for _, key := range []uint64{1_000_000, 1_000_000 + maxScopes + 19, 77} {
		if until, _ := c.Held(200*sec, key); until != 200*sec+2*time.Hour {
			t.Errorf("scope %d: held until %v", key, until)
		}
	}
	if n, _ := c.Holds(200 * sec); n != maxScopes {
		t.Errorf("%d scopes", n)
	}
	c.Leave(3, w)
	// When all holds are over, nothing is kept.
	c.Enter(4*time.Hour, 5, nil)
	if !c.Quiet() || c.holds != nil {
		t.Errorf("%d scopes at the end", len(c.holds))
	}
}

// Whatever happens, at most two requests pass during a run of holds. Waiters pass in
// order and at most as fast as the ramp allows. All of them pass in the end.
func runCooldown(t *testing.T, seed uint64, n int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	var (
		c        Cooldown
		cl       = &clock{}
		closed   time.Duration // an oracle without 503s: no request before this
		waiting  []int
		passed   int
		left     int
		since    time.Duration // the hold's end
		allowed  float64       // by responses since then
		through  int           // since then
		lastHold time.Duration
		early    int // passed in this run of holds
	)
	for range 1 + rng.IntN(5) {
		cl.at(time.Duration(rng.IntN(8000))*ms, func() {
			wait := time.Duration(1+rng.IntN(3000)) * ms
			if cl.now >= closed {
				early = 0
			}
			closed = max(closed, cl.now+wait)
			since, allowed, through = closed, 0, 0
			lastHold = cl.now
			c.Hold(cl.now, 1, TooMany, wait, exact, 0)
		})
	}
	for i := range n {
		cl.at(time.Duration(rng.IntN(10_000))*ms, func() {
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
				if cl.now < closed {
					// A probe, which this server refuses until the hold is over.
					if early++; early > maxProbes || at != 0 {
						t.Fatalf("seed %d: %d passed at %v, held until %v, as number %d", seed, i, cl.now, closed, early)
					}
					cl.at(cl.now+time.Duration(rng.IntN(400))*ms, func() {
						if cl.now < closed {
							c.Hold(cl.now, 1, TooMany, closed-cl.now, exact, 0)
						}
					})
					return
				}
				if lastHold == 0 || cl.now >= since+rampTime {
					return
				}
				if at != 0 {
					t.Fatalf("seed %d: %d passed before its turn", seed, i)
				}
				through++
				if most := 1 + (cl.now-since).Seconds()*10 + allowed; float64(through) > most+1e-9 {
					t.Fatalf("seed %d: %d passed %v after the hold, at most %v", seed, through, cl.now-since, most)
				}
				sent := cl.now
				cl.at(cl.now+time.Duration(rng.IntN(400))*ms, func() {
					if sent >= since {
						allowed += rampGrowth
					}
					c.Answered(cl.now, 1, sent, true)
				})
			}
			r.start()
			if rng.IntN(3) == 0 {
				cl.at(cl.now+time.Duration(rng.IntN(3000))*ms, func() {
					if !r.gone {
						remove()
						left++
						r.leave()
					}
				})
			}
		})
	}
	cl.runTo(time.Minute)
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
	c.Hold(0, 1, TooMany, sec, exact, 0)
	if n := testing.AllocsPerRun(100, func() { c.Enter(0, 1, nil) }); n != 0 {
		t.Errorf("%v allocations while held", n)
	}
	if n := unsafe.Sizeof(c); n > 40 {
		t.Errorf("%d bytes", n)
	}
	if n := unsafe.Sizeof(hold{}); n > 184 {
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
	c.Hold(0, 1, TooMany, sec, CooldownConfig{}, 0)
	first, second := NewWaiter(), NewWaiter()
	c.Enter(0, 1, first)
	c.Enter(0, 1, second)
	c.Leave(1, first)
	if !woken(second) {
		t.Error("the second in the queue was not woken")
	}
}

// The news of a longer hold reaches every waiter with a deadline before its end, even if
// the waiter that has to pass it on gives up before it asks.
func TestCooldownLeavePassesTheWordOn(t *testing.T) {
	var c Cooldown
	c.Hold(0, 1, TooMany, sec, CooldownConfig{}, 0)
	ws := []*Waiter{NewWaiter(), NewWaiter(), NewWaiter()}
	for i, w := range ws {
		w.By = time.Duration(i+2) * sec
		c.Enter(0, 1, w)
	}
	c.Hold(0, 1, TooMany, 30*sec, CooldownConfig{}, 0)
	for i, w := range ws {
		if !woken(w) {
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
		now := sec
		waiting := map[*Waiter]bool{}
		var all, woken []*Waiter // all in the order of their coming, for the same run with the same seed
		ask := func(w *Waiter) {
			key := uint64(w.ID)
			a := c.Enter(now, key, w)
			switch {
			case a.Verb != Wait:
				delete(waiting, w)
			case w.By > 0 && (a.Until >= w.By || now >= w.By):
				c.Leave(key, w)
				delete(waiting, w)
			}
		}
		for range 100 {
			switch op := rng.IntN(8); {
			case op < 3:
				w := &Waiter{ID: 1 + rng.IntN(2), Wake: func(w *Waiter) { woken = append(woken, w) }}
				if rng.IntN(3) > 0 {
					w.By = now + time.Duration(1+rng.Int64N(int64(20*sec)))
				}
				all, waiting[w] = append(all, w), true
				ask(w)
			case op == 3:
				c.Hold(now, uint64(1+rng.IntN(2)), Code(rng.IntN(2)), time.Duration(rng.Int64N(int64(8*sec))), CooldownConfig{Spread: 4 * sec, Max: 6 * sec, Stop: rng.IntN(6) == 0}, rng.Float64())
			case op == 4:
				c.Answered(now, uint64(1+rng.IntN(2)), now-time.Duration(rng.Int64N(int64(3*sec))), rng.IntN(3) > 0)
			case op == 5:
				if len(all) > 0 {
					w := all[rng.IntN(len(all))]
					c.Leave(uint64(w.ID), w)
					delete(waiting, w)
				}
			default:
				now += time.Duration(rng.Int64N(int64(2 * sec)))
				for _, w := range all {
					if waiting[w] && (w.told <= now || w.By > 0 && w.By <= now) {
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
				if w := h.hurried(); w != nil {
					t.Fatalf("seed %d, at %v: a waiter of scope %d with the deadline %v asks at %v; named %v, opens %v", seed, now, key, w.By, w.told, h.named(), h.opens(w))
				}
				for w := range waiting {
					if w.in == &h.queue && w.By > now && w.By <= h.named() {
						t.Fatalf("seed %d, at %v: a waiter with the deadline %v waits until %v", seed, now, w.By, h.named())
					}
					if w.in == &h.queue && h.opens(w) < h.open {
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
	c.Hold(begin, 1, TooMany, 20*sec, exact, 0)
	ws := make([]*Waiter, 10)
	for i := range ws {
		ws[i] = NewWaiter()
		ws[i].By = begin + time.Minute
		mustHold(t, &c, begin, 1, ws[i], begin+20*sec)
	}
	for range minDoubt {
		c.Answered(begin+sec, 1, 0, true)
	}
	mustPass(t, &c, begin+sec, 1, ws[0]) // the probe
	c.Answered(begin+2*sec, 1, begin+sec, true)
	passed := 0
	for _, w := range ws[1:] {
		if c.Enter(begin+2*sec, 1, w).Verb == Go {
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
	c.Hold(0, 1, TooMany, sec, CooldownConfig{}, 0)
	now := sec + rampTime - 20*ms
	c.Enter(now, 1, nil)
	if a := c.Enter(now, 1, NewWaiter()); a.Ask > sec+rampTime {
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
	c.Hold(0, 1, TooMany, sec, CooldownConfig{}, 0.9) // open at 1450 ms
	w, v := NewWaiter(), NewWaiter()
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
	if a := c.Enter(1450*ms, 1, v); a.Verb != Wait {
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
		c.Hold(0, 1, TooMany, sec, CooldownConfig{}, 0.9)
		first, w := NewWaiter(), NewWaiter()
		w.By = by
		mustHold(t, &c, 0, 1, first, sec)
		mustHold(t, &c, 0, 1, w, sec)
		if a := c.Enter(sec, 1, w); want < 1450*ms && a.Ask != want {
			t.Errorf("by %v: %+v, want to ask at %v", by, a, want)
		}
		a := c.Enter(want-1, 1, w)
		b := c.Enter(want, 1, w)
		if a.Verb != Wait || (b.Verb == Go) != (want < 1450*ms) {
			t.Errorf("by %v: %+v, then %+v", by, a, b)
		}
	}
}

// A hold is tried by at most two probes, and only if most responses are successes.
// The success of a probe ends the hold. The success of an earlier request does not.
func TestCooldownProbes(t *testing.T) {
	begin := func(successes int) *Cooldown {
		c := &Cooldown{}
		c.Hold(0, 1, TooMany, sec, exact, 0)
		mustPass(t, c, 2*sec, 1, nil)
		for range successes {
			c.Answered(2*sec, 1, 0, true)
		}
		c.Hold(5*sec, 1, TooMany, 10*sec, exact, 0)
		return c
	}
	goes := func(c *Cooldown, now time.Duration, w *Waiter) bool { return c.Enter(now, 1, w).Verb == Go }

	c := begin(3)
	if w := NewWaiter(); goes(c, 5*sec, w) {
		t.Error("three successes and a refusal: a probe")
	}
	c = begin(4)
	if goes(c, 5*sec, nil) {
		t.Error("a hedge went as a probe")
	}
	if !goes(c, 5*sec, NewWaiter()) {
		t.Error("four successes and a refusal: no probe")
	}
	if goes(c, 5*sec, NewWaiter()) {
		t.Error("a second probe before the first was refused")
	}
	c.Hold(6*sec, 1, TooMany, 9*sec, exact, 0)
	if goes(c, 6*sec, NewWaiter()) {
		t.Error("a second probe with little doubt left")
	}

	c = begin(1000)
	for i := range 5 {
		if got := goes(c, 6*sec, NewWaiter()); got != (i < 2) {
			t.Errorf("probe %d: %v", i+1, got)
		}
		c.Hold(6*sec, 1, TooMany, 9*sec, exact, 0)
		for range 8 {
			c.Answered(6*sec, 1, 0, true) // sent before
		}
	}
	if until, _ := c.Held(6*sec, 1); until != 15*sec {
		t.Errorf("held until %v", until)
	}

	c = begin(1000)
	first, second := NewWaiter(), NewWaiter()
	if !goes(c, 6*sec, first) || goes(c, 6*sec, second) {
		t.Fatal("one probe")
	}
	c.Answered(7*sec, 1, 4*sec, true)
	c.Answered(7*sec, 1, 6*sec, false)
	if goes(c, 7*sec, second) {
		t.Error("the hold is over, and no probe has succeeded")
	}
	c.Hold(7*sec, 1, TooMany, 8*sec, exact, 0) // of one that was in flight
	c.Answered(7*sec, 1, 6*sec, true)
	if !woken(second) || !goes(c, 7*sec, second) {
		t.Error("held after a probe has succeeded")
	}
	// Then they come back in a ramp.
	n := 0
	for w := NewWaiter(); goes(c, 7*sec, w); w = NewWaiter() {
		n++
	}
	if n != 1 {
		t.Errorf("%d more at once", n)
	}
}

// A waiter in the shared hold moves when its scope gets a hold of its own. The waiters
// behind it do not wait for it.
func TestCooldownMovesToAScopeOfItsOwn(t *testing.T) {
	var c Cooldown
	for i := range uint64(maxScopes - 1) {
		c.Hold(0, 100+i, TooMany, sec, exact, 0)
	}
	c.Hold(0, 1, TooMany, 60*sec, exact, 0)
	one, other := NewWaiter(), NewWaiter()
	mustHold(t, &c, 0, 1, one, 60*sec)
	mustHold(t, &c, 0, 2, other, 60*sec)
	c.Hold(30*sec, 1, TooMany, 50*sec, exact, 0) // there is room again
	mustHold(t, &c, 30*sec, 1, one, 80*sec)
	if !woken(other) {
		t.Error("the next in the queue was not woken")
	}
	mustPass(t, &c, 60*sec, 2, other)
	c.Leave(1, one)
	mustPass(t, &c, 200*sec, 1, one)
	mustPass(t, &c, 200*sec, 3, nil)
	if !c.Quiet() {
		t.Error("not quiet in the end")
	}
}

// A hold of the fleet holds as a hold of a response to this process does. But this process
// sends no probes, because it does not know whether the hold is right.
func TestCooldownHeldByTheFleet(t *testing.T) {
	for _, own := range []bool{false, true} {
		var c Cooldown
		c.Hold(0, 1, TooMany, sec, exact, 0) // from here on responses count
		for range 8 {
			c.Answered(2*sec, 1, sec, true)
		}
		if own {
			c.Hold(3*sec, 1, TooMany, 10*sec, exact, 0)
		} else {
			c.HoldForFleet(3*sec, 1, TooMany, 10*sec, exact, 0)
		}
		if until, _ := c.Held(3*sec, 1); until != 13*sec {
			t.Errorf("own %v: held until %v", own, until)
		}
		w := NewWaiter()
		if got := c.Enter(3*sec, 1, w).Verb == Go; got != own {
			t.Errorf("own %v: probes %v", own, got)
		}
		if !own {
			mustHold(t, &c, 3*sec, 1, w, 13*sec)
			c.Hold(4*sec, 1, TooMany, sec, exact, 0) // now it was told, too
			if !woken(w) {
				t.Error("not woken")
			}
			mustPass(t, &c, 4*sec, 1, w)
		}
	}
	var c Cooldown
	c.HoldForFleet(0, 1, TooMany, 0, exact, 0)
	c.HoldForFleet(0, 1, TooMany, -sec, exact, 0)
	if !c.Quiet() {
		t.Error("held for no time")
	}
	c.HoldForFleet(0, 1, TooMany, Never, CooldownConfig{Spread: -1, Max: 3 * sec}, 0)
	if until, _ := c.Held(0, 1); until != 3*sec {
		t.Errorf("held until %v, and a response can hold for 3 s", until)
	}
}

// A success elsewhere ends the hold of a 503, and what only the fleet was told of a 429.
// What this process was told of a 429 stands.
func TestCooldownFree(t *testing.T) {
	own := func(code Code, wait time.Duration) func(*Cooldown) {
		return func(c *Cooldown) { c.Hold(sec, 1, code, wait, exact, 0) }
	}
	fleet := func(code Code, wait time.Duration) func(*Cooldown) {
		return func(c *Cooldown) { c.HoldForFleet(sec, 1, code, wait, exact, 0) }
	}
	for name, tt := range map[string]struct {
		holds []func(*Cooldown)
		until time.Duration
	}{
		"nothing":                          {nil, 0},
		"a 503":                            {[]func(*Cooldown){own(Unavailable, 9*sec)}, 0},
		"a 503 of the fleet":               {[]func(*Cooldown){fleet(Unavailable, 9*sec)}, 0},
		"a 429":                            {[]func(*Cooldown){own(TooMany, 9*sec)}, 10 * sec},
		"a 429 of the fleet":               {[]func(*Cooldown){fleet(TooMany, 9*sec)}, 0},
		"a 429 and a longer 503":           {[]func(*Cooldown){own(TooMany, 5*sec), own(Unavailable, 9*sec)}, 6 * sec},
		"both, of the fleet":               {[]func(*Cooldown){fleet(TooMany, 5*sec), fleet(Unavailable, 9*sec)}, 0},
		"a 429, and a longer of the fleet": {[]func(*Cooldown){own(TooMany, 5*sec), fleet(TooMany, 9*sec)}, 10 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			var c Cooldown
			for _, hold := range tt.holds {
				hold(&c)
			}
			w := NewWaiter()
			held := c.Enter(sec, 1, w).Verb == Wait
			c.Free(sec, 1, 0) // in the same instant
			c.Free(sec, 1, 0)
			if until, _ := c.Held(sec, 1); until != tt.until {
				t.Errorf("held until %v, want %v", until, tt.until)
			}
			if held && !woken(w) {
				t.Error("the first waiter was not woken")
			}
			if a := c.Enter(sec, 1, w); (a.Verb == Wait) != (tt.until > 0) {
				t.Errorf("%+v", a)
			}
			c.Free(sec, 2, 0) // a scope that is not held
		})
	}
}

// When a success elsewhere ends a hold, its jitter keeps the processes apart. After a 503
// the ramp goes on that the hold has interrupted.
func TestCooldownFreeIsSpread(t *testing.T) {
	var c Cooldown
	c.HoldForFleet(0, 1, TooMany, 10*sec, CooldownConfig{Spread: 2 * sec}, 0.5)
	first, second := NewWaiter(), NewWaiter()
	mustHold(t, &c, 0, 1, first, 10*sec)
	mustHold(t, &c, 0, 1, second, 10*sec)
	c.Free(3*sec, 1, 0)
	if a := c.Enter(3*sec, 1, first); a.Verb != Wait || a.Ask != 4*sec {
		t.Errorf("%+v", a)
	}
	mustPass(t, &c, 4*sec, 1, first)
	if a := c.Enter(4*sec, 1, second); a.Verb != Wait || a.Ask != 4*sec+rampStep {
		t.Errorf("%+v", a)
	}

	c = Cooldown{}
	c.HoldForFleet(0, 1, Unavailable, 10*sec, exact, 0)
	for range 100 {
		mustHold(t, &c, 0, 1, NewWaiter(), 10*sec)
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
	c.HoldForFleet(0, 1, Unavailable, 10*sec, exact, 0)
	first, second := NewWaiter(), NewWaiter()
	mustHold(t, &c, 0, 1, first, 10*sec)
	mustHold(t, &c, 0, 1, second, 10*sec)
	c.Free(sec, 1, 3*sec)
	c.Free(sec, 1, 5*sec)
	c.HoldForFleet(2*sec, 1, Unavailable, 10*sec, exact, 0)
	if !woken(first) {
		t.Error("the first waiter was not woken")
	}
	if a := c.Enter(2*sec, 1, first); a.Verb != Wait || a.Ask != 3*sec || a.Until != 3*sec {
		t.Errorf("%+v", a)
	}
	mustPass(t, &c, 3*sec, 1, first)
	if !woken(second) {
		t.Error("the second waiter was not woken")
	}
	mustPass(t, &c, 3*sec, 1, second)

	c.HoldForFleet(4*sec, 1, Unavailable, 10*sec, exact, 0)
	c.Free(4*sec, 1, 6*sec)
	c.Hold(5*sec, 1, Unavailable, 10*sec, exact, 0)
	if until, _ := c.Held(7*sec, 1); until != 15*sec {
		t.Errorf("held until %v", until)
	}
}

// Holds that the fleet brings never hold a scope of which nothing was said. They make room
// for holds of this process.
func TestCooldownOfALargeFleet(t *testing.T) {
	var c Cooldown
	for key := range uint64(2 * maxScopes) {
		c.HoldForFleet(0, 1000+key, TooMany, 30*sec, exact, 0)
	}
	mustPass(t, &c, sec, 1, nil)
	waiting := NewWaiter()
	mustHold(t, &c, sec, 1000, waiting, 30*sec)
	for key := range uint64(maxScopes - 2) {
		c.Hold(sec, 1+key, TooMany, 30*sec, exact, 0)
		mustHold(t, &c, sec, 1+key, nil, 31*sec)
	}
	if c.shared != nil || len(c.holds) != maxScopes-1 {
		t.Errorf("%d holds, shared: %v", len(c.holds), c.shared != nil)
	}
	mustHold(t, &c, sec, 1000, waiting, 30*sec)
	mustPass(t, &c, sec, 999, nil)
	c.HoldForFleet(sec, 2000, TooMany, 30*sec, exact, 0) // there is no room
	mustPass(t, &c, sec, 2000, nil)
	c.Leave(1000, waiting)
}
