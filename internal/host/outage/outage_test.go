package outage

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/soak"
)

const ms, sec = time.Millisecond, time.Second

var at = instant.At

func TestFigures(t *testing.T) {
	assert.Equal(t, []any{10, sec, 5 * sec, 4}, []any{Row, leastTime, LongestGap, quarters})
}

// A host is down after ten failures in a row, if they last for a second or if the server asks for so long a wait.
func TestDown(t *testing.T) {
	type failure struct {
		at, took, wait time.Duration
		n              int
	}
	for name, row := range map[string]struct {
		failures []failure
		success  int // after so many; 0: none
		down     bool
	}{
		"none":                                {},
		"ten over a second":                   {failures: []failure{{n: 9}, {at: sec, n: 1}}, down: true},
		"ten over less":                       {failures: []failure{{n: 9}, {at: sec - 1, n: 1}}},
		"nine":                                {failures: []failure{{n: 8}, {at: time.Hour, n: 1}}},
		"the eleventh comes a second later":   {failures: []failure{{n: 10}, {at: sec, n: 1}}, down: true},
		"ten at once that took a second":      {failures: []failure{{at: sec, took: sec, n: 10}}, down: true},
		"the first alone began so early":      {failures: []failure{{at: sec, took: sec, n: 1}, {at: sec, n: 9}}, down: true},
		"another began so early":              {failures: []failure{{at: sec, n: 1}, {at: sec, took: sec, n: 9}}},
		"a connection breaks":                 {failures: []failure{{at: sec, took: 50 * ms, n: 1000}}},
		"ten at once are told to wait":        {failures: []failure{{n: 10, wait: sec}}, down: true},
		"told to wait for less":               {failures: []failure{{n: 10, wait: sec - 1}}},
		"the wait counts from the first":      {failures: []failure{{n: 9}, {at: sec / 2, n: 1, wait: sec / 2}}, down: true},
		"a success between them":              {failures: []failure{{n: 9}, {at: sec, n: 1}, {at: 2 * sec, n: 8}}, success: 9},
		"a success, and ten more over a time": {failures: []failure{{n: 9}, {at: sec, n: 1}, {at: 2 * sec, n: 9}}, success: 9, down: true},
	} {
		var o Outage
		n, begins := 0, 0
		for _, f := range row.failures {
			for range f.n {
				if o.Failed(at(f.at), at(f.at-f.took), f.wait) {
					begins++
				}
				if n++; n == row.success {
					assert.False(t, o.Succeeded(at(f.at)), "%s: it was not down", name)
				}
			}
		}
		assert.Equal(t, row.down, o.Down, name)
		assert.Equal(t, row.down, begins == 1, "%s: begins once", name)
	}
}

// The first success ends an outage, once. The failures count anew.
func TestSucceeded(t *testing.T) {
	o := down(t, 0)
	assert.Equal(t, []any{at(0), 10}, []any{o.Since, o.Failures})
	o.Failed(at(3*sec), at(2*sec), 0)
	assert.Equal(t, []any{at(0), 11}, []any{o.Since, o.Failures}, "since the first")
	assert.Zero(t, o.Ended)
	assert.True(t, o.Succeeded(at(5*sec)))
	assert.False(t, o.Down)
	assert.Equal(t, at(5*sec), o.Ended)
	assert.False(t, o.Succeeded(at(6*sec)))
	assert.Equal(t, at(5*sec), o.Ended, "the host was not down")
	o.Failed(at(9*sec), at(8*sec), 0)
	assert.Equal(t, []any{at(8 * sec), 1}, []any{o.Since, o.Failures})
	assert.False(t, o.Down)
}

// down returns an outage whose tenth failure is a second after a time.
func down(t *testing.T, since time.Duration) *Outage {
	t.Helper()
	var o Outage
	for range 9 {
		o.Failed(at(since), at(since), 0)
	}
	o.Failed(at(since+sec), at(since+sec), 0)
	require.True(t, o.Down)
	return &o
}

