package pacing

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const ms, sec = hosttest.Ms, hosttest.Sec

func pass(t *testing.T, p *Pacing, now instant.Instant, n int) {
	t.Helper()
	for i := range n {
		require.Equal(t, queue.Go, p.Enter(now, 1, nil, Config{}).Verb, "at %v, request %d", now, i+1)
	}
}

func paced(t *testing.T, p *Pacing, now, until instant.Instant) {
	t.Helper()
	a := p.Enter(now, 1, nil, Config{})
	require.Equal(t, []any{queue.Wait, until}, []any{a.Verb, a.Ask}, "at %v", now)
}

func TestPacingSpreadsTheRest(t *testing.T) {
	var p Pacing
	assert.True(t, p.Quiet(), "new and not quiet")
	pass(t, &p, 0, 1000) // nothing is known
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 24, Limit: 100, Reset: 10 * sec}, Config{})
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 24, Limit: 100, Reset: 11 * sec}, Config{}) // the same window
	pass(t, &p, 0, 4)                                                                       // more than a fifth is left
	for i := range 20 {
		at := time.Duration(i) * 10 * sec / 20
		pass(t, &p, instant.At(at), 1)
		paced(t, &p, instant.At(at), instant.At(at+10*sec/20))
	}
	paced(t, &p, 9600*ms, 10*sec) // used up: the window's end
	pass(t, &p, 10*sec, 80)       // a window like the last
	left, end, _ := p.Left(10*sec, 1, "")
	assert.Equal(t, []any{int64(20), instant.Instant(21 * sec)}, []any{left, end}, "what is left, and until when")
	p.Note(10*sec, 1, Pass{Mark: 104}, field.Quota{Remaining: 20, Limit: 100, Reset: 10 * sec}, Config{})
	pass(t, &p, 20*sec, 81) // and again
	assert.Equal(t, queue.Wait, p.Enter(20*sec, 1, nil, Config{}).Verb)
	pass(t, &p, 30*sec, 1000) // two windows without a response: nothing is known
	assert.True(t, p.Quiet(), "not quiet")
}

func TestPacingRestOnlyGoesDown(t *testing.T) {
	type note struct {
		at               instant.Instant
		reset            time.Duration
		remaining, limit int64
	}
	for _, tt := range []struct {
		name  string
		notes []note
		at    instant.Instant
		want  int64
		end   instant.Instant
	}{
		{"the least of one window counts", []note{{0, 10 * sec, 50, 100}, {0, 10 * sec, 70, 100}, {0, 10 * sec, 49, 100}, {0, 10 * sec, 52, 100}}, 0, 49, 10 * sec},
		{"whole seconds round", []note{{0, 10 * sec, 50, 100}, {900 * ms, 10 * sec, 60, 100}, {ms, 9 * sec, 60, 100}}, sec, 50, 10 * sec},
		{"the next window", []note{{0, 2 * sec, 0, 100}, {2 * sec, 60 * sec, 99, 100}}, 2 * sec, 99, 62 * sec},
		{"the next window, early", []note{{0, 2 * sec, 0, 100}, {1900 * ms, 60 * sec, 99, 100}}, 2 * sec, 99, 61900 * ms},
		{"a late response of the window before", []note{{0, 2 * sec, 0, 100}, {2 * sec, 60 * sec, 99, 100}, {2100 * ms, sec, 0, 100}}, 2200 * ms, 99, 62 * sec},
		{"no reset says nothing", []note{{0, 0, 5, 100}, {0, -sec, 5, 100}}, 0, 0, 0},
		{"a negative rest is none", []note{{0, sec, -5, 100}}, 0, 0, sec},
		{"a reset in a year is cut", []note{{0, 365 * 24 * time.Hour, 5, 100}}, 0, 5, instant.At(24 * time.Hour)},
		{"a huge rest is cut", []note{{0, sec, 1 << 62, 1 << 62}}, 0, 1 << 40, sec},
		{"ends 1.5 s apart are the same", []note{{0, 10 * sec, 50, 100}, {0, 8500 * ms, 30, 100}}, 0, 30, 10 * sec},
		{"an earlier end is another window", []note{{0, 10 * sec, 50, 100}, {0, 8500*ms - 1, 30, 100}}, 0, 50, 10 * sec},
		{"a rest at the bound", []note{{0, sec, 1<<40 - 1, 1 << 62}}, 0, 1<<40 - 1, sec},
		{"ends 1.5 s later are the same", []note{{0, 10 * sec, 50, 100}, {0, 11500 * ms, 60, 100}}, 0, 50, 10 * sec},
		{"a later end is another window", []note{{0, 10 * sec, 50, 100}, {9 * sec, 2500*ms + 1, 60, 100}}, 9 * sec, 60, 11500*ms + 1},
		{"the limit is not named", []note{{0, sec, 5, 0}}, 0, 5, sec},
	} {
		var p Pacing
		for _, n := range tt.notes {
			p.Note(n.at, 1, Pass{}, field.Quota{Remaining: n.remaining, Limit: n.limit, Reset: n.reset}, Config{})
		}
		left, end, _ := p.Left(tt.at, 1, "")
		assert.True(t, left == tt.want && end == tt.end, "%s: %d left until %v, want %d until %v", tt.name, left, end, tt.want, tt.end)
		assert.Equal(t, tt.end == 0, p.Quiet(), "%s: is anything known", tt.name)
	}
}

