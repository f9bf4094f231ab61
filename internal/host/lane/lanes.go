package lane

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// Lanes says over which lane the attempts to a host go. There are at most two: the
// current lane, and a spare for attempts that should not take the same way as another.
//
//	what happens                                  what follows
//	silence, or a failure without a retry         the host wants to leave: Suspect opens a spare, if that may be
//	the spare has a connection                    the host moves to it, and the old lane is left
//	the spare has none, and the old lane answers  the host stays
//	a failure with a retry, or a hedge            Detour, Beside: the retry takes the spare, which is opened if need be
//	a good response to it                         the two change places: after a 5xx only if there were several in a row
//	several 5xx in a row without a retry          the next attempt takes the spare, as if it were such a retry
//	several 5xx in a row to such retries          the next of them takes a new spare
//	nothing came over the spare for 2 s           Sweep closes its idle connections
//	nothing came over a lane for 90 s             Sweep gives it up, and the host returns to the first
//
// A 5xx may come from a healthy server. So the host moves after 8 in a row whose retries got a good
// response over the other lane, or after 3 if that came from another address of the name. A hedge
// moves the host only if nothing came over the first lane meanwhile.
//
// A lane that is left is not closed, and the attempts under way on it go on. But a new lane
// costs a handshake, so their number is limited (see may). The zero Lanes is ready. Lanes is
// safe for concurrent use.
type Lanes struct {
	first   Lane
	current atomic.Pointer[Lane] // nil: the first
	spare   atomic.Pointer[Lane] // nil: none
	proto   atomic.Int32         // the major version of HTTP in the last response; 0: not known
	leaving atomic.Bool          // the host moves to the spare as soon as that has a connection
	pending atomic.Pointer[Lane] // stands for the lane that an Opener makes; nil: none does
	sick    atomic.Int32         // responses in a row over the current lane that say that the server cannot

	mu     sync.Mutex // guards the fields below, and all changes of those above
	cause  any        // why the host is leaving
	sickAt netip.Addr // the server of the last such response
	worse  int        // 5xx over the spare since its last good response to a retry
	opened int
	last   *Lane           // that was opened
	at     instant.Instant // when it was
	streak int             // lanes in a row that have brought no good response
	vain   int             // times in a row that the first was stale and brought no good response before
	debt   instant.Instant // falls with time, and rises with each lane
	bound  []*Lane         // lanes with a Room, as long as they may have connections
}

// An Opener makes a lane, or returns nil if there can be none. held is the number of
// connections that the lanes with a Room may have. moves says that attempts will not
// take the lane of before any more. No lock is held.
type Opener = func(held int, moves bool) *Lane

const (
	// Lanes are opened for two reasons, with different limits. gap is the time in which
	// a host opens one lane at most, unless its lane is silent. After a silent lane that
	// was new itself, the next may be opened after gap, then after twice that time and
	// so on, up to most.
	gap  = time.Second
	most = time.Minute
	// A host opens burst lanes at once at most, and one for each cost after that.
	burst = 5
	cost  = 4 * time.Second

	// A host moves after row 5xx in a row, or after fewRow if another address does better.
	row    = 8
	fewRow = 3

	// spareIdle is the time after which a spare that nothing has used closes its idle
	// connections. Nobody can count those of the base, so it keeps them for as short as possible.
	spareIdle = 2 * time.Second
	// Idle is the time in which a lane is given up if nothing comes over it.
	Idle = 90 * time.Second
)

// Current returns the lane over which attempts go.
func (l *Lanes) Current() *Lane {
	if c := l.current.Load(); c != nil {
		return c
	}
	return &l.first
}

// Calm reports whether the next attempt goes over the current lane, and nobody needs to know
// to which server.
func (l *Lanes) Calm() bool { return !l.leaving.Load() && l.sick.Load() == 0 }

// Suspected reports whether somebody needs to know the server of the next attempt.
func (l *Lanes) Suspected() bool { return l.sick.Load() > 0 }

// TriesSpare reports whether there were so many 5xx in a row that the next attempt tries the spare.
func (l *Lanes) TriesSpare() bool { return l.sick.Load() >= row }

// Next returns the lane over which the next attempt should go. trial says that the host stays
// there if the response is good.
func (l *Lanes) Next() (to *Lane, trial bool) {
	leaving, pending, spare := l.leaving.Load(), l.pending.Load(), l.spare.Load()
	switch {
	case leaving && pending != nil:
		return pending, false // wait for the lane that is being made
	case spare == nil:
	case leaving:
		return spare, false
	case l.TriesSpare():
		return spare, true
	}
	return l.Current(), false
}

