// Package race lets an attempt of a request run beside another. It knows which of them ends
// first. It closes the response that nobody gets.
package race

import (
	"context"
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
)

// A Race has the racers of one request. A is what the request knows of an attempt.
// The goroutine of the request uses it.
type Race[A attempt] struct {
	First, Second, Winner *Racer[A]
	done                  chan *Racer[A] // has room for both
}

// New returns a race without racers.
func New[A attempt]() *Race[A] { return &Race[A]{done: make(chan *Racer[A], 2)} }

// Launch sends an attempt in a goroutine of its own.
func (r *Race[A]) Launch(of A, out *flight.Outgoing) *Racer[A] {
	s := &Racer[A]{Of: of, out: out}
	go s.run(r.done)
	return s
}

// Await returns the next racer that has ended. If the base transport panicked or called
// runtime.Goexit, Await does the same, because without a race both would have happened in the
// caller's goroutine.
func (r *Race[A]) Await() *Racer[A] {
	came := <-r.done
	came.tell(came.took, came.Resp, came.Err)
	came.raise()
	return came
}

// StillSlow waits until d is over or ready is closed. It reports whether the caller still waits
// for the first attempt then.
func (r *Race[A]) StillSlow(ctx context.Context, d time.Duration, ready <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case came := <-r.done:
		r.done <- came // has room, because came has just been taken out
		return false
	case <-ctx.Done(): // the base may take its time to end the first attempt
		return false
	case <-ready:
	case <-timer.C:
	}
	return true
}

// AbandonLosers abandons all racers but the winner, also if a hook or a classifier panics. The
// hooks hear of it when all are abandoned, because they may panic themselves.
func (r *Race[A]) AbandonLosers() {
	for _, other := range [...]*Racer[A]{r.First, r.Second} {
		if other != nil && other != r.Winner {
			defer other.TellOutrun()
			other.Abandon()
		}
	}
}
