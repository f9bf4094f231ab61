package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// Reports count once their rows are 2 s old. So a member that has a success every second
// has one that is younger than the beginning of every row, and objects.
func TestYoungRows(t *testing.T) {
	var h Host
	begin := instant.At(time.Minute)
	for member := range int64(5) {
		require.False(t, fails(&h, begin.Add(1900*time.Millisecond), member, 10, begin, 5), "down after 1.9 s")
	}
	// A row that has just begun neither counts nor moves the time since when the host is down.
	down, since := h.Failing(begin.Add(2*time.Second), 5, 10, begin.Add(1900*time.Millisecond), 6)
	assert.True(t, down && since == begin, "down %v since %v, want %v", down, since, begin)
}

// The members that are refused ask again one after the other. If they all waited equally
// long, a large fleet would ask all at once, and then not for minutes.
func TestTurns(t *testing.T) {
	const members = 10_000
	var h Host
	now := instant.At(time.Minute)
	require.True(t, probes(&h, now, 0, members), "refused")
	var last time.Duration
	for member := range int64(members - 1) {
		granted, wait := h.Probe(now, member+1, members)
		switch {
		case granted:
			t.Fatal("two probes at a time")
		case member == 0 && wait != ProbeGap:
			t.Errorf("the first waits %v", wait)
		case member > 0 && wait != min(last+AskEach, members*AskEach):
			t.Fatalf("waits %v, the member before %v", wait, last)
		}
		last = wait
	}
	// After a success they begin anew.
	h.Working(now, 0)
	h.Probe(now.Add(time.Second), 1, members)
	if _, wait := h.Probe(now.Add(time.Second), 2, members); wait != ProbeGap {
		t.Errorf("waits %v in the next outage", wait)
	}
}

// A member whose probe failed comes after a member that has sent none and that asks.
func TestTriedComesLast(t *testing.T) {
	var h Host
	now := instant.At(time.Minute)
	fail := func(member int64) {
		t.Helper()
		require.True(t, probes(&h, now, member, 3), "member %d does not get the permit", member)
		now = now.Add(10 * time.Millisecond)
		h.ProbeFailed(now, member)
	}
	fail(1)
	now = now.Add(2 * ProbeGap)
	fail(2)
	granted, wait := h.Probe(now, 3, 3) // too early
	require.False(t, granted, "a probe right after a failed probe")
	now = now.Add(ProbeGap)
	assert.False(t, probes(&h, now, 1, 3), "a member whose probe failed goes before a member that has sent none")
	now = max(now, instant.At(time.Minute+wait))
	assert.True(t, probes(&h, now, 3, 3), "the member that has sent none does not go")
	h.ProbeFailed(now, 3)
	now = now.Add(ProbeGap)
	assert.True(t, probes(&h, now, 1, 3), "nobody else asks, and the member does not go")
	// If the member that asked does not come back, the others go on.
	h.ProbeFailed(now, 1)
	h.Probe(now, 4, 3)
	now = now.Add(2 * time.Second)
	assert.True(t, probes(&h, now, 2, 3), "a member that left keeps the others from the probe")
}
