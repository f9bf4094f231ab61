package line

import (
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/outage"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const ms, sec = time.Millisecond, time.Second

var at = instant.At

func TestFigures(t *testing.T) {
	assert.Equal(t, []any{2.95, 2, 0.1}, []any{ceiling, slow, growth})
}

// A host is a Line with its requests.
type host struct {
	*testing.T
	Line
	c   Config
	now instant.Instant
}

func newHost(t *testing.T) *host {
	return &host{T: t, c: Config{Budget: budget.Config{}.Complete(), Probers: 1}, now: at(time.Hour)}
}

// A request is in the line or under way.
type request struct {
	Place
	w   *queue.Waiter
	ask instant.Instant // what it was told
}

// request returns a request that has failed just now, as often as Sent says. It waits for a minute at most.
func (h *host) request(sent int) *request {
	r := &request{Place: Place{Sent: sent, Failed: h.now}, w: queue.NewWaiter()}
	r.w.From, r.w.By = h.now, h.now.Add(time.Minute)
	return r
}

// asks reports whether the request may go.
func (h *host) asks(r *request) bool {
	a := h.Enter(h.now, &r.Place, r.w, &h.c)
	r.ask = a.Ask
	return a.Verb == queue.Go
}

// joins lets the request join the line.
func (h *host) joins(r *request) *request {
	h.Helper()
	require.False(h, h.asks(r))
	return r
}

// woken reports whether the request was woken since it was asked last.
func woken(r *request) bool { return hosttest.Woken(r.w) }

// fails lets so many attempts fail that took a time.
func (h *host) fails(n int, took time.Duration, f Failure) {
	for range n {
		f.Began = h.now.Add(-took)
		h.Failed(h.now, f)
	}
}

// down lets the host fail for a second.
func (h *host) down() {
	h.fails(9, 0, Failure{Scope: uint64(h.now)})
	h.now = h.now.Add(sec)
	h.fails(1, 0, Failure{Scope: uint64(h.now)})
	require.True(h, h.State().Down)
}

// empty takes all tokens.
func (h *host) empty() {
	for h.Left(h.now, &h.c) >= 1 {
		h.Enter(h.now, &Place{Sent: 1, Failed: h.now}, nil, &h.c)
	}
}

// over ends an attempt that has gone.
func (h *host) over(p *Place) {
	p.Goes()
	h.Over(p)
}

// succeeds ends an attempt with a success.
func (h *host) succeeds(r *request, took time.Duration) {
	h.over(&r.Place)
	h.Succeeded(h.now, Success{Retry: true, Began: h.now.Add(-took)})
}

// A retry takes a token, and waits if there is none. Who does not wait is refused.
func TestRetriesTakeTokens(t *testing.T) {
	h := newHost(t)
	assert.Equal(t, State{}, h.State())
	for range 30 {
		r := h.request(1)
		assert.True(t, h.asks(r))
		assert.NotZero(t, r.token)
		assert.False(t, r.Leaves(), "it has not waited, and nobody else did")
		h.over(&r.Place)
	}
	assert.Zero(t, h.Left(h.now, &h.c))
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: h.now.Add(sec/3 + 1)}, h.Enter(h.now, &Place{Sent: 1, Failed: h.now}, nil, &h.c))
	assert.Zero(t, h.State().Waiting, "a hedge does not wait")
	r := h.joins(h.request(1))
	assert.Equal(t, State{Waiting: 1}, h.State())
	assert.Equal(t, h.now.Add(sec/3+1), r.ask)
	assert.Zero(t, r.token)
	h.now = r.ask - 1
	assert.False(t, h.asks(r))
	assert.Equal(t, 1, h.State().Waiting, "it joins once")
	h.now = r.ask
	assert.Equal(t, queue.Wait, h.Enter(h.now, &Place{Sent: 1}, nil, &h.c).Verb, "a hedge goes before nobody who waits")
	assert.Zero(t, h.Left(h.now, &h.c), "nor does anybody else")
	assert.True(t, h.asks(r))
	assert.True(t, r.Leaves())
	assert.NotZero(t, r.token)
	assert.Zero(t, h.State().Waiting)

	h.Over(&r.Place)
	assert.True(t, h.asks(h.request(1)), "the token of the other")
	first := &request{Place: Place{}, w: queue.NewWaiter()}
	assert.True(t, h.asks(first), "a first attempt needs no token")
	assert.Zero(t, first.token)
}

