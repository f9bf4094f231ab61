// How do back-offs with a NextBackOff method come in, and ours go out?

package policy

import (
	"reflect"
	"time"
)

// A Nexter is a back-off that counts for itself: each call returns the next
// wait, a negative one (github.com/cenkalti/backoff calls it Stop) meaning that
// there is none. The BackOff interface of cenkalti/backoff, all its versions,
// includes it.
type Nexter interface {
	NextBackOff() time.Duration
}

// FromNext makes a [Backoff] of back-offs that count for themselves. Such a
// value has state, which requests cannot share; so create is called for every
// wait that is asked for, must return a fresh value each time, and has to be
// safe for concurrent use. Retry n is answered by the value's call n+1, or by a
// negative wait as soon as one of the calls before it has answered so. For the
// sake of a bound, retries after the 1000th are answered like it.
//
// As each value lives for one wait only, limits that it keeps by the clock
// (MaxElapsedTime) have no effect; [Rule.Elapsed] is for that.
//
// A nil create, or nil from create, stops at once: no retries. Validate of the
// result reports it.
func FromNext(create func() Nexter) Backoff { return fromNext{create} }

type fromNext struct{ create func() Nexter }

// mostNexts is the most calls that one wait may cost.
const mostNexts = 1000

func (f fromNext) Delay(n int, _ time.Duration) time.Duration {
	next := f.fresh()
	if next == nil {
		return stop
	}
	wait := next.NextBackOff()
	for range min(n, mostNexts-1) {
		if wait < 0 {
			break
		}
		wait = next.NextBackOff()
	}
	return wait
}

func (f fromNext) Validate() error {
	if f.fresh() == nil {
		return faults(&FieldError{Field: "FromNext", Reason: "has no function, or one that returns nil"})
	}
	return nil
}

// fresh returns a new value, or nil for all that cannot be called: a nil
// pointer in an interface is not equal to nil.
func (f fromNext) fresh() Nexter {
	if f.create == nil {
		return nil
	}
	next := f.create()
	if v := reflect.ValueOf(next); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return next
}

// A Sequence is a [Backoff] that counts for itself, for what asks for a value
// with NextBackOff and Reset, as github.com/cenkalti/backoff does. The zero value
// is one of Google{}. A Sequence serves one operation at a time: it is not safe
// for concurrent use.
type Sequence struct {
	backoff Backoff
	n       int
	prev    time.Duration
}

// NewSequence returns a Sequence of b's waits from the first. A nil b is
// Google{}, as in a [Rule].
func NewSequence(b Backoff) *Sequence { return &Sequence{backoff: b} }

// NextBackOff returns the next wait, or -1 when there is none; after that, it is
// -1 until Reset.
func (s *Sequence) NextBackOff() time.Duration {
	if s.prev < 0 {
		return stop
	}
	b := s.backoff
	if b == nil {
		b = Google{}
	}
	s.prev = max(b.Delay(s.n, s.prev), stop)
	s.n++
	return s.prev
}

// Reset starts again with the first wait.
func (s *Sequence) Reset() { s.n, s.prev = 0, 0 }
