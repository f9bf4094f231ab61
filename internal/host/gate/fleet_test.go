package gate

import (
	"math"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
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
		if a := g.Enter(at-2*sec, &slots[i], nil, inFleet); a.Verb != queue.Go {
			t.Fatalf("%+v", a)
		}
	}
	for i := range slots {
		g.End(at, &slots[i], Lost)
	}
	if !g.State().Closed {
		t.Fatal("not closed")
	}
	g.News()
	return g
}

// mustAsk lets the owner ask for a permit.
func mustAsk(t *testing.T, g *Gate, now instant.Instant) {
	t.Helper()
	if !g.AskPermit(now) {
		t.Fatalf("at %v: asks for no permit", now)
	}
	if g.AskPermit(now) {
		t.Fatalf("at %v: asks for two permits", now)
	}
}

func mustNotAsk(t *testing.T, g *Gate, now instant.Instant) {
	t.Helper()
	if g.AskPermit(now) {
		t.Fatalf("at %v: asks for a permit", now)
	}
}

func wantNews(t *testing.T, g *Gate, want News) {
	t.Helper()
	if got := g.News(); got != want {
		t.Fatalf("news %+v, want %+v", got, want)
	}
	if got := g.News(); got != (News{}) {
		t.Fatalf("news %+v for the second time", got)
	}
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
			if got := g.Down(10*sec, tt.since); got != tt.works {
				t.Errorf("works %v", got)
			}
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
	g.limit = 40
	g.Down(cutAt, 9*sec)
	first := member(t, &g)
	first.mustWait(cutAt, askAt)
	for now := instant.At(cutAt); now < probeAt; now += 50 * ms {
		g.Down(now, 9*sec)
	}
	first.woken()
	if g.threshold != 20 {
		t.Errorf("threshold %d", g.threshold)
	}
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
	if !first.woken() || second.woken() {
		t.Error("the first waiter was not woken, or not alone")
	}
}

// The gate asks before the probe may go, so that it loses no time.
func TestGateAsksForAPermit(t *testing.T) {
	g := closedInFleet(t, cutAt)
	first, second := member(t, g), member(t, g)
	first.mustWait(cutAt, askAt)
	mustNotAsk(t, g, cutAt)
	second.mustWait(askAt, instant.Never)
	first.mustWait(askAt, probeAt)
	mustAsk(t, g, askAt)
	if !g.Permit(askAt+ms, true, 0) || !first.woken() {
		t.Error("the permit is not used, or nobody heard of it")
	}
	first.mustWait(askAt+ms, probeAt)
	mustNotAsk(t, g, askAt+ms)
	first.mustGo(probeAt)
	second.mustWait(probeAt, probeAt.Add(probeTime))
	mustNotAsk(t, g, probeAt)

	// It waits twice as long after its probe has failed, so that others have their turn.
	failed := probeAt + sec
	if !g.End(failed, &first.slot, Lost) {
		t.Error("no news")
	}
	wantNews(t, g, News{ProbeFailed: true, Failures: 11, Since: 8 * sec})
	second.woken()
	second.mustWait(failed, failed.Add(2*probeGap))
	mustNotAsk(t, g, failed.Add(2*probeGap)-1)
	second.mustWait(failed.Add(2*probeGap), failed.Add(2*probeGap).Add(permitTime))
	mustAsk(t, g, failed.Add(2*probeGap))
	g.Permit(failed.Add(2*probeGap), true, 0)
	second.mustGo(failed.Add(2 * probeGap))
	if !g.End(failed+2*sec, &second.slot, Success) || g.State().Closed {
		t.Error("no news, or closed")
	}
	wantNews(t, g, News{Working: true})
}

// If the fleet is silent, a gate probes as often as a gate without a fleet.
func TestGateWithASilentFleet(t *testing.T) {
	g := closedInFleet(t, cutAt)
	now := probeAt
	for range 5 {
		v := member(t, g)
		v.enter(now.Add(-permitTime))
		mustAsk(t, g, now.Add(-permitTime))
		v.mustWait(now-1, now)
		v.mustGo(now)
		// The fleet may have given a permit although its answer was lost. So it hears of
		// the end, and others can probe.
		if !g.End(now+sec, &v.slot, Lost) || !g.News().ProbeFailed {
			t.Error("the fleet does not hear of the end")
		}
		now = now.Add(sec + probeGap)
	}
}

// A gate without waiters asks when a request comes, and waits 250 ms for the answer.
func TestGateAsksLate(t *testing.T) {
	g := closedInFleet(t, cutAt)
	v := member(t, g)
	now := instant.At(cutAt).Add(time.Hour)
	v.mustWait(now, now.Add(permitTime))
	mustAsk(t, g, now)
	v.mustWait(now.Add(permitTime)-1, now.Add(permitTime))
	v.mustGo(now.Add(permitTime))
}

