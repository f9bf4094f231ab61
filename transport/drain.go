// How is a response given up so that its connection can be used again?

package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A connection of HTTP/1 is used again only when the response was read to its
// end. Reading on is worth it for an error page; for more it is cheaper to
// connect anew, and an endless or stalled body must not hold the retry up.
const (
	drainBytes = 64 << 10
	drainTime  = 250 * time.Millisecond

	// closeTime is how long a Close may take when there is no time to read.
	// The bodies of net/http take microseconds.
	closeTime = 5 * time.Millisecond

	// drainEmpty is how many Reads in a row may give neither a byte nor an
	// error.
	drainEmpty = 100
)

var errBadCount = errors.New("transport: the response body's Read returned an invalid count")

// discard reads the body's rest within both bounds, and closes it. It returns
// when that is done, when drainTime is over, or when ctx ends, whichever comes
// first.
func discard(ctx context.Context, resp *http.Response) { discardWithin(ctx, resp, drainTime) }

// discardWithin is discard with a time bound of its own. If the bound is not
// positive, it reads nothing and closes the body.
//
// The Read and the Close are the base transport's, and either may block for as
// long as the server is silent. Close ends a Read of net/http's bodies. Other
// bases have a Close that waits for the Read instead. So neither runs in the
// caller's goroutine. There are at most two goroutines for each response. They
// end when the base's Read and Close do.
//
// A panic in the Read or the Close ends the drain and goes no further. The body
// is nobody's any more, and the retry does not depend on it.
func discardWithin(ctx context.Context, resp *http.Response, limit time.Duration) {
	drainWithin(ctx, resp, limit, io.Discard)
}

// keepWithin is discardWithin for a response that the caller may still get. It
// returns a copy of the response whose body is in memory. If the body was not
// whole within the bounds, it returns nil.
func keepWithin(ctx context.Context, resp *http.Response, limit time.Duration) *http.Response {
	var rest bytes.Buffer
	if resp == nil || !drainWithin(ctx, resp, limit, &rest) {
		return nil
	}
	kept := *resp
	kept.Body = io.NopCloser(&rest)
	return &kept
}

// drainWithin reads the rest of the body into w and closes the body, both within
// the bounds. It reports whether w has the whole rest, and nobody writes to it
// any more.
func drainWithin(ctx context.Context, resp *http.Response, limit time.Duration, w io.Writer) (whole bool) {
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		return true
	}
	d := &drain{body: resp.Body, to: w, done: make(chan struct{})}
	go d.run(resp.ContentLength <= drainBytes && limit > 0 && ctx.Err() == nil)
	if limit <= 0 {
		limit = closeTime
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-d.done:
		return d.whole
	case <-timer.C:
	case <-ctx.Done():
	}
	go d.shut()
	return false
}

// A drain is the end of one response's body.
type drain struct {
	body  io.ReadCloser
	to    io.Writer     // gets the bytes
	whole bool          // to has all of them; set before done is closed
	empty int           // empty Reads in a row; used by Read alone
	shuts atomic.Bool   // somebody closes the body, or has closed it
	done  chan struct{} // closed when the body is closed, if its Read was not in the way
}

// run reads the rest, if that is wanted, and closes the body.
func (d *drain) run(read bool) {
	defer close(d.done)
	defer d.shut()
	if !read {
		return
	}
	defer func() { _ = recover() }()
	// One byte more than allowed: a body of exactly drainBytes shows its end.
	_, err := io.CopyN(d.to, d, drainBytes+1)
	d.whole = err == io.EOF
}

// Read reads until the body is closed. A body that breaks the contract of
// io.Reader would keep its goroutine reading for ever, so it ends the drain.
func (d *drain) Read(p []byte) (int, error) {
	if d.shuts.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := d.body.Read(p)
	switch {
	case n < 0 || n > len(p):
		return 0, errBadCount
	case n > 0 || err != nil:
		d.empty = 0
		return n, err
	}
	if d.empty++; d.empty >= drainEmpty {
		return 0, io.ErrNoProgress
	}
	return 0, nil
}

// shut closes the body, once. The second caller does not wait for the first.
func (d *drain) shut() {
	if d.shuts.Swap(true) {
		return
	}
	defer func() { _ = recover() }()
	_ = d.body.Close()
}
