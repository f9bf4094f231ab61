// The timers of attempts, which are used again.

package flight

import (
	"io"
	"math"
	"sync"
	"time"
)

// An Alarm tells its owner when a time is over. Its timer runs on if the owner sets a later time, or
// gives the alarm away, so it may ring early or in vain. Then the owner finds that the time is not
// over. So nearly no attempt needs a timer to be started and stopped, which costs more than most of
// an attempt.
type Alarm struct {
	Wake  chan struct{} // with room for one, for the owner, who leaves it empty
	from  *Alarms
	next  *Alarm // in the list of those that nobody has
	timer *time.Timer

	// The lock of the owner guards these fields.
	due   time.Duration // the end of the time
	rings time.Duration // it rings at this time or earlier
	hedge Hedge         // for the owner, who may leave it

	// The lock of the list guards these fields.
	of    Owner         // nil: nobody has the alarm
	fires time.Duration // when the timer fires; 0: it does not run
}

// An Owner has an alarm. Ring is called when its time may be over. The owner may have given the alarm
// away in the same moment, or set it again, so Ring asks [Alarm.Due].
type Owner interface{ Ring() }

// never is later than all times.
const never = time.Duration(math.MaxInt64)

// Set makes the alarm ring when d is over.
func (l *Alarm) Set(now, d time.Duration) {
	if l.due = now + d; l.due < l.rings {
		l.from.mu.Lock()
		l.set(d)
		l.from.mu.Unlock()
	}
}

// set makes the timer fire in d, or earlier; the lock of the list is held.
func (l *Alarm) set(d time.Duration) {
	if l.rings = l.due; l.fires == 0 || l.due < l.fires {
		l.fires = l.due
		l.timer.Reset(d)
	}
}

// give makes the alarm that of an owner, and sets it; the lock of the list is held. The alarm is where
// the owner looks for it before it can ring.
func (l *Alarm) give(to **Alarm, of Owner, now, d time.Duration) {
	*to, l.of, l.due = l, of, now+d
	l.set(d)
}

// Due reports whether the time is over. If it is not, the alarm rings again.
func (l *Alarm) Due() bool {
	l.rings = never
	left := l.due - l.from.Now()
	if left > 0 {
		l.Set(l.due-left, left)
	}
	return left <= 0
}

// fire runs when the timer fires.
func (l *Alarm) fire() {
	l.from.mu.Lock()
	of := l.of
	l.fires = 0
	l.from.mu.Unlock()
	if of != nil {
		of.Ring()
	}
}

// Alarms are the alarms of some rules that nobody has at the moment. A timer must not leave its
// bubble of testing/synctest, whose time is years away from that outside. So the rules of a
// Transport have their own alarms, and keep none of a bubble where the time cannot be theirs.
type Alarms struct {
	made time.Time // when the rules were

	mu   sync.Mutex // guards the fields below
	free *Alarm     // a list
	n    int        // how many are in it
}

const (
	// mostFree bounds the alarms that are kept.
	mostFree = 64
	// lifetime is longer than rules live.
	lifetime = 10 * 365 * 24 * time.Hour
)

// NewAlarms returns alarms for rules that are made now.
func NewAlarms() *Alarms { return &Alarms{made: time.Now()} }

// Now returns the time since the rules were made.
func (s *Alarms) Now() time.Duration { return time.Since(s.made) }

// take gives an owner an alarm that nobody has, and sets it. It may have a hedge for the owner.
func (s *Alarms) take(to **Alarm, of Owner, now, d time.Duration, h *Hedge) {
	if now < 0 || now > lifetime {
		s = &Alarms{made: s.made}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.free
	if l == nil {
		l = &Alarm{from: s, Wake: make(chan struct{}, 1)}
		l.timer = time.AfterFunc(lifetime, l.fire)
		l.timer.Stop() // until it is set
	} else {
		s.free = l.next
		s.n--
	}
	if h != nil && h.After > 0 {
		l.hedge = *h
	}
	l.give(to, of, now, d)
}

// TakeFor gives an owner the alarm of the attempt whose body it is, and sets it. The attempt takes
// another if it needs one after its response. If it has none, or if it is an attempt of another
// Transport, whose clock is another, the owner gets one that nobody has.
func (s *Alarms) TakeFor(body io.ReadCloser, to **Alarm, of Owner, now, d time.Duration) {
	var l *Alarm
	if b, ok := body.(*attemptBody); ok && b.ctx.Alarms == s {
		b.ctx.mu.Lock()
		l, b.ctx.alarm = b.ctx.alarm, nil
		b.ctx.mu.Unlock()
	}
	if l == nil {
		s.take(to, of, now, d, nil)
		return
	}
	l.from.mu.Lock()
	defer l.from.mu.Unlock()
	l.give(to, of, now, d)
}

// Give stops an alarm, and lets others have it. The alarm is nil if it was never set.
func (l *Alarm) Give() {
	if l == nil {
		return
	}
	if l.hedge.After > 0 {
		l.hedge = Hedge{}
	}
	s := l.from
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.of = nil; s.n == mostFree {
		l.timer.Stop()
		return
	}
	l.next, s.free = s.free, l
	s.n++
}
