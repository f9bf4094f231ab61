package lane

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// Lanes says over which lane the attempts to a host go. There are at most two: the
// current lane, and a spare for attempts that should not take the same way as another.
//
// A lane that is left is not closed, and the attempts under way on it go on. So it is
// left on a mere suspicion. But a new lane costs a handshake, so their number is
// limited (see may). The zero Lanes is ready. Lanes is safe for concurrent use.
type Lanes struct {
	first   Lane
	current atomic.Pointer[Lane] // nil: the first
	spare   atomic.Pointer[Lane] // nil: none
	proto   atomic.Int32         // the major version of HTTP in the last response; 0: not known

	mu     sync.Mutex // guards the fields below, and all changes of those above
	opened int
	failed *Lane           // from which the last detour led away; nil: that is over
	last   *Lane           // that was opened
	at     instant.Instant // when it was
	streak int             // lanes in a row that have brought no good response
	debt   instant.Instant // falls with time, and rises with each lane
	bound  []*Lane         // lanes with a Room, as long as they may have connections
}

// An Opener makes a lane, or returns nil if there can be none. held is the number of
// connections that the lanes with a Room may have. moves says that attempts will not
// take the lane of before any more.
type Opener = func(held int, moves bool) *Lane

// Lanes are opened for two reasons, with different limits.
const (
	// gap is the time in which a host opens one lane at most, unless its lane is
	// silent. After a silent lane that was new itself, the next may be opened after
	// gap, then after twice that time and so on, up to most.
	gap  = time.Second
	most = time.Minute
	// A host opens burst lanes at once at most, and one for each cost after that.
	burst = 5
	cost  = 4 * time.Second
)

// First returns the lane that is the base transport itself.
func (l *Lanes) First() *Lane { return &l.first }

// Current returns the lane over which attempts go.
func (l *Lanes) Current() *Lane {
	if c := l.current.Load(); c != nil {
		return c
	}
	return &l.first
}

// Answered notes a response over a lane. It is good if it needs no retry. If the attempt
// was sent over the spare instead of the current lane, the spare did better, and the two
// change places. moved reports that they did. A response to an attempt of before says
// nothing about the connection for which the lane became the spare.
func (l *Lanes) Answered(now instant.Instant, from *Lane, good, instead bool) (moved bool) {
	from = cmp.Or(from, &l.first)
	from.Hear(now)
	if !good {
		return false
	}
	if from.doubted.Load() && (instead || from != l.spare.Load()) {
		from.doubted.Store(false)
	}
	if !from.proven.Load() {
		from.proven.Store(true)
	}
	if !instead || from != l.spare.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if from != l.spare.Load() {
		return false
	}
	l.swap()
	return true
}

// swap makes the current lane and the spare change places; the lock is held. If the current
// lane has failed, it still has the bad connection, however well its others are.
func (l *Lanes) swap() {
	old := l.Current()
	if old == l.failed {
		old.doubted.Store(true)
	}
	l.failed = nil
	l.current.Store(l.spare.Load())
	l.spare.Store(old)
}

// Leave leaves a lane over which an attempt timed out. silent says that nothing else came
// over it meanwhile. The host moves to the spare if something came over that one since the
// attempt began, and otherwise to a lane that open makes, because all connections may have
// died at once. If there can be none, the host moves to the spare in any case, or it returns
// to the first, whose connections may be new by now. left is the lane whose idle connections
// are to be closed, because attempts no longer take it or because it is the only one, or nil.
func (l *Lanes) Leave(now instant.Instant, used *Lane, silent bool, since instant.Instant, open Opener) (left *Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used = cmp.Or(used, &l.first)
	used.doubted.Store(true)
	if used == l.spare.Load() {
		l.spare.Store(nil)
		return used
	}
	if used != l.Current() {
		return nil // another attempt was first
	}
	spare, to := l.spare.Load(), (*Lane)(nil)
	if spare != nil && spare.doubted.Load() {
		spare = nil
	}
	may := false
	if !spare.alive(since) {
		if may = l.may(now, silent, used); may {
			to = l.open(now, true, open)
		}
	}
	switch {
	case to != nil:
	case spare != nil:
		to = spare
		l.spare.Store(nil)
	case !may:
		return nil
	case used == &l.first: // stays, and is left only in so far as its idle connections are closed
		if l.first.stale.Swap(int64(max(now, 1))) != 0 {
			return nil // another attempt was first
		}
		l.debt = max(l.debt, now).Add(cost)
		return used
	default:
		to = &l.first
	}
	l.current.Store(to)
	return used
}

// A Detour says what an attempt may take instead of the lane of the attempt before it.
type Detour struct {
	Doubted bool // also a lane that has failed itself
	New     bool // also a lane that is opened for it
	Urgent  bool // even if others were opened just before, because the name has other addresses

	Moves bool // the host moves to it at once, because no retry will show whether it is better

	// Since is set after a timeout. If nothing came over the spare since then, it may be
	// dead as well, and a new lane is better.
	Since instant.Instant
}