// Answers that come late, twice or unasked neither stop a gate nor keep a permit from
// others.
func TestGateAnswersInAnyOrder(t *testing.T) {
	asked := func(t *testing.T) (*Gate, *visitor) {
		g := closedInFleet(t, cutAt)
		v := member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		return g, v
	}
	t.Run("late, during the probe", func(t *testing.T) {
		g, v := asked(t)
		v.mustGo(probeAt)
		if !g.Permit(probeAt+ms, true, 0) {
			t.Error("given back")
		}
		v.end(probeAt+sec, Failed)
		if !g.News().ProbeFailed {
			t.Error("the fleet does not hear of the end")
		}
		next := member(t, g)
		next.mustWait(probeAt+sec, (probeAt + sec).Add(2*probeGap)) // the others have their turn
	})
	t.Run("refused late, during the probe", func(t *testing.T) {
		g, v := asked(t)
		v.mustGo(probeAt)
		g.Permit(probeAt+ms, false, 3*sec)
		v.end(probeAt+sec, Failed)
		next := member(t, g)
		next.mustWait(probeAt+sec, probeAt+ms+3*sec)
	})
	t.Run("late, after the probe", func(t *testing.T) {
		g, v := asked(t)
		v.mustGo(probeAt)
		v.end(probeAt+sec, Failed)
		if g.Permit(probeAt+sec+ms, true, 0) {
			t.Error("the fleet was told that the probe has ended, and the permit is used all the same")
		}
		g.Permit(probeAt+sec+ms, false, time.Hour)
		next := member(t, g)
		next.mustWait(probeAt+sec+ms, (probeAt + sec).Add(probeGap).Add(-permitTime))
	})
	t.Run("late, after the gate has opened", func(t *testing.T) {
		g, v := asked(t)
		v.mustGo(probeAt)
		v.end(probeAt+sec, Success)
		if g.Permit(probeAt+sec+ms, true, 0) {
			t.Error("used by an open gate")
		}
		g.Permit(probeAt+sec+ms, false, time.Hour)
		member(t, g).mustGo(probeAt + sec + ms)
	})
	t.Run("twice", func(t *testing.T) {
		g, v := asked(t)
		for range 2 {
			if !g.Permit(askAt, true, 0) {
				t.Error("the permit in use is given back")
			}
		}
		g.Permit(askAt, false, time.Hour)
		v.mustGo(probeAt)
		if !g.Permit(probeAt, true, 0) {
			t.Error("the permit of the probe under way is given back")
		}
	})
	t.Run("unasked", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		if g.Permit(askAt, true, 0) {
			t.Error("used")
		}
		g.Permit(askAt, false, time.Hour)
		v := member(t, g)
		v.mustWait(askAt, probeAt)
		if new(Gate).Permit(0, true, 0) {
			t.Error("used by a new gate")
		}
	})
	t.Run("refused", func(t *testing.T) {
		for wait, next := range map[time.Duration]time.Duration{
			math.MinInt64: rate.AnswerTime, 0: rate.AnswerTime, sec: sec, time.Hour: longestNo, math.MaxInt64: longestNo,
		} {
			g, v := asked(t)
			g.Permit(askAt, false, wait)
			if !v.woken() {
				t.Error("the first waiter did not hear of it")
			}
			at := max(askAt.Add(next), probeAt.Add(-permitTime))
			v.mustWait(askAt, at)
			v.mustWait(at, max(at.Add(permitTime), probeAt))
			mustAsk(t, g, at)
		}
	})
}

// If a request leaves before its answer comes, the permit goes back. A gate whose
// requests do not wait keeps it for the next request.
func TestGatePermitOfNobody(t *testing.T) {
	t.Run("the request left before the answer", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		v := member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		g.Leave(v.w)
		if g.Permit(askAt+ms, true, 0) {
			t.Error("kept")
		}
	})
	t.Run("another request came", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		v, next := member(t, g), member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		g.Leave(v.w)
		next.enter(askAt)
		if !g.Permit(askAt+ms, true, 0) {
			t.Error("given back")
		}
		next.mustGo(probeAt)
	})
	t.Run("the request left after the answer", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		v := member(t, g)
		v.enter(askAt)
		mustAsk(t, g, askAt)
		g.Permit(askAt+ms, true, 0)
		if !g.Leave(v.w) {
			t.Error("no news")
		}
		wantNews(t, g, News{ProbeFailed: true})
	})
	t.Run("requests that do not wait", func(t *testing.T) {
		g := closedInFleet(t, cutAt)
		var s Slot
		g.Enter(probeAt, &s, nil, inFleet)
		mustAsk(t, g, probeAt)
		if !g.Permit(probeAt+ms, true, 0) {
			t.Error("given back")
		}
		if a := g.Enter(probeAt.Add(time.Minute), &s, nil, inFleet); a.Verb != queue.Go {
			t.Errorf("%+v", a)
		}
		if g.fleet.permit == lent {
			t.Error("a permit of a minute ago counts")
		}
	})
}