// Without a budget nothing waits. With the circuit breaker it waits for the end of an outage all the same.
func TestBudgetOff(t *testing.T) {
	h := newHost(t)
	h.c.Budget = budget.Config{Ratio: -1, PerSecond: -1}
	for range 100 {
		assert.True(t, h.asks(h.request(1)))
	}
	h.down()
	assert.True(t, h.asks(h.request(1)))
	assert.Positive(t, h.Left(h.now, &h.c))
	h.c.Breaker = true
	h.joins(h.request(1))
	h.joins(h.request(0))
}

// Who has failed at most once stands before the others, and goes before them if it does not wait yet. Otherwise
// each waits for the one before it, who wakes it when it goes or leaves.
func TestOrder(t *testing.T) {
	h := newHost(t)
	h.empty()
	twice := h.joins(h.request(2))
	assert.NotEqual(t, instant.Never, twice.ask)
	often := h.joins(h.request(5))
	assert.Equal(t, instant.Never, often.ask, "somebody is before it")
	once := h.joins(h.request(1))
	assert.NotEqual(t, instant.Never, once.ask, "it is the first")
	next := h.joins(h.request(1))
	assert.Equal(t, instant.Never, next.ask)
	h.now = h.now.Add(time.Minute)
	assert.False(t, h.asks(twice))
	assert.Equal(t, instant.Never, twice.ask)
	for _, r := range []*request{once, next, twice} {
		assert.False(t, woken(often))
		assert.True(t, h.asks(r))
		h.Leave(&r.Place, r.w) // has no effect any more
	}
	assert.True(t, woken(often) && woken(twice) && woken(next))
	assert.True(t, h.asks(h.request(1)), "before who has failed often")
	assert.False(t, h.asks(h.request(2)))

	h.empty()
	h.Leave(&often.Place, often.w)
	h.Leave(&often.Place, often.w)
	assert.Equal(t, 1, h.State().Waiting)
}

// While the host is down, new requests go. A retry goes as a probe, if for a gap no attempt was made.
func TestProbes(t *testing.T) {
	h := newHost(t)
	h.down()
	assert.Zero(t, h.Left(h.now, &h.c), "nobody knows when there is one")
	began := h.now
	hurried := h.request(1)
	hurried.w.By = hurried.w.From.Add(2 * sec)
	h.joins(hurried)
	assert.Equal(t, began.Add(sec/2), hurried.ask, "a quarter of its patience")
	h.Leave(&hurried.Place, hurried.w)
	r := h.request(1)
	a := h.Enter(h.now, &r.Place, r.w, &h.c)
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: began.Add(sec), Until: began.Add(sec), Down: true}, a)
	hasty := h.request(1)
	hasty.w.By = hasty.w.From.Add(2 * sec)
	a = h.Enter(h.now, &hasty.Place, hasty.w, &h.c)
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.Never, Until: began.Add(sec), Down: true}, a, "the patience of the first counts")
	h.now = began.Add(sec / 2)
	h.fails(1, 0, Failure{})
	h.now = began.Add(sec)
	assert.False(t, h.asks(r), "another attempt has found out")
	assert.Equal(t, began.Add(3*sec/2), r.ask)
	h.now = r.ask
	assert.True(t, h.asks(r))
	assert.Zero(t, r.token, "a probe takes none")
	assert.False(t, r.Leaves(), "it may hang for longer than the outage")
	assert.True(t, woken(hasty))
	assert.False(t, h.asks(hasty))
	assert.Equal(t, h.now.Add(sec), hasty.ask, "a second at least")
	h.Leave(&hasty.Place, hasty.w)
	assert.Equal(t, queue.Wait, h.Enter(h.now.Add(2*sec-1), &Place{Sent: 1}, nil, &h.c).Verb)
	assert.Equal(t, queue.Go, h.Enter(h.now.Add(2*sec), &Place{Sent: 1}, nil, &h.c).Verb, "a hedge that probes")
}

