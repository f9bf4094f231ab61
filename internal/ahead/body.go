// Package ahead reads the body of a response before the caller has it, so that a cut is an
// outcome of the attempt. It touches that body, and the memory that such bodies share.
package ahead

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/counted"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
)

const (
	pauseTime = 100 * time.Millisecond // without a byte
	wholeTime = time.Second            // for everything
	firstRoom = 1<<10 + 1              // for the first Read, with a byte that shows the end of 1 KiB; then it doubles
	small     = 4 << 10                // room that does not count
)

var errReadGone = errors.New("transport: the response body's Read did not return")

// holding is the memory of a body. It counts in the pool until it is freed.
type holding struct {
	pool *replay.Pool
	held atomic.Int64
}

// hold makes what is held n bytes, if there is room. One goroutine at a time calls it.
func (h *holding) hold(n int) bool {
	more := int64(n) - h.held.Load()
	if !h.pool.Hold(more) {
		return false
	}
	h.held.Add(more)
	return true
}

// free gives everything back. It may be called more than once.
func (h *holding) free() { h.pool.Free(h.held.Swap(0)) }

// A Body is a body of which a part, or everything, was read before the caller gets the
// response. It is the caller's body then. Read belongs to one goroutine. Close may come from
// another, also during a Read.
type Body struct {
	Resp   *http.Response // is for the caller
	from   *http.Response // that of the base, which sets its trailer; often the same
	base   io.ReadCloser
	length int64 // that was announced, or negative
	most   int64 // bytes that are read before
	bare   bool  // no trailer was announced, so nothing is missing after the last byte
	pool   *replay.Pool
	memory *holding         // nil: nothing counts
	first  *[firstRoom]byte // the room for the first Read, which another body gets; the goroutine sets it
	came   chan struct{}    // of the alarm: wakes who waits for the goroutine
	end    time.Duration    // when the caller is to have the body, on the clock of the alarms
	alarms *flight.Alarms

	mu      sync.Mutex    // guards the fields below
	alarm   *flight.Alarm // for the next byte; nil: the caller has the body, so the goroutine ends after its Read
	data    []byte        // what was read; the goroutine alone writes behind its length
	at      int           // how much of it was delivered
	err     error         // the end of the body
	running bool          // the goroutine reads
	closed  bool
	gaveUp  bool // the body is that of the last attempt
	panic   any  // what the Read of the base panicked with
}

