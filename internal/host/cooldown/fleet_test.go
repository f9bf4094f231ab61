package cooldown

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A hold of the fleet holds as a hold of a response to this process does, and is bounded.
func TestCooldownHeldByTheFleet(t *testing.T) {
	var c Cooldown
	c.HoldForFleet(0, 1, 10*sec, exact, 0)
	w := queue.NewWaiter()
	mustHold(t, &c, 5*sec, 1, w, 10*sec)
	assert.Zero(t, c.Named(5*sec, 1), "the server did not say so to this process")
	known := c.Refusals()
	c.HoldForFleet(5*sec, 1, 5*sec, exact, 0)
	assert.Equal(t, known, c.Refusals(), "it is no news")
	mustPass(t, &c, 10*sec, 1, w)

	for _, conf := range []Config{exact, {Max: -1, Jitter: -1}} {
		var c Cooldown
		c.HoldForFleet(0, 1, 24*time.Hour, conf, 0)
		assert.Equal(t, instant.At(min(conf.Longest(), queue.MaxHeard)), c.Held(0, 1))
	}
}

// A hold that only the fleet was told takes three quarters of the time to a deadline, with the ramp
// behind it. As soon as a response to this process says the same, it takes all.
func TestCooldownHeldByTheFleetAndADeadline(t *testing.T) {
	var c Cooldown
	c.HoldForFleet(0, 1, 30*sec, exact, 0)
	dated := func(by instant.Instant) *queue.Waiter {
		w := queue.NewWaiter()
		w.From, w.By = sec, by
		return w
	}
	w, other := dated(21*sec), dated(21*sec)
	a := c.Enter(sec, 1, w)
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: 16 * sec, Until: 16 * sec, Open: 30 * sec}, a)
	c.Enter(sec, 1, other)
	mustPass(t, &c, 16*sec, 1, w)
	c.Hold(17*sec, 1, 13*sec, exact, 0) // it is refused
	mustHold(t, &c, 17*sec, 1, other, 30*sec)

	c = Cooldown{}
	c.HoldForFleet(0, 1, 3*sec, exact, 0)
	c.Enter(sec, 1, queue.NewWaiter())
	w = dated(5 * sec)
	mustHold(t, &c, 3*sec, 1, w, 3*sec)
	assert.EqualValues(t, 4*sec, c.Enter(3*sec, 1, w).Ask, "the ramp")
	mustPass(t, &c, 4*sec, 1, w)
}

// A fleet never takes the place of a hold that a response to this process asked for.
func TestCooldownOfTheFleetMakesNoRoom(t *testing.T) {
	var c Cooldown
	for i := range uint64(queue.MaxScopes) {
		c.Hold(0, i, time.Hour, Config{Max: -1, Jitter: -1}, 0)
	}
	c.HoldForFleet(sec, 1000, 30*sec, exact, 0)
	assert.Zero(t, c.Held(sec, 1000))
	assert.NotZero(t, c.Held(sec, 0))
}

// The members of a fleet come back 20 ms apart.
func TestCooldownForMember(t *testing.T) {
	for _, tt := range []struct {
		conf    Config
		members int
		wait    time.Duration
		jitter  time.Duration
	}{
		{Config{}, 1, 10 * sec, 0},
		{Config{}, 20, 10 * sec, sec},
		{Config{}, 100, 10 * sec, 2 * sec},
		{Config{}, 1000, 10 * sec, 10 * sec},
		{Config{Max: 5 * sec}, 1000, 10 * sec, 5 * sec},
		{Config{}, 2, ms, ms},
		{exact, 100, 10 * sec, -1},
	} {
		assert.Equal(t, tt.jitter, tt.conf.ForMember(tt.members, tt.wait).Jitter, "%+v", tt)
	}
}
