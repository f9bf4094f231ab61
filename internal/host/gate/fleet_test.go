package gate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

var inFleet = Config{Fleet: true}

// member is a request at a gate that belongs to a fleet.
func member(t *testing.T, g *Gate) *visitor {
	v := visit(t, g)
	v.conf = inFleet
	return v
}

// closedInFleet returns a gate that failed wholesale and closed at that time.
func closedInFleet(t *testing.T, at instant.Instant) *Gate {
	t.Helper()
	g := new(Gate)
	g.configure(0, inFleet)
	var slots [10]Slot
	for i := range slots {
		require.Equal(t, queue.Go, g.Enter(at-2*sec, &slots[i], nil, inFleet).Verb)
	}
	for i := range slots {
		g.End(at, &slots[i], Lost)
	}
	require.True(t, g.State().Closed, "not closed")
	g.News()
	return g
}

// mustAsk lets the owner ask for a permit.
func mustAsk(t *testing.T, g *Gate, now instant.Instant) {
	t.Helper()
	require.True(t, g.AskPermit(now), "at %v: asks for no permit", now)
	require.False(t, g.AskPermit(now), "at %v: asks for two permits", now)
}

func mustNotAsk(t *testing.T, g *Gate, now instant.Instant) {
	t.Helper()
	require.False(t, g.AskPermit(now), "at %v: asks for a permit", now)
}

func wantNews(t *testing.T, g *Gate, want News) {
	t.Helper()
	require.Equal(t, want, g.News(), "news")
	require.Equal(t, News{}, g.News(), "news for the second time")
}

const (
	cutAt   = 10 * sec
	askAt   = instant.Instant(cutAt + probeGap - permitTime)
	probeAt = instant.Instant(cutAt + probeGap)
)

// Down closes the gates that had no success, or none that was sent later by a moment.
func TestGateDown(t *testing.T) {
	for name, tt := range map[string]struct {
		success instant.Instant // 0: there was none
		since   instant.Instant
		works   bool
	}{
		"no success":                    {0, 5 * sec, false},
		"no success, before the epoch":  {0, -5 * sec, false},
		"no success, an absurd time":    {0, math.MinInt64, false},
		"a success before":              {4 * sec, 5 * sec, false},
		"a success at the same time":    {5 * sec, 5 * sec, false},
		"a success a moment later":      {5*sec + 100*ms, 5 * sec, false},
		"a success later":               {5*sec + 100*ms + 1, 5 * sec, true},
		"a success, before the epoch":   {ms, -sec, true},
		"a success, and a time to come": {9 * sec, 11 * sec, false},
	} {
		t.Run(name, func(t *testing.T) {
			var g Gate
			if tt.success > 0 {
				v := member(t, &g)
				v.mustGo(tt.success)
				v.end(tt.success, Success)
			}
			waiting := visit(t, &g)
			assert.Equal(t, tt.works, g.Down(10*sec, tt.since), "works")
			if got := g.State().Closed; got == tt.works {
				t.Errorf("closed %v", got)
			}
			if tt.works {
				waiting.mustGo(10 * sec)
			}
		})
	}
}

// A second Down neither cuts the limit again nor puts the next probe off.
func TestGateDownTwice(t *testing.T) {
	var g Gate
	fill(t, &g, 0, 1)[0].end(0, Neutral)
	g.growth.limit = 40
	g.Down(cutAt, 9*sec)
	first := member(t, &g)
	first.mustWait(cutAt, askAt)
	for now := instant.At(cutAt); now < probeAt; now += 50 * ms {
		g.Down(now, 9*sec)
	}
	first.woken()
	assert.Equal(t, 20, g.growth.threshold, "threshold")
	first.mustWait(askAt, probeAt)
	mustAsk(t, &g, askAt)
	first.mustGo(probeAt)
}

// Down wakes the first waiter, which did not know that it may become a probe.
func TestGateDownWakes(t *testing.T) {
	var g Gate
	fill(t, &g, 0, 10)
	first, second := member(t, &g), member(t, &g)
	first.mustWait(0, instant.Never)
	second.mustWait(0, instant.Never)
	g.Down(cutAt, 9*sec)
	assert.True(t, first.woken() && !second.woken(), "the first waiter was not woken, or not alone")
}

// Up opens a closed gate at a time, with a limit of 1. There is no probe until then.
func TestGateUp(t *testing.T) {
	const spread = 3 * sec
	g := closedInFleet(t, cutAt)
	first, second := member(t, g), member(t, g)
	first.enter(askAt)
	second.enter(askAt)
	mustAsk(t, g, askAt)
	g.Up(askAt, askAt+spread)
	assert.True(t, first.woken() && !second.woken(), "the first waiter was not woken, or not alone")
	if a := first.enter(askAt); a.Ask != askAt+spread || a.Until != askAt+spread {
		t.Errorf("%+v", a)
	}
	first.mustWait(askAt+spread-1, askAt+spread)
	mustNotAsk(t, g, askAt+spread-1)
	assert.False(t, g.Permit(askAt, true, 0), "a permit is kept until the return")
	g.Up(askAt+sec, askAt+2*spread) // does not put it off
	first.mustGo(askAt + spread)
	if s := g.State(); s.Closed || s.Limit != 1 || s.InFlight != 1 {
		t.Errorf("%+v", s)
	}
	assert.Equal(t, queue.Wait, second.enter(askAt+spread).Verb, "two at once")
}