// A wrong or hostile header stops a host no longer than MaxWait at a time.
func TestPacingMaxWait(t *testing.T) {
	for _, conf := range []Config{{}, {MaxWait: 5 * sec}} {
		var p Pacing
		most := conf.maxWait()
		p.Note(0, 1, Pass{}, field.Quota{Remaining: 0, Limit: 100, Reset: 24 * time.Hour}, conf)
		p.Note(instant.At(most/2), 1, Pass{}, field.Quota{Remaining: 0, Limit: 100, Reset: 24*time.Hour - most/2}, conf) // moves nothing
		var now instant.Instant
		for range 10 {
			a := p.Enter(now, 1, nil, conf)
			require.True(t, a.Verb == queue.Wait && a.Ask.Sub(now) <= most, "at %v: %+v", now, a)
			now = a.Ask
			require.Equal(t, queue.Go, p.Enter(now, 1, nil, conf).Verb, "at %v", now)
			p.Note(now, 1, Pass{}, field.Quota{Remaining: 0, Limit: 100, Reset: 24 * time.Hour}, conf) // and again
		}
	}
	var p Pacing
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 0, Limit: 100, Reset: time.Hour}, Config{MaxWait: -1})
	paced(t, &p, 0, instant.At(time.Hour))
}

func TestPacingWaitersPassInOrder(t *testing.T) {
	var p Pacing
	cl := &hosttest.Clock{}
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 10, Limit: 100, Reset: 10 * sec}, Config{})
	var times []time.Duration
	var order []int
	woken := 0
	for i := range 30 {
		w := &queue.Waiter{ID: i}
		var ask func()
		done := false
		ask = func() {
			if done {
				return
			}
			switch a := p.Enter(cl.Now, 1, w, Config{}); {
			case a.Verb == queue.Go:
				done = true
				times, order = append(times, cl.Now.Since()), append(order, i)
			case a.Ask != instant.Never:
				cl.At(a.Ask, ask)
			}
		}
		w.Woken = func(*queue.Waiter) { woken++; cl.At(cl.Now, ask) }
		cl.At(0, ask)
		if i == 5 {
			cl.At(500*ms, func() { done = true; p.Leave(w) })
		}
	}
	cl.RunTo(10*sec - 1)
	assert.True(t, len(times) == 10 && slices.IsSorted(order) && !slices.Contains(order, 5), "passed %v at %v", order, times)
	for i, at := range times {
		assert.InDelta(t, time.Duration(i)*sec, at, sec/10, "request %d", i)
	}
	assert.LessOrEqual(t, woken, 40, "wake-ups")
	cl.RunTo(10 * sec)
	assert.Len(t, times, 29, "passed by the window's end")
}

// A quota that ends soon makes room for another, and none in which somebody waits.
func TestPacingMakesRoom(t *testing.T) {
	var p Pacing
	for key := range uint64(queue.MaxScopes + 1) {
		p.Note(0, key, Pass{}, field.Quota{Remaining: 0, Limit: 1, Reset: sec + time.Duration(key)}, Config{})
		if key == 0 {
			p.Enter(0, 0, queue.NewWaiter(), Config{})
		}
	}
	var gone []uint64
	for key := range uint64(queue.MaxScopes + 1) {
		if _, _, known := p.Left(0, key, ""); !known {
			gone = append(gone, key)
		}
	}
	require.Len(t, gone, 1)
	assert.True(t, 0 < gone[0] && gone[0] <= queue.MaxScopes-15, "scope %d has gone", gone[0])
}

func TestPacingCosts(t *testing.T) {
	var p Pacing
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 1 << 30, Limit: 1 << 30, Reset: time.Hour}, Config{})
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p.Enter(0, 1, nil, Config{})
		p.Note(0, 1, Pass{}, field.Quota{Remaining: 1 << 30, Limit: 1 << 30, Reset: time.Hour}, Config{})
	}), "allocations")
	assert.LessOrEqual(t, unsafe.Sizeof(p), uintptr(32), "bytes")
}

