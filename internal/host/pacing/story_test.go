package pacing

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// Whatever is noted, nothing raises the quota within a window, and the wait for the next
// request is bounded.
func FuzzPacing(f *testing.F) {
	f.Add([]byte{1, 200, 10, 3, 0, 40, 7, 1, 90})
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Pacing
		var now instant.Instant
		for len(data) >= 3 {
			kind, a, b := data[0]%4, int64(data[1]), time.Duration(data[2])
			data = data[3:]
			left, end, known := p.Left(now, 1, "")
			switch kind {
			case 0:
				now = now.Add(time.Duration(a) * b * ms)
				continue
			case 1:
				p.Note(now, 1, Pass{}, field.Quota{Remaining: a - 10, Limit: 200, Reset: (b - 5) * 100 * ms}, Config{})
			default:
				if ans := p.Enter(now, 1, nil, Config{}); ans.Verb == queue.Wait && ans.Ask.Sub(now) > time.Minute {
					t.Fatalf("at %v: %+v", now, ans)
				}
			}
			if l, e, ok := p.Left(now, 1, ""); known && ok && e <= end.Add(Slack) && l > left {
				t.Fatalf("at %v: from %d to %d left in the window until %v", now, left, l, end)
			}
		}
	})
}

// Left returns how much of a scope's quota is believed to be left in a unit, and when its
// window ends. ok is false if nothing is known.
func (p *Pacing) Left(now instant.Instant, key uint64, unit string) (left int64, end instant.Instant, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.quotas.All()[key]; q != nil {
		for _, v := range q.windows {
			if v.Unit == unit && now < v.End {
				return v.Left, v.End, true
			}
		}
	}
	return 0, 0, false
}

func left(p *Pacing, now instant.Instant, unit string) int64 {
	n, _, _ := p.Left(now, 1, unit)
	return n
}

// A scope has eight units. A fifth is little.
func TestLimits(t *testing.T) {
	var p Pacing
	for i := range int64(9) {
		p.Note(0, 1, Pass{}, field.Quota{Unit: fmt.Sprint(i), Remaining: 100, Limit: 100, Reset: 10 * sec}, Config{})
		assert.Equal(t, i < 8, left(&p, ms, fmt.Sprint(i)) == 100, i)
	}
	assert.True(t, Low(20, 100) && Low(0, 100) && Low(0, 0))
	assert.False(t, Low(21, 100) || Low(50, 1))
}

// A quota of requests counts 1, and another counts the cost. Only what is said of a unit
// corrects it.
func TestUnits(t *testing.T) {
	var p Pacing
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 50, Limit: 50, Reset: 10 * sec}, Config{})
	p.Note(0, 1, Pass{}, field.Quota{Unit: "tokens", Remaining: 1000, Limit: 1000, Reset: 10 * sec}, Config{})
	first := p.Enter(ms, 1, &queue.Waiter{Cost: 30}, Config{})
	second := p.Enter(ms, 1, &queue.Waiter{Cost: 20}, Config{})
	assert.Equal(t, queue.Answer{Mark: 1, Spent: 30}, first)
	assert.Equal(t, queue.Answer{Mark: 2, Spent: 50}, second)
	assert.EqualValues(t, 48, left(&p, ms, ""))
	assert.EqualValues(t, 950, left(&p, ms, "tokens"))
	// The first request took 100 in truth. The second, which passed since, is subtracted.
	p.Note(2*ms, 1, Pass{first.Mark, first.Spent}, field.Quota{Unit: "tokens", Remaining: 900, Limit: 1000, Reset: 10 * sec}, Config{})
	assert.EqualValues(t, 880, left(&p, 2*ms, "tokens"))
	assert.EqualValues(t, 48, left(&p, 2*ms, ""))
}

// A quota whose limit is not named has the rest as its limit, which bounds a cost.
func TestCostWithoutALimit(t *testing.T) {
	var p Pacing
	p.Note(0, 1, Pass{}, field.Quota{Unit: "tokens", Remaining: 1000, Reset: 10 * sec}, Config{})
	p.Enter(0, 1, &queue.Waiter{Cost: 30}, Config{})
	assert.EqualValues(t, 970, left(&p, 0, "tokens"))
}

// A request waits for all windows, and for the end of a window in which too little is left. A
// cost above the limit takes all of it.
func TestCostsOfWaiters(t *testing.T) {
	for _, tt := range []struct {
		requests, tokens int64
		cost             int
		conf             Config
		want             instant.Instant
	}{
		{50, 500, 100, Config{}, 0},
		{0, 500, 100, Config{}, instant.At(10 * time.Second)},
		{50, 99, 100, Config{}, instant.At(20 * time.Second)},
		{50, 99, 99, Config{}, 0},
		{50, 99, 100, Config{MaxWait: 5 * time.Second}, instant.At(5 * time.Second)},
		{50, 500, 9999, Config{}, instant.At(20 * time.Second)},
		{50, 1000, 9999, Config{}, 0},
	} {
		var p Pacing
		p.Note(0, 1, Pass{}, field.Quota{Remaining: tt.requests, Limit: 50, Reset: 10 * time.Second}, tt.conf)
		p.Note(0, 1, Pass{}, field.Quota{Unit: "tokens", Remaining: tt.tokens, Limit: 1000, Reset: 20 * time.Second}, tt.conf)
		w := queue.NewWaiter()
		w.Cost = tt.cost
		a := p.Enter(0, 1, w, tt.conf)
		if tt.want == 0 {
			assert.Equal(t, queue.Go, a.Verb, "%+v", tt)
			continue
		}
		if assert.Equal(t, queue.Wait, a.Verb, "%+v", tt) {
			assert.Equal(t, tt.want, a.Until, "%+v", tt)
		}
		assert.Equal(t, queue.Go, p.Enter(a.Ask, 1, w, tt.conf).Verb, "%+v", tt)
	}
}

// The last fifth is spread by the costs: after a large request the next waits for longer.
func TestCostsAreSpread(t *testing.T) {
	wait := func(cost int) time.Duration {
		var p Pacing
		p.Note(0, 1, Pass{}, field.Quota{Unit: "tokens", Remaining: 100, Limit: 1000, Reset: 10 * time.Second}, Config{})
		first, next := queue.NewWaiter(), queue.NewWaiter()
		first.Cost, next.Cost = cost, 1
		a := p.Enter(0, 1, first, Config{})
		if a.Verb == queue.Wait {
			a = p.Enter(a.Ask, 1, first, Config{})
		}
		p.Note(sec, 1, Pass{a.Mark, a.Spent}, field.Quota{Unit: "tokens", Remaining: 100 - int64(cost), Limit: 1000, Reset: 9 * time.Second}, Config{})
		return p.Enter(sec, 1, next, Config{}).Until.Since()
	}
	assert.Greater(t, wait(50), 5*wait(5))
	assert.Less(t, wait(50), 10*time.Second)
}
