package budget

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const sec = hosttest.Sec

func TestBudget(t *testing.T) {
	const never = -1
	type step struct {
		at       instant.Instant
		requests int
		take     int // how many are asked for
		want     int // how many are granted
		refund   int
	}
	tests := []struct {
		name  string
		conf  Config
		steps []step
	}{
		{"a burst of 30 without any request", Config{}, []step{
			{take: 40, want: 30},
		}},
		{"3 per second come back, 30 at most", Config{}, []step{
			{take: 40, want: 30},
			{at: instant.At(999 * time.Millisecond), take: 9, want: 2},
			{at: instant.At(1001 * time.Millisecond), take: 9, want: 1},
			{at: instant.At(time.Hour), take: 40, want: 30},
		}},
		{"five requests earn a retry", Config{}, []step{
			{take: 30, want: 30},
			{requests: 4, take: 1, want: 0},
			{requests: 1, take: 2, want: 1},
			{requests: 5000, take: 2000, want: 30}, // saved up to the burst only
		}},
		{"fractions add up exactly", Config{Ratio: 0.1, PerSecond: never}, []step{
			{take: 10, want: 10},
			{requests: 9, take: 1, want: 0},
			{requests: 1, take: 2, want: 1},
			{requests: 7, take: 1, want: 0},
			{requests: 3, take: 2, want: 1},
		}},
		{"a request a minute keeps its five retries", Config{}, []step{
			{requests: 1, take: 5, want: 5},
			{at: instant.At(1 * time.Minute), requests: 1, take: 5, want: 5},
			{at: instant.At(2 * time.Minute), requests: 1, take: 5, want: 5},
			{at: instant.At(3 * time.Minute), requests: 1, take: 5, want: 5},
		}},
		{"after an outage a single failure is retried again", Config{}, []step{
			{requests: 1000, take: 5000, want: 30},
			{at: instant.At(10 * time.Second), requests: 1000, take: 5000, want: 30},
			{at: instant.At(10*time.Second + 334*time.Millisecond), take: 1, want: 1},
		}},
		{"a refund can be taken again", Config{}, []step{
			{take: 31, want: 30, refund: 3},
			{take: 9, want: 3, refund: 3},
			{at: instant.At(time.Hour), take: 40, want: 30, refund: 1},
		}},
		{"a refund does not overfill", Config{}, []step{
			{take: 1, want: 1},
			{at: instant.At(time.Second), refund: 1},
			{at: instant.At(time.Second), take: 40, want: 30},
		}},
		{"floor off", Config{PerSecond: never}, []step{
			{take: 99, want: 10},
			{at: instant.At(time.Hour), take: 1, want: 0},
			{at: instant.At(time.Hour), requests: 10, take: 9, want: 2},
		}},
		{"ratio off", Config{Ratio: never}, []step{
			{requests: 1000, take: 99, want: 30},
			{requests: 1000, at: instant.At(time.Second), take: 99, want: 3},
		}},
		{"both off: no budget", Config{Ratio: never, PerSecond: never}, []step{
			{take: 9999, want: 9999},
		}},
		{"never less than one", Config{PerSecond: 0.01}, []step{
			{take: 2, want: 1},
			{at: instant.At(99 * time.Second), take: 1, want: 0},
			{at: instant.At(100 * time.Second), take: 2, want: 1},
		}},
		{"time that runs backwards earns nothing", Config{}, []step{
			{at: instant.At(time.Hour), take: 40, want: 30},
			{at: 0, take: 1, want: 0},
			{at: instant.At(time.Hour + 334*time.Millisecond), take: 9, want: 1},
		}},
		{"the end of time", Config{}, []step{
			{take: 40, want: 30},
			{at: math.MaxInt64, take: 40, want: 30},
		}},
	}
	for _, tt := range tests {
		var b Budget
		var taken []*Charge
		for i, s := range tt.steps {
			tt.conf.Requests += uint64(s.requests)
			got := 0
			for range s.take {
				if c := b.Take(s.at, s.at, tt.conf); c != nil {
					got++
					taken = append(taken, c)
				}
			}
			assert.Equal(t, s.want, got, "%s: step %d", tt.name, i)
			for range s.refund { // the newest first
				b.Release(s.at, tt.conf, taken[len(taken)-1])
				taken = taken[:len(taken)-1]
			}
		}
	}
}

