// The body that the caller reads.

package resume

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/counted"
)

// MinProgress is how many bytes a segment must have for the next reconnect to
// count as a request and not as a retry. A server that delivers so much is not
// failing. A download of gigabytes may need more reconnects than any count of
// retries allows.
const MinProgress = 64 << 10

var (
	// ErrLimit is the cause of a body that ends because too many reconnects in a
	// row made no progress.
	ErrLimit = errors.New("transport: too many reconnects in a row without progress")
	// ErrLate is the cause of a body that ends because a Read took too long after a cut.
	ErrLate = fmt.Errorf("transport: no new byte came within %v: %w", patience, context.DeadlineExceeded)

	errDiffers = errors.New("transport: the second response is another one: its first bytes differ")
	errHeader  = errors.New("transport: the second response is another one: its status or its header differs")
	errLong    = errors.New("transport: the response body is longer than announced")
)

// A Sender is the transport as a Body sees it. Each Body has its own Sender. The
// goroutine that reads the body calls it.
type Sender interface {
	// Request returns the caller's request, with the context of all requests for the body.
	Request() *http.Request

	// Now returns the time since some moment.
	Now() time.Duration

	// Cut returns nil if err, from a Read of a segment, means that the connection was
	// lost and that the request may be sent again. Otherwise it returns the reader's
	// error. continued is as for Stopped.
	Cut(err error, continued bool) (end error)

	// Reconnect sends req, which asks for the bytes from offset on, and returns
	// the final response. cut is the error that ended the previous segment.
	// progressed reports whether that segment had MinProgress bytes or more.
	// Reconnect ends at once when the context of req does. That has the deadline of the
	// Read, and lives on if the Read ends before it.
	Reconnect(req *http.Request, offset int64, cut error, progressed bool) (*http.Response, error)

	// Continued is called when a reconnect has brought the rest from offset on, or a
	// part of it.
	Continued(offset int64)

	// Discard closes the response to a reconnect that does not carry the rest. It
	// may first read the response to its end, so that its connection can be used
	// again.
	Discard(ctx context.Context, resp *http.Response)

	// Drop closes the body of a segment that was cut. It does not wait long for the
	// Close, and a panic of the Close goes no further.
	Drop(body io.ReadCloser)

	// Failed is called when the body ends with err at offset, and no request for the rest
	// was tried. below reports whether a Transport below has asked for the rest. Failed is
	// not called if the caller has closed the body.
	Failed(offset int64, err error, below bool)

	// Stopped is called at most once, when the body ends at offset because the
	// rest could not be had. cut is the error that ended the previous segment, and
	// cause says why no further segment follows. continued reports whether a byte came
	// from an earlier reconnect. Stopped returns the reader's error.
	Stopped(offset int64, cut, cause error, continued bool) error
}

// A Body is a response's body that reconnects. Wrap must be called before
// anything else. Read belongs to one goroutine, as with any reader.
// Close may come from another goroutine, also during a Read. A Body starts no
// goroutine. It is as small as possible, because there is one for nearly every response.
type Body struct {
	sender    Sender
	resp      *http.Response // the caller's; it gets the Trailer of the last segment
	validator string         // sent in If-Range: an entity tag or a date; "": everything is fetched again

	// The reader alone uses the fields from here to mu. Offsets count the bytes of
	// the representation.
	pos   int64 // of the next byte
	end   int64 // of the body, or unknown
	total int64 // length of the representation, or unknown; if everything is fetched again, the announced end
	first int64 // where the current segment began
	stop  int64 // where the current segment ends, or unknown
	err   error // the error that ended the body

	prints prints // of the header of the first response
	sum    uint64 // of the bytes of the first Read, if there were more to come
	marks  marks  // of the bytes that were delivered
	extra  *extra // nil: the body has not needed one; mu guards the pointer against Close

	left  int32 // how many bytes may still be fetched a second time
	limit int16 // of reconnects in a row without progress
	dry   int16 // reconnects in a row without progress

	keeps   bool // what was delivered is hashed, because a second response may bring it again
	paused  bool // bytes came after a pause
	partial bool // the caller asked for a range and got it
	tried   bool // the body has asked for its rest
	grown   bool // a byte came from a reconnect
	closed  bool // guarded by mu

	mu   sync.Mutex    // guards closed and the fields below
	body io.ReadCloser // the current segment; only the reader sets it, and so may read it unlocked
}

// An extra is what a body needs if more than two Reads bring it, or if it is cut. The reader alone
// uses all but cancel and late.
type extra struct {
	hash   maphash.Hash            // of the bytes that were delivered after the first Read
	from   int64                   // how many bytes the first Read brought; 0: the hash is not in use
	cut    error                   // the error that ended the current segment, if a reconnect is due
	last   *http.Response          // to the last reconnect; nil before it
	cancel context.CancelCauseFunc // ends the last reconnect and its response; nil: none; guarded by mu
	wait   *wait                   // for the next byte; nil: the body was not cut
	late   bool                    // it took too long; guarded by mu
}

// Wrap makes the body of resp continue after a cut. plan is the result of Check for resp
// under these terms. Wrap does not allocate.
func (b *Body) Wrap(s Sender, resp *http.Response, plan *Plan, may *Terms) {
	b.sender, b.limit, b.left = s, int16(may.Max), int32(max(may.Again, 0))
	b.resp, b.body, b.validator = resp, resp.Body, plan.validator
	b.keeps, b.prints = plan.keeps, plan.prints
	b.partial = resp.StatusCode == http.StatusPartialContent
	b.pos, b.first, b.total = plan.span.first, plan.span.first, plan.span.total
	b.end = plan.span.last
	if b.end != unknown {
		b.end++
	}
	b.stop = b.end
	resp.Body = b
}

