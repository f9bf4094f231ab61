package cooldown

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A hold of the fleet holds as a hold of a response to this process does. A process with
// successes of its own sends a single probe. If the probe succeeds, the process does not
// believe the fleet for 10 s, and for longer if it succeeds again.
func TestCooldownHeldByTheFleet(t *testing.T) {
	const now = 100 * sec
	told := Refusal{Wait: 10 * sec}
	conf := Config{Jitter: -1, Members: 2, Probes: 200 * ms}
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
		assert.True(t, c.Answered(now+230*ms, 1, now+200*ms, true)[TooMany], "the success of the probe does not end the hold")
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

	// The probe of another process is refused, even if it names no later end. So this process
	// waits with its probe for four times as long as the hold has lasted. A hold that is told
	// twice says nothing of a probe.
	again := sure(now)
	again.HoldForFleet(now, 1, told, conf, 0)
	w := queue.NewWaiter()
	mustHold(t, again, now+50*ms, 1, w, 0)
	again.HoldForFleet(instant.At(now+50*ms+testimony), 1, Refusal{Wait: 10*sec - 40*ms - testimony}, conf, 0) // the same hold is told again
	again.HoldForFleet(instant.At(now+60*ms+testimony), 1, Refusal{Wait: 9 * sec, Again: true}, conf, 0)
	assert.EqualValues(t, now+5*160*ms, again.Enter(now+160*ms, 1, w).Ask)

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
		assert.Equal(t, queue.Wait, both.Enter(instant.At(now+9*sec+probeWait), 1, nil).Verb)
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
		require.Zero(t, heldUntil(quiet, instant.At(at+sec), 1), "run %d", i)
	}
	at := instant.At(now + 381*sec)
	quiet.Hold(at, 1, Refusal{Wait: sec, Sent: at - ms}, exact, 0)
	quiet.HoldForFleet(at, 1, told, exact, 0)
	assert.Equal(t, at+10*sec, heldUntil(quiet, at, 1))
}

