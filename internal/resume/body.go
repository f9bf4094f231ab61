// The body that the caller reads.

package resume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/counted"
)

// pause is the time without bytes after which a body without a length may be a stream.
const pause = 200 * time.Millisecond

var (
	// ErrLimit is the cause of a body that ends because too many continuations in a
	// row made no progress.
	ErrLimit = errors.New("transport: too many reconnects in a row without progress")
	// ErrLate is the cause of a body that ends because a Read took too long after a cut.
	ErrLate = fmt.Errorf("transport: no new byte came within %v: %w", patience, context.DeadlineExceeded)

	errDiffers = errors.New("transport: the second response is another one: its first bytes differ")
	errHeader  = errors.New("transport: the second response is another one: its status or its header differs")
	errLong    = errors.New("transport: the response body is longer than announced")
)

// A Fetcher gets the bytes that a cut body lacks. Each Body has its own Fetcher. The goroutine that
// reads the body calls it.
type Fetcher interface {
	// MayFetch reports whether err, which ended a part at offset, means that the connection was lost
	// and that the request may be sent again.
	MayFetch(offset int64, err error) bool

	// Fetch sends cut.Request, as soon as that is due, and hands the response to cut.Use. It returns
	// nil if the response continues the body, io.EOF if no byte is missing, and otherwise why the
	// body ends.
	Fetch(cut *Cut) error

	// Ended is called at most once, when the body ends at offset with an error that is not io.EOF,
	// unless the caller has closed it. err ended the last part. cause says why nothing continues
	// it; nil means that no byte is missing. Ended returns the reader's error, which may be io.EOF
	// then.
	Ended(offset int64, err, cause error) error
}

// A Body is a response's body that continues after a cut. Plan and Fetcher are set before the first
// Read. As long as the body is whole, only Read and Close run. Read belongs to one goroutine, as with
// any reader. Close may come from another goroutine, also during a Read. A Body starts no goroutine.
// It is as small as possible, because nearly every response has one.
type Body struct {
	Plan    // the reader alone uses it, but for part
	Fetcher Fetcher

	err      error     // that ended the body
	prefix   checksum  // of the bytes that were delivered
	recovery *recovery // nil: the body was not cut; mu guards the pointer against Close

	early  uint32 // the first of prefix when it was of minCompared bytes
	dry    int16  // continuations in a row without progress
	paused bool   // bytes came after a pause
	closed bool   // guarded by mu

	mu sync.Mutex // guards closed and, against Close, part; only the reader sets part, and so may read it unlocked
}

// Tried reports whether a response's body is a Body that has asked for its rest. A
// wrapper of a Body has a method ResumeTried that reports the same. Like Read, Tried
// belongs to the reader.
func Tried(body io.ReadCloser) bool {
	b, ok := body.(interface{ ResumeTried() bool })
	return ok && b.ResumeTried()
}

// ResumeTried reports whether the body has asked for its rest. See [Tried].
func (b *Body) ResumeTried() bool { return b.recovery != nil && b.recovery.cut != nil }

// Read reads the next bytes, and continues the body as often as needed.
func (b *Body) Read(p []byte) (int, error) {
	cutBefore := b.recovery != nil
	if cutBefore {
		b.beginRead()
		defer b.recovery.timer.Stop()
	}
	for {
		if b.err != nil || cutBefore && b.recovery.due != nil {
			if err := b.proceed(); err != nil {
				return 0, err
			}
		}
		var began time.Time // of a Read that may show that the body is a stream
		if b.keeps && !b.paused && b.end == unknown && b.total == unknown {
			began = time.Now()
		}
		n, err := counted.Read(b.part, p)
		if n > 0 && err == nil && !began.IsZero() { // a silence before an error says nothing, also if a decompressor had bytes left
			b.paused = time.Since(began) > pause
		}
		if room := b.stop - b.pos; int64(n) > room {
			if cutBefore {
				n, err = int(room), errLong
			} else { // the base transport changes bodies, so no range of the server's continues this body
				b.end, b.total, b.stop, b.limit, b.keeps = unknown, unknown, unknown, 0, false
			}
		}
		b.pos += int64(n)
		if b.keeps = b.keeps && !b.isWhole(); b.keeps { // or nothing can be missing
			b.keep(p[:n], err)
		}
		switch {
		case err == nil:
			return n, nil
		case err == io.EOF && !cutBefore: // also before the announced end: net/http has another error for a cut
			b.err = io.EOF
		default:
			b.endPart(err)
		}
		switch {
		case n > 0 || b.err != nil:
			return n, b.err
		case !cutBefore:
			return b.Read(p) // from now on a Read has a bound
		}
	}
}

// endPart judges an error that ended the part. Either the body ends, or a continuation is due.
func (b *Body) endPart(err error) {
	whole := b.isWhole()
	switch {
	case err == errLong:
		b.endWith(err)
		return
	case !whole && b.isLate(): // so the error is that of a body which we closed
		b.release()
		b.err = b.Fetcher.Ended(b.pos, b.recovery.cut, ErrLate)
		return
	case err == io.EOF && (whole || b.end == unknown):
		b.finish()
		return
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	switch {
	case b.isClosed():
		b.release()
		b.err = err
	case whole && len(b.resp.Trailer) == 0: // no byte is missing, but perhaps the caller's context has ended
		b.release()
		b.err = b.Fetcher.Ended(b.pos, err, nil)
	case whole, Tried(b.part), err == io.ErrUnexpectedEOF && b.resp.Uncompressed && b.hasGarbage(), !b.Fetcher.MayFetch(b.pos, err):
		b.endWith(err) // no range brings a trailer; and a Transport below did all that can be done
	default:
		if b.recovery == nil {
			b.mu.Lock()
			b.recovery = &recovery{start: b.begin, decompressed: b.resp.Uncompressed}
			b.mu.Unlock()
		}
		b.recovery.due = err
	}
}

// endWith ends the body with an error after which nothing is sent.
func (b *Body) endWith(err error) {
	b.release()
	var cause error = ErrFinal
	if Tried(b.part) {
		cause = ErrBelow
	}
	if b.err = err; !b.isClosed() {
		b.err = b.Fetcher.Ended(b.pos, err, cause)
	}
}

// finish ends a body that is whole.
func (b *Body) finish() {
	b.release()
	b.err = io.EOF
	if r := b.recovery; r != nil && r.last != nil {
		b.resp.Trailer = r.last.Trailer
	}
}

// isWhole reports whether all bytes came that were announced.
func (p *Plan) isWhole() bool { return p.pos == p.end || p.pos == p.total }

// Close ends the body, and a Read or a request for its rest under way. It does not wait for
// them.
func (b *Body) Close() error {
	b.mu.Lock()
	part, cut := b.part, b.recovery != nil
	b.closed = true
	b.mu.Unlock()
	err := part.Close() // during a request this is http.NoBody
	if cut {
		b.release()
	}
	return err
}

func (b *Body) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}
