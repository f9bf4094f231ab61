// Responses that are read whole before the caller gets them, so that a cut of the body
// is an outcome of the attempt.

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/policy"
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

// awaits reports whether the body of a response is read before the caller gets the
// response: if the attempt could be retried after a cut, and the body is no stream.
func (c *call) awaits(resp *http.Response) bool {
	most := c.rule.policy.Download.Memory
	return most > 0 && resume.Likely(resp) && resp.ContentLength <= most && !c.single() && c.idempotent() &&
		!inMemory(resp.Body) && !handsOver(c.req, resp) && !resume.IsStream(c.req, resp)
}

// awaitFinal reads the body of a response that the caller would get. If the body is cut,
// the cut is the outcome of the attempt, also of the last. So a Transport around this one
// sees that the attempts are used up.
func (x *exchange) awaitFinal(resp *http.Response, v classify.Verdict, err error) (*http.Response, classify.Verdict, error) {
	if err != nil || retryable(v) || x.segment || !x.awaits(resp) {
		return resp, v, err
	}
	if x.body != nil {
		if replayable, _ := x.body.Known(); !replayable {
			return resp, v, err
		}
	}
	if err = x.await(resp); err == nil {
		return resp, v, nil
	}
	x.verdict = verdictOfBody(err)
	return nil, x.classify(nil, err), err
}

// verdictOfBody returns the verdict on a body whose digest differs. It was altered on the
// way, so that another attempt may bring it as it is. A classifier does not know the error.
func verdictOfBody(err error) known {
	_, ok := errors.AsType[*IntegrityError](err)
	return known{classify.Ambiguous, ok}
}

// await reads the body of a response, and puts what was read in its place. It returns the
// error of a body that was cut, or that is not as the server announced it. The body is
// closed then.
func (c *call) await(resp *http.Response) error {
	in := &incoming{body: resp.Body, most: c.rule.policy.Download.Memory, memory: &holding{pool: c.t.kept}}
	delivered, ctx := false, c.ctx
	defer func() { // also if the base transport panics
		if !delivered {
			in.forget()
			dismiss(ctx, resp)
		}
	}()
	//lint:ignore SA1019 old callers still set Request.Cancel
	if c.req.Cancel != nil && !c.linked {
		linked := *c
		defer linked.obeyCancel()()
		ctx = linked.ctx
	}
	err := in.read(ctx, &c.sleeper, resp, c.rule.timeouts.stall.on())
	switch {
	case err == nil:
		err = c.altered(in, resp)
	case c.restIsNear(in, resp):
		err = nil
	}
	if err != nil {
		return err
	}
	delivered = true
	resp.Body = in
	if in.memory.held.Load() > replay.Small {
		runtime.AddCleanup(in, (*holding).free, in.memory) // if the caller forgets the body
	}
	return nil
}

// restIsNear reports whether a body that was cut on the way goes to the caller, because its
// rest can be asked for. Otherwise a connection that is cut after so many bytes each time
// would never bring the whole. A shorter body is fetched anew, also if it has changed. So is
// a body whose rest a Transport below did not get.
func (c *call) restIsNear(in *incoming, resp *http.Response) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.running || in.err == nil || len(in.data) < resume.MinProgress || c.ctx.Err() != nil || !c.rule.resumes || resume.Tried(in.body) {
		return false
	}
	_, no := resume.Check(c.req, resp, false)
	return no == nil
}

// altered returns an IntegrityError if a body that was read whole has another digest than
// the announced one.
func (c *call) altered(in *incoming, resp *http.Response) error {
	if !in.inMemory() {
		return nil
	}
	field, want, got := resume.Verify(resp, in.data, c.rule.policy.Resume.Checksums == policy.On)
	if field == "" {
		return nil
	}
	return &IntegrityError{Field: field, Want: want, Got: got}
}

// A holding is memory that counts in the pool of a Transport until it is freed.
type holding struct {
	pool *replay.Pool
	held atomic.Int64
}

// free gives everything back. It may be called more than once.
func (h *holding) free() { h.pool.Free(h.held.Swap(0), 0) }

// hold makes what is held n bytes, if there is room. One goroutine at a time calls it.
func (h *holding) hold(n int64) bool {
	held := h.held.Load()
	switch {
	case n <= held:
		h.pool.Free(h.held.Swap(n), n)
	case h.pool.Hold(held, n-held):
		h.held.Add(n - held)
	default:
		return false
	}
	return true
}

