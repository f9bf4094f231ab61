package policy

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// stepper answers 1, 2, 3 … s, and stops after limit calls.
type stepper struct{ calls, limit int }

func (s *stepper) NextBackOff() time.Duration {
	if s.calls++; s.limit > 0 && s.calls > s.limit {
		return -1
	}
	return time.Duration(s.calls) * sec
}

// still can be called through a nil pointer inside, as a value.
type still struct{ _ *int }

func (still) NextBackOff() time.Duration { return sec }

func TestFromNext(t *testing.T) {
	var made []*stepper
	b := FromNext(func() Nexter {
		made = append(made, &stepper{limit: 3})
		return made[len(made)-1]
	})
	for range 2 { // the second round does not remember the first
		for n, want := range []time.Duration{sec, 2 * sec, 3 * sec, -1, -1} {
			assert.Equal(t, want, b.Delay(n, 12*sec))
		}
	}
	assert.Len(t, made, 10, "each wait has a fresh value")
	for _, s := range made {
		assert.LessOrEqual(t, s.calls, 4, "no call after a stop")
	}
	assert.Equal(t, sec, b.Delay(-7, 0))
}

func TestFromNextWorkIsBounded(t *testing.T) {
	var last *stepper
	b := FromNext(func() Nexter { last = &stepper{}; return last })
	assert.Equal(t, 1000*sec, b.Delay(math.MaxInt64, 0))
	assert.Equal(t, 1000, last.calls)
	assert.Equal(t, 1000*sec, b.Delay(999, 0))
	assert.Equal(t, 999*sec, b.Delay(998, 0))
}

func TestFromNextWithoutValue(t *testing.T) {
	for _, b := range []Backoff{
		FromNext(nil),
		FromNext(func() Nexter { return nil }),
		FromNext(func() Nexter { return (*stepper)(nil) }),
	} {
		assert.Negative(t, b.Delay(0, 0))
		assert.Empty(t, Bounds(b, 3))
		assert.EqualError(t, Rule{Backoff: b}.Validate(), "Backoff.FromNext: has no function, or one that returns nil")
	}
	good := FromNext(func() Nexter { return still{} })
	assert.Equal(t, sec, good.Delay(5, 0))
	assert.NoError(t, Rule{Backoff: good}.Validate())
}

// cenkalti is the interface BackOff of github.com/cenkalti/backoff.
type cenkalti interface {
	NextBackOff() time.Duration
	Reset()
}

var _ cenkalti = (*Sequence)(nil)

func TestSequence(t *testing.T) {
	s := NewSequence(Exponential{Literal: true})
	for range 2 {
		for _, want := range []time.Duration{sec, 2 * sec, 4 * sec, 8 * sec, -1, -1} {
			assert.Equal(t, want, s.NextBackOff())
		}
		s.Reset()
	}
	assert.Equal(t, stop, NewSequence(Constant(-5)).NextBackOff(), "any negative wait is cenkalti's Stop")
}

// recorder answers n+1 s and remembers what it was asked.
type recorder struct{ asked *[][2]time.Duration }

func (r recorder) Delay(n int, prev time.Duration) time.Duration {
	*r.asked = append(*r.asked, [2]time.Duration{time.Duration(n), prev})
	return time.Duration(n+1) * sec
}

func TestSequencePassesThePreviousWait(t *testing.T) {
	var asked [][2]time.Duration
	s := NewSequence(recorder{&asked})
	s.NextBackOff()
	s.NextBackOff()
	s.NextBackOff()
	s.Reset()
	s.NextBackOff()
	assert.Equal(t, [][2]time.Duration{{0, 0}, {1, sec}, {2, 2 * sec}, {0, 0}}, asked)
}

func TestSequenceOfNothingIsTheDefault(t *testing.T) {
	for _, s := range []*Sequence{NewSequence(nil), {}} {
		wait := s.NextBackOff()
		assert.True(t, sec <= wait && wait <= 2*sec, "%v", wait)
	}
}

func TestThereAndBack(t *testing.T) {
	b := FromNext(func() Nexter { return NewSequence(Exponential{Literal: true}) })
	assert.Equal(t, walk(Exponential{Literal: true}, 9, 0), func() (waits []time.Duration) {
		for i := range 4 {
			waits = append(waits, b.Delay(i, 0))
		}
		return waits
	}())
	assert.Negative(t, b.Delay(4, 0))
}