// Fill puts a Body in the place of the response's body, and reads up to most bytes of it. It
// returns when the body has ended, when nothing has come for 100 ms, after 1 s, after most
// bytes, or when there is no more memory. It returns the error of a body that was cut, and
// that of a context that has ended. The time is that of an alarm.
//
// A goroutine reads, because the body may pause for ever, and a base transport may not look
// at its context. The goroutine ends when the base transport's Read does.
func Fill(ctx context.Context, of *flight.Alarms, resp *http.Response, most int64, pool *replay.Pool) (*Body, error) {
	now := of.Now()
	early := *resp // as long as nobody changes it
	early.Trailer = maps.Clone(resp.Trailer)
	b := &Body{
		Resp: resp, from: resp, base: resp.Body, length: resp.ContentLength, most: most, bare: len(resp.Trailer) == 0,
		pool: pool, running: true, end: now + wholeTime, alarms: of,
	}
	b.mu.Lock()
	of.TakeFor(resp.Body, &b.alarm, b, now, pauseTime)
	resp.Body, early.Body, b.came = b, b, b.alarm.Wake
	b.mu.Unlock()
	go b.run()
	if done := ctx.Done(); done == nil {
		<-b.came
	} else {
		select {
		case <-b.came:
		case <-done:
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running || len(b.came) > 0 {
		b.alarm.Wake = make(chan struct{}, 1) // nothing of this body must wake the next
	}
	b.alarm.Give()
	b.alarm = nil
	switch {
	case b.panic != nil:
		panic(b.panic)
	case !b.running && b.err == io.EOF:
		if len(resp.Trailer) == 0 {
			return b, nil
		}
	case ctx.Err() != nil:
		return b, flight.ContextErr(ctx)
	case !b.running:
		return b, b.err
	}
	// The trailer is for those who have read the body. A Read that goes on may set it while the caller
	// looks at the response.
	b.Resp = new(early)
	return b, nil
}

// Ring wakes Fill if nothing has come for too long.
func (b *Body) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alarm != nil && b.alarm.Due() {
		b.wake()
	}
}

// wake wakes who waits for the goroutine. The caller holds mu.
func (b *Body) wake() {
	select {
	case b.came <- struct{}{}:
	default:
	}
}

// run reads until the body ends, the caller has it, or enough is read.
func (b *Body) run() {
	var data []byte
	err := errReadGone // unless the base transport's Read returns
	defer func() { b.finish(data, err, recover()) }()
	for room := b.grown(nil); room != nil; room = b.grown(data) {
		err = errReadGone
		n, readErr := counted.Read(b.base, room[len(room):cap(room)])
		data, err = room[:len(room)+n], readErr
		if int64(len(data)) == b.length && err != nil && b.bare {
			err = io.EOF
		}
		if err != nil || !b.goesOn(data) {
			return
		}
	}
	err = nil
}

// grown returns data with room for the next Read, or nil if the caller is to have the body.
// A byte more than the body may have shows its end.
func (b *Body) grown(data []byte) []byte {
	if len(data) < cap(data) {
		return data
	}
	room := min(int64(max(firstRoom, 2*(cap(data)&^1))), b.most+1)
	if b.length >= 0 {
		room = min(room, b.length+1)
	}
	if room <= int64(len(data)) || room > small && !b.hold(int(room)) {
		return nil
	}
	if data == nil {
		if b.first, _ = b.pool.First.Get().(*[firstRoom]byte); b.first == nil {
			b.first = new([firstRoom]byte)
		}
		return b.first[:0:room]
	}
	return append(make([]byte, 0, room), data...)
}

// hold makes room count, if there is so much memory.
func (b *Body) hold(room int) bool {
	if b.memory == nil {
		b.memory = &holding{pool: b.pool}
		runtime.AddCleanup(b, (*holding).free, b.memory) // if the caller forgets the body
	}
	return b.memory.hold(room)
}

// goesOn takes what was read so far, and reports whether the goroutine reads more.
func (b *Body) goesOn(data []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alarm == nil || b.closed {
		return false
	}
	now := b.alarms.Now()
	b.data = data
	b.alarm.Set(now, min(pauseTime, b.end-now))
	return true
}

// finish takes what was read when the goroutine ends.
func (b *Body) finish(data []byte, err error, panicked any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data, b.err, b.panic, b.running = data, err, panicked, false
	b.wake()
	if b.closed {
		b.forget()
	}
}

// Read delivers what was read before, and then what comes.
func (b *Body) Read(p []byte) (int, error) {
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return 0, http.ErrBodyReadAfterClose
		}
		n := copy(p, b.data[b.at:])
		b.at += n
		err, running, panicked := b.err, b.running, b.panic
		if b.at == len(b.data) && !running {
			b.forget()
		}
		b.mu.Unlock()
		switch {
		case n > 0 || len(p) == 0:
			return n, nil
		case panicked != nil:
			panic(panicked)
		case running:
			<-b.came
			continue
		case err == nil:
			n, err = b.base.Read(p)
		}
		if err == io.EOF && b.Resp != b.from {
			b.setTrailer()
		}
		return n, err
	}
}

// setTrailer gives the caller the trailer, as net/http does: in the same map if there is one.
func (b *Body) setTrailer() {
	if b.Resp.Trailer == nil {
		b.Resp.Trailer = b.from.Trailer
	} else {
		maps.Copy(b.Resp.Trailer, b.from.Trailer)
	}
}

// Close forgets what was read, and closes the body of the base transport. A goroutine that
// still reads gives the memory back when it ends.
func (b *Body) Close() error {
	b.mu.Lock()
	b.closed = true
	if !b.running {
		b.forget()
	}
	b.mu.Unlock()
	return b.base.Close()
}

// forget forgets what was read. Nobody else has a slice of it, because Read copies the bytes and
// the goroutine has ended. So another body may take the first room. The caller holds mu.
func (b *Body) forget() {
	if b.first != nil && b.err == io.EOF { // otherwise the base may still write to it
		b.pool.First.Put(b.first)
	}
	b.first, b.data, b.at = nil, nil, 0
	if b.memory != nil {
		b.memory.free()
	}
}

// Whole returns the whole body. ok is false if there may be more of it.
func (b *Body) Whole() (data []byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ok = b.err == io.EOF && !b.running && (b.length < 0 || b.length == int64(len(b.data)))
	return b.data, ok
}

// GiveUp makes the body that of the last attempt.
func (b *Body) GiveUp() { b.gaveUp = true }

// ResumeTried reports whether the body was cut in the last attempt, or whether a Transport
// below has asked for its rest.
func (b *Body) ResumeTried() bool { return b.gaveUp || resume.Tried(b.base) }