// A retry belongs to the window in which it will be sent. Many that end their waits together
// are refused, and those that end one after the other go.
func TestRetriesAreChargedWhenTheyGo(t *testing.T) {
	take := func(b *Budget, at func(i int) time.Duration) (got int) {
		for i := range 500 {
			if b.Take(0, instant.At(at(i)), Config{}) != nil {
				got++
			}
		}
		return got
	}
	var together, apart Budget
	assert.Equal(t, 30, take(&together, func(int) time.Duration { return time.Minute }))
	assert.EqualValues(t, 30, together.Left(0, Config{}), "those that go now have their own window")
	assert.Equal(t, 30+180, take(&apart, func(i int) time.Duration { return time.Minute * time.Duration(i%250) / 249 }))

	var b Budget
	later := b.Take(0, instant.At(time.Minute), Config{})
	assert.EqualValues(t, 30, b.Left(0, Config{}), "time will have earned it")
	for range 29 {
		require.NotNil(t, b.Take(0, instant.At(time.Minute), Config{}))
	}
	require.Nil(t, b.Take(0, instant.At(time.Minute), Config{}))
	b.Release(instant.At(time.Second), Config{}, later)
	require.NotNil(t, b.Take(0, instant.At(time.Minute), Config{}), "one was given back")
	assert.EqualValues(t, 0, b.Left(instant.At(time.Minute), Config{}))
	now := instant.At(time.Minute + time.Second)
	assert.EqualValues(t, 3, b.Left(now, Config{}))
	for range 5 {
		require.NotNil(t, b.Take(now, now.Add(time.Second), Config{}), "time will have earned three")
	}
	assert.EqualValues(t, 1, b.Left(now, Config{}))

	b, slow := Budget{}, Config{PerSecond: 1, Burst: 1}
	require.NotNil(t, b.Take(0, 10*sec, slow))
	require.NotNil(t, b.Take(0, sec, slow), "time will have earned the one after it")
	require.Nil(t, b.Take(0, 9*sec+1, slow), "not the one after it")
}

func TestBudgetLeft(t *testing.T) {
	var b Budget
	assert.EqualValues(t, 30, b.Left(0, Config{}), "new")
	first := b.Take(0, 0, Config{})
	assert.Equal(t, 29.2, b.Left(0, Config{Requests: 1}), "after one retry and one request")
	b.Take(0, 0, Config{Requests: 1})
	b.Release(sec*3/10, Config{Requests: 1}, first)
	assert.Equal(t, 29.1, b.Left(sec*3/10, Config{Requests: 1}), "the time has earned the first")
	assert.Equal(t, math.Inf(1), b.Left(0, Config{Ratio: -1, PerSecond: -1}), "off")
}

func TestBudgetNext(t *testing.T) {
	all := func(b *Budget, c Config) *Budget {
		for b.Take(sec, sec, c) != nil {
		}
		return b
	}
	var one Budget
	for one.Left(sec, Config{}) > 1 {
		one.Take(sec, sec, Config{})
	}
	assert.Zero(t, one.Next(sec, Config{}), "there is one")
	for c, want := range map[Config]time.Duration{
		{PerSecond: -1}:             0, // time earns none
		{}:                          333333334,
		{PerSecond: 0.5, Burst: 1}:  2 * time.Second,
		{PerSecond: 0.5, Burst: 40}: 2 * time.Second,
		{Rests: true}:               time.Minute,
	} {
		b := all(new(Budget), c)
		next := b.Next(sec, c)
		if want == 0 {
			assert.Zero(t, next)
			continue
		}
		assert.Equal(t, want, next.Sub(sec), "%+v", c)
		assert.Nil(t, b.Take(next-100, next-100, c))
		assert.NotNil(t, b.Take(next+100, next+100, c))
	}
}

func TestBudgetCountsRequests(t *testing.T) {
	b := Budget{requests: 1<<40 - 2}
	for _, tt := range []struct{ total, want uint64 }{
		{1<<40 - 1, 1<<40 - 1},
		{1<<40 - 3, 1<<40 - 1}, // overtaken
		{1, 1<<40 + 1},         // the owner's count wrapped
		{1, 1<<40 + 1},
		{11, 1<<40 + 11},
	} {
		b.Left(0, Config{Requests: tt.total})
		assert.Equal(t, tt.want, b.requests, "after %#x", tt.total)
	}
}

