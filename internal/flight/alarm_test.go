package flight

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// TestAlarmThatFiresAsThePhaseEnds lets the timer of the connect phase fire in the moment in
// which the attempt gets its connection, and its time is not bounded from then on.
func TestAlarmThatFiresAsThePhaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeouts := TimeoutsOf(&policy.Rule{ConnectTimeout: time.Second}, NewAlarms())
		for range 100 {
			a := attemptOf(t, &timeouts)
			a.seekConnection()
			firing(a, func() { a.on(hasConnection, nil) })
			if p := phaseOf(a); p != "waiting" {
				t.Fatalf("the phase is %v, and the attempt ends with %v", p, context.Cause(a))
			}
		}
	})
}

// TestAlarmThatFiresAsTheAttemptEnds lets the timer fire in the moment in which an attempt ends.
// The next attempts of the rule have all of their time.
func TestAlarmThatFiresAsTheAttemptEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeouts := TimeoutsOf(&policy.Rule{AttemptTimeout: time.Second}, NewAlarms())
		for range 100 {
			a := attemptOf(t, &timeouts)
			firing(a, func() { a.on(leaves, nil) })
			next := attemptOf(t, &timeouts)
			time.Sleep(time.Second - 1)
			if phaseOf(next) != "waiting" {
				t.Fatal("the alarm of an attempt has ended another")
			}
			time.Sleep(time.Nanosecond)
			if p := phaseOf(next); p != "late" {
				t.Fatalf("the phase is %v at the end of the time", p)
			}
		}
	})
}

// TestAlarmThatFiresAsItIsSet lets the timer fire in the moment in which it is set again. The
// call that comes too late does not count, and the next does.
func TestAlarmThatFiresAsItIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeouts := TimeoutsOf(&policy.Rule{AttemptTimeout: time.Second}, NewAlarms())
		for range 100 {
			a := attemptOf(t, &timeouts)
			firing(a, func() { a.set(a.alarms.now(), time.Second) })
			time.Sleep(time.Second - 1)
			if phaseOf(a) != "waiting" {
				t.Fatal("a call that came too late has ended the attempt")
			}
			time.Sleep(time.Nanosecond)
			if p := phaseOf(a); p != "late" {
				t.Fatalf("the phase is %v at the end of the time", p)
			}
		}
	})
}

// TestAlarmIsUsedAgain has attempts one after the other, which share an alarm, and many at once.
func TestAlarmIsUsedAgain(t *testing.T) {
	timeouts := TimeoutsOf(&policy.Rule{AttemptTimeout: time.Hour}, NewAlarms())
	a := attemptOf(t, &timeouts)
	first := a.alarm
	if a.Abandon(); first.of != nil {
		t.Error("an alarm that nobody has keeps its last owner in memory")
	}
	if a = attemptOf(t, &timeouts); a.alarm != first {
		t.Error("the second attempt has another alarm")
	}
	var all []*attemptContext
	for range 2 * mostFree {
		all = append(all, attemptOf(t, &timeouts))
	}
	for _, a := range all {
		if a.Abandon(); a.alarm != nil {
			t.Error("an attempt that has ended keeps its alarm")
		}
	}
	if n := timeouts.alarms.n; n != mostFree {
		t.Errorf("%d alarms are kept, want %d", n, mostFree)
	}
}

// attemptOf starts an attempt.
func attemptOf(t *testing.T, timeouts *Timeouts) *attemptContext {
	a := &attemptContext{Context: t.Context(), home: clock{}}
	a.start(timeouts, false)
	return a
}

// phaseOf returns the phase of an attempt when all calls of fire are done.
func phaseOf(a *attemptContext) string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return phases[a.phase]
}

// firing calls f in the moment in which the timer of an attempt fires. The call of fire has begun
// and waits for the lock, or comes later.
func firing(a *attemptContext, f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	time.Sleep(time.Second)
	f()
}