func TestPacingLeaveHandsTheTurnOn(t *testing.T) {
	var p Pacing
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 1, Limit: 100, Reset: 10 * sec}, Config{})
	pass(t, &p, 0, 1)
	first, second := queue.NewWaiter(), queue.NewWaiter()
	p.Enter(0, 1, first, Config{})
	require.Equal(t, instant.Never, p.Enter(0, 1, second, Config{}).Ask)
	assert.Equal(t, queue.Wait, p.Enter(0, 1, nil, Config{}).Verb)
	assert.Equal(t, []int{2, 0}, []int{p.Waiting(), (*Pacing)(nil).Waiting()}, "requests that wait")
	p.Leave(first)
	assert.True(t, hosttest.Woken(second), "the second in the queue was not woken")
}

// When nothing is known any more, a request passes that others are before, because they pass as
// well. A request that has waited asks once more before it goes. If it had to wait for the others
// then, each of them would ask again and again.
func TestPacingNobodyWaitsWhenNothingIsKnown(t *testing.T) {
	var p Pacing
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 0, Limit: 100, Reset: 10 * sec}, Config{})
	first, second := queue.NewWaiter(), queue.NewWaiter()
	for _, w := range []*queue.Waiter{first, second} {
		require.Equal(t, queue.Wait, p.Enter(0, 1, w, Config{}).Verb)
	}
	require.Equal(t, queue.Answer{}, p.Enter(20*sec, 1, first, Config{}))
	require.True(t, hosttest.Woken(second))
	assert.Equal(t, queue.Answer{}, p.Enter(20*sec, 1, &queue.Waiter{Cost: 2}, Config{}))
	assert.Equal(t, queue.Answer{}, p.Enter(20*sec, 1, nil, Config{}))
	assert.Equal(t, queue.Answer{}, p.Enter(20*sec, 1, second, Config{}))
	assert.True(t, p.Quiet())
}

// If no request is left, none goes before the end of the window, even if requests were
// being spread before the response that said so.
func TestPacingNoneLeftStopsTheSpreading(t *testing.T) {
	var p Pacing
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 10, Limit: 100, Reset: 50 * sec}, Config{})
	pass(t, &p, 0, 1) // the next in 5 s
	p.Note(sec, 1, Pass{}, field.Quota{Remaining: 0, Limit: 100, Reset: 49 * sec}, Config{})
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: 50 * sec, Until: 50 * sec}, p.Enter(sec, 1, nil, Config{}))
	assert.Equal(t, queue.Wait, p.Enter(6*sec, 1, nil, Config{}).Verb, "at 6 s, with none left until 50 s")

	p = Pacing{}
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 10, Limit: 100, Reset: 50 * sec}, Config{})
	p.Note(0, 1, Pass{Mark: sendPaced(t, &p, 0)}, field.Quota{Remaining: 19, Limit: 100, Reset: 50 * sec}, Config{}) // more are left
	paced(t, &p, 0, 2500*ms)
	p.Note(0, 1, Pass{Mark: sendPaced(t, &p, 2500*ms)}, field.Quota{Remaining: 50, Limit: 100, Reset: 50 * sec}, Config{})
	pass(t, &p, 2500*ms, 30) // more than a fifth
}

// A response tells of a window that was guessed. If it answers an earlier request, it only takes from what is left. The first waiter
// hears of it.
func TestPacingGuess(t *testing.T) {
	var p Pacing
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 100, Limit: 100, Reset: 10 * sec}, Config{})
	pass(t, &p, 12*sec, 81) // in a window until 20 s
	w := queue.NewWaiter()
	require.Equal(t, queue.Wait, p.Enter(12*sec, 1, w, Config{}).Verb)
	for _, n := range []struct {
		remaining, left int64
	}{{50, 19}, {40, 19}, {5, 5}} {
		p.Note(12*sec, 1, Pass{}, field.Quota{Remaining: n.remaining, Limit: 100, Reset: 9 * sec}, Config{})
		assert.True(t, hosttest.Woken(w))
		left, end, _ := p.Left(12*sec, 1, "")
		assert.Equal(t, []any{n.left, instant.Instant(21 * sec)}, []any{left, end}, "of %d", n.remaining)
	}
}