// An outage that begins wakes the first, who may have been told a later time than that of its probe.
func TestOutageWakesTheFirst(t *testing.T) {
	for _, told := range []bool{false, true} {
		h := newHost(t)
		h.c.Budget = budget.Config{Ratio: 0.2, PerSecond: -1}
		h.empty()
		if h.fails(9, 0, Failure{Scope: 7, Told: told}); told {
			h.fails(1, sec, Failure{Scope: 7, Told: true, Wait: sec})
		}
		r := h.request(1)
		r.Scope = 7
		r.w.By = h.now.Add(2 * sec)
		h.joins(r)
		if told {
			h.Succeeded(h.now, Success{Scopes: [2]uint64{7}})
			h.fails(9, 0, Failure{Scope: 7, Told: true})
		}
		woken(r)
		assert.False(t, h.asks(r))
		h.fails(1, 0, Failure{Scope: 7, Told: told, Wait: sec})
		assert.True(t, woken(r))
		assert.False(t, h.asks(r))
		assert.Equal(t, h.now.Add(sec/2), r.ask)
	}
}

// What a fleet says wakes the first as well.
func TestFleet(t *testing.T) {
	h := newHost(t)
	h.c.Probers = 10
	h.empty()
	r := h.joins(h.request(1))
	h.Hear(func(o *outage.Outage) { o.Hear(h.now.Add(-9*sec), h.now, 0) })
	assert.Equal(t, State{State: outage.State{Down: true, Since: h.now.Add(-9 * sec)}, Waiting: 1}, h.State())
	assert.True(t, woken(r))
	assert.True(t, h.asks(r), "it finds out at once, because no request of this member has failed")
	next := h.joins(h.request(1))
	assert.Equal(t, h.now.Add(10*sec), next.ask)
	h.c.Probers = 1
	h.Hear(func(o *outage.Outage) { o.Hear(0, h.now.Add(3*sec), 0) })
	assert.True(t, woken(next))
	assert.False(t, h.asks(next))
	assert.Equal(t, h.now.Add(3*sec), next.ask)
}

// With the circuit breaker first attempts wait while the host is down, and come back as the others do. Without it, and with
// FailFast after the outage, they go.
func TestBreaker(t *testing.T) {
	h := newHost(t)
	h.c.Breaker = true
	assert.True(t, h.asks(h.request(0)), "the host is not down")
	h.empty()
	assert.True(t, h.asks(h.request(0)), "it needs no token")
	h.down()
	first, second := h.joins(h.request(0)), h.joins(h.request(0))
	h.now = first.ask
	assert.True(t, h.asks(first))
	h.now = h.now.Add(sec / 10)
	h.succeeds(first, sec/10)
	assert.False(t, h.State().Down)
	assert.True(t, woken(second))
	third := h.joins(h.request(0))
	assert.Equal(t, instant.Never, third.ask, "it began after the outage, and nobody goes before who waits")
	h.c.FailFast = true
	assert.True(t, h.asks(h.request(0)), "nobody has waited")
	h.c.FailFast = false
	assert.True(t, h.asks(second))
	assert.Zero(t, second.token)

	h = newHost(t)
	h.c.Breaker, h.c.FailFast = true, true
	h.down()
	a := h.Enter(h.now, &Place{}, nil, &h.c)
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: h.now.Add(sec), Until: h.now.Add(sec), Down: true}, a)
	assert.Equal(t, queue.Go, h.Enter(a.Until, &Place{}, nil, &h.c).Verb, "a request that comes then finds out")
}

// With the circuit breaker new requests join the line. It is empty soon all the same, because the pace is faster than they come,
// and because their successes count for the window.
func TestBreakerReturns(t *testing.T) {
	s := &story{T: t, waiting: map[*storyRequest]bool{}, c: Config{Budget: budget.Config{}.Complete(), Breaker: true, Probers: 1}}
	s.Now = at(time.Hour)
	up := true
	s.answers = func() (bool, bool, bool, time.Duration) { return up, false, false, 100 * ms }
	second := func(n int) {
		for range n {
			for range 50 {
				s.start(1, 1)
				s.RunTo(s.Now.Add(sec / 50))
			}
		}
	}
	second(30)
	assert.Zero(t, s.waited)
	up = false
	second(10)
	assert.Greater(t, len(s.waiting), 400)
	up = true
	second(15)
	assert.Zero(t, len(s.waiting))
	s.waited = 0
	second(10)
	assert.Zero(t, s.waited)
}

