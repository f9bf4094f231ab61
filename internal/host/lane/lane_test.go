package lane

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A traffic drives the lanes of a host, as a Transport would.
type traffic struct {
	Lanes
	now    instant.Instant
	failed bool       // nothing can be opened
	addr   netip.Addr // of the server of the current lane
	other  netip.Addr // of that of the spare
}

func (tr *traffic) open(int, bool) *Lane {
	if tr.failed {
		return nil
	}
	return New(nil)
}

// good is a good response to an attempt that was sent over the spare instead, if l is the spare.
func (tr *traffic) good(l *Lane) bool { return tr.answer(l, Good, OfBad) }

func (tr *traffic) answer(l *Lane, v Verdict, why Instead) bool {
	l.Connected()
	return tr.Answered(tr.now, Response{From: l, Verdict: v, Instead: why, Addr: tr.addr})
}

// suspect is a silence.
func (tr *traffic) suspect(l *Lane) {
	tr.Suspect(tr.now, Suspicion{Used: l, Silent: true, Since: tr.now.Add(-time.Second)}, tr.open)
}

// leave is a silence, after which the other lane has a connection at once.
func (tr *traffic) leave(l *Lane) {
	tr.suspect(l)
	tr.connect()
}

// connect is an attempt that finds a connection on the lane that it is to take.
func (tr *traffic) connect() {
	if to, _ := tr.Next(); to != tr.Current() {
		to.Connected()
	}
	tr.Move()
}

// miss is an attempt that finds none.
func (tr *traffic) miss() Entry {
	to, _ := tr.Next()
	entry, _ := to.Enter(tr.now)
	if entry == Seek {
		to.Missed(tr.now)
	}
	tr.Move()
	return entry
}

func (tr *traffic) wait(d time.Duration) { tr.now = tr.now.Add(d) }

func (tr *traffic) detour(l *Lane, d Detour) *Lane {
	to, _ := tr.Detour(tr.now, l, d, tr.open)
	return to
}

func (tr *traffic) beside(l *Lane) *Lane {
	to, _ := tr.Detour(tr.now, l, Detour{Beside: true, Doubted: true, New: true, Urgent: true}, tr.open)
	to.Connected()
	return to
}

// retried is n times a 5xx over the current lane, whose retry over the spare gets a good response.
func (tr *traffic) retried(n int) {
	for range n {
		used, addr := tr.Current(), tr.addr
		tr.answer(used, Sick, Not)
		tr.addr = tr.other
		tr.answer(tr.detour(used, sick), Good, OfSick)
		tr.addr = addr
	}
}

var (
	sick    = Detour{Sick: true, Doubted: true, New: true} // a 503
	told    = Detour{Sick: true, Doubted: true}            // a 503 that names a wait
	another = Detour{New: true}                            // a 421, or a timeout beside other responses
)

