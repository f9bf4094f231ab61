package budget

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// A budgetEntry is an event: requests began, or a retry was to be sent. If the retry is
// released, the entry has the release.
type budgetEntry struct {
	at       instant.Instant
	requests int
	retry    bool
	refunded *budgetEntry
}

// checkBudget looks at all windows that begin and end with an entry, which include
// the worst windows. The retries that were to be sent in a window and not released by its
// end must keep the rule. The check knows nothing of buckets.
func checkBudget(t *testing.T, trace []*budgetEntry) {
	t.Helper()
	trace = slices.DeleteFunc(trace, func(e *budgetEntry) bool { return e.refunded != nil && e.refunded.at < e.at })
	slices.SortStableFunc(trace, func(a, b *budgetEntry) int { return cmp.Compare(a.at, b.at) })
	for i := range trace {
		requests, retries := 0, 0
		back := map[*budgetEntry]int{} // retries of this window that an entry refunds
		for j := i; j < len(trace); j++ {
			e := trace[j]
			requests += e.requests
			if retries -= back[e]; e.retry {
				retries++
				back[e.refunded]++
			}
			bound := 0.2*float64(requests) + 30 + 3*e.at.Sub(trace[i].at).Seconds()
			if float64(retries) > bound+1e-6 {
				t.Fatalf("window %v to %v: %d retries, %d requests, bound %v", trace[i].at, e.at, retries, requests, bound)
			}
		}
	}
}

// runBudget replays a trace, one byte per step, and returns what happened.
func runBudget(t *testing.T, steps []byte) []*budgetEntry {
	type owner struct {
		*Charge
		entry *budgetEntry
	}
	var (
		b      Budget
		now    instant.Instant
		trace  []*budgetEntry
		owners []owner // of retries that are neither sent nor refunded
	)
	drop := func(i int) { owners = slices.Delete(owners, i, i+1) }
	for _, s := range steps {
		n := int(s >> 3)
		switch s & 7 {
		case 0:
			for range n {
				b.requests.Add(1)
			}
			trace = append(trace, &budgetEntry{at: now, requests: n})
		case 1, 2:
			for i := range n {
				at := now
				if s&7 == 2 { // after a wait, short or long
					at = now.Add(time.Duration(i*i%7) * time.Duration(n) * 30 * time.Millisecond)
				}
				c := b.Take(now, at, Config{})
				if c == nil {
					break
				}
				e := &budgetEntry{at: at, retry: true}
				owners = append(owners, owner{c, e})
				trace = append(trace, e)
			}
		case 3: // some are sent
			for range min(n, len(owners)) {
				drop(n % len(owners))
			}
		case 4, 5: // some are given back, in any order
			for k := range min(n, len(owners)) {
				i := (n*7 + k*13) % len(owners)
				e := &budgetEntry{at: now}
				owners[i].entry.refunded = e
				trace = append(trace, e)
				b.Release(now, Config{}, owners[i].Charge)
				drop(i)
			}
		case 6:
			now = now.Add(time.Duration(n) * 7 * time.Millisecond)
		case 7:
			now = now.Add(time.Duration(n*n) * 11 * time.Millisecond)
		}
		require.Equal(t, b.used, b.queue(), "owed")
		require.True(t, slices.IsSortedFunc(b.planned, func(x, y *Charge) int { return cmp.Compare(x.at, y.at) }))
	}
	return trace
}

// queue adds up what is owed.
func (b *Budget) queue() (sum int64) {
	for c := b.oldest; c != nil; {
		sum += c.owed
		if c = c.next; c == b.oldest {
			break
		}
	}
	return sum
}

func TestBudgetHoldsInEveryWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range soak.Size(15, 60) {
		steps := make([]byte, 120)
		for i := range steps {
			steps[i] = byte(rng.Uint32())
		}
		checkBudget(t, runBudget(t, steps))
	}
}

func FuzzBudget(f *testing.F) {
	f.Add([]byte{0xf8, 0xfa, 0xff, 0xfa, 0x10, 0xfd, 0xfa})
	f.Fuzz(func(t *testing.T, steps []byte) {
		checkBudget(t, runBudget(t, steps[:min(len(steps), 300)]))
	})
}
