package budget

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
	assert.Equal(t, []any{10 * sec, 3, sec}, []any{Window, paid, again})
	assert.Equal(t, Config{Ratio: 0.2, PerSecond: 3}, Config{}.Complete())
	off := Config{Ratio: -1, PerSecond: -1}
	assert.Equal(t, off, off.Complete())
	assert.Equal(t, Config{Ratio: 0.5, PerSecond: 7}, Config{Ratio: 0.5, PerSecond: 7}.Complete())
	assert.True(t, off.Off())
	assert.False(t, (&Config{Ratio: -1, PerSecond: 1}).Off() || (&Config{Ratio: 1, PerSecond: -1}).Off() || (&Config{Ratio: -1}).Off() || (&Config{PerSecond: -1}).Off())
}

// takes takes as many of n retries as there are.
func (b *Budget) takes(now instant.Instant, c Config, n int) (taken int) {
	for range n {
		if b.Settle(now, false, &c); b.Left(&c) >= 1 {
			b.Take(&c)
			taken++
		}
	}
	return taken
}

// Requests and time earn retries, and ten seconds of time can be saved up.
func TestEarnings(t *testing.T) {
	type take struct {
		at       time.Duration
		requests uint64
		want     int // of 100
	}
	std := Config{}.Complete()
	for name, row := range map[string]struct {
		conf  Config
		takes []take
	}{
		"ten seconds at once":       {std, []take{{0, 0, 30}, {0, 0, 0}, {time.Hour, 0, 30}}},
		"time":                      {std, []take{{0, 0, 30}, {sec/3 - ms, 0, 0}, {sec/3 + ms, 0, 1}, {3*sec + ms, 0, 8}}},
		"time goes back":            {std, []take{{sec, 0, 30}, {0, 0, 0}, {sec, 0, 0}}},
		"requests":                  {std, []take{{0, 0, 30}, {0, 4, 0}, {0, 5, 1}, {0, 55, 10}, {0, 1e6, 30}}},
		"totals out of order":       {std, []take{{0, 10, 30}, {0, 20, 2}, {0, 10, 0}, {0, 25, 1}}},
		"no Ratio":                  {Config{Ratio: -1, PerSecond: 3}, []take{{0, 0, 30}, {0, 1000, 0}, {sec, 1000, 3}}},
		"no PerSecond":              {Config{Ratio: 0.5, PerSecond: -1}, []take{{0, 0, 1}, {time.Hour, 0, 0}, {time.Hour, 2, 1}, {time.Hour, 200, 1}}},
		"one can always be saved":   {Config{Ratio: 0.2, PerSecond: 0.01}, []take{{0, 0, 1}, {99 * sec, 0, 0}, {101 * sec, 0, 1}, {time.Hour, 0, 1}}},
		"the lowest 40 bits matter": {std, []take{{0, 1<<40 - 5, 30}, {0, 5, 2}}},
	} {
		var b Budget
		b.requests = row.takes[0].requests
		for i, x := range row.takes {
			row.conf.Requests = x.requests
			assert.Equal(t, x.want, b.takes(at(x.at), row.conf, 100), "%s: %d at %v", name, i, x.at)
		}
	}
	var b Budget
	off := Config{Ratio: -1, PerSecond: -1}
	assert.Equal(t, 1000, b.takes(0, off, 1000))
	assert.Equal(t, math.Inf(1), b.Left(&off))
	assert.Equal(t, at(7), b.Next(at(7), &off))
}

// The answer to who waits is when time alone has earned a retry, and a second at most.
func TestNext(t *testing.T) {
	std := Config{}.Complete()
	var b Budget
	assert.Equal(t, at(sec), b.Next(at(sec), &std), "the bucket is full")
	b.takes(0, std, 30)
	assert.Equal(t, at(sec/3+1), b.Next(0, &std))
	b.Settle(at(sec/6), false, &std)
	assert.InDelta(t, sec/3, b.Next(at(sec/6), &std).Since(), 2)
	b.Settle(b.Next(at(sec/6), &std), false, &std)
	assert.GreaterOrEqual(t, b.Left(&std), 1., "there is one at that time")
	b.Take(&std)
	assert.InDelta(t, 0, b.Left(&std), 1e-6)
	b = Budget{}
	assert.Equal(t, at(sec), b.Next(at(sec), &Config{Ratio: 0.2, PerSecond: -1}), "the last of the bucket")
	for _, perSecond := range []float64{-1, 0.9, 1e-3, 1e-300} {
		c := Config{Ratio: 0.2, PerSecond: perSecond}
		b = Budget{}
		b.takes(0, c, 100)
		assert.Equal(t, at(5*sec), b.Next(at(4*sec), &c), "requests earn at any time: %v", perSecond)
	}
}