// TestLanes is the specification of the lanes.
func TestLanes(t *testing.T) {
	for _, row := range []struct {
		name    string
		do      func(*traffic)
		current int // the number of the lane at the end
		spare   int // -1: none
		opened  int
	}{
		{"a host begins on the base", func(*traffic) {}, 0, -1, 0},
		{"a silent lane is left", func(tr *traffic) { tr.leave(nil) }, 1, -1, 1},
		{"a silent lane is left once, however many attempts found it silent", func(tr *traffic) {
			base := tr.Current()
			for range 64 {
				tr.leave(base)
			}
		}, 1, -1, 1},
		{"nothing can be opened", func(tr *traffic) { tr.failed = true; tr.leave(nil) }, 0, -1, 0},
		{"the idle connections of the only lane are closed, but not again and again", func(tr *traffic) {
			tr.failed = true
			closed := 0
			for range 100 {
				tr.good(nil)
				tr.leave(tr.Current())
				tr.leave(tr.Current())
				if since := tr.Current().Stale(); since != 0 {
					tr.Current().Refreshed(since)
					closed++
				}
			}
			assert.Equal(t, burst, closed)
		}, 0, -1, 0},
		{"they are closed ever more rarely, if that does not help", func(tr *traffic) {
			tr.failed = true
			var closed [60]int // in each minute
			for n := range 600 * len(closed) {
				tr.leave(tr.Current())
				if since := tr.Current().Stale(); since != 0 {
					tr.Current().Refreshed(since)
					closed[n/600]++
				}
				tr.wait(100 * time.Millisecond)
			}
			assert.Equal(t, []int{4, 1, 1}, closed[:3])
			assert.Equal(t, 1, closed[len(closed)-1])
		}, 0, -1, 0},
		{"a lane that brought nothing is left after 1 s", func(tr *traffic) {
			tr.leave(nil)
			tr.wait(time.Second - 1)
			tr.leave(tr.Current())
			assert.Equal(t, 1, tr.Current().Number)
			tr.wait(1)
			tr.leave(tr.Current())
		}, 2, -1, 2},
		{"the next such lane is left after 2 s, and so on", func(tr *traffic) {
			for range 10 * 60 * 10 {
				tr.leave(tr.Current())
				tr.wait(100 * time.Millisecond)
			}
		}, 15, -1, 15},
		{"a lane that worked is left at once", func(tr *traffic) {
			for range 3 {
				tr.leave(tr.Current())
				tr.good(tr.Current())
			}
		}, 3, -1, 3},
		{"but a host opens only some lanes at once", func(tr *traffic) {
			for range 100 {
				tr.leave(tr.Current())
				tr.good(tr.Current())
			}
		}, burst, -1, burst},
		{"and one in 4 s after that", func(tr *traffic) {
			for range 40 {
				tr.leave(tr.Current())
				tr.good(tr.Current())
				tr.wait(100 * time.Millisecond)
			}
		}, 5, -1, 5},
		{"a name with more addresses is tried through", func(tr *traffic) {
			for range 10 {
				tr.leave(tr.Current())
				tr.Current().Ways.Store(3)
			}
		}, 3, -1, 3},

		{"a host stays until the new lane has a connection", func(tr *traffic) {
			tr.suspect(nil)
			tr.Move()
			assert.Equal(t, Seek, tr.miss())
		}, 0, 1, 1},
		{"the attempts after one that found none try again after 1 s, 2 s, and so on", func(tr *traffic) {
			tr.suspect(nil)
			var at []time.Duration
			for i := range 200 {
				if tr.miss() == Seek {
					at = append(at, time.Duration(i)*100*time.Millisecond)
				}
				tr.wait(100 * time.Millisecond)
			}
			assert.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second}, at)
		}, 0, 1, 1},
		{"a dial that ends later is tried at once", func(tr *traffic) {
			tr.suspect(nil)
			tr.miss()
			to, _ := tr.Next()
			assert.Equal(t, Shut, tr.miss())
			to.Dialled()
			assert.Equal(t, Seek, tr.miss())
		}, 0, 1, 1},
		{"a response over the old lane ends the search", func(tr *traffic) {
			tr.suspect(nil)
			tr.miss()
			tr.good(tr.Current())
			assert.True(t, tr.Calm())
			tr.connect()
		}, 0, 1, 1},
		{"the lane without a connection is tried again after the next silence", func(tr *traffic) {
			tr.suspect(nil)
			tr.miss()
			tr.good(tr.Current())
			tr.wait(time.Minute)
			tr.leave(tr.Current())
		}, 1, -1, 1},
		{"what is on its way when the new lane gets its connection keeps nobody", func(tr *traffic) {
			tr.suspect(nil)
			tr.good(tr.Current())
			tr.connect()
		}, 1, -1, 1},

		{"a detour opens a spare, and the host stays", func(tr *traffic) {
			assert.Equal(t, 1, tr.detour(nil, another).Number)
		}, 0, 1, 1},
		{"the spare does better, and they change places", func(tr *traffic) {
			spare := tr.detour(nil, another)
			assert.True(t, tr.good(spare))
			assert.False(t, tr.good(spare))
		}, 1, 0, 1},
		{"a single 503 moves no host", func(tr *traffic) { tr.retried(1) }, 0, 1, 1},
		{"nor do seven in a row", func(tr *traffic) { tr.retried(7) }, 0, 1, 1},
		{"eight do", func(tr *traffic) { tr.retried(8) }, 1, 0, 1},
		{"with a good response between them the count begins again", func(tr *traffic) {
			for range 10 {
				tr.retried(7)
				tr.good(tr.Current())
			}
		}, 0, 1, 1},
		{"so it does if the spare has a 503 as well", func(tr *traffic) {
			for range 10 {
				tr.retried(7)
				tr.answer(tr.spare.Load(), Sick, OfSick)
			}
		}, 0, 1, 1},
		{"two do not if another address answers", func(tr *traffic) {
			tr.addr, tr.other = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
			tr.retried(2)
		}, 0, 1, 1},
		{"but three do", func(tr *traffic) {
			tr.addr, tr.other = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
			tr.retried(3)
		}, 1, 0, 1},
		{"after eight without a retry the next attempt tries the spare", func(tr *traffic) {
			for range 8 {
				to, _ := tr.Next()
				assert.Same(t, &tr.first, to)
				tr.answer(nil, Sick, Not)
			}
			tr.detour(nil, sick)
			to, trial := tr.Next()
			assert.True(t, trial)
			assert.True(t, tr.answer(to, Good, OfSick))
		}, 1, 0, 1},
		{"and the next eight again, if that does no better", func(tr *traffic) {
			for range 3 {
				for range 8 {
					to, _ := tr.Next()
					assert.Same(t, &tr.first, to)
					tr.answer(nil, Sick, Not)
				}
				tr.detour(nil, sick)
				to, _ := tr.Next()
				assert.NotSame(t, &tr.first, to)
				tr.answer(to, Sick, OfSick)
			}
		}, 0, 1, 1},
		{"a response to an attempt of before says nothing about the spare", func(tr *traffic) {
			base := tr.Current()
			tr.good(tr.detour(nil, another))
			assert.False(t, tr.answer(base, Good, Not))
		}, 1, 0, 1},
		{"the lane that failed stays in doubt, whatever its other connections bring", func(tr *traffic) {
			base := tr.Current()
			spare := tr.detour(nil, another)
			tr.answer(base, Good, Not)
			tr.good(spare)
			tr.wait(time.Second)
			assert.Equal(t, 2, tr.detour(spare, another).Number)
		}, 1, 2, 2},
		{"a lane that a hedge outran is not taken again", func(tr *traffic) {
			tr.good(tr.beside(nil))
			assert.Equal(t, 2, tr.beside(tr.Current()).Number)
		}, 1, 2, 2},
		{"the spare does no better", func(tr *traffic) {
			spare := tr.detour(nil, another)
			assert.False(t, tr.answer(spare, Bad, OfBad))
			assert.Nil(t, tr.detour(spare, another), "the base has failed, too")
		}, 0, 1, 1},
		{"after a second another spare is tried", func(tr *traffic) {
			spare := tr.detour(nil, sick)
			assert.Same(t, spare, tr.detour(nil, sick), "it is not known to be bad")
			assert.Same(t, &tr.first, tr.detour(spare, sick))
			tr.wait(time.Second)
			assert.Equal(t, 2, tr.detour(nil, sick).Number)
		}, 0, 2, 2},
		{"a spare that does no better three times in a row makes way for another, although it did", func(tr *traffic) {
			tr.retried(1)
			tr.wait(time.Second)
			spare := tr.spare.Load()
			for range 3 {
				tr.answer(nil, Sick, Not)
				assert.Same(t, spare, tr.detour(nil, sick))
				tr.answer(spare, Sick, OfSick)
				assert.Same(t, &tr.first, tr.detour(spare, sick))
			}
			tr.retried(7)
		}, 0, 2, 2},
		{"it stays if it does so between them", func(tr *traffic) {
			tr.retried(1)
			tr.wait(time.Second)
			for range 5 {
				tr.retried(1)
				for range 2 {
					tr.answer(tr.detour(nil, sick), Sick, OfSick)
				}
			}
			tr.retried(1)
		}, 0, 1, 1},
		{"a named wait opens nothing", func(tr *traffic) {
			assert.Nil(t, tr.detour(nil, told))
		}, 0, -1, 0},
		{"but takes a spare that is there", func(tr *traffic) {
			spare := tr.detour(nil, sick)
			tr.detour(spare, told)
			assert.Same(t, spare, tr.detour(nil, told))
		}, 0, 1, 1},
		{"a 421 takes no lane that said so", func(tr *traffic) {
			spare := tr.detour(nil, another)
			assert.Equal(t, 1, spare.Number)
			assert.Nil(t, tr.detour(spare, another))
			assert.Nil(t, tr.detour(nil, another))
		}, 0, 1, 1},
		{"an attempt on a lane that was left goes on over the new one", func(tr *traffic) {
			base := tr.Current()
			tr.leave(base)
			assert.Same(t, tr.Current(), tr.detour(base, told))
		}, 1, -1, 1},

		{"a lane that is late, but not silent, is left once in a second at most", func(tr *traffic) {
			for range 20 {
				tr.Suspect(tr.now, Suspicion{Used: tr.Current()}, tr.open)
				tr.connect()
				tr.good(tr.Current())
				tr.wait(100 * time.Millisecond)
			}
		}, 2, -1, 2},
		{"a hedge opens a spare and keeps it", func(tr *traffic) {
			assert.Same(t, tr.beside(nil), tr.beside(nil))
		}, 0, 1, 1},
		{"a silent lane gives way to a spare that is alive", func(tr *traffic) {
			tr.beside(nil).Hear(tr.now)
			tr.leave(tr.Current())
		}, 1, -1, 1},
		{"a spare over which nothing came lately may be dead as well", func(tr *traffic) {
			tr.beside(nil).Hear(tr.now)
			tr.wait(time.Minute)
			tr.leave(tr.Current())
			tr.good(tr.Current())
			tr.wait(time.Second)
			assert.Equal(t, 3, tr.detour(tr.Current(), Detour{New: true, Since: tr.now}).Number)
		}, 2, 3, 3},
		{"a spare that may be dead is better than no lane", func(tr *traffic) {
			tr.beside(nil).Hear(tr.now)
			tr.wait(time.Minute)
			tr.failed = true
			tr.leave(tr.Current())
		}, 1, -1, 1},
		{"a spare that is silent goes", func(tr *traffic) {
			tr.leave(tr.beside(nil))
		}, 0, -1, 1},

		{"lanes in use stay", func(tr *traffic) {
			tr.leave(nil)
			for range 3 {
				tr.wait(time.Minute)
				tr.good(tr.Current())
				tr.Sweep(tr.now)
			}
		}, 1, -1, 1},
		{"a spare that nothing uses closes its idle connections, and is one without them", func(tr *traffic) {
			spare := tr.detour(nil, another)
			tr.answer(spare, Bad, OfBad)
			idle, again := tr.Sweep(tr.now.Add(spareIdle - 1))
			assert.Empty(t, idle)
			assert.EqualValues(t, 1, again)
			idle, _ = tr.Sweep(tr.now.Add(spareIdle))
			assert.Equal(t, []*Lane{spare}, idle)
			idle, _ = tr.Sweep(tr.now.Add(2 * spareIdle))
			assert.Empty(t, idle)
			assert.False(t, spare.IsOpen())
		}, 0, 1, 1},
		{"idle lanes go, and the host returns to the base", func(tr *traffic) {
			tr.good(tr.detour(nil, another))
			_, again := tr.Sweep(tr.now)
			assert.Equal(t, Idle, again)
			idle, again := tr.Sweep(tr.now.Add(again))
			assert.Len(t, idle, 2, "the base as well, because it failed")
			assert.Zero(t, again)
		}, 0, -1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			tr := &traffic{now: instant.At(time.Hour)}
			row.do(tr)
			assert.Equal(t, row.current, tr.Current().Number, "current")
			spare := -1
			if s := tr.spare.Load(); s != nil {
				spare = s.Number
			}
			assert.Equal(t, row.spare, spare, "spare")
			assert.Equal(t, row.opened, tr.Opened(), "opened")
		})
	}
}

