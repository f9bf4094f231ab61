// Package race lets an attempt of a request run beside another. It knows which of them ends
// first. It closes the response that nobody gets, and says which of them may use what they
// share.
package race

import (
	"context"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
)

// A Race has the racers of one request. A is what the request knows of an attempt.
type Race[A attempt] struct {
	First, Second, Winner *Racer[A]
	done                  chan *Racer[A] // has room for both

	turn chan struct{} // a lock: its holder may use what the request has, unless the race is over
	over bool          // the first attempt is no longer under way in its goroutine; guarded by turn
}

// New returns a race. The first attempt may be under way already.
func New[A attempt](first *Racer[A]) *Race[A] {
	return &Race[A]{First: first, done: make(chan *Racer[A], 2), turn: make(chan struct{}, 1)}
}

// Launch sends an attempt in a goroutine of its own.
func (r *Race[A]) Launch(of A, out *flight.Outgoing) *Racer[A] {
	s := &Racer[A]{Of: of, Ctx: &out.Ctx}
	go s.run(func() { s.note(of.Fly(out)) }, func() { r.done <- s })
	return s
}

// Hedge makes the second attempt in the present goroutine, while the first is under way in that of
// the request. prepare may use what the request has. It returns the copy to send, or nil if none
// goes, and what judges the response. The goroutine of the request waits for the first attempt. So
// the second ends it if its response is good.
func (r *Race[A]) Hedge(of A, prepare func(*Racer[A]) (out *flight.Outgoing, isGood func() bool)) {
	s, goes, good := &Racer[A]{Of: of}, true, false
	s.run(func() {
		out, isGood := r.prepare(s, prepare)
		if goes = out != nil; goes {
			s.note(of.Fly(out))
			good = isGood()
		}
	}, func() {
		if !goes {
			return
		}
		r.done <- s
		if good || s.failed() {
			r.First.cut(running)
		}
	})
}

// prepare calls a function of the request's if the first attempt is still under way.
func (r *Race[A]) prepare(s *Racer[A], prepare func(*Racer[A]) (*flight.Outgoing, func() bool)) (out *flight.Outgoing, isGood func() bool) {
	r.Use(func() {
		r.Second = s
		returned := false
		defer func() {
			if !returned { // a hook has panicked
				s.Of.Abort()
			}
		}()
		if out, isGood = prepare(s); out != nil {
			s.Ctx = &out.Ctx
		} else {
			r.Second = nil
		}
		returned = true
	})
	return out, isGood
}

// Use calls a function that uses what the request has, if the first attempt is still under way.
func (r *Race[A]) Use(f func()) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if !r.over {
		f()
	}
}

// LeaveOut ends the second attempt, whose outcome does not count, if the first is still under way.
// note may use what the request has.
func (r *Race[A]) LeaveOut(s *Racer[A], note func()) {
	r.Use(func() {
		s.Tell(time.Since(s.Of.Began()), s.Resp, s.Err)
		note()
		r.Second = nil
		s.cut(running)
	})
}

// Land notes how the first attempt ended, in the goroutine of the request.
func (r *Race[A]) Land(resp *http.Response, refused *flight.Slot, err error) {
	f := r.First
	f.note(resp, refused, err)
	f.took = time.Since(f.Of.Began())
	if f.end() {
		r.done <- f
	}
	r.Leave()
}

// Leave gives what the request has back to its goroutine.
func (r *Race[A]) Leave() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.over = true
}

// Await returns the next racer that has ended. If the base transport panicked or called
// runtime.Goexit, Await does the same, because without a race both would have happened in the
// caller's goroutine.
func (r *Race[A]) Await() *Racer[A] {
	came := <-r.done
	came.Tell(came.took, came.Resp, came.Err)
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
