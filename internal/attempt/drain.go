// How a discarded response is read and closed, so that its connection can be used again.

package attempt

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/counted"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/resume"
)

// A connection of HTTP/1 is used again only if the response was read to its end.
// That is worthwhile for an error page. A new connection is cheaper than the rest of a
// long body. An endless or stalled body must not delay the retry.
const (
	DrainBytes = 64 << 10
	DrainTime  = 250 * time.Millisecond

	// CloseTime bounds the wait for a Close if there is no time to read.
	// The bodies of net/http take microseconds.
	CloseTime = 5 * time.Millisecond
)

// Discard reads the rest of the body within both bounds and closes the body. It
// returns when that is done, when DrainTime is over, or when ctx ends.
func Discard(ctx context.Context, resp *http.Response) {
	discardWithin(ctx, resp, time.Now().Add(DrainTime))
}

// Dismiss closes the body of a response that came too late. It does not wait long for the
// Close, and a panic of the Close goes no further.
func Dismiss(ctx context.Context, resp *http.Response) {
	discardWithin(ctx, resp, time.Time{})
}

// discardWithin discards a response until a point in time.
func discardWithin(ctx context.Context, resp *http.Response, until time.Time) {
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		return
	}
	if small, _ := InMemory(resp.Body); small {
		_ = resp.Body.Close()
		return
	}
	(&drain{to: io.Discard}).within(ctx, resp, until)
}

// maxKept is how many bytes of all responses a Room has.
const maxKept = 16 << 20

// A Room bounds the memory of the responses that are kept. The zero Room is ready, and safe for concurrent use.
type Room struct{ used atomic.Int64 }

func (m *Room) take(n int64) bool {
	if m.used.Add(n) <= maxKept {
		return true
	}
	m.used.Add(-n)
	return false
}

// A Kept is a response that the caller may still get. Its body is in memory. The zero Kept is none.
type Kept struct {
	Response *http.Response
	room     *Room
	size     int64 // in the room
}

// End ends the keeping: the caller gets the response, or nobody does.
func (k *Kept) End(delivered bool) {
	if k.room != nil {
		k.room.used.Add(-k.size)
	}
	if k.Response != nil && !delivered {
		_ = k.Response.Body.Close()
	}
}

// Keep drains a response that the caller may still get. If the body was not whole within the bounds,
// or if there is no room, it keeps none. A small body in memory is kept as it is.
func Keep(ctx context.Context, resp *http.Response, until time.Time, room *Room) Kept {
	if resp == nil {
		return Kept{}
	}
	if small, _ := InMemory(resp.Body); small || resp.Body == http.NoBody {
		return Kept{Response: resp}
	}
	size := int64(DrainBytes)
	if resp.ContentLength >= 0 {
		size = min(resp.ContentLength, size)
	}
	if !room.take(size) {
		discardWithin(ctx, resp, until)
		return Kept{}
	}
	k := new(copied)
	k.rest.Buffer = *bytes.NewBuffer(k.first[:0])
	k.drain.to = &k.rest
	if !k.drain.within(ctx, resp, until) {
		room.used.Add(-size)
		return Kept{}
	}
	k.Response = *resp
	k.Body = &k.rest
	room.used.Add(int64(k.rest.Len()) - size)
	return Kept{&k.Response, room, int64(k.rest.Len())}
}

// A copied is a response with its body. Most of them cost one allocation.
type copied struct {
	drain drain
	http.Response
	rest  restBody
	first [2 * bytes.MinRead]byte
}

// A restBody is the body of a response that was kept.
type restBody struct{ bytes.Buffer }

func (*restBody) Close() error { return nil }

// A drain reads and closes the body of a response that is discarded or kept.
//
// The Read and the Close belong to the base transport. Both may block for as long as
// the server is silent, so neither runs in the caller's goroutine. There
// are at most two goroutines for each response. They end when the Read and the Close
// of the base end. A small body in memory has no connection and cannot block, so it
// needs neither a goroutine nor a timer.
//
// The Close of net/http's bodies ends a Read. But if net/http decompresses a body, the Close
// waits for a Read that waits for the first bytes, and only the end of the context ends that
// Read. So such a body is read only if its Close ends the context of its attempt, or if the
// caller has a deadline. The decoder of another base may not bear a Close during a Read, so it is read
// only if its attempt has a context of its own. Before Go 1.27, a Close without a read costs a
// connection of HTTP/1.
//
// A panic in the Read or the Close ends the drain and goes no further, because the
// caller never gets this body and the retry does not depend on it.
type drain struct {
	body    io.ReadCloser
	rest    io.LimitedReader // what is read of body
	to      io.Writer        // gets the bytes
	whole   bool             // to has all bytes; set before done is closed
	closing atomic.Bool      // the body is closed or being closed
	done    chan struct{}    // closed when run is over
}

// within reads the rest of the body and closes the body, both within the
// bounds. If there is no time, it only closes the body. It reports whether the whole rest
// was written. If so, no goroutine writes any more.
func (d *drain) within(ctx context.Context, resp *http.Response, until time.Time) (whole bool) {
	limit := time.Until(until)
	_, own := InMemory(resp.Body)
	_, bounded := ctx.Deadline()
	d.body, d.done = resp.Body, make(chan struct{})
	ends := !resp.Uncompressed || own != nil || bounded && replay.IsOfNetHTTP(resp.Body) // a Read, when it is closed
	if ends && resp.ContentLength <= DrainBytes && limit > 0 && ctx.Err() == nil {
		d.rest = io.LimitedReader{R: d, N: DrainBytes + 1} // so that a body of exactly DrainBytes shows its end
	}
	go d.run()
	if limit <= 0 {
		limit = CloseTime
	}
	if instant.Sleep(ctx, limit, d.done) {
		return d.whole
	}
	if own != nil && resp.Uncompressed {
		own.ctx.happens(leaves, nil)
		time.AfterFunc(resume.CloseGrace, d.close)
	} else {
		go d.close()
	}
	return false
}

// InMemory reports whether a response's body is known to be in memory, and small. own is the body whose
// Close ends the context of its attempt; nil: the attempt has none of its own.
func InMemory(body io.ReadCloser) (small bool, own *attemptBody) {
	switch b := body.(type) {
	case *attemptBody:
		body, own = b.ReadCloser, b
	case *watchedBody:
		body, own = b.ReadCloser, &b.attemptBody
	case *slotBody:
		return InMemory(b.ReadCloser)
	}
	return replay.SmallInMemory(body), own
}

// run reads the rest, if it is to be read, and closes the body.
func (d *drain) run() {
	defer close(d.done)
	defer d.close()
	if d.rest.R == nil {
		return
	}
	defer func() { _ = recover() }()
	n, err := io.Copy(d.to, &d.rest)
	d.whole = err == nil && n <= DrainBytes
}

// Read reads from the body until the body is closed. It returns an error if the body breaks the
// contract of io.Reader.
func (d *drain) Read(p []byte) (int, error) {
	if d.closing.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return counted.Read(d.body, p)
}

// close closes the body once. The second call does not wait for the first call.
func (d *drain) close() {
	if d.closing.Swap(true) {
		return
	}
	defer func() { _ = recover() }()
	_ = d.body.Close()
}