// Those with the credentials of a 429, and those of a path, have an outage and a line of their own. A 429 is no
// failure of the host.
func TestScopes(t *testing.T) {
	h := newHost(t)
	h.fails(10, sec, Failure{Told: true})
	assert.True(t, h.asks(h.request(0)), "a first attempt has no scope")
	h.scopes = nil
	told := Failure{Scope: 5, Told: true, Wait: sec}
	h.fails(9, 0, told)
	assert.Nil(t, h.failing(5).first())
	r := h.request(1)
	r.Scope = 5
	assert.True(t, h.asks(r), "nine are no outage")
	h.fails(1, 0, told)
	assert.Zero(t, h.State(), "that of a 429 is not that of the host")
	r = h.request(1)
	r.Scope = 5
	h.joins(r)
	other := h.request(1)
	other.Scope = 6
	assert.True(t, h.asks(other), "no key waits behind another")
	assert.False(t, h.Succeeded(h.now, Success{Scopes: [2]uint64{9, 8}}))
	assert.False(t, woken(r))
	assert.False(t, h.Succeeded(h.now, Success{Scopes: [2]uint64{9, 5}}), "the host was not down")
	assert.True(t, woken(r))
	h.now++
	late := h.request(1)
	late.Scope = 5
	h.joins(late)
	assert.True(t, h.asks(h.request(0)), "a first attempt has failed in none of them")
	assert.True(t, h.asks(r), "the scope is back")
	assert.Len(t, h.scopes, 1)
	h.Leave(&late.Place, late.w)
	assert.Zero(t, h.State().Waiting)
	h.Succeeded(h.now, Success{Scopes: [2]uint64{9, 5}})
	assert.Len(t, h.scopes, 1, "others may come who were told the same time")
	h.now = h.now.Add(budget.Window)
	h.Succeeded(h.now, Success{Scopes: [2]uint64{9, 5}})
	assert.Empty(t, h.scopes)

	h.fails(5, sec, Failure{Scope: 1})
	assert.Equal(t, State{State: outage.State{Since: h.now.Add(-sec), Failures: 5}}, h.State())
	h.fails(5, sec, Failure{Scope: 2})
	assert.True(t, h.State().Down, "all paths together are the host")
	assert.False(t, h.failing(1).Down)
	assert.True(t, h.Succeeded(h.now, Success{Scopes: [2]uint64{3, 4}}))
	assert.False(t, h.Succeeded(h.now, Success{Scopes: [2]uint64{3, 4}}))
	r = h.request(1)
	r.Scope = 1
	h.empty()
	h.joins(r)
	assert.Same(t, &h.host, r.in, "a scope that is not down waits with the host")
}

// A machine keeps 256 scopes, and more if requests wait in them.
func TestScopesAreBounded(t *testing.T) {
	h := newHost(t)
	var waiting []*request
	for key := range uint64(10_000) {
		if key%100 > 0 {
			h.fails(1, 0, Failure{Scope: key})
			continue
		}
		h.fails(10, 0, Failure{Scope: key, Told: true, Wait: sec})
		r := h.request(1)
		r.Scope = key
		waiting = append(waiting, h.joins(r))
		h.Succeeded(h.now, Success{})
	}
	assert.LessOrEqual(t, len(h.scopes), queue.MaxScopes)
	for _, r := range waiting {
		assert.Same(t, r.in, h.scopes[r.Scope], "it is known, because a request waits")
	}
}

// A success is a single atomic load if it changes nothing.
func TestQuiet(t *testing.T) {
	h := newHost(t)
	assert.True(t, h.Quiet())
	h.fails(1, 0, Failure{Scope: 1})
	assert.False(t, h.Quiet())
	h.Succeeded(h.now, Success{Scopes: [2]uint64{1}})
	assert.True(t, h.Quiet())
	h.fails(2, 0, Failure{Scope: 1, Told: true})
	h.Succeeded(h.now, Success{Scopes: [2]uint64{1}})
	assert.False(t, h.Quiet(), "a failure is to be outweighed")
	h.Succeeded(h.now, Success{})
	assert.True(t, h.Quiet())
	h.fails(1, 0, Failure{Scope: 2})
	h.Succeeded(h.now, Success{Scopes: [2]uint64{1}})
	assert.False(t, h.Quiet(), "a path has failed")
	h.Succeeded(h.now, Success{Scopes: [2]uint64{1, 2}})
	assert.True(t, h.Quiet())
	h.empty()
	r := h.joins(h.request(1))
	assert.False(t, h.Quiet())
	h.Leave(&r.Place, r.w)
	assert.True(t, h.Quiet())
	h.Hear(func(o *outage.Outage) { o.Hear(h.now, h.now, 0) })
	assert.False(t, h.Quiet())
	assert.True(t, h.Succeeded(h.now, Success{}))
	assert.True(t, h.Quiet())
}

