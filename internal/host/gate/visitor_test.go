package gate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const (
	ms  = hosttest.Ms
	sec = hosttest.Sec
)

// A visitor drives one request through a gate by hand.
type visitor struct {
	t    *testing.T
	gate *Gate
	conf Config
	slot Slot
	w    *queue.Waiter
}

func visit(t *testing.T, g *Gate) *visitor {
	return &visitor{t: t, gate: g, w: queue.NewWaiter()}
}

func (v *visitor) enter(now instant.Instant) queue.Answer {
	return v.gate.Enter(now, &v.slot, v.w, v.conf)
}

func (v *visitor) end(now instant.Instant, r Result) {
	v.gate.Result(now, &v.slot, r)
	v.gate.Done(now, &v.slot)
}

func (v *visitor) woken() bool { return hosttest.Woken(v.w) }

func (v *visitor) mustGo(now instant.Instant) {
	v.t.Helper()
	if a := v.enter(now); a.Verb != queue.Go {
		v.t.Fatalf("at %v: %+v, want Go", now, a)
	}
}

func (v *visitor) mustWait(now, ask instant.Instant) {
	v.t.Helper()
	if a := v.enter(now); a.Verb != queue.Wait || a.Ask != ask {
		v.t.Fatalf("at %v: %+v, want queue.Wait until %v", now, a, ask)
	}
}

// fill sends n requests.
func fill(t *testing.T, g *Gate, now instant.Instant, n int) []*visitor {
	t.Helper()
	vs := make([]*visitor, n)
	for i := range vs {
		vs[i] = visit(t, g)
		vs[i].mustGo(now)
	}
	return vs
}

// closeGate makes a gate with the first limit fail wholesale, so that it is closed at
// that time.
func closeGate(t *testing.T, g *Gate, at instant.Instant) {
	t.Helper()
	g.pulse.gap = 0 // as if there had been much traffic before
	for _, v := range fill(t, g, at.Add(-2*time.Second), 10) {
		v.end(at, Lost)
	}
	if !g.State().Closed {
		t.Fatalf("not closed: %+v", g.State())
	}
}

func wantLimit(t *testing.T, g *Gate, want int) {
	t.Helper()
	require.Equal(t, want, g.State().Limit, "limit")
}

// round uses up the limit with successes once, and returns the limit after that.
func round(t *testing.T, g *Gate, now instant.Instant) int {
	t.Helper()
	in := fill(t, g, now, g.State().Limit)
	next := visit(t, g) // a request always waits, so the limit is used up
	next.enter(now)
	for _, v := range in {
		v.end(now, Success)
	}
	g.Leave(next.w)
	return g.State().Limit
}

// fill0 lets the first waiter go, and then n−1 more requests.
func fill0(t *testing.T, g *Gate, first *visitor, now instant.Instant, n int) []*visitor {
	t.Helper()
	first.mustGo(now)
	return append([]*visitor{first}, fill(t, g, now, n-1)...)
}

// calmGate is a gate that has been healthy for a window.
func calmGate(t *testing.T) *Gate {
	g := &Gate{}
	for _, now := range []time.Duration{0, useWindow} {
		fill(t, g, instant.At(now), 1)[0].end(instant.At(now+100*ms), Success)
	}
	return g
}