// Those who come back after an outage borrow up to a second bucket, and go even if it is empty.
func TestBorrow(t *testing.T) {
	std := Config{}.Complete()
	var b Budget
	b.Settle(0, false, &std)
	for i := range 100 {
		assert.Equal(t, i < 60, b.Take(&std) != 0, "%d takes a token", i)
	}
	assert.Zero(t, b.Left(&std))
	assert.Equal(t, 60., b.used)
	assert.Equal(t, 0, b.takes(at(10*sec), std, 1), "the second bucket is paid back first")
	assert.Equal(t, 3, b.takes(at(11*sec), std, 100))
}

// A retry that is not sent is given back, unless anything was put into the bucket since.
func TestGiveBack(t *testing.T) {
	std := Config{}.Complete()
	left := func(b *Budget) float64 { return math.Round(b.Left(&std)*1e6) / 1e6 }
	var b Budget
	b.Settle(0, false, &std)
	x, y := b.Take(&std), b.Take(&std)
	b.GiveBack(x)
	assert.Equal(t, 29., left(&b))
	b.GiveBack(0)
	assert.Equal(t, 29., left(&b), "there was no token")
	b.Settle(0, false, &std)
	b.GiveBack(y)
	assert.Equal(t, 30., left(&b), "nothing was earned meanwhile")
	x = b.Take(&std)
	b.Settle(at(sec/6), false, &std)
	b.GiveBack(x)
	assert.Equal(t, 29.5, left(&b), "time may have earned it")

	b = Budget{}
	b.Settle(0, false, &std)
	x = b.Take(&std)
	b.Settle(at(sec), false, &std)
	b.Take(&std)
	b.GiveBack(x)
	assert.Equal(t, 29., left(&b), "time has earned it again")

	b = Budget{}
	b.Settle(0, false, &std)
	x = b.Take(&std)
	b.Succeeded(true)
	b.Take(&std)
	b.GiveBack(x)
	assert.Equal(t, 29., left(&b), "a success has paid for it")
}

// A success pays for three retries, if it outweighs the failures, of which ten are remembered.
func TestSucceeded(t *testing.T) {
	std := Config{}.Complete()
	for _, row := range []struct {
		failures, successes int
		pays                bool
		want                int
	}{
		{0, 1, true, 3}, {0, 2, true, 6}, {0, 50, true, 30}, {0, 5, false, 0},
		{1, 1, true, 0}, {1, 2, true, 3}, {10, 10, true, 0}, {10, 11, true, 3}, {1000, 10, true, 0}, {1000, 11, true, 3},
	} {
		var b Budget
		assert.False(t, b.Failing())
		b.takes(0, std, 30)
		for range row.failures {
			b.Failed()
		}
		assert.Equal(t, row.failures > 0, b.Failing())
		for range row.successes {
			b.Succeeded(row.pays)
		}
		assert.Equal(t, row.want, b.takes(0, std, 100), row)
	}
	var b Budget
	b.takes(0, std, 30)
	b.Failed()
	b.Succeeded(false)
	assert.False(t, b.Failing(), "the success of a first attempt outweighs, too")
	b.Succeeded(true)
	assert.Equal(t, 3, b.takes(0, std, 100))
}

// The rate is that of the last ten seconds or more. While requests wait, it does not fall.
func TestRate(t *testing.T) {
	for name, row := range map[string]struct {
		requests []uint64 // until each second
		waits    int      // from this second on
		want     float64
	}{
		"none":                    {[]uint64{0, 0}, 99, 0},
		"the mean of ten":         {[]uint64{10, 20}, 99, 2},
		"the first second":        {[]uint64{0, 1000}, 99, 100},
		"of the last ten":         {[]uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 500, 600, 700}, 99, 50},
		"the higher of both":      {[]uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 50, 300, 600}, 99, 55},
		"it falls":                {append(make([]uint64, 10), 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 110), 99, 1},
		"but not while one waits": {append(make([]uint64, 10), 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 110), 12, 10},
	} {
		var b Budget
		for i, n := range row.requests {
			c := Config{Ratio: 0.2, PerSecond: 3, Requests: n}
			b.Settle(at(time.Duration(i)*sec), i >= row.waits, &c)
		}
		assert.Equal(t, row.want, b.Rate(), name)
	}
	var b Budget
	b.Settle(at(time.Hour), false, &Config{Requests: 7200})
	assert.Equal(t, 2., b.Rate(), "nobody asked for an hour")
}