// Retries that are released at once, in any order, can all be taken again. Retries
// that time has earned back already cannot be taken a second time.
func TestBudgetRefundsWhatIsStillOwed(t *testing.T) {
	for name, order := range map[string]func(int) int{
		"oldest first": func(i int) int { return i },
		"newest first": func(i int) int { return 29 - i },
		"mixed":        func(i int) int { return i * 7 % 30 },
	} {
		for after, want := range map[time.Duration]int{0: 30, 5 * sec: 15, 10 * sec: 0, time.Minute: 0} {
			var b Budget
			var old [30]*Charge
			for i := range old {
				old[i] = b.Take(0, 0, Config{})
			}
			// When others have taken what time gave back meanwhile, refunds
			// return what time has not.
			for b.Take(instant.At(after), instant.At(after), Config{}) != nil {
			}
			for i := range old {
				b.Release(instant.At(after), Config{}, old[order(i)])
				b.Release(instant.At(after), Config{}, old[order(i)]) // twice is once
			}
			again := 0
			for b.Take(instant.At(after), instant.At(after), Config{}) != nil {
				again++
			}
			assert.Equal(t, want, again, "more, %s after %v", name, after)
		}
	}
}

func TestBudgetConcurrently(t *testing.T) {
	var b Budget
	var wg sync.WaitGroup
	var mu sync.Mutex
	var requests atomic.Uint64
	taken := 0
	for i := range 1000 {
		wg.Go(func() {
			n := 0
			for j := range 10 {
				at := instant.At(time.Duration(i*j) * time.Microsecond)
				if b.Take(at, at, Config{Requests: requests.Add(1)}) != nil {
					n++
				}
			}
			mu.Lock()
			taken += n
			mu.Unlock()
		})
	}
	wg.Wait()
	assert.True(t, taken >= 500 && float64(taken) <= 0.2*10_000+30+3*0.009, "%d retries", taken)
}

func TestBudgetCosts(t *testing.T) {
	var b Budget
	for range 100 {
		b.Take(0, 0, Config{})
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() { b.Take(0, 0, Config{}) }), "allocations for a retry that is refused")
	assert.LessOrEqual(t, unsafe.Sizeof(Charge{}), uintptr(32), "bytes for a retry that is owed")
	assert.LessOrEqual(t, unsafe.Sizeof(b), uintptr(96), "bytes")
}

// All processes of a fleet together earn what a single process earns per second. Each keeps
// what its own requests earn, and can save up 10 retries.
func TestBudgetPart(t *testing.T) {
	for name, tt := range map[string]struct {
		conf             Config
		processes        int
		perSecond, burst float64
	}{
		"alone":             {Config{}, 1, 3, 30},
		"no processes":      {Config{}, 0, 3, 30},
		"less than none":    {Config{}, math.MinInt, 3, 30},
		"two":               {Config{}, 2, 1.5, 15},
		"fifty":             {Config{}, 50, 0.06, 10},
		"a large fleet":     {Config{}, 1 << 24, 3.0 / (1 << 24), 10},
		"a small burst":     {Config{Burst: 1}, 50, 0.06, 1},
		"a large burst":     {Config{Burst: 4000}, 50, 0.06, 80},
		"by requests alone": {Config{PerSecond: -1}, 50, -1, 10},
		"by time alone":     {Config{Ratio: -1}, 3, 1, 10},
	} {
		got := tt.conf.Complete().ForMember(tt.processes)
		assert.Equal(t, []float64{tt.perSecond, tt.burst, tt.conf.Complete().Ratio}, []float64{got.PerSecond, got.Burst, got.Ratio}, name)
		assert.True(t, got.size > 0 && !got.off, name)
	}
	assert.True(t, (Config{Ratio: -1, PerSecond: -1}).Complete().ForMember(50).off, "on")
	// Fifty processes that ask all the time.
	taken := 0
	conf := Config{}.Complete().ForMember(50)
	for range 50 {
		var b Budget
		for now := instant.Instant(0); now < 1000*sec; now += sec {
			for b.Take(now, now, conf) != nil {
				taken++
			}
		}
	}
	assert.InDelta(t, 50*10+3*1000-50, taken, 50, "retries in 1000 s")
}

// A fleet that seems to be large for a moment does not give back what is used.
func TestBudgetKeepsItsDebts(t *testing.T) {
	var b Budget
	one, many := Config{}.Complete(), Config{}.Complete().ForMember(1000)
	n := 0
	for range 10 {
		for b.Take(0, 0, one) != nil {
			n++
		}
		for b.Take(0, 0, many) != nil {
			n++
		}
	}
	assert.Equal(t, 30, n, "retries of 30")
	assert.Zero(t, b.Left(0, many))
}