// Detour returns the lane for an attempt that should not take the lane used. It returns
// nil if there is none. left is a spare that attempts no longer take, or nil. moved reports
// whether the host has moved.
func (l *Lanes) Detour(now instant.Instant, used *Lane, d Detour, open Opener) (to, left *Lane, moved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used = cmp.Or(used, &l.first)
	used.doubted.Store(true)
	l.failed = used
	to, left = l.detour(now, used, d, open)
	if moved = d.Moves && to != nil && to == l.spare.Load(); moved {
		l.swap()
	}
	return to, left, moved
}

// detour is Detour; the lock is held.
func (l *Lanes) detour(now instant.Instant, used *Lane, d Detour, open Opener) (to, left *Lane) {
	spare, current := l.spare.Load(), l.Current()
	switch {
	case spare != nil && spare != used && !spare.doubted.Load() && (d.Since == 0 || spare.alive(d.Since)):
		return spare, nil
	case current != used && !current.doubted.Load():
		return current, nil
	}
	if d.New {
		if l.may(now, d.Urgent, used) {
			to = l.open(now, false, open)
		}
		if to != nil {
			l.spare.Store(to)
			return to, spare
		}
	}
	if spare != nil && spare != used && (d.Doubted || !spare.doubted.Load()) {
		return spare, nil
	}
	return nil, nil
}

// Beside returns the lane for an attempt beside another that goes over used. It returns
// nil if there is none.
func (l *Lanes) Beside(now instant.Instant, used *Lane, open Opener) *Lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	used = cmp.Or(used, &l.first)
	spare, current := l.spare.Load(), l.Current()
	switch {
	case spare != nil && spare != used && !spare.doubted.Load():
		return spare
	case current != used:
		return current
	}
	if l.may(now, true, used) {
		if to := l.open(now, false, open); to != nil {
			l.spare.Store(to)
			return to
		}
	}
	return spare
}

// open opens a lane; the lock is held.
func (l *Lanes) open(now instant.Instant, moves bool, open Opener) *Lane {
	to := open(l.held(), moves)
	if to == nil {
		return nil
	}
	l.opened++
	to.Number = l.opened
	l.last, l.at = to, now
	l.streak++
	l.debt = max(l.debt, now).Add(cost)
	if to.Room > 0 {
		l.bound = append(l.bound, to)
	}
	return to
}

// held returns how many connections the lanes with a Room may have; the lock is held. A lane
// that attempts no longer take has those that are open.
func (l *Lanes) held() (n int) {
	l.bound = slices.DeleteFunc(l.bound, func(b *Lane) bool {
		if b == l.Current() || b == l.spare.Load() {
			n += b.Room
			return false
		}
		open := int(b.Conns.Load())
		n += open
		return open == 0
	})
	return n
}

// Speak notes the major version of HTTP in a response.
func (l *Lanes) Speak(major int) {
	if l.proto.Load() != int32(major) {
		l.proto.Store(int32(major))
	}
}

// Protocol returns the major version of HTTP in the last response that was noted, or 0.
func (l *Lanes) Protocol() int { return int(l.proto.Load()) }

// may reports whether a lane may be opened now; the lock is held. If the last lane brought a
// good response, new lanes help, and each may be left at once. If it brought none, the
// cause is rather the host, and the next lane has to wait, longer each time. But the name
// may have several bad addresses, which are tried one after the other.
func (l *Lanes) may(now instant.Instant, urgent bool, used *Lane) bool {
	if l.last == nil || l.last.proven.Load() {
		l.streak = 0
	}
	switch {
	case l.debt > now.Add((burst-1)*cost):
		return false
	case l.streak > 0 && now < l.at.Add(min(gap<<min(l.streak-1, 10), most)):
		return urgent && l.streak < int(used.Ways.Load())
	case !urgent && l.last != nil && now < l.at.Add(gap):
		return false
	}
	return true
}

// Sweep gives up the lanes over which nothing came since the last Sweep. Without the
// current lane the host returns to the first. Attempts under way go on. Sweep returns the
// lanes whose idle connections are to be closed, and whether lanes are left.
func (l *Lanes) Sweep() (idle []*Lane, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unused := func(lane *Lane) bool {
		heard := lane.heard.Load()
		same := heard == lane.swept
		lane.swept = heard
		return same
	}
	spare, current := l.spare.Load(), l.current.Load()
	if spare != nil && unused(spare) {
		l.spare.Store(nil)
		idle = append(idle, spare)
	}
	if current != nil && current != &l.first && unused(current) {
		if l.spare.Load() == &l.first {
			l.spare.Store(nil)
		}
		l.current.Store(nil)
		idle = append(idle, current)
		if l.first.doubted.Load() {
			idle = append(idle, &l.first) // may have dead connections yet
		}
	}
	return idle, l.spare.Load() != nil || l.Current() != &l.first
}

// All returns the lanes of the host but the first.
func (l *Lanes) All() (all []*Lane) {
	for _, lane := range [...]*Lane{l.current.Load(), l.spare.Load()} {
		if lane != nil && lane != &l.first {
			all = append(all, lane)
		}
	}
	return all
}

// Opened returns how many lanes the host has opened.
func (l *Lanes) Opened() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened
}