// While others wait, a retry that succeeds pays for three.
func TestSuccessesPay(t *testing.T) {
	for _, row := range []struct {
		waits, retry bool
		goes         int
	}{{true, true, 3}, {true, false, 0}, {false, true, 0}} {
		h := newHost(t)
		h.empty()
		var all []*request
		for range 9 {
			if r := h.request(1); row.waits {
				all = append(all, h.joins(r))
			} else {
				all = append(all, r)
			}
		}
		h.Succeeded(h.now, Success{Retry: row.retry, Began: h.now})
		goes := 0
		for goes < len(all) && h.asks(all[goes]) {
			goes++
		}
		assert.Equal(t, row.goes, goes, row)
	}
}

// After an outage those whose attempts failed before its end go at a pace, even if there is no token. The pace is within ten seconds,
// or as fast as requests came before, and at most 2.95 times as fast as requests came or joined.
func TestPace(t *testing.T) {
	for name, row := range map[string]struct {
		rate   uint64        // requests per second before
		join   int           // how many join
		over   time.Duration // in this time
		floor  float64       // of the budget
		perSec float64       // the pace
		opens  bool          // with a circuit breaker, so that new requests join as well
	}{
		"within ten seconds":        {100, 1000, 10 * sec, 3, 100, false},
		"as fast as before":         {100, 20, 10 * sec, 3, 100, false},
		"at most 2.95 times":        {100, 5000, 100 * sec, 3, 295, false},
		"as fast as they joined":    {0, 100, 20 * sec, 3, 10, false},
		"2.95 times as they joined": {0, 200, 40 * sec, 3, 14.75, false},
		"all at once":               {0, 100, 0, 3, 10, false},
		"as the budget":             {0, 5, 10 * sec, 3, 3, false},
		"and as they join":          {100, 1000, 10 * sec, 3, 200, true},
		"faster than they join":     {0, 20, 4 * sec, 3, 7, true},
	} {
		h := newHost(t)
		h.c.Budget.PerSecond, h.c.Breaker = row.floor, row.opens
		h.Left(h.now, &h.c)
		h.now = h.now.Add(10 * sec)
		h.c.Budget.Requests = 10 * row.rate
		h.Left(h.now, &h.c)
		h.fails(10, sec, Failure{Scope: 9})
		var all []*request
		for range row.join {
			all = append(all, h.joins(h.request(1)))
			h.now = h.now.Add(row.over / time.Duration(row.join))
		}
		if row.over == 0 {
			h.now = h.now.Add(sec)
		}
		h.now++
		h.Succeeded(h.now, Success{})
		h.host.window = 0 // has no bound
		assert.True(t, h.asks(all[0]), "the first goes at once: %s", name)
		assert.False(t, h.asks(all[1]), name)
		assert.InEpsilon(t, float64(sec)/row.perSec, float64(all[1].ask.Sub(h.now)), 1e-3, name)
		h.now = all[1].ask - 1
		assert.False(t, h.asks(all[1]), name)
		h.empty()
		for h.now++; !h.asks(all[1]); h.now = all[1].ask { // those who joined come to be fewer per second
			require.Less(t, all[1].ask, h.now.Add(5*ms), name)
		}
	}
}