func TestGateUpAtAnyTime(t *testing.T) {
	for name, tt := range map[string]struct{ at, opens instant.Instant }{
		"in the past": {-sec, cutAt}, "now": {cutAt, cutAt}, "soon": {cutAt + sec, cutAt + sec},
		"never": {instant.Never, instant.At(cutAt + latestReturn)}, "absurd": {math.MinInt64, cutAt},
	} {
		g := closedInFleet(t, cutAt)
		g.Up(cutAt, tt.at)
		v := member(t, g)
		if tt.opens > cutAt {
			v.mustWait(cutAt, tt.opens)
		}
		if v.mustGo(tt.opens); g.State().Closed {
			t.Errorf("%s: closed", name)
		}
	}
	var g Gate // an open gate stays as it is
	g.Up(0, instant.At(time.Hour))
	member(t, &g).mustGo(0)
	wantLimit(t, &g, 10)
}

// A Down after Up closes the gate again, and a probe that hangs does not fill the limit of
// a gate that Up has opened.
func TestGateUpAndDown(t *testing.T) {
	g := closedInFleet(t, cutAt)
	v := member(t, g)
	v.enter(askAt)
	mustAsk(t, g, askAt)
	v.mustGo(probeAt) // and hangs
	g.Up(probeAt, probeAt+sec)
	g.Down(probeAt+ms, 9*sec)
	next := member(t, g)
	next.mustWait(probeAt+sec, probeAt.Add(probeTime))
	g.Up(probeAt+sec, probeAt+2*sec)
	assert.True(t, next.woken(), "not woken")
	next.mustWait(probeAt+sec, probeAt+2*sec)
	next.mustGo(probeAt + 2*sec)
}

// A gate that others closed opens when a request that was sent after the host went down
// succeeds. A request from before may be a response from the pile of a frozen host.
func TestGateContradicts(t *testing.T) {
	for _, tt := range []struct {
		sent  instant.Instant
		opens bool
		byOwn bool
	}{
		{sent: 8 * sec, opens: false},
		{sent: 9*sec + 100*ms, opens: false}, // the host may have failed a little later
		{sent: 9*sec + 300*ms, opens: true},
		{sent: 9*sec + 300*ms, byOwn: true, opens: false},
	} {
		var g Gate
		g.configure(0, inFleet)
		v := member(t, &g)
		v.mustGo(tt.sent)
		if tt.byOwn {
			g.close(cutAt)
		}
		g.Down(cutAt, 9*sec)
		v.end(cutAt+ms, Success)
		if g.State().Closed == tt.opens {
			t.Errorf("%+v: closed %v", tt, g.State().Closed)
		}
		wantNews(t, &g, News{Working: tt.opens})
	}
}

// Failures are reported when there was no success for a second, a few times per second.
// The next success is reported once.
func TestGateReports(t *testing.T) {
	var g Gate
	ends := func(now instant.Instant, r Result) bool {
		v := member(t, &g)
		v.mustGo(now)
		return g.End(now, &v.slot, r)
	}
	assert.True(t, !ends(sec, Success) && !ends(1900*ms, Failed) && !ends(2500*ms, Failed), "news of a host that worked a second ago")
	assert.True(t, ends(2900*ms, Failed), "no news")
	wantNews(t, &g, News{Failures: 3, Since: 1900 * ms})
	assert.True(t, !ends(instant.At(2900*ms+failingEvery-1), Failed) && ends(instant.At(2900*ms+failingEvery), Failed), "not every 250 ms")
	assert.True(t, ends(4*sec, Success), "the success is no news")
	wantNews(t, &g, News{Working: true})
	assert.False(t, ends(4*sec, Success), "the next success is news")
	// However failures and successes follow each other, there are few reports.
	reports := 0
	for i := range time.Duration(1000) {
		r := Failed
		if i%11 == 10 {
			r = Success
		}
		if ends(instant.At(5*sec+i*ms), r); g.News().Failures > 0 {
			reports++
		}
	}
	assert.LessOrEqual(t, reports, 4, "reports in a second")
}

// An Update may change the rule of the requests while the gate is closed.
func TestGateConfigChanges(t *testing.T) {
	g := closedInFleet(t, cutAt)
	v := member(t, g)
	v.enter(askAt)
	mustAsk(t, g, askAt)
	alone := visit(t, g) // an Update took the fleet away
	g.Leave(v.w)
	alone.mustWait(askAt, probeAt)
	mustNotAsk(t, g, askAt)
	alone.mustGo(probeAt)
	alone.end(probeAt+sec, Failed)
	back := member(t, g)
	back.mustWait(probeAt+sec, (probeAt + sec).Add(probeGap).Add(-permitTime))
}
