// Package ahead reads the body of a response before the caller has it, so that a cut is an
// outcome of the attempt. It touches that body, and the memory that such bodies share.
package ahead

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/counted"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
)

const (
	// pauseTime is how long a body without a length may pause before it counts as a
	// stream. A lost packet of TCP comes after 200 ms and a round trip, so a body that
	// loses a packet is no stream.
	pauseTime = 500 * time.Millisecond
	// unknownTime bounds the reading of a body without a length, which may come in small
	// pieces for ever.
	unknownTime = 2 * time.Second
	// knownTime bounds the reading of a body with a length if the rule has no Stall.
	knownTime = 30 * time.Second
)

var errReadGone = errors.New("transport: the response body's Read did not return")

// A Holding is memory that counts in the pool of a Transport until it is freed.
type Holding struct {
	Pool *replay.Pool
	Held atomic.Int64
}

// Free gives everything back. It may be called more than once.
func (h *Holding) Free() { h.Pool.Free(h.Held.Swap(0), 0) }

// Hold makes what is held n bytes, if there is room. One goroutine at a time calls it.
func (h *Holding) Hold(n int64) bool {
	held := h.Held.Load()
	switch {
	case n <= held:
		h.Pool.Free(h.Held.Swap(n), n)
	case h.Pool.Hold(held, n-held):
		h.Held.Add(n - held)
	default:
		return false
	}
	return true
}

// An Incoming is a body of which a part, or everything, was read before the caller got
// the response. It is the caller's body then. Read belongs to one goroutine. Close may
// come from another, also during a Read.
type Incoming struct {
	Body   io.ReadCloser
	Most   int64 // bytes that are read before
	Memory *Holding

	came chan struct{} // wakes the waiting call; nil: there is no goroutine
	done chan struct{} // closed when the goroutine has ended

	Mu      sync.Mutex // guards the fields below
	Data    []byte     // what was read; the goroutine alone writes behind its length
	at      int        // how much of it was delivered
	Err     error      // the end of the body
	handed  bool       // the caller has the body, so the goroutine ends after its Read
	Running bool       // the goroutine reads
	closed  bool
	panic   any // what the Read of the base panicked with
}

// Fill reads a body in a goroutine, because it may be a stream that pauses for ever, or a
// base transport that does not look at its context. The goroutine ends when the base
// transport's Read does. stalls says that the rule bounds the time of a Read.
func (in *Incoming) Fill(ctx context.Context, s *flight.Sleeper, resp *http.Response, stalls bool) error {
	length := resp.ContentLength // or negative
	pause, end := pauseTime, time.Now().Add(unknownTime)
	if length >= 0 {
		pause, end = knownTime, time.Now().Add(knownTime)
		in.Most = length + 1 // a byte more shows the end
	}
	in.Running, in.came, in.done = true, make(chan struct{}, 1), make(chan struct{})
	go in.run(length, len(resp.Trailer) == 0)
	for {
		left := time.Until(end)
		if length >= 0 && stalls {
			left = pause
		}
		why := s.Sleep(ctx, min(pause, left), in.came)
		in.Mu.Lock()
		in.handed = in.handed || why == flight.Elapsed && length < 0
		handed, err, panicked := in.handed, in.Err, in.panic
		in.Mu.Unlock()
		switch {
		case panicked != nil:
			panic(panicked)
		case err == io.EOF:
			<-in.done // it calls nothing any more
			return nil
		case ctx.Err() != nil:
			return flight.ContextErr(ctx)
		case err != nil:
			<-in.done
			return err
		case handed:
			return nil
		case why == flight.Elapsed && !stalls:
			return flight.NoProgress(knownTime)
		}
	}
}

// run reads until the body ends, the caller has it, or enough is read. bare says that no
// trailer was announced, so that nothing is missing after the last byte.
func (in *Incoming) run(length int64, bare bool) {
	returned := false
	defer close(in.done)
	defer func() {
		p := recover()
		in.Mu.Lock()
		defer in.Mu.Unlock()
		if !returned { // the base transport has panicked or ended its goroutine
			in.Err, in.panic = errReadGone, p
		}
		in.Running = false
		if in.closed {
			in.Memory.Free()
		}
		in.tell()
	}()
	room := min(firstRead, in.Most)
	if length >= 0 {
		room = length + 1
	}
	data := make([]byte, 0, room)
	for {
		if len(data) == cap(data) {
			data = slices.Grow(data, 1)
		}
		n, err := counted.Read(in.Body, data[len(data):cap(data)])
		data = data[:len(data)+n]
		if int64(len(data)) == length && err != nil && bare {
			err = io.EOF
		}
		if in.take(data, err) {
			returned = true
			return
		}
	}
}

// firstRead is the room for the first Read of a body without a length. It doubles.
const firstRead = 4 << 10

// take takes what was read so far, and reports whether the goroutine ends.
func (in *Incoming) take(data []byte, err error) (ends bool) {
	in.Mu.Lock()
	defer in.Mu.Unlock()
	in.Data, in.Err = data, err
	if !in.Memory.Hold(int64(len(data))) || int64(len(data)) >= in.Most {
		in.handed = true
	}
	in.tell()
	return err != nil || in.handed || in.closed
}

// tell wakes the waiting call.
func (in *Incoming) tell() {
	select {
	case in.came <- struct{}{}:
	default:
	}
}

// Read delivers what was read before, and then what comes.
func (in *Incoming) Read(p []byte) (int, error) {
	for {
		in.Mu.Lock()
		if in.closed {
			in.Mu.Unlock()
			return 0, http.ErrBodyReadAfterClose
		}
		n := copy(p, in.Data[in.at:])
		in.at += n
		err, running, panicked := in.Err, in.Running, in.panic
		if in.at == len(in.Data) && !running {
			in.Data, in.at = nil, 0
			in.Memory.Free()
		}
		in.Mu.Unlock()
		switch {
		case n > 0 || len(p) == 0:
			return n, nil
		case panicked != nil:
			panic(panicked)
		case running:
			<-in.done
		case err != nil:
			return 0, err
		default:
			return in.Body.Read(p)
		}
	}
}

// Close closes the body of the base transport and forgets what was read.
func (in *Incoming) Close() error {
	defer in.Forget() // also if the base transport panics
	return in.Body.Close()
}

// Forget gives the memory back. A goroutine that still reads does so when it ends.
func (in *Incoming) Forget() {
	in.Mu.Lock()
	defer in.Mu.Unlock()
	in.closed = true
	if !in.Running {
		in.Data, in.at = nil, 0
		in.Memory.Free()
	}
}

// InMemory reports whether the whole body is in memory.
func (in *Incoming) InMemory() bool {
	in.Mu.Lock()
	defer in.Mu.Unlock()
	return in.Err == io.EOF && !in.Running
}

// Whole reports whether all of a body of this length is in memory. The length may be
// unknown.
func (in *Incoming) Whole(length int64) bool {
	return in.InMemory() && (length < 0 || length == int64(len(in.Data)))
}

// WasCutLate reports whether the body was cut after so much that its rest is worth a request.
func (in *Incoming) WasCutLate() bool {
	in.Mu.Lock()
	defer in.Mu.Unlock()
	return !in.Running && in.Err != nil && len(in.Data) >= resume.MinProgress && !resume.Tried(in.Body)
}

// ResumeTried reports whether a Transport below has asked for the rest of the body.
func (in *Incoming) ResumeTried() bool { return resume.Tried(in.Body) }