// Whose attempt failed after the end of the outage takes a token of the budget, without a pace.
func TestFailedAfterTheEnd(t *testing.T) {
	h := newHost(t)
	h.down()
	r := h.joins(h.request(1))
	h.Succeeded(h.now, Success{})
	assert.Equal(t, queue.Wait, h.Enter(h.now, &Place{Sent: 1, Failed: h.now}, nil, &h.c).Verb, "one waits")
	r.Failed = h.now
	assert.True(t, h.asks(r), "the bucket is full")
	h.empty()
	assert.Equal(t, queue.Wait, h.Enter(h.now, &Place{Sent: 1, Failed: h.now}, nil, &h.c).Verb)
	old := h.request(1)
	old.Failed = h.now - 1
	assert.False(t, h.asks(old), "the pace holds although nobody waits")
	h.now = old.ask
	h.empty()
	assert.True(t, h.asks(old), "borrows")
}

// window returns a host that is back with n requests in the line, who left it at the pace.
func window(t *testing.T, n int) (h *host, all []*request) {
	h = newHost(t)
	h.down()
	for range n {
		all = append(all, h.joins(h.request(1)))
	}
	h.c.Budget.PerSecond = 1e6 // the pace
	h.now++
	h.Succeeded(h.now, Success{})
	return h, all
}

// go lets as many go as may, and returns them.
func (h *host) leave(all *[]*request) (gone []*request) {
	for len(*all) > 0 {
		r := (*all)[0]
		if !h.asks(r) {
			if r.ask > h.now.Add(10*time.Microsecond) {
				return gone
			}
			h.now = r.ask
			continue
		}
		*all, gone = (*all)[1:], append(gone, r)
	}
	return gone
}

// After an outage a single request goes, and each success lets two go, as long as they take at most twice as long as
// the fastest.
func TestSlowStart(t *testing.T) {
	h, all := window(t, 200)
	gone := h.leave(&all)
	round := func(took time.Duration) int {
		var next []*request
		assert.Equal(t, instant.Never, all[0].ask, "until one of them is over")
		h.now = h.now.Add(took)
		for _, r := range gone {
			woken(all[0])
			h.succeeds(r, took)
			assert.True(t, woken(all[0]))
			next = append(next, h.leave(&all)...)
		}
		gone = next
		return len(gone)
	}
	assert.Len(t, gone, 1)
	for _, n := range []int{2, 4, 8, 16} {
		assert.Equal(t, n, round(100*ms))
	}
	assert.Equal(t, 32, round(200*ms), "twice as long as the fastest")
	assert.Equal(t, 32, round(200*ms+ms), "longer")
	assert.Equal(t, 64, round(50*ms), "faster")
	assert.Equal(t, 64., h.host.window)
	h.Succeeded(h.now, Success{Began: h.now})
	assert.Equal(t, 64., h.host.window, "a first attempt that did not wait does not count")
	h.Succeeded(h.now, Success{Left: true, Began: h.now})
	assert.Equal(t, 65., h.host.window, "one that did, because of a circuit breaker, does")
	h.host.window = 64
	h.over(&gone[0].Place)
	h.over(&gone[0].Place)
	h.over(&gone[1].Place)
	assert.Equal(t, 62, h.host.away, "each is over once")
	h.Succeeded(h.now, Success{Retry: true, Began: h.now})
	assert.Equal(t, 64., h.host.window, "the window is not used up")
}

// An attempt that gets no answer in time halves the window, once for those that were sent before. Then the window grows slowly,
// and lets one go in five seconds at least.
func TestTimeouts(t *testing.T) {
	h, all := window(t, 200)
	h.host.window = 16
	gone := h.leave(&all)
	require.Len(t, gone, 16)
	h.now = h.now.Add(sec)
	late := Failure{Late: true}
	h.fails(1, sec, Failure{})
	assert.Equal(t, 16., h.host.window, "it was not late")
	for _, r := range gone[:8] {
		h.over(&r.Place)
		h.fails(1, sec, late)
		assert.Equal(t, 8., h.host.window, "once")
	}
	assert.Empty(t, h.leave(&all))
	h.succeeds(gone[8], 100*ms)
	assert.InDelta(t, 8+0.1/8, h.host.window, 1e-9, "it grows slowly")
	assert.Len(t, h.leave(&all), 2, "a part of a request lets one more go")
	h.now = h.now.Add(sec)
	for range 10 {
		h.Succeeded(h.now, Success{})
		h.fails(1, sec/2, late)
		h.now = h.now.Add(sec)
	}
	assert.Equal(t, 0.1, h.host.window, "a request in five seconds, if each takes half a second")
	h.host.away = 0
	h.succeeds(h.leave(&all)[0], sec/2)
	assert.InDelta(t, 0.11, h.host.window, 1e-9, "by a tenth")
	h.host.window = 0.1
	assert.False(t, h.asks(all[0]))
	assert.Equal(t, h.host.leftAt.Add(5*sec), all[0].ask)
	h.succeeds(&request{}, 3*sec)
	h.host.window = 0.2
	assert.False(t, h.asks(all[0]))
	assert.Equal(t, h.host.leftAt.Add(5*sec), all[0].ask, "not longer than between two probes")
	h.host.window = 0.75
	assert.False(t, h.asks(all[0]))
	assert.Equal(t, h.host.leftAt.Add(4*sec), all[0].ask)
	h.now = all[0].ask
	assert.True(t, h.asks(all[0]))
	all = all[1:]
	assert.False(t, h.asks(all[0]), "one at a time")
	assert.Equal(t, instant.Never, all[0].ask)

	for _, r := range all {
		h.Leave(&r.Place, r.w)
	}
	assert.Zero(t, h.host.window, "the line is empty")
	assert.False(t, h.host.wary)
	assert.Zero(t, h.host.joined+h.host.most)
	h.fails(1, 0, late)
	assert.Zero(t, h.host.window, "nobody waits")
}

