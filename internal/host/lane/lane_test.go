package lane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A traffic drives the lanes of a host, as a Transport would.
type traffic struct {
	Lanes
	now    instant.Instant
	failed bool // nothing can be opened
}

func (tr *traffic) open(int, bool) *Lane {
	if tr.failed {
		return nil
	}
	return New(nil)
}

func (tr *traffic) good(l *Lane) bool { return tr.Answered(tr.now, l, true, true) }

func (tr *traffic) leave(l *Lane) { tr.Leave(tr.now, l, true, tr.now.Add(-time.Second), tr.open) }

func (tr *traffic) wait(d time.Duration) { tr.now = tr.now.Add(d) }

func (tr *traffic) detour(l *Lane, d Detour) *Lane {
	to, _, _ := tr.Detour(tr.now, l, d, tr.open)
	return to
}

var (
	sick    = Detour{Doubted: true, New: true} // a 503
	told    = Detour{Doubted: true}            // a 503 that names a wait
	another = Detour{New: true}                // a 421, or a timeout beside other responses
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
				tr.leave(tr.Current())
				tr.leave(tr.Current())
				if tr.Current().Stale() != 0 && tr.Current().Refresh() {
					closed++
				}
			}
			assert.Equal(t, burst, closed)
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

		{"a detour opens a spare, and the host stays", func(tr *traffic) {
			assert.Equal(t, 1, tr.detour(nil, sick).Number)
		}, 0, 1, 1},
		{"the spare does better, and they change places", func(tr *traffic) {
			spare := tr.detour(nil, sick)
			assert.True(t, tr.good(spare))
			assert.False(t, tr.good(spare))
		}, 1, 0, 1},
		{"a response to an attempt of before says nothing about the spare", func(tr *traffic) {
			base := tr.Current()
			tr.good(tr.detour(nil, sick))
			assert.False(t, tr.Answered(tr.now, base, true, false))
		}, 1, 0, 1},
		{"the lane that failed stays in doubt, whatever its other connections bring", func(tr *traffic) {
			base := tr.Current()
			spare := tr.detour(nil, sick)
			tr.Answered(tr.now, base, true, false)
			tr.good(spare)
			tr.Answered(tr.now, base, true, false)
			tr.wait(time.Second)
			assert.Equal(t, 2, tr.detour(spare, sick).Number)
		}, 1, 2, 2},
		{"a lane that a hedge outran is taken again", func(tr *traffic) {
			tr.good(tr.Beside(tr.now, nil, tr.open))
			assert.Same(t, tr.First(), tr.Beside(tr.now, tr.Current(), tr.open))
		}, 1, 0, 1},
		{"without a retry the host moves at once", func(tr *traffic) {
			tr.detour(nil, Detour{New: true, Moves: true})
		}, 1, 0, 1},
		{"but not back, as long as the next lane has brought nothing", func(tr *traffic) {
			tr.detour(nil, Detour{New: true, Moves: true})
			assert.Nil(t, tr.detour(tr.Current(), Detour{New: true, Moves: true}))
		}, 1, 0, 1},
		{"the spare does no better", func(tr *traffic) {
			spare := tr.detour(nil, sick)
			assert.False(t, tr.Answered(tr.now, spare, false, true))
			assert.Nil(t, tr.detour(spare, sick), "the base has failed, too")
		}, 0, 1, 1},
		{"after a second another spare is tried", func(tr *traffic) {
			spare := tr.detour(nil, sick)
			assert.Same(t, spare, tr.detour(nil, sick), "it is not known to be bad")
			tr.detour(spare, sick)
			tr.wait(time.Second)
			assert.Equal(t, 2, tr.detour(nil, sick).Number)
		}, 0, 2, 2},
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
				tr.Leave(tr.now, tr.Current(), false, 0, tr.open)
				tr.good(tr.Current())
				tr.wait(100 * time.Millisecond)
			}
		}, 2, -1, 2},
		{"a hedge opens a spare and keeps it", func(tr *traffic) {
			spare := tr.Beside(tr.now, nil, tr.open)
			assert.Same(t, spare, tr.Beside(tr.now, nil, tr.open))
		}, 0, 1, 1},
		{"a silent lane gives way to a spare that is alive", func(tr *traffic) {
			tr.Beside(tr.now, nil, tr.open).Hear(tr.now)
			tr.leave(tr.Current())
		}, 1, -1, 1},
		{"a spare over which nothing came lately may be dead as well", func(tr *traffic) {
			tr.Beside(tr.now, nil, tr.open).Hear(tr.now)
			tr.wait(time.Minute)
			tr.leave(tr.Current())
			tr.good(tr.Current())
			tr.wait(time.Second)
			assert.Equal(t, 3, tr.detour(tr.Current(), Detour{New: true, Since: tr.now}).Number)
		}, 2, 3, 3},
		{"a spare that may be dead is better than no lane", func(tr *traffic) {
			tr.Beside(tr.now, nil, tr.open).Hear(tr.now)
			tr.wait(time.Minute)
			tr.failed = true
			tr.leave(tr.Current())
		}, 1, -1, 1},
		{"a spare that is silent goes", func(tr *traffic) {
			tr.leave(tr.Beside(tr.now, nil, tr.open))
		}, 0, -1, 1},

		{"lanes in use stay", func(tr *traffic) {
			tr.leave(nil)
			for range 3 {
				tr.wait(time.Minute)
				tr.good(tr.Current())
				tr.Sweep()
			}
		}, 1, -1, 1},
		{"idle lanes go, and the host returns to the base", func(tr *traffic) {
			tr.good(tr.detour(nil, sick))
			_, more := tr.Sweep()
			assert.True(t, more)
			idle, more := tr.Sweep()
			assert.Len(t, idle, 2, "the base as well, because it failed")
			assert.False(t, more)
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

// One attempt makes the connection of a lane, and the others wait for it.
func TestLaneIsConnectedOnce(t *testing.T) {
	l := New(nil)
	assert.False(t, l.IsConnected())
	assert.True(t, l.Ahead())
	assert.False(t, l.Ahead())
	l.Connected()
	l.Connected()
	assert.True(t, l.IsConnected())
	<-l.Ready()
	assert.True(t, (*Lane)(nil).IsConnected())
	assert.True(t, new(Lanes).Current().IsConnected())
}
