package cooldown

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
var exact = Config{Jitter: -1}

func mustPass(t *testing.T, c *Cooldown, now instant.Instant, key uint64, w *queue.Waiter) {
	t.Helper()
	require.Equal(t, queue.Go, c.Enter(now, key, w).Verb, "at %v", now)
}

func mustHold(t *testing.T, c *Cooldown, now instant.Instant, key uint64, w *queue.Waiter, until instant.Instant) {
	t.Helper()
	if a := c.Enter(now, key, w); a.Verb != queue.Wait || a.Until != until {
		t.Fatalf("at %v: %+v, want queue.Wait until %v", now, a, until)
	}
}

func heldUntil(c *Cooldown, now instant.Instant, key uint64) instant.Instant {
	until, _ := c.Held(now, key)
	return until
}

func TestCooldownHoldsAScope(t *testing.T) {
	var c Cooldown
	assert.True(t, c.Quiet(), "new and not quiet")
	mustPass(t, &c, 0, 1, nil)
	if got, _ := c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, exact, 0); got != sec {
		t.Errorf("held until %v", got)
	}
	assert.False(t, c.Quiet(), "quiet with a hold")
	mustHold(t, &c, 1, 1, nil, sec)
	mustHold(t, &c, sec-1, 1, nil, sec)
	mustPass(t, &c, sec-1, 2, nil) // another scope
	mustPass(t, &c, sec, 1, nil)
	if until, refused := c.Held(sec/2, 1); until != sec || refused {
		t.Errorf("held until %v, refused %v", until, refused)
	}
	assert.Zero(t, heldUntil(&c, sec, 1))
	if n, until := c.Holds(0); n != 1 || until != sec {
		t.Errorf("%d holds until %v", n, until)
	}
	// The ramp ends after 10 s, and then nothing is known of the scope.
	mustPass(t, &c, 11*sec, 3, nil)
	assert.True(t, c.Quiet(), "not quiet after the ramp")
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
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: time.Hour}, Config{Max: -1, Jitter: -1}, 0)
		}, time.Hour},
		{"no overflow", func(c *Cooldown) {
			c.Hold(sec, 1, Refusal{Code: TooMany, Wait: instant.Forever}, Config{Max: -1, Jitter: -1}, 0)
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
			c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, Config{Jitter: 10 * sec}, 0.5)
		}, 6 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Cooldown
			tt.hold(&c)
			assert.Equal(t, instant.At(tt.want), heldUntil(&c, 0, 1))
		})
	}
}

func TestCooldownRefuses(t *testing.T) {
	conf := Config{Max: time.Minute, Stop: true, Jitter: -1}
	const year = 365 * 24 * time.Hour
	var c Cooldown
	w, v := queue.NewWaiter(), queue.NewWaiter()
	c.Hold(0, 1, Refusal{Code: TooMany, Wait: sec}, conf, 0)
	mustHold(t, &c, 0, 1, w, sec)
	mustHold(t, &c, 0, 1, v, sec)

	c.Hold(ms, 1, Refusal{Code: TooMany, Wait: year}, conf, 0)
	for _, x := range []*queue.Waiter{w, v} { // both hear of the refusal at once, one after the other
		require.True(t, hosttest.Woken(x), "not woken")
		if a := c.Enter(ms, 1, x); a.Verb != queue.Refuse || a.Until != instant.At(ms+year) {
			t.Fatalf("%+v", a)
		}
	}
	if until, refused := c.Held(sec, 1); !refused || until != instant.At(ms+year) {
		t.Errorf("%v, %v", until, refused)
	}
	assert.Equal(t, queue.Refuse, c.Enter(instant.At(time.Minute), 1, w).Verb)
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
			assert.Equal(t, instant.At(tt.want), heldUntil(&c, 2*sec, 1))
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
		assert.EqualValues(t, 5*sec, heldUntil(&c, 2*sec, 1))
	})
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
		mustHold(t, &c, 500*ms, 1, w, 5*sec)
		assert.True(t, w.By != 0 && w.By <= 5*sec, "waiter %d was woken", w.ID)
		c.Leave(1, w)
		left = append(left, w.ID)
	}
	assert.Equal(t, []int{19, 15, 11}, left, "gave up")
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
		c.Hold(0, i, hour, Config{Max: -1, Jitter: -1}, 0)
	}
	w := queue.NewWaiter()
	mustHold(t, &c, 0, 3, w, instant.At(time.Hour))
	for i := range soak.Size[uint64](8*queue.MaxScopes, 20_000) {
		now := time.Duration(i) * ms
		c.Hold(instant.At(now), 100+i, Refusal{Wait: 50 * ms}, exact, 0)
		require.LessOrEqual(t, len(c.holds), queue.MaxScopes, "scopes")
	}
	for i := range uint64(10) {
		assert.Equal(t, instant.At(time.Hour), heldUntil(&c, 20*sec, i), "scope %d", i)
	}
	// All holds are running.
	for i := range uint64(queue.MaxScopes + 20) {
		c.Hold(200*sec, 1_000_000+i, Refusal{Wait: 2*time.Hour + time.Duration(i)}, Config{Max: -1, Jitter: -1}, 0)
	}
	for key, want := range map[uint64]time.Duration{3: time.Hour, 4: 0, 77: 0, 1_000_020: 0, 1_000_021: 2*time.Hour + 200*sec + 21} {
		assert.Equal(t, instant.At(want), heldUntil(&c, 200*sec, key), "scope %d", key)
	}
	if n, _ := c.Holds(200 * sec); n != queue.MaxScopes || hosttest.Woken(w) {
		t.Errorf("%d scopes", n)
	}
	c.Leave(3, w)
	// When all holds are over, nothing is kept.
	c.Enter(instant.At(4*time.Hour), 5, nil)
	assert.True(t, c.Quiet() && c.holds == nil, "%d scopes at the end", len(c.holds))

	// If somebody waits for each of them, a further scope is not held, and nor is any other.
	for i := range uint64(queue.MaxScopes) {
		c.Hold(instant.At(5*time.Hour), i, hour, Config{Max: -1}, 0)
		c.Enter(instant.At(5*time.Hour), i, queue.NewWaiter())
	}
	c.Hold(instant.At(5*time.Hour), 1000, hour, Config{Max: -1}, 0)
	mustPass(t, &c, instant.At(5*time.Hour), 1000, nil)
	mustPass(t, &c, instant.At(5*time.Hour), 1001, nil)
}
