package budget

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/failures"
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
			require.False(t, float64(retries) > bound+1e-6, "window %v to %v: %d retries, %d requests, bound %v", trace[i].at, e.at, retries, requests, bound)
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
		conf   Config
		now    instant.Instant
		trace  []*budgetEntry
		owners []owner // of retries that are neither sent nor refunded
	)
	drop := func(i int) { owners = slices.Delete(owners, i, i+1) }
	for _, s := range steps {
		n := int(s >> 3)
		switch s & 7 {
		case 0:
			conf.Requests += uint64(n)
			trace = append(trace, &budgetEntry{at: now, requests: n})
		case 1, 2:
			for i := range n {
				at := now
				if s&7 == 2 { // after a wait, short or long
					at = now.Add(time.Duration(i*i%7) * time.Duration(n) * 30 * time.Millisecond)
				}
				c := b.Take(now, at, conf)
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
				b.Release(now, conf, owners[i].Charge)
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

// An owned Budget has an owner that counts the failures and the requests.
type owned struct {
	Budget
	run   failures.Run
	began uint64
}

// fail lets so many retries in a row fail.
func (b *owned) fail(n int) {
	for range n {
		b.run.RetryFailed()
	}
}

// known completes a config by what the owner knows.
func (b *owned) known(c Config) Config {
	c.Rests, c.Requests = b.run.Helpless(), b.began
	return c
}

// takes returns how many of n retries are granted.
func (b *owned) takes(now instant.Instant, c Config, n int) (granted int) {
	for range n {
		if b.Take(now, now, b.known(c)) != nil {
			granted++
		}
	}
	return granted
}

func TestRest(t *testing.T) {
	after := instant.At
	type take struct {
		at       instant.Instant
		requests uint64
		n, want  int
	}
	small := Config{Ratio: -1, PerSecond: 1. / 3600, Burst: 5}
	for name, row := range map[string]struct {
		failures int
		conf     Config
		takes    []take
	}{
		"19 failures are none":                      {19, Config{}, []take{{0, 0, 40, 30}}},
		"a minute earns one, and there is no burst": {20, Config{}, []take{{0, 0, 40, 0}, {after(59 * time.Second), 0, 1, 0}, {after(61 * time.Second), 0, 40, 1}, {after(time.Hour), 0, 40, 1}}},
		"fifty requests earn one":                   {20, Config{}, []take{{0, 0, 1, 0}, {0, 49, 1, 0}, {0, 50, 2, 1}}},
		"smaller values stay":                       {20, small, []take{{0, 0, 1, 0}, {after(59 * time.Minute), 0, 1, 0}, {after(61 * time.Minute), 0, 9, 1}}},
		"the members of a fleet share the minute":   {20, Config{}.Complete().ForMember(10), []take{{0, 0, 1, 0}, {after(599 * time.Second), 0, 1, 0}, {after(601 * time.Second), 0, 9, 1}}},
		"a budget that is off does not rest":        {20, Config{Ratio: -1, PerSecond: -1}, []take{{0, 0, 40, 40}}},
	} {
		var b owned
		b.fail(row.failures)
		for _, x := range row.takes {
			b.began = x.requests
			assert.Equal(t, x.want, b.takes(x.at, row.conf, x.n), "%s: retries at %v", name, x.at)
		}
	}
	var b owned
	b.fail(20)
	require.Zero(t, b.takes(0, Config{}, 1))
	b.run.Succeeded()
	assert.Equal(t, 30, b.takes(0, Config{}, 40), "a success restores everything")

	b = owned{}
	b.fail(20)
	require.Zero(t, b.takes(0, Config{}, 1))
	now := after(time.Minute + time.Second)
	first := b.Take(now, now, b.known(Config{}))
	require.NotNil(t, first)
	b.Release(now, b.known(Config{}), first)
	require.NotNil(t, b.Take(now, now, b.known(Config{})), "the retry was given back")
	b.Release(now, b.known(Config{}), first)
	assert.Nil(t, b.Take(now, now, b.known(Config{})), "the first was released already")

	b = owned{}
	b.fail(20)
	assert.Zero(t, b.Left(0, b.known(Config{})))
	assert.InDelta(t, 0.5, b.Left(after(30*time.Second), b.known(Config{})), 1e-6)
	assert.InDelta(t, time.Minute, b.Next(after(30*time.Second), b.known(Config{})).Since(), 1000)
}

// TestRestHoldsInEveryWindow plays random traces with rests. In every window within a rest the
// retries keep its rule, and in every window of any kind those of the budget.
func TestRestHoldsInEveryWindow(t *testing.T) {
	type entry struct {
		at             instant.Instant
		request, retry bool
		rests          bool
	}
	rng := rand.New(rand.NewPCG(3, 4))
	rested := 0
	for range soak.Size(40, 400) {
		var (
			b     owned
			now   instant.Instant
			trace []entry
		)
		for range 300 {
			e := entry{at: now}
			switch rng.IntN(8) {
			case 0, 1:
				b.began++
				e.request = true
			case 2, 3, 4:
				e.retry = b.Take(now, now, b.known(Config{})) != nil
				if b.fail(1); e.retry && b.rests {
					rested++
				}
			case 5:
				now = now.Add(time.Duration(rng.IntN(20_000)) * time.Millisecond)
				continue
			case 6:
				now = now.Add(time.Duration(rng.IntN(100)) * time.Millisecond)
				continue
			default:
				if rng.IntN(20) == 0 {
					b.run.Succeeded()
				}
				continue
			}
			e.rests = b.rests
			trace = append(trace, e)
		}
		for i := range trace {
			requests, retries, rests := 0., 0., true
			for _, e := range trace[i:] {
				if e.request {
					requests++
				}
				if e.retry {
					retries++
				}
				passed := e.at.Sub(trace[i].at)
				bound := 0.2*requests + 3*passed.Seconds() + 30
				if rests = rests && e.rests; rests {
					bound = min(bound, requests/50+passed.Minutes()+1)
				}
				require.LessOrEqual(t, retries, math.Nextafter(bound+1e-6, bound+1), "retries from %v to %v, %v requests", trace[i].at, e.at, requests)
			}
		}
	}
	assert.Positive(t, rested, "retries in a rest")
}