// A line that had no window gets half of those who are away. While the host is down, a timeout changes nothing.
func TestFirstTimeout(t *testing.T) {
	h, all := window(t, 20)
	h.host.window, h.host.away = 0, 7
	h.now = h.now.Add(sec)
	h.fails(1, sec/2, Failure{Late: true})
	assert.Equal(t, 3.5, h.host.window)
	assert.True(t, h.host.wary)
	h.down()
	h.now = h.now.Add(9 * sec)
	h.fails(1, sec/2, Failure{Late: true})
	assert.Equal(t, 3.5, h.host.window)
	h.Succeeded(h.now, Success{})
	assert.Equal(t, 1., h.host.window, "the next return begins with one")
	h.fails(1, sec/2, Failure{Late: true})
	assert.Equal(t, 1., h.host.window, "it was sent before the end of the outage")
	h.host.window = 0.3
	h.down()
	h.Succeeded(h.now, Success{})
	assert.Equal(t, 0.3, h.host.window, "or with less, if that was too much")
	h.host.away = 0
	h.host.fastest = 0
	h.succeeds(h.leave(&all)[0], 0)
	assert.EqualValues(t, 1, h.host.took, "never 0")
}

// A request that waits costs at most a KiB.
func TestSizeOfAWaiter(t *testing.T) {
	const channel = 96 + 16 // with its element, rounded up
	assert.LessOrEqual(t, unsafe.Sizeof(Place{})+unsafe.Sizeof(queue.Waiter{})+channel, uintptr(300))
	assert.LessOrEqual(t, unsafe.Sizeof(scope{}), uintptr(300), "256 of them at most")
	h := newHost(t)
	h.empty()
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { h.joins(h.request(1)) }), 3., "the place, the waiter and its channel")
}

// With 100,000 who wait, an event wakes two of them at most, and a question looks at none but the first.
func TestManyWait(t *testing.T) {
	const many = 100_000
	h := newHost(t)
	h.down()
	asked, n := []*queue.Waiter{}, 0
	all := make([]request, many)
	for i := range all {
		r := &all[i]
		r.Place = Place{Sent: 1 + i%2, Failed: h.now}
		r.w = &queue.Waiter{From: h.now, By: h.now.Add(time.Minute), ID: i, Woken: func(w *queue.Waiter) {
			if n++; !slices.Contains(asked, w) {
				asked = append(asked, w)
			}
		}}
		h.joins(r)
	}
	h.now++
	h.Succeeded(h.now, Success{})
	went := 0
	for went < many {
		require.LessOrEqual(t, len(asked), 3)
		require.NotEmpty(t, asked)
		r := &all[asked[0].ID]
		asked = asked[1:]
		for !h.asks(r) && r.ask != instant.Never {
			h.now = max(h.now, r.ask)
		}
		if r.w.Waits() {
			continue
		}
		went++
		h.succeeds(r, ms)
	}
	assert.LessOrEqual(t, n, 4*many, "wake-ups")
	assert.Zero(t, h.State().Waiting)
}