// A hold that only the fleet was told has bounds, and refuses no request. A request whose
// deadline lies before its end goes after half of its time.
func TestCooldownHearsay(t *testing.T) {
	var c Cooldown
	c.HoldForFleet(0, 1, Refusal{}, exact, 0)
	c.HoldForFleet(0, 1, Refusal{Wait: -sec}, exact, 0)
	assert.True(t, c.Quiet(), "held for no time")
	for conf, want := range map[Config]time.Duration{
		{Jitter: -1, Max: 3 * sec, Stop: true}: 3 * sec,
		{Jitter: -1, Stop: true}:               time.Minute,
		{Jitter: -1, Max: -1, Stop: true}:      queue.MaxHeard,
	} {
		var c Cooldown
		c.HoldForFleet(0, 1, Refusal{Wait: instant.Forever}, conf, 0)
		if until, refused := c.Held(0, 1); until != instant.At(want) || refused {
			t.Errorf("%+v: held until %v, refused %v", conf, until, refused)
		}
		assert.Zero(t, c.Named(0, 1), "named")
		w, patient := queue.NewWaiter(), queue.NewWaiter()
		mustHold(t, &c, sec, 1, patient, instant.At(want))
		w.From, w.By = sec, instant.At(want) // just too early
		if a := c.Enter(sec, 1, w); a.Verb != queue.Wait || a.Ask != instant.At(sec+(want-sec)/2) || a.Until != a.Ask {
			t.Errorf("%+v", a)
		}
		mustPass(t, &c, instant.At(sec+(want-sec)/2), 1, w)
		w.By = instant.At(sec + (want-sec)*4/3 - 2) // there would be too little time after the hold
		assert.Less(t, c.Enter(sec, 1, w).Ask, instant.At(want))
		w.By = instant.At(sec + (want-sec)*4/3 + 2)
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
	assert.GreaterOrEqual(t, c.Enter(sec, 1, w).Until, w.By, "the hold of this process lasts longer")
}

// A hold that only the fleet was told takes three quarters of a request's time at most, with
// the ramp behind it. Otherwise a request at the end of a long queue would fail because of it.
func TestCooldownHearsayAndTheRamp(t *testing.T) {
	const begin, deadline = instant.Instant(time.Hour), 10 * sec
	own := func(c *Cooldown) { c.Hold(begin, 1, Refusal{Wait: 5 * sec}, exact, 0) }
	heard := func(c *Cooldown) { c.HoldForFleet(begin, 1, Refusal{Wait: 5 * sec}, exact, 0) }
	for name, tt := range map[string]struct {
		hold   func(*Cooldown)
		then   func(*Cooldown) // 1 s later
		passed int             // after three quarters, without any response
	}{
		"heard":                {heard, func(*Cooldown) {}, 100},
		"heard and freed":      {heard, func(c *Cooldown) { c.Free(begin.Add(sec), 1, begin.Add(5*sec)) }, 100},
		"heard and longer":     {heard, func(c *Cooldown) { c.HoldForFleet(begin.Add(sec), 1, Refusal{Wait: 5 * sec}, exact, 0) }, 100},
		"heard and disproved":  {heard, func(c *Cooldown) { c.Answered(begin.Add(sec), 1, begin.Add(ms), true) }, 100},
		"told":                 {own, func(*Cooldown) {}, 26},
		"heard and then told":  {heard, func(c *Cooldown) { c.Hold(begin.Add(sec), 1, Refusal{Wait: 4 * sec}, exact, 0) }, 26},
		"told, and heard less": {own, func(c *Cooldown) { c.HoldForFleet(begin.Add(sec), 1, Refusal{Wait: sec}, exact, 0) }, 26},
	} {
		t.Run(name, func(t *testing.T) {
			var c Cooldown
			tt.hold(&c)
			if name == "heard and disproved" {
				for range minDoubt {
					c.Answered(begin, 1, 0, true)
				}
			}
			ws, woken := make([]*queue.Waiter, 100), map[int]bool{}
			passed := 0
			ask := func(now instant.Instant, i int) {
				switch a := c.Enter(now, 1, ws[i]); {
				case a.Verb == queue.Go:
					ws[i] = nil
					passed++
				case a.Until >= ws[i].By:
					t.Fatalf("at %v waiter %d gives up: %+v", now-begin, i, a)
				}
			}
			for i := range ws {
				ws[i] = &queue.Waiter{ID: i, From: begin, By: begin.Add(deadline), Woken: func(w *queue.Waiter) { woken[w.ID] = true }}
				ask(begin, i)
			}
			for now := begin; now <= begin.Add(deadline*3/4); now += 10 * ms {
				if now == begin.Add(sec) {
					tt.then(&c)
				}
				for again := true; again; {
					again = false
					for i, w := range ws {
						if w != nil && (woken[i] || w.Told <= now) {
							delete(woken, i)
							before := passed
							ask(now, i)
							again = again || passed > before
						}
					}
				}
			}
			assert.Equal(t, tt.passed, passed, "went within three quarters of their time")
		})
	}
}

// If the next turn of the ramp is behind the deadline of a request, the request goes before
// it, and is not refused.
func TestCooldownHearsayAndALateTurn(t *testing.T) {
	var c Cooldown
	c.HoldForFleet(sec, 1, Refusal{Wait: 4 * sec}, exact, 0)
	first, second := queue.NewWaiter(), queue.NewWaiter()
	second.From, second.By = 5*sec-20*ms, 5*sec+60*ms
	mustHold(t, &c, second.From, 1, first, 5*sec)
	mustHold(t, &c, second.From, 1, second, 5*sec)
	mustPass(t, &c, 5*sec, 1, first)
	if a := c.Enter(5*sec, 1, second); a.Until != 5*sec+40*ms || a.Ask != a.Until {
		t.Errorf("%+v", a)
	}
	mustPass(t, &c, 5*sec+40*ms, 1, second)
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
		"nothing":                             {nil, 0},
		"a 503":                               {[]func(*Cooldown){own(Unavailable, 9*sec)}, 0},
		"a 503 of the fleet":                  {[]func(*Cooldown){fleet(Unavailable, 9*sec)}, 0},
		"a 429":                               {[]func(*Cooldown){own(TooMany, 9*sec)}, 10 * sec},
		"a 429 of the fleet":                  {[]func(*Cooldown){fleet(TooMany, 9*sec)}, 0},
		"a 429 and a longer 503":              {[]func(*Cooldown){own(TooMany, 5*sec), own(Unavailable, 9*sec)}, 6 * sec},
		"a 429 and a longer 503 of the fleet": {[]func(*Cooldown){fleet(TooMany, 5*sec), fleet(Unavailable, 9*sec)}, 0},
		"a 429, and a longer of the fleet":    {[]func(*Cooldown){own(TooMany, 5*sec), fleet(TooMany, 9*sec)}, 6 * sec},
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
			assert.Equal(t, tt.until, heldUntil(&c, sec, 1))
			assert.False(t, held && !hosttest.Woken(w), "the first waiter was not woken")
			assert.Equal(t, queue.Go, c.Enter(sec, 1, w).Verb)
			if a := c.Enter(sec, 1, nil); a.Verb == queue.Go && tt.until > 0 {
				t.Errorf("%+v", a)
			}
			c.Free(sec, 2, 0) // a scope that is not held
		})
	}
}