// One attempt seeks the connection of a lane, and the others wait for it.
func TestLaneIsConnectedOnce(t *testing.T) {
	tr := &traffic{now: instant.At(time.Hour)}
	l := tr.detour(nil, another)
	enter := func() Entry { e, _ := l.Enter(tr.now); return e }
	assert.Equal(t, Seek, enter())
	entry, ready := l.Enter(tr.now)
	assert.Equal(t, Wait, entry)
	l.Quit()
	<-ready
	assert.Equal(t, Seek, enter(), "the attempt was not sent")
	l.Connected()
	l.Connected()
	assert.Equal(t, Go, enter())
	assert.True(t, (*Lane)(nil).IsOpen())
	assert.True(t, new(Lanes).Current().IsOpen())
}

// A lane is silent once, until something comes over it.
func TestLaneIsSilentOnce(t *testing.T) {
	l := New(nil)
	for range 2 {
		heard := l.Heard()
		assert.True(t, l.Silent(heard))
		assert.False(t, l.Silent(heard))
		l.Hear(heard.Add(time.Second))
		assert.False(t, l.Silent(heard))
	}
}

// No lock is held while a lane is made, and nobody makes another meanwhile.
func TestNoLockWhileALaneIsMade(t *testing.T) {
	tr := &traffic{now: instant.At(time.Hour)}
	to, _ := tr.Detour(tr.now, nil, another, func(int, bool) *Lane {
		assert.Nil(t, tr.detour(nil, another))
		tr.suspect(nil)
		assert.False(t, tr.answer(nil, Good, Not))
		return New(nil)
	})
	assert.Equal(t, 1, to.Number)
	tr = &traffic{now: instant.At(time.Hour)}
	assert.Panics(t, func() {
		tr.Suspect(tr.now, Suspicion{Silent: true}, func(int, bool) *Lane { panic("Config.Lane") })
	})
	tr.Sweep(tr.now)
}

// An attempt that suspects the lane while another attempt makes the next waits for that one.
func TestSuspicionWhileALaneIsMade(t *testing.T) {
	for _, fails := range []bool{false, true} {
		var l Lanes
		silence := Suspicion{Silent: true}
		l.Suspect(2, silence, func(int, bool) *Lane {
			assert.Nil(t, l.Suspect(2, silence, nil))
			to, _ := l.Next()
			entry, ready := to.Enter(2)
			assert.Equal(t, Wait, entry)
			assert.NotNil(t, ready)
			if fails {
				return nil
			}
			return New(nil)
		})
		to, _ := l.Next()
		assert.Equal(t, fails, to == &l.first, "the host stays if there can be no other lane")
	}
}
