package cooldown

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

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
		"the success was sent after the refused request":    {100, []time.Duration{now - 50*ms}, now - 40*ms, true},
		"the success was sent before the refused request":   {100, []time.Duration{now - 50*ms}, now - 60*ms, false},
		"both were sent at the same time":                   {100, []time.Duration{now - 50*ms}, now - 50*ms, false},
		"it is not known when the success was sent":         {100, []time.Duration{now - 50*ms}, 0, false},
		"the success was sent between two refusals":         {100, []time.Duration{now - 50*ms, now - 30*ms}, now - 40*ms, false},
		"the two refusals arrive in another order":          {100, []time.Duration{now - 30*ms, now - 50*ms}, now - 40*ms, false},
		"the success was sent after two refusals":           {100, []time.Duration{now - 30*ms, now - 50*ms}, now - 20*ms, true},
		"it is not known when the refused request was sent": {100, []time.Duration{0}, now - 20*ms, false},
		"three successes came before the refusal":           {3, []time.Duration{now - 50*ms}, now - 40*ms, true},
		"two successes came before the refusal":             {2, []time.Duration{now - 50*ms}, now - 40*ms, false},
		"no success came before the refusal":                {0, []time.Duration{now - 50*ms}, now - 40*ms, false},
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
	assert.True(t, goes(&c, instant.At(testimony), queue.NewWaiter()), "1000 successes: no probe")
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
	assert.True(t, !goes(c, now, first) && !goes(c, now, second) && !goes(c, now+30*ms, nil), "a probe before the round trip, or a hedge")
	if a := c.Enter(now, 1, first); a.Ask != now+30*ms || a.Until != 0 {
		t.Errorf("%+v", a)
	}
	if until, refused := c.Held(now, 1); until != 110*sec || refused || c.Named(now, 1) != 0 || !c.HeldSince(now, 1, 0) {
		t.Errorf("held until %v, refused %v", until, refused)
	}
	assert.True(t, goes(c, now+30*ms, first) && !goes(c, now+30*ms, second), "a single probe after the round trip")
	assert.False(t, c.HeldSince(now+31*ms, 1, c.Refusals()), "the probe is called back")
	refuse(c, now+60*ms, now+30*ms)
	assert.True(t, hosttest.Woken(second) && goes(c, now+60*ms, second), "no second probe after the first was refused")
	third := queue.NewWaiter()
	mustHold(t, c, now+70*ms, 1, third, 0)
	refuse(c, now+90*ms, now+60*ms)
	for range maxDoubt {
		c.Answered(now+100*ms, 1, now-sec, true) // of requests that were sent before
	}
	mustHold(t, c, now+200*ms, 1, third, 110*sec)
	mustHold(t, c, now+9*sec, 1, third, 110*sec)
	assert.EqualValues(t, 110*sec, c.Named(now+100*ms, 1), "named")

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
	conf := Config{Stop: true, Jitter: -1}
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