// When a success elsewhere ends a hold, the waiters come back in a ramp. After a
// 503 the ramp goes on that the hold has interrupted.
func TestCooldownFreeIsSpread(t *testing.T) {
	var c Cooldown
	c.HoldForFleet(0, 1, Refusal{Code: TooMany, Wait: 10 * sec}, Config{Jitter: 2 * sec}, 0.5)
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
	assert.True(t, hosttest.Woken(first), "the first waiter was not woken")
	if a := c.Enter(2*sec, 1, first); a.Verb != queue.Wait || a.Ask != 3*sec || a.Until != 3*sec {
		t.Errorf("%+v", a)
	}
	mustPass(t, &c, 3*sec, 1, first)
	assert.True(t, hosttest.Woken(second), "the second waiter was not woken")
	mustPass(t, &c, 3*sec, 1, second)

	c.HoldForFleet(4*sec, 1, Refusal{Code: Unavailable, Wait: 10 * sec}, exact, 0)
	c.Free(4*sec, 1, 6*sec)
	c.Hold(5*sec, 1, Refusal{Code: Unavailable, Wait: 10 * sec}, exact, 0)
	assert.EqualValues(t, 15*sec, heldUntil(&c, 7*sec, 1))
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
	assert.LessOrEqual(t, len(c.holds), queue.MaxScopes, "holds")
	mustHold(t, &c, sec, 1000, waiting, 30*sec)
	mustPass(t, &c, sec, 999, nil)
	c.HoldForFleet(sec, 2000, Refusal{Code: TooMany, Wait: 30 * sec}, exact, 0) // there is no room
	mustPass(t, &c, sec, 2000, nil)
	c.Leave(1000, waiting)
}

// A size of the fleet that is not true holds nobody for hours.
func TestJitterOfManyMembers(t *testing.T) {
	var c Cooldown
	conf := Config{Max: 10 * time.Second}.ForMember(1<<20, 6*time.Hour)
	c.HoldForFleet(0, 1, Refusal{Code: Unavailable, Wait: 6 * time.Hour}, conf, 0.999)
	if until, _ := c.Held(0, 1); until <= instant.At(10*time.Second) || until > instant.At(20*time.Second) {
		t.Errorf("the hold lasts until %v", until)
	}
}
