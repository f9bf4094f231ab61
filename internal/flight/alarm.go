// The timers of attempts, which are used again.

package flight

import (
	"math"
	"sync"
	"time"
)

// An alarm tells its attempt when a time is over. Its timer runs on if the attempt sets a later time, or
// gives the alarm away, so it may ring early or in vain. Then the attempt finds that the time is not
// over. So nearly no attempt needs a timer to be started and stopped, which costs more than most of
// an attempt.
type alarm struct {
	from  *Alarms
	next  *alarm // in the list of those that nobody has
	timer *time.Timer

	// The lock of the attempt guards these fields.
	due   time.Duration // the end of the time
	rings time.Duration // it rings at this time or earlier

	// The lock of the list guards these fields.
	of    *attemptContext // nil: nobody has the alarm
	fires time.Duration   // when the timer fires; 0: it does not run
}

// never is later than all times.
const never = time.Duration(math.MaxInt64)

// set makes the alarm ring when d is over.
func (l *alarm) set(now, d time.Duration) {
	if l.due = now + d; l.due < l.rings {
		l.from.mu.Lock()
		l.start(d)
		l.from.mu.Unlock()
	}
}

// start makes the timer fire in d, or earlier; the lock of the list is held.
func (l *alarm) start(d time.Duration) {
	if l.rings = l.due; l.fires == 0 || l.due < l.fires {
		l.fires = l.due
		l.timer.Reset(d)
	}
}

// rearm makes an alarm that has rung before its time ring again, and reports whether it has.
func (l *alarm) rearm() (early bool) {
	l.rings = never
	left := l.due - l.from.now()
	if left > 0 {
		l.set(l.due-left, left)
	}
	return left > 0
}

// fire runs when the timer fires.
func (l *alarm) fire() {
	l.from.mu.Lock()
	of := l.of
	l.fires = 0
	l.from.mu.Unlock()
	if of != nil {
		of.ring()
	}
}

// Alarms are the alarms of some rules that nobody has at the moment. A timer must not leave its
// bubble of testing/synctest, whose time is years away from that outside. So the rules of a
// Transport have their own alarms, and keep none of a bubble where the time cannot be theirs.
type Alarms struct {
	made time.Time // when the rules were

	mu   sync.Mutex // guards the fields below
	free *alarm     // a list
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

// now returns the time since the rules were made.
func (s *Alarms) now() time.Duration { return time.Since(s.made) }

// take gives an attempt an alarm that nobody has, and sets it.
func (s *Alarms) take(of *attemptContext, now, d time.Duration) {
	if now < 0 || now > lifetime {
		s = &Alarms{made: s.made}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.free
	if l == nil {
		l = &alarm{from: s}
		l.timer = time.AfterFunc(lifetime, l.fire)
		l.timer.Stop() // until it is set
	} else {
		s.free = l.next
		s.n--
	}
	of.alarm, l.of, l.due = l, of, now+d
	l.start(d) // last, because it may ring at once
}

// give stops an alarm, and lets others have it. The alarm is nil if it was never set.
func (l *alarm) give() {
	if l == nil {
		return
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
