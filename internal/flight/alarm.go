// The timers of attempts, which are used again.

package flight

import (
	"io"
	"sync"
	"time"
)

// An Alarm tells its owner when a time is over. To set it and to give it away is only a note: its timer
// runs on, and when the timer fires, the alarm looks at the note. So nearly no attempt needs a
// timer to be started and stopped, which costs more than most of an attempt.
type Alarm struct {
	Wake chan struct{} // with room for one, for the owner, who leaves it empty
	from *Alarms
	next *Alarm // in the list of those that nobody has

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	of    Owner         // nil: the alarm is stopped
	due   time.Duration // the end of the time
	fires time.Duration // when the timer fires; 0: it does not run

	hedge Hedge // for the owner, who may leave it
}

// An Owner has an alarm. Ring is called when its time may be over. The owner may have given the alarm
// away in the same moment, or set it again, so Ring asks [Alarm.Due].
type Owner interface{ Ring() }

// Set makes the alarm ring for its owner when d is over.
func (l *Alarm) Set(of Owner, now, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of, l.due = of, now+d; l.fires == 0 || l.due < l.fires {
		l.fires = l.due
		l.timer.Reset(d)
	}
}

// Due reports whether the time is over, and stops the alarm then.
func (l *Alarm) Due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.of != nil && l.from.Now() >= l.due
	if due {
		l.of = nil
	}
	return due
}

// fire runs when the timer fires.
func (l *Alarm) fire() {
	l.mu.Lock()
	of, left := l.of, l.due-l.from.Now()
	if l.fires = 0; of != nil && left > 0 {
		of, l.fires = nil, l.due
		l.timer.Reset(left)
	}
	l.mu.Unlock()
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

// Take returns an alarm that nobody has.
func (s *Alarms) Take(now time.Duration) *Alarm {
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
		return l
	}
	s.free = l.next
	s.n--
	return l
}

// TakeFor returns the alarm of the attempt whose body it is. The attempt takes another if it needs one
// after its response. If it has none, or if it is an attempt of another Transport, whose clock is
// another, TakeFor returns one that nobody has.
func (s *Alarms) TakeFor(body io.ReadCloser, now time.Duration) *Alarm {
	if b, ok := body.(*attemptBody); ok && b.ctx.Alarms == s {
		b.ctx.mu.Lock()
		l := b.ctx.alarm
		b.ctx.alarm = nil
		b.ctx.mu.Unlock()
		if l != nil {
			return l
		}
	}
	return s.Take(now)
}

// Give stops an alarm, and lets others have it. The alarm is nil if it was never set.
func (l *Alarm) Give() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.of = nil
	l.mu.Unlock()
	s := l.from
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == mostFree {
		l.timer.Stop()
		return
	}
	if l.hedge.After > 0 {
		l.hedge = Hedge{}
	}
	l.next, s.free = s.free, l
	s.n++
}