// compares reports whether everything is fetched again after a cut, because there is no
// rest to ask for.
func (b *Body) compares() bool { return b.validator == "" }

// makeExtra returns the extra of the body. The first call makes it.
func (b *Body) makeExtra() *extra {
	if b.extra == nil {
		b.mu.Lock()
		b.extra = new(extra)
		b.mu.Unlock()
	}
	return b.extra
}

// Tried reports whether a response's body is a Body that has asked for its rest. A
// wrapper of a Body has a method ResumeTried that reports the same. Like Read, Tried
// belongs to the reader.
func Tried(body io.ReadCloser) bool {
	b, ok := body.(interface{ ResumeTried() bool })
	return ok && b.ResumeTried()
}

// ResumeTried reports whether the body has asked for its rest. See [Tried].
func (b *Body) ResumeTried() bool { return b.tried }

// Read reads the next bytes and reconnects as often as needed.
func (b *Body) Read(p []byte) (n int, err error) {
	if b.extra != nil && b.extra.wait != nil {
		b.extra.wait.begin()
	}
	n, err = b.read(p)
	if b.extra != nil && b.extra.wait != nil {
		b.extra.wait.timer.Stop()
	}
	return n, err
}

func (b *Body) read(p []byte) (int, error) {
	for {
		for b.err == nil && b.extra != nil && b.extra.cut != nil {
			b.resume()
		}
		switch {
		case b.err == io.EOF && b.isClosed():
			return 0, http.ErrBodyReadAfterClose
		case b.err != nil:
			return 0, b.err
		}
		var began time.Duration
		timed := b.keeps && !b.paused && b.lacksLength() && b.size() <= int64(b.left)
		if timed {
			began = b.sender.Now()
		}
		n, err := counted.Read(b.body, p)
		if timed && n > 0 && err == nil { // a silence before an error says nothing, also if a decompressor had bytes left
			b.paused = b.sender.Now()-began > pause
		}
		n = b.take(p[:n], err)
		if err != nil || b.err != nil {
			b.segmentEnded(err)
		}
		if n > 0 || b.err != nil || err == nil {
			return n, b.err
		}
	}
}

// take counts the bytes p that arrived with err, and returns how many of them belong to
// the body. Bytes beyond the announced end of the segment are dropped and end the
// body. The last bytes of a body are not kept, because nothing can be missing after them.
func (b *Body) take(p []byte, err error) int {
	if room := b.stop - b.pos; int64(len(p)) > room {
		p = p[:room]
		b.err = errLong
	}
	if len(p) == 0 {
		return 0
	}
	b.pos += int64(len(p))
	b.grown = b.grown || b.extra != nil && b.extra.last != nil
	switch {
	case !b.keeps:
	case b.isWhole():
		b.keeps = false
	case err != io.EOF || b.end != unknown:
		b.keep(p)
	}
	return len(p)
}

// isWhole reports whether all bytes came that were announced.
func (b *Body) isWhole() bool { return b.pos == b.end || b.pos == b.total }

// segmentEnded judges the end of a segment. It sets err if the body ends with the
// segment, and cut if the rest is to be asked for.
func (b *Body) segmentEnded(err error) {
	switch {
	case b.err != nil:
	case !b.isWhole() && b.isLate(): // so the error is that of a body which we closed
		b.release()
		b.err = b.sender.Stopped(b.pos, b.extra.wait.cut, ErrLate, b.grown)
		return
	case err == io.EOF && b.end == unknown, b.isWhole() && (err == io.EOF || b.needless()):
		b.finish()
	case err == io.EOF:
		b.cutBy(io.ErrUnexpectedEOF)
	default:
		b.cutBy(err)
	}
	if b.err != nil {
		b.ended()
	}
}

// ended releases what an ended body held, and tells of an error.
func (b *Body) ended() {
	if b.extra != nil {
		b.release()
	}
	if b.err != io.EOF && !b.isClosed() {
		b.sender.Failed(b.pos, b.err, Tried(b.body))
	}
}

// needless reports whether a cut after the last byte can be ignored. No byte is
// missing. But announced trailers are lost, and the end of the caller's context
// is an error in any case.
func (b *Body) needless() bool {
	return len(b.resp.Trailer) == 0 && b.sender.Request().Context().Err() == nil
}

// cutBy decides whether an error calls for a reconnect. If it does not, the body
// ends with the error of the base transport, unchanged. After the last byte only
// trailers are missing, and no range brings them. If the segment is a body that has
// itself asked for its rest, a Transport below did all that can be done, and was
// perhaps told to wait. Reconnects are not multiplied.
func (b *Body) cutBy(err error) {
	if b.err = err; !b.isWhole() && !Tried(b.body) {
		b.err = b.sender.Cut(err, b.grown)
	}
	if b.err == nil {
		b.makeExtra().cut = err
	}
}

// finish ends a complete body.
func (b *Body) finish() {
	b.err = io.EOF
	if x := b.extra; x != nil && x.last != nil {
		b.resp.Trailer = x.last.Trailer
	}
}

// Close ends the body and a Read or reconnect under way. It does not wait for
// them.
func (b *Body) Close() error {
	b.mu.Lock()
	body, x := b.body, b.extra
	b.closed = true
	b.mu.Unlock()
	err := body.Close() // during a reconnect this is http.NoBody
	if x != nil {
		b.release()
	}
	return err
}

// release frees the context of the last reconnect, and ends the wait for a new byte.
func (b *Body) release() {
	b.mu.Lock()
	cancel := b.extra.cancel
	b.extra.cancel = nil
	if w := b.extra.wait; w != nil {
		w.timer.Stop()
	}
	b.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

func (b *Body) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}