// If others use a quota as well, each waits as if they went on like itself.
func TestWindowOfMany(t *testing.T) {
	for others, want := range map[int64]instant.Instant{0: 2500 * ms, 1: 5 * sec, 2: 7500 * ms, 9: 10 * sec} {
		v := Window{Others: others}
		v.Begin(0, 10*sec, 4, 100)
		v.Take(0, 1, Config{})
		assert.Equal(t, want, v.Until(0, 1, Config{}), "%d others", others)
	}
	v := Window{Unit: "tokens", Others: 1 << 24}
	v.Begin(0, 10*sec, 1, 1<<53)
	v.Take(0, 1<<53, Config{})
	assert.EqualValues(t, 10*sec, v.Until(0, 1, Config{}), "more than an integer holds")
}

// sendPaced lets one request pass and returns its mark.
func sendPaced(t *testing.T, p *Pacing, now instant.Instant) uint64 {
	t.Helper()
	a := p.Enter(now, 1, nil, Config{})
	require.True(t, a.Verb == queue.Go && a.Mark != 0, "at %v: %+v, want Go", now, a)
	return a.Mark
}

// The response to a later request is believed, whatever was said before.
func TestPacingBelievesTheLastRequest(t *testing.T) {
	for _, tt := range []struct {
		name             string
		remaining, limit int64
		reset            time.Duration
	}{
		{"no requests are left for a day", 0, 5000, 24 * time.Hour},
		{"few requests are left for a day", 3, 5000, 24 * time.Hour},
		{"no requests are left in the same window", 0, 5000, 50 * time.Minute},
		{"no requests are left for a moment", 0, 5000, sec},
		{"very many requests are left", 1 << 39, 1 << 39, 24 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p Pacing
			p.Note(0, 1, Pass{}, field.Quota{Remaining: 5000, Limit: 5000, Reset: time.Hour}, Config{})
			p.Note(sec, 1, Pass{Mark: sendPaced(t, &p, sec)}, field.Quota{Remaining: 4999, Limit: 5000, Reset: time.Hour - sec}, Config{})
			p.Note(2*sec, 1, Pass{Mark: sendPaced(t, &p, 2*sec)}, field.Quota{Remaining: tt.remaining, Limit: tt.limit, Reset: tt.reset}, Config{})
			now := instant.At(2 * sec)
			if a := p.Enter(now, 1, nil, Config{}); a.Verb == queue.Wait {
				if now = a.Until; now > instant.At(2*sec+time.Minute) {
					t.Fatalf("waits until %v", now)
				}
				p.Enter(now, 1, nil, Config{})
			}
			mark := p.Enter(now.Add(time.Minute), 1, nil, Config{}).Mark // 0 where that window is over
			p.Note(now.Add(time.Minute), 1, Pass{Mark: mark}, field.Quota{Remaining: 4990, Limit: 5000, Reset: instant.At(time.Hour).Sub(now)}, Config{})
			left, end, _ := p.Left(now.Add(time.Minute), 1, "")
			assert.True(t, left == 4990 && end == instant.At(time.Hour+time.Minute), "%d left until %v", left, end)
			pass(t, &p, now.Add(time.Minute), 3000)
		})
	}
}

// Responses overtake each other. The response to an earlier request does not undo the
// response to a later one.
func TestPacingReorderedResponses(t *testing.T) {
	var p Pacing
	p.Note(0, 1, Pass{}, field.Quota{Remaining: 100, Limit: 100, Reset: 10 * sec}, Config{})
	var marks [5]uint64
	for i := range marks {
		marks[i] = sendPaced(t, &p, 0)
	}
	left := func(want int64) {
		t.Helper()
		assert.Equal(t, want, left(&p, ms, ""))
	}
	p.Note(ms, 1, Pass{Mark: marks[3]}, field.Quota{Remaining: 40, Limit: 100, Reset: 10 * sec}, Config{}) // others use the quota, too
	left(39)                                                                                               // one passed since
	p.Note(ms, 1, Pass{Mark: marks[1]}, field.Quota{Remaining: 60, Limit: 100, Reset: 10 * sec}, Config{})
	left(39)
	p.Note(ms, 1, Pass{Mark: marks[2]}, field.Quota{Remaining: 20, Limit: 100, Reset: 10 * sec}, Config{}) // less is less
	left(20)
	p.Note(ms, 1, Pass{Mark: marks[0]}, field.Quota{Remaining: 0, Limit: 100, Reset: 24 * time.Hour}, Config{}) // that window cannot have begun
	left(20)
	p.Note(ms, 1, Pass{Mark: marks[0]}, field.Quota{Remaining: 90, Limit: 100, Reset: sec}, Config{}) // that window is over
	left(20)
	p.Note(ms, 1, Pass{Mark: marks[4]}, field.Quota{Remaining: 70, Limit: 100, Reset: 10 * sec}, Config{})
	left(70)
}

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
