package ledger

import (
	"testing"
	"time"
)

// Reports count once their rows are 2 s old. So a member that has a success every second
// has one that is more than a second younger than the beginning of every row, and objects.
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
