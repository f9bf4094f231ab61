package race

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
)

// An attempt is what a request knows of one.
type attempt interface {
	Elapsed() time.Duration // since it was sent
	Fly(*flight.Outgoing) (*http.Response, *flight.Slot, error)
	Ended(took time.Duration, resp *http.Response, err error)
}

// A Racer is an attempt beside which another runs. When its response comes as the race ends,
// exactly one of two closes the response: its own goroutine or the race. Each of the two tries to
// change the state from running, and the second to do so closes the response.
type Racer[A attempt] struct {
	Of    A
	out   *flight.Outgoing
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

// run sends the attempt, in a goroutine of its own. At the end the racer goes to done, if somebody
// still waits for it.
func (r *Racer[A]) run(done chan<- *Racer[A]) {
	returned := false
	defer func() {
		r.panicked = recover() // raise repeats it in the caller's goroutine
		r.exited = !returned && r.panicked == nil
		r.took = r.Of.Elapsed()
		if r.state.CompareAndSwap(running, ended) {
			done <- r
		} else {
			r.close()
		}
	}()
	r.Resp, r.Refused, r.Err = r.Of.Fly(r.out)
	returned = true
}

// Abandon ends a racer that nobody needs any more. Its goroutine closes a response that comes
// later. A base transport leaves the goroutine as soon as the context has ended. Abandon may be
// called again.
func (r *Racer[A]) Abandon() {
	switch {
	case r.state.CompareAndSwap(running, abandoned):
		r.out.Ctx.Abandon()
	case r.state.CompareAndSwap(ended, abandoned):
		r.out.Ctx.Abandon()
		r.close()
	}
}

// close closes a response without draining it, because its context has ended. A Close that panics
// would end the process here, and a Close that blocks would hold up the winner.
func (r *Racer[A]) close() {
	r.Refused.Release()
	flight.Dismiss(&r.out.Ctx, r.Resp)
}

// tell tells how long the attempt took, and how it ended. Only the first call counts.
func (r *Racer[A]) tell(took time.Duration, resp *http.Response, err error) {
	if !r.told {
		r.told = true
		r.Of.Ended(took, resp, err)
	}
}

// TellOutrun tells that another attempt was first.
func (r *Racer[A]) TellOutrun() { r.tell(r.Of.Elapsed(), nil, flight.ErrOutrun) }

// Rejected reports whether the response is a 4xx.
func (r *Racer[A]) Rejected() bool { return r.Resp != nil && r.Resp.StatusCode/100 == 4 }

func (r *Racer[A]) raise() {
	if r.panicked != nil {
		panic(r.panicked)
	}
	if r.exited {
		runtime.Goexit()
	}
}