// An incoming is a body of which a part, or everything, was read before the caller got
// the response. It is the caller's body then. Read belongs to one goroutine. Close may
// come from another, also during a Read.
type incoming struct {
	body   io.ReadCloser
	most   int64 // bytes that are read before
	memory *holding

	came chan struct{} // wakes the waiting call; nil: there is no goroutine
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // guards the fields below
	data    []byte     // what was read; the goroutine alone writes behind its length
	at      int        // how much of it was delivered
	err     error      // the end of the body
	handed  bool       // the caller has the body, so the goroutine ends after its Read
	running bool       // the goroutine reads
	closed  bool
	panic   any // what the Read of the base panicked with
}

// read reads a body in a goroutine, because it may be a stream that pauses for ever, or a
// base transport that does not look at its context. The goroutine ends when the base
// transport's Read does. stalls says that the rule bounds the time of a Read.
func (in *incoming) read(ctx context.Context, s *sleeper, resp *http.Response, stalls bool) error {
	length := resp.ContentLength // or negative
	pause, end := pauseTime, time.Now().Add(unknownTime)
	if length >= 0 {
		pause, end = knownTime, time.Now().Add(knownTime)
		in.most = length + 1 // a byte more shows the end
	}
	in.running, in.came, in.done = true, make(chan struct{}, 1), make(chan struct{})
	go in.run(length, len(resp.Trailer) == 0)
	for {
		left := time.Until(end)
		if length >= 0 && stalls {
			left = pause
		}
		why := s.sleep(ctx, min(pause, left), in.came)
		in.mu.Lock()
		in.handed = in.handed || why == elapsed && length < 0
		handed, err, panicked := in.handed, in.err, in.panic
		in.mu.Unlock()
		switch {
		case panicked != nil:
			panic(panicked)
		case err == io.EOF:
			<-in.done // it calls nothing any more
			return nil
		case ctx.Err() != nil:
			return contextErr(ctx)
		case err != nil:
			<-in.done
			return err
		case handed:
			return nil
		case why == elapsed && !stalls:
			return noProgress(knownTime)
		}
	}
}

// run reads until the body ends, the caller has it, or enough is read. bare says that no
// trailer was announced, so that nothing is missing after the last byte.
func (in *incoming) run(length int64, bare bool) {
	returned := false
	defer close(in.done)
	defer func() {
		p := recover()
		in.mu.Lock()
		defer in.mu.Unlock()
		if !returned { // the base transport has panicked or ended its goroutine
			in.err, in.panic = errReadGone, p
		}
		in.running = false
		if in.closed {
			in.memory.free()
		}
		in.tell()
	}()
	room := min(firstRead, in.most)
	if length >= 0 {
		room = length + 1
	}
	data := make([]byte, 0, room)
	for {
		if len(data) == cap(data) {
			data = slices.Grow(data, 1)
		}
		n, err := resume.ReadSome(in.body, data[len(data):cap(data)])
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
func (in *incoming) take(data []byte, err error) (ends bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.data, in.err = data, err
	if !in.memory.hold(int64(len(data))) || int64(len(data)) >= in.most {
		in.handed = true
	}
	in.tell()
	return err != nil || in.handed || in.closed
}

// tell wakes the waiting call.
func (in *incoming) tell() {
	select {
	case in.came <- struct{}{}:
	default:
	}
}

// Read delivers what was read before, and then what comes.
func (in *incoming) Read(p []byte) (int, error) {
	for {
		in.mu.Lock()
		if in.closed {
			in.mu.Unlock()
			return 0, http.ErrBodyReadAfterClose
		}
		n := copy(p, in.data[in.at:])
		in.at += n
		err, running, panicked := in.err, in.running, in.panic
		if in.at == len(in.data) && !running {
			in.data, in.at = nil, 0
			in.memory.free()
		}
		in.mu.Unlock()
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
			return in.body.Read(p)
		}
	}
}

// Close closes the body of the base transport and forgets what was read.
func (in *incoming) Close() error {
	defer in.forget() // also if the base transport panics
	return in.body.Close()
}

// forget gives the memory back. A goroutine that still reads does so when it ends.
func (in *incoming) forget() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	if !in.running {
		in.data, in.at = nil, 0
		in.memory.free()
	}
}

// inMemory reports whether the whole body is in memory.
func (in *incoming) inMemory() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.err == io.EOF && !in.running
}

// whole reports whether all of a body of this length is in memory. The length may be
// unknown.
func (in *incoming) whole(length int64) bool {
	return in.inMemory() && (length < 0 || length == int64(len(in.data)))
}

// ResumeTried reports whether a Transport below has asked for the rest of the body.
func (in *incoming) ResumeTried() bool { return resume.Tried(in.body) }
