package ledger

import (
	"testing"
	"time"
)

// Reports count once their rows are 2 s old. So a member that has a success every second
// has one that is younger than the beginning of every row, and objects.
func TestYoungRows(t *testing.T) {
	var h Host
	begin := time.Minute
	for member := range int64(5) {
		if down, _ := h.Failing(begin+1900*time.Millisecond, member, 10, begin, 5); down {
			t.Fatalf("down after 1.9 s")
		}
	}
	// A row that has just begun neither counts nor moves the time since when the host is down.
	down, since := h.Failing(begin+2*time.Second, 5, 10, begin+1900*time.Millisecond, 6)
	if !down || since != begin {
		t.Errorf("down %v since %v, want %v", down, since, begin)
	}
}

// The members that are refused ask again one after the other. If they all waited equally
// long, a large fleet would ask all at once, and then not for minutes.
func TestTurns(t *testing.T) {
	const members = 10_000
	var h Host
	now := time.Minute
	if granted, _ := h.Probe(now, 0, members); !granted {
		t.Fatal("refused")
	}
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
	h.Probe(now+time.Second, 1, members)
	if _, wait := h.Probe(now+time.Second, 2, members); wait != ProbeGap {
		t.Errorf("waits %v in the next outage", wait)
	}
}