// Move moves a host that is leaving if its spare has a connection. It returns the lane whose
// idle connections are to be closed, or nil, and the cause.
func (l *Lanes) Move() (left *Lane, cause any) {
	if !l.leaving.Load() {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	spare := l.spare.Load()
	if !l.leaving.Load() || spare == nil || !spare.IsOpen() {
		return nil, nil
	}
	left = l.Current()
	l.settle(spare, nil)
	return left, l.cause
}

// settle makes two lanes the current lane and the spare; the lock is held.
func (l *Lanes) settle(current, spare *Lane) {
	l.current.Store(current)
	l.spare.Store(spare)
	l.leaving.Store(false)
	l.sick.Store(0)
	l.worse = 0
}

// Answered notes a response. If it is good and the attempt was sent over the spare instead of
// the current lane, the spare did better, and the two change places. moved reports that they
// did. A single 5xx is no reason for that, because a healthy server may answer so now and then.
func (l *Lanes) Answered(now instant.Instant, r Response) (moved bool) {
	if l.proto.Load() != int32(r.Major) {
		l.proto.Store(int32(r.Major))
	}
	from := cmp.Or(r.From, &l.first)
	from.Hear(now)
	switch {
	case r.Verdict == Sick:
		l.mu.Lock()
		switch from {
		case l.Current():
			l.sickAt = r.Addr
			l.sick.Add(1)
		case l.spare.Load(): // so the connection is not the cause, or those of both lanes are bad
			l.sick.Store(0)
			if l.worse++; l.worse >= fewRow {
				from.doubted.Store(true)
			}
		}
		l.mu.Unlock()
		return false
	case r.Verdict == Bad:
		return false
	}
	spare := l.spare.Load()
	if from.doubted.Load() && (r.Instead != Not || from != spare) {
		from.doubted.Store(false)
	}
	if !from.proven.Load() {
		from.proven.Store(true)
	}
	switch {
	case from == l.Current():
		l.recover(spare)
		return false
	case r.Instead == Not || from != spare:
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if from != l.spare.Load() {
		return false
	}
	l.worse = 0
	enough := int32(row) // 5xx in a row, to move to this lane
	if r.Addr.IsValid() && l.sickAt.IsValid() && r.Addr != l.sickAt {
		enough = fewRow
	}
	if r.Instead == OfSick && l.sick.Load() < enough {
		return false
	}
	old := l.Current()
	old.doubted.Store(true) // it still has the bad connection, however well its others are
	l.settle(from, old)
	return true
}

// recover notes a good response over the current lane. A host that wanted to leave it stays if
// the spare found no connection.
func (l *Lanes) recover(spare *Lane) {
	if l.sick.Load() != 0 {
		l.sick.Store(0)
	}
	if l.leaving.Load() && spare != nil && spare.hasMissed() {
		l.leaving.Store(false)
	}
}

// A Suspicion is why a host wants to leave a lane.
type Suspicion struct {
	Used   *Lane
	Silent bool            // an attempt timed out, and nothing else came over the lane
	Since  instant.Instant // when the attempt began
	Cause  any             // for Move
}

// Suspect makes a host leave the lane over which an attempt failed that is not sent again, or
// which was silent. It takes the spare if something came over that one since the attempt began,
// and otherwise a lane that open makes, because all connections may have died at once. If there
// can be none, it takes the spare in any case, or it returns to the first, whose connections
// may be new by now. left is nil or a lane whose idle connections are to be closed, because
// attempts no longer take it or because it is the only one.
func (l *Lanes) Suspect(now instant.Instant, s Suspicion, open Opener) (left *Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used, spare := cmp.Or(s.Used, &l.first), l.spare.Load()
	used.doubted.Store(true)
	switch {
	case used == spare:
		l.settle(l.Current(), nil)
		return used
	case used != l.Current() || l.leaving.Load():
		return nil // another attempt was first
	case l.pending.Load() != nil:
		l.cause = s.Cause
		l.leaving.Store(true) // for the lane that another attempt makes
		return nil
	}
	usable := spare != nil && !spare.doubted.Load()
	if !usable || spare.IsOpen() && !spare.alive(s.Since) {
		if may := l.may(now, s.Silent, used); !may && !usable {
			return nil
		} else if may {
			to, old := l.open(now, true, open)
			switch {
			case to != nil:
				left = old
			case usable:
			case used == &l.first: // stays, and is left only in so far as its idle connections are closed
				return l.stale(now)
			default:
				left = l.replace(&l.first)
			}
		}
	}
	l.cause = s.Cause
	l.leaving.Store(true)
	return left
}

// stale notes that the first lane was silent, and that there can be no other; the lock is held.
// Other hosts lose their idle connections as well. So as long as that brings no good response, it
// is done ever more rarely.
func (l *Lanes) stale(now instant.Instant) (left *Lane) {
	if l.first.stale.Swap(int64(max(now, 1))) != 0 {
		return nil // another attempt was first
	}
	if l.vain++; l.first.proven.Swap(false) {
		l.vain = 0
	}
	l.debt = max(l.debt, now).Add(min(cost<<min(l.vain, 10), most))
	return &l.first
}

// replace makes a lane the spare, and returns the spare of before; the lock is held.
func (l *Lanes) replace(by *Lane) (left *Lane) {
	l.worse = 0
	return l.spare.Swap(by)
}

// A Detour says what an attempt may take instead of the lane of the attempt before it.
type Detour struct {
	Sick    bool // the server says that it cannot, which is no reason to doubt the lane
	Doubted bool // also a lane that has failed itself
	New     bool // also a lane that is opened for it
	Urgent  bool // even if others were opened just before, because the name has other addresses
	Beside  bool // the attempt goes beside the other, which is no reason to doubt the lane either

	// Since is set after a timeout. If nothing came over the spare since then, it may be
	// dead as well, and a new lane is better.
	Since instant.Instant
}

// Detour returns the lane for an attempt that should not take the lane used. It returns
// nil if there is none. left is a spare that attempts no longer take, or nil.
func (l *Lanes) Detour(now instant.Instant, used *Lane, d Detour, open Opener) (to, left *Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used = cmp.Or(used, &l.first)
	if !d.Beside && (!d.Sick || used == l.spare.Load() && !used.proven.Load()) {
		used.doubted.Store(true)
	}
	spare, current := l.spare.Load(), l.Current()
	switch {
	case spare != nil && spare != used && !spare.doubted.Load() && (d.Since == 0 || spare.alive(d.Since)):
		return spare, nil
	case current != used && (d.Beside || !current.doubted.Load()):
		return current, nil
	}
	if d.New && l.may(now, d.Urgent, used) {
		if to, left = l.open(now, false, open); to != nil {
			return to, left
		}
	}
	if spare != nil && spare != used && (d.Doubted || !spare.doubted.Load()) {
		return spare, nil
	}
	return nil, nil
}

// open makes a lane the spare, and returns it with the spare of before; the lock is held.
// The Opener runs without the lock. Attempts that want to leave their lane meanwhile wait
// for the new one.
func (l *Lanes) open(now instant.Instant, moves bool, open Opener) (to, left *Lane) {
	held := 0 // connections that the lanes with a Room may have; those that are left have what is open
	l.bound = slices.DeleteFunc(l.bound, func(b *Lane) bool {
		if b == l.Current() || b == l.spare.Load() {
			held += b.Room
			return false
		}
		open := int(b.Conns.Load())
		held += open
		return open == 0
	})
	pending := &Lane{Number: -1, seeking: make(chan struct{})}
	l.pending.Store(pending)
	defer func() { // also if the Opener panics
		if to == nil && l.spare.Load() == nil {
			l.leaving.Store(false)
		}
		l.pending.Store(nil)
		close(pending.seeking)
	}()
	func() {
		l.mu.Unlock()
		defer l.mu.Lock()
		to = open(held, moves)
	}()
	if to == nil {
		return nil, nil
	}
	l.opened++
	to.Number = l.opened
	to.born = now
	l.last, l.at = to, now
	l.streak++
	l.debt = max(l.debt, now).Add(cost)
	if to.Room > 0 {
		l.bound = append(l.bound, to)
	}
	return to, l.replace(to)
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
	case l.pending.Load() != nil || l.debt > now.Add((burst-1)*cost):
		return false
	case l.streak > 0 && now < l.at.Add(min(gap<<min(l.streak-1, 10), most)):
		return urgent && l.streak < int(used.Ways.Load())
	case !urgent && l.last != nil && now < l.at.Add(gap):
		return false
	}
	return true
}

// Sweep closes the idle connections of a spare that nothing has used for spareIdle, and gives up
// the lanes over which nothing came for Idle. Without the current lane the host returns to the
// first. Attempts under way go on. Sweep returns the lanes whose idle connections are to be
// closed, and after what time it is to be called again, or 0.
func (l *Lanes) Sweep(now instant.Instant) (idle []*Lane, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if spare := l.spare.Load(); spare != nil {
		unused := spare.unused(now)
		if unused >= spareIdle && spare.rest() {
			idle = append(idle, spare)
		}
		if again = Idle - unused; again <= 0 {
			l.settle(l.Current(), nil)
		} else if unused < spareIdle {
			again = spareIdle - unused
		}
	}
	current := l.Current()
	if current == &l.first {
		return idle, max(again, 0)
	}
	if left := Idle - current.unused(now); left > 0 {
		if again <= 0 || left < again {
			again = left
		}
		return idle, again
	}
	if l.spare.Load() == &l.first {
		l.spare.Store(nil)
	}
	l.settle(&l.first, l.spare.Load())
	idle = append(idle, current)
	if l.first.doubted.Load() {
		idle = append(idle, &l.first) // may have dead connections yet
	}
	return idle, max(again, 0)
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
