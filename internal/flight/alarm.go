// The timers of attempts, which are used again.

package flight

import (
	"sync"
	"time"
)

// An alarm is the timer of an attempt. It is taken when it is set for the first time. A timer
// costs more than most of an attempt, so the next attempt of the rule gets it. The lock of the
// attempt's context guards the alarm.
type alarm struct {
	timer *time.Timer
	of    *attemptContext // stays the same while a call of fire may come
	on    bool            // it was set, and has neither been stopped nor fired since
	spent bool            // it has fired at some time, or is away from home, so no other attempt may have it
	void  int             // calls of fire that are still to come, and no longer count
	next  *alarm          // in the list of those that nobody has
}

// set makes the alarm fire after d.
func (l *alarm) set(d time.Duration) {
	l.missed(!l.timer.Reset(d))
	l.on = true
}

// stop stops the alarm, which is nil if it was never set.
func (l *alarm) stop() {
	if l != nil && l.on {
		l.missed(!l.timer.Stop())
		l.on = false
	}
}

// missed notes that the alarm fired before it was stopped or set again.
func (l *alarm) missed(late bool) {
	if l.on && late {
		l.spent = true
		l.void++
	}
}

// fire runs when the timer fires.
func (l *alarm) fire() {
	a := l.of
	a.mu.Lock()
	if l.void > 0 {
		l.void--
		a.mu.Unlock()
		return
	}
	l.on, l.spent = false, true
	body, cut := a.body, false
	if d, tooLate := a.bound(); body != nil {
		cut = body.cut()
	} else if d > 0 {
		a.on(timeIsUp, tooLate)
	}
	a.mu.Unlock()
	if cut {
		body.closeCut()
	}
}

// Alarms are the alarms of a rule that no attempt has at the moment. A timer must not leave its
// bubble of testing/synctest, whose time is years away from that outside. So a rule has its own
// alarms, and keeps none of an attempt whose time cannot be that of the rule.
type alarms struct {
	made time.Time // when the rule was

	mu   sync.Mutex // guards the fields below
	free *alarm     // a list
	n    int        // how many are in it
}

const (
	// mostFree bounds the alarms that a rule keeps.
	mostFree = 64
	// lifetime is longer than a rule lives.
	lifetime = 10 * 365 * 24 * time.Hour
)

// take returns an alarm that fires for an attempt after d.
func (s *alarms) take(of *attemptContext, d time.Duration) (l *alarm) {
	age := time.Since(s.made)
	away := age < 0 || age > lifetime
	if !away {
		l = s.pop()
	}
	if l == nil {
		l = &alarm{of: of, on: true, spent: away}
		l.timer = time.AfterFunc(d, l.fire)
		return l
	}
	l.of, l.next = of, nil
	l.set(d)
	return l
}

// pop returns an alarm of the list, or nil if that is empty.
func (s *alarms) pop() *alarm {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.free
	if l != nil {
		s.free = l.next
		s.n--
	}
	return l
}

// give stops an alarm, and lets other attempts have it unless it is spent.
func (s *alarms) give(l *alarm) {
	if l.stop(); l == nil || l.spent {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n < mostFree {
		l.of, l.next, s.free = nil, s.free, l
		s.n++
	}
}
