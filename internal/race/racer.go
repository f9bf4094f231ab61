package race

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
)

// An attempt is what a request knows of one.
type attempt interface {
	Began() time.Time
	Fly(*flight.Outgoing) (*http.Response, *flight.Slot, error)
	Abort() // ends one that is not sent
	Ended(took time.Duration, resp *http.Response, err error)
}

// A flown is the context of an attempt.
type flown interface {
	context.Context
	Abandon()
}

// A Racer is an attempt beside which another runs. When its response comes as the race ends,
// exactly one of two closes the response: its own goroutine or the race. Each of the two tries to
// change the state from running, and the second to do so closes the response.
type Racer[A attempt] struct {
	Of    A
	Ctx   flown         // nil: it has none yet, and no response
	state atomic.Uint32 // running, ended or abandoned

	// set before the state is ended
	Resp     *http.Response
	Refused  *flight.Slot // of the response
	Err      error
	took     time.Duration
	panicked any  // the value that the base transport panicked with
	exited   bool // the base transport called runtime.Goexit

	told bool // the hooks know its end; the request's goroutine uses it
}

const (
	running uint32 = iota
	ended
	abandoned
)

// run sends the attempt in the present goroutine. It calls done at the end if somebody still waits
// for the attempt.
func (r *Racer[A]) run(fly, done func()) {
	returned := false
	defer func() {
		r.panicked = recover() // raise repeats it in the caller's goroutine
		r.exited = !returned && r.panicked == nil
		r.took = time.Since(r.Of.Began())
		if r.end() {
			done()
		}
	}()
	fly()
	returned = true
}

func (r *Racer[A]) note(resp *http.Response, refused *flight.Slot, err error) {
	r.Resp, r.Refused, r.Err = resp, refused, err
}

// end ends the attempt. It reports whether somebody still waits for it.
func (r *Racer[A]) end() bool {
	if r.state.CompareAndSwap(running, ended) {
		return true
	}
	r.close()
	return false
}

// Abandon ends a racer that nobody needs any more. Its goroutine closes a response that comes
// later. A base transport leaves the goroutine as soon as the context has ended. Abandon may be
// called again.
func (r *Racer[A]) Abandon() {
	if !r.cut(running) && r.cut(ended) {
		r.close()
	}
}

// cut abandons a racer that is in a state, and reports whether it was.
func (r *Racer[A]) cut(from uint32) bool {
	if !r.state.CompareAndSwap(from, abandoned) {
		return false
	}
	if r.Ctx != nil {
		r.Ctx.Abandon()
	}
	return true
}

// close closes a response without draining it, because its context has ended. A Close that panics
// would end the process here, and a Close that blocks would hold up the winner.
func (r *Racer[A]) close() {
	r.Refused.Release()
	flight.Dismiss(r.Ctx, r.Resp)
}

// Tell tells how long the attempt took, and how it ended. Only the first call counts.
func (r *Racer[A]) Tell(took time.Duration, resp *http.Response, err error) {
	if !r.told {
		r.told = true
		r.Of.Ended(took, resp, err)
	}
}

// TellOutrun tells that another attempt was first.
func (r *Racer[A]) TellOutrun() { r.Tell(time.Since(r.Of.Began()), nil, flight.ErrOutrun) }

// Rejected reports whether the response is a 4xx.
func (r *Racer[A]) Rejected() bool { return r.Resp != nil && r.Resp.StatusCode/100 == 4 }

func (r *Racer[A]) failed() bool { return r.panicked != nil || r.exited }

func (r *Racer[A]) raise() {
	if r.panicked != nil {
		panic(r.panicked)
	}
	if r.exited {
		runtime.Goexit()
	}
}