// An event is part of a story: requests began, or a retry was taken, was sent or has succeeded.
type event struct {
	at       instant.Instant
	requests float64
	retries  float64 // sent
	paid     float64
}

// checkWindows looks at all windows that begin and end with an event, which include the worst. The retries that were taken in a
// window and are sent must keep the rule. It knows nothing of buckets.
func checkWindows(t *testing.T, c Config, events []*event) (retries int) {
	t.Helper()
	for i, first := range events {
		var sum event
		for _, e := range events[i:] {
			sum.requests, sum.retries, sum.paid = sum.requests+e.requests, sum.retries+e.retries, sum.paid+e.paid
			bound := max(c.Ratio, 0)*sum.requests + max(c.PerSecond, 0)*e.at.Sub(first.at).Seconds() + 3*sum.paid + max(10*c.PerSecond, 1)
			require.LessOrEqual(t, sum.retries, bound+1e-6, "%v to %v: %v requests, %v paid", first.at, e.at, sum.requests, sum.paid)
		}
		if i == 0 {
			retries = int(sum.retries)
		}
	}
	return retries
}

// story plays a story, one byte per step.
func story(t *testing.T, c Config, steps []byte) (events []*event) {
	type retry struct {
		*event
		Token
	}
	var (
		b    Budget
		now  instant.Instant
		open []retry // that may still be given back
	)
	note := func(e event) *event {
		e.at = now
		events = append(events, &e)
		return &e
	}
	for _, s := range steps {
		n := int(s >> 3)
		switch s & 7 {
		case 0:
			c.Requests += uint64(n)
			note(event{requests: float64(n)})
		case 1, 2: // retries that count
			for range n {
				if b.Settle(now, n%2 == 0, &c); b.Next(now, &c) > now {
					break
				}
				open = append(open, retry{note(event{retries: 1}), b.Take(&c)})
			}
		case 3: // those who come back borrow
			for range n {
				b.Settle(now, true, &c)
				open = append(open, retry{new(event), b.Take(&c)})
			}
		case 4: // some are given back, in any order
			for k := range min(n, len(open)) {
				i := (n*7 + k*13) % len(open)
				b.GiveBack(open[i].Token)
				open[i].retries = 0
				open = append(open[:i], open[i+1:]...)
			}
		case 5:
			for range n {
				if n%3 == 0 {
					b.Failed()
				} else if b.Succeeded(n%3 == 1); n%3 == 1 {
					note(event{paid: 1})
				}
			}
		case 6:
			now = now.Add(time.Duration(n) * 7 * ms)
		case 7:
			now = now.Add(time.Duration(n*n) * 11 * ms)
		}
		require.GreaterOrEqual(t, b.used, 0.)
		require.LessOrEqual(t, b.used, 2*c.size())
		require.LessOrEqual(t, b.Left(&c), c.size())
	}
	return events
}

// The configs of the stories.
func storyConfig(n int) Config {
	return []Config{{Ratio: 0.2, PerSecond: 3}, {Ratio: -1, PerSecond: 0.5}, {Ratio: 0.5, PerSecond: -1}, {Ratio: 0.2, PerSecond: 0.03}}[n%4]
}

func TestBudgetHoldsInEveryWindow(t *testing.T) {
	rng, retries := rand.New(rand.NewPCG(1, 2)), 0
	for i := range soak.Size(60, 600) {
		steps := make([]byte, 120)
		for i := range steps {
			steps[i] = byte(rng.Uint32())
		}
		c := storyConfig(i)
		retries += checkWindows(t, c, story(t, c, steps))
	}
	assert.Greater(t, retries, 1000)
}

func FuzzBudget(f *testing.F) {
	f.Add([]byte{0x00, 0xf9, 0xff, 0xf9, 0x10, 0xfc, 0xf9})
	f.Add([]byte{0x02, 0xf8, 0xf9, 0xf9, 0xfb, 0xe4, 0x3d, 0xf9})
	f.Add([]byte{0x01, 0x09, 0x0d, 0x09, 0x0c, 0x09, 0x09, 0xf7, 0x09})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 0 {
			c := storyConfig(int(steps[0]))
			checkWindows(t, c, story(t, c, steps[1:min(len(steps), 200)]))
		}
	})
}