// The gaps between probes begin with a second and double up to five. They count from the last probe and from the last failure
// of another attempt. They are a quarter of the patience at most, and after the first probe a second at least.
func TestProbes(t *testing.T) {
	const hour = time.Hour
	o := down(t, 0)
	now := at(sec)
	for _, gap := range []time.Duration{1, 2, 4, 5, 5, 5} {
		want := now.Add(gap * sec)
		assert.Equal(t, want, o.NextProbe(hour, 1))
		assert.Equal(t, want, o.NextProbe(instant.Forever, 1), "nothing bounds it")
		if gap == 1 {
			assert.Equal(t, now.Add(ms), o.NextProbe(4*ms, 1))
		} else {
			assert.Equal(t, now.Add(sec), o.NextProbe(4*ms, 1))
			assert.Equal(t, now.Add(min(gap*sec, 3*sec)), o.NextProbe(12*sec, 1))
		}
		now = want
		o.Probe(now)
	}
	o.Failed(now.Add(3*sec), now, 0)
	assert.Equal(t, now.Add(8*sec), o.NextProbe(hour, 1), "an attempt has failed, so nobody has to find out soon")
	o.Failed(now.Add(2*sec), now, 0)
	assert.Equal(t, now.Add(8*sec), o.NextProbe(hour, 1), "concurrent attempts bring their times out of order")

	o.Succeeded(now)
	now = now.Add(9 * sec)
	for range 9 {
		o.Failed(now, now, 0)
	}
	o.Failed(now.Add(sec), now, 0)
	assert.Equal(t, now.Add(2*sec), o.NextProbe(hour, 1), "the next outage begins with a second again")
}

// The first who waits sees a probe in the first quarter of its time, however short its schedule and however large the fleet.
func TestFirstProbe(t *testing.T) {
	for _, patience := range []time.Duration{ms, sec, 4 * sec, 20 * sec, time.Minute} {
		for _, members := range []int{1, 100} {
			o := down(t, 0)
			o.Hear(at(0), at(sec), sec)
			assert.LessOrEqual(t, o.NextProbe(patience, members).Sub(at(sec)), patience/4, "%v, %d members", patience, members)
		}
	}
}

// A fleet says that the host is down, since when, and when the next probe goes. Its members share the probes.
func TestFleet(t *testing.T) {
	o := down(t, 0)
	o.Hear(at(-9*sec), at(2*sec), sec)
	assert.Equal(t, at(11*sec+sec), o.NextProbe(time.Hour, 10), "ten times the gap")
	assert.Equal(t, at(22*sec), o.NextProbe(time.Hour, 1000), "20 s at most")
	assert.Equal(t, []any{at(0), 10}, []any{o.Since, o.Failures}, "its own failures")

	var idle Outage
	idle.Hear(at(sec), at(2*sec), 0)
	assert.True(t, idle.Down)
	assert.Equal(t, []any{at(sec), 0}, []any{idle.Since, idle.Failures}, "that of the fleet")
	assert.Equal(t, at(2*sec), idle.NextProbe(time.Hour, 10))
	idle.Probe(at(2 * sec))
	assert.Equal(t, at(12*sec), idle.NextProbe(time.Hour, 10))
	assert.True(t, idle.Succeeded(at(12*sec)))

	var some Outage
	some.Failed(at(sec), at(0), 0)
	some.Hear(at(sec), at(2*sec), sec)
	assert.True(t, some.Down)
	assert.Equal(t, at(0), some.Since, "its own failure")
	some.Probe(at(5 * sec))
	assert.Equal(t, at(7*sec), some.NextProbe(time.Hour, 1))
}

// A probe is never due before the last attempt has failed or began, and never later than the longest gap of all members after
// that, whatever happens in which order.
func TestNextProbeIsBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range soak.Size(200, 5000) {
		var o Outage
		var now, last instant.Instant
		for range 100 {
			now = now.Add(time.Duration(rng.IntN(1000)) * ms)
			switch rng.IntN(12) {
			case 0:
				o.Succeeded(now)
			case 1:
				o.Hear(now.Add(-sec), now, leastTime)
				last = max(last, now)
			case 2:
				o.Hear(now, now, 0)
				last = max(last, now)
			case 3:
				o.Probe(now)
				last = max(last, now)
			default:
				o.Failed(now, now.Add(-sec), 0)
				last = max(last, now)
			}
			members := 1 + rng.IntN(100)
			patience := time.Duration(rng.Int64N(math.MaxInt64 >> rng.IntN(60)))
			if next := o.NextProbe(patience, members); o.Down {
				require.GreaterOrEqual(t, next, o.last)
				require.LessOrEqual(t, next.Sub(last), LongestGap*time.Duration(members))
				require.LessOrEqual(t, o.gap, LongestGap)
			}
		}
	}
}