// A request that takes the slot and cannot go, because its deadline is too near, leaves its
// permit to the next request. If each of them cost a permit, no probe would ever go behind
// a queue of such requests.
func TestGatePassesThePermitOn(t *testing.T) {
	for _, answered := range []bool{false, true} {
		g := closedInFleet(t, cutAt)
		v := member(t, g)
		queue := make([]*visitor, 20)
		v.enter(askAt)
		for i := range queue {
			queue[i] = member(t, g)
			queue[i].enter(askAt)
		}
		mustAsk(t, g, askAt)
		if answered {
			g.Permit(askAt, true, 0)
		}
		for _, next := range queue {
			v.mustGo(probeAt)
			if g.Release(probeAt, &v.slot) {
				t.Fatal("the permit is given back")
			}
			v = next
		}
		v.mustGo(probeAt)
		if !g.Release(probeAt, &v.slot) || !g.News().ProbeFailed {
			t.Error("the last permit is kept")
		}
	}
}

// If the fleet still refuses a permit 30 s after the first refusal, a probe goes without
// one. The time for which nobody waits does not count.
func TestGateRefusedForLong(t *testing.T) {
	g := closedInFleet(t, cutAt)
	now := askAt
	for range 3 {
		v := member(t, g)
		v.enter(now)
		mustAsk(t, g, now)
		g.Permit(now, false, sec)
		g.Leave(v.w)

		now = now.Add(time.Minute)
		v, from := member(t, g), now
		for a := v.enter(now); a.Verb == queue.Wait; a = v.enter(now) {
			if g.AskPermit(now) {
				g.Permit(now, false, 700*ms)
			} else {
				now = a.Ask
			}
			if now > from.Add(time.Minute) {
				t.Fatal("no probe for a minute")
			}
		}
		if waited := now - from; waited < instant.At(refusalTime) || waited > instant.At(refusalTime+sec) {
			t.Errorf("the probe goes after %v", waited)
		}
		if g.fleet.permit == lent {
			t.Error("with a permit")
		}
		v.end(now+sec, Lost)
		now = now.Add(time.Minute)
	}
}

// A probe that hangs keeps neither its slot nor its permit for more than 10 s.
func TestGateProbeHangsInFleet(t *testing.T) {
	g := closedInFleet(t, cutAt)
	v, next := member(t, g), member(t, g)
	v.enter(askAt)
	mustAsk(t, g, askAt)
	g.Permit(askAt, true, 0)
	v.mustGo(probeAt)
	hangs := probeAt.Add(probeTime)
	next.mustWait(probeAt, hangs)
	next.mustWait(hangs, hangs.Add(permitTime))
	mustAsk(t, g, hangs)
	g.Permit(hangs, true, 0)
	v.end(hangs, Lost) // this is the end of the old probe
	if g.News().ProbeFailed {
		t.Error("the new permit is given back")
	}
	next.mustGo(hangs)
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
	if !first.woken() || second.woken() {
		t.Error("the first waiter was not woken, or not alone")
	}
	if a := first.enter(askAt); a.Ask != askAt+spread || a.Until != askAt+spread {
		t.Errorf("%+v", a)
	}
	first.mustWait(askAt+spread-1, askAt+spread)
	mustNotAsk(t, g, askAt+spread-1)
	if g.Permit(askAt, true, 0) {
		t.Error("a permit is kept until the return")
	}
	g.Up(askAt+sec, askAt+2*spread) // does not put it off
	first.mustGo(askAt + spread)
	if s := g.State(); s.Closed || s.Limit != 1 || s.InFlight != 1 {
		t.Errorf("%+v", s)
	}
	if second.enter(askAt+spread).Verb != queue.Wait {
		t.Error("two at once")
	}
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
	if !next.woken() {
		t.Error("not woken")
	}
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
	if ends(sec, Success) || ends(1900*ms, Failed) || ends(2500*ms, Failed) {
		t.Error("news of a host that worked a second ago")
	}
	if !ends(2900*ms, Failed) {
		t.Error("no news")
	}
	wantNews(t, &g, News{Failures: 3, Since: 1900 * ms})
	if ends(instant.At(2900*ms+failingEvery-1), Failed) || !ends(instant.At(2900*ms+failingEvery), Failed) {
		t.Error("not every 250 ms")
	}
	if !ends(4*sec, Success) {
		t.Error("the success is no news")
	}
	wantNews(t, &g, News{Working: true})
	if ends(4*sec, Success) {
		t.Error("the next success is news")
	}
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
	if reports > 4 {
		t.Errorf("%d reports in a second", reports)
	}
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
