// What becomes of a response's body whose connection is cut?
//
// A GET under a strong validator is continued where it stopped: the rest is
// asked for by Range and If-Range, as an attempt like any other, and its bytes
// follow those that the reader has. Only what provably is the rest of the same
// representation is ever delivered; in all other cases the reader gets the
// error of the cut, and why it stayed.

package resume

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// MinProgress is how many new bytes make a reconnect count as a request of its
// own rather than as a retry: a server that got on that far is not failing, and
// a download of gigabytes may need more reconnects than any count of retries
// allows.
const MinProgress = 64 << 10

// A Sender is the transport as a Body sees it. Each Body has its own, and calls
// it from the goroutine that reads the body.
type Sender interface {
	// Lost reports whether err, from a Read of a segment, is a lost connection,
	// such as makes a GET worth sending again.
	Lost(err error) bool

	// Reconnect sends req, which asks for the rest from offset, and returns the
	// final response. cut is the error that ended the last segment. progressed
	// says whether that segment had at least MinProgress bytes. Reconnect ends at
	// once when req's context does.
	Reconnect(req *http.Request, offset int64, cut error, progressed bool) (*http.Response, error)

	// Discard gives up a response to a reconnect that is not the rest.
	Discard(ctx context.Context, resp *http.Response)

	// Stopped is told, at most once, that a body ends at offset because nothing
	// could continue it. cut is the error that ended the last segment, cause the
	// obstacle, and continued says whether an earlier reconnect succeeded.
	// Stopped returns the error for the reader.
	Stopped(offset int64, cut, cause error, continued bool) error

	// Altered returns the reader's error for a body that differs from the
	// server's announcement. field is "length", or the name of a digest.
	Altered(field, want, got string) error
}

// A Body is a response's body that reconnects. Read and WriteTo belong
// to one goroutine, as with any reader; Close may come from another one, also
// during a Read. There is no goroutine of its own.
type Body struct {
	sender    Sender
	req       *http.Request  // the caller's, who leaves it alone until the body is closed
	limit     int            // of reconnects in a row without progress
	resp      *http.Response // the caller's; its Trailer is that of the last part
	validator string         // sent in If-Range: an entity tag or a date
	encoding  string         // Content-Encoding of all parts
	partial   bool           // the caller asked for a range and got one

	// What follows is used by the reader alone. Offsets are those of the
	// representation, not of a part.
	pos   int64          // the next byte's
	end   int64          // where the body ends, or unknown
	total int64          // the representation's length, or unknown
	stop  int64          // where the part at hand ends, or unknown
	fresh int64          // where the part at hand began
	dry   int            // reconnects in a row without progress
	whole *sum           // of all bytes; nil: no digest
	part  *sum           // of the part at hand; nil: no digest
	late  *lateSum       // as whole, for a digest in the trailer
	tail  *lateSum       // as part, for a digest in the trailer
	last  *http.Response // of the last reconnect; nil: none
	cut   error          // how the part ended, where the reader first gets its bytes
	err   error          // how the body ended

	mu     sync.Mutex         // guards the fields below, which Close needs
	body   io.ReadCloser      // the part at hand; set by the reader alone, which so may read it unlocked
	cancel context.CancelFunc // ends the reconnect and what comes of it; nil: none
	closed bool
}

// Wrap makes resp.Body resume. plan is that of Check for req and resp. limit is
// the greatest number of reconnects in a row without progress. Wrap allocates
// only if there is a digest to check.
func (b *Body) Wrap(s Sender, req *http.Request, resp *http.Response, plan Plan, limit int) {
	b.sender, b.req, b.limit = s, req, limit
	b.resp, b.body, b.validator = resp, resp.Body, plan.validator
	span := plan.span
	b.encoding, _ = encodingOf(resp.Header)
	b.partial = resp.StatusCode == http.StatusPartialContent
	b.pos, b.fresh, b.total = span.first, span.first, span.total
	b.end = span.last
	if b.end != unknown {
		b.end++
	}
	b.stop = b.end
	// Repr-Digest is that of the whole representation, and so of no use where
	// the caller has a range of it. Content-Digest is that of this response's
	// bytes, wherever they come from in the end.
	d := digestOf(resp.Header, "Content-Digest")
	if d.name == "" && !b.partial {
		d = digestOf(resp.Header, "Repr-Digest")
	}
	b.whole = newSum(d)
	if len(resp.Trailer) > 0 {
		b.tail = newLateSum(resp, "Content-Digest")
		if !b.partial {
			b.late = newLateSum(resp, "Repr-Digest")
		}
	}
	if _, ok := resp.Body.(io.WriterTo); ok {
		resp.Body = (*copier)(b)
	} else {
		resp.Body = b
	}
}

// Read reads on, over as many connections as it takes.
func (b *Body) Read(p []byte) (int, error) {
	for {
		for b.cut != nil && b.err == nil {
			b.resume()
		}
		if b.err != nil {
			return 0, b.err
		}
		n, err := b.body.Read(p)
		if n < 0 || n > len(p) {
			n, err = 0, errBadCount
		}
		n = b.take(p[:n])
		if err != nil {
			b.partEnded(err)
		}
		if n > 0 || b.err != nil || err == nil {
			return n, b.err
		}
	}
}

// take counts the bytes that arrived and returns how many of them are for the
// reader: what goes beyond the part's promised end is nobody's.
func (b *Body) take(p []byte) int {
	if room := b.stop - b.pos; int64(len(p)) > room {
		p = p[:room]
		b.err = b.sender.Altered("length", strconv.FormatInt(b.stop-b.fresh, 10), "more")
	}
	b.pos += int64(len(p))
	b.whole.add(p)
	b.part.add(p)
	b.late.add(p)
	b.tail.add(p)
	return len(p)
}

// partEnded judges the end of a part: it sets err where the body has ended with
// it, and cut where it goes on.
func (b *Body) partEnded(err error) {
	switch {
	case b.err != nil:
	case err == io.EOF && b.end == unknown:
		b.finish(err)
	case b.pos == b.end && (err == io.EOF || b.needless()):
		b.finish(err)
	case b.pos == b.stop && b.checkPart(err) != nil:
		b.err = b.checkPart(err)
	case err == io.EOF:
		b.endedBy(io.ErrUnexpectedEOF)
	default:
		b.endedBy(err)
	}
	if b.err != nil {
		b.release()
	}
}

// needless reports whether a cut after the last byte took nothing away. There
// is no rest that could be asked for, and nothing is missing but trailers where
// those were announced.
func (b *Body) needless() bool {
	return len(b.resp.Trailer) == 0 && b.req.Context().Err() == nil
}

func (b *Body) endedBy(err error) {
	// Behind the last byte there is no rest to ask for, only trailers that are lost.
	if b.pos != b.end && b.sender.Lost(err) {
		b.cut = err
	} else {
		b.err = err // as the base transport gives it
	}
}

// finish ends a body that is complete, if it is what the server announced. err is
// how its last part ended.
func (b *Body) finish(err error) {
	last := b.resp
	if b.last != nil {
		last = b.last
	}
	b.err = io.EOF
	if bad := b.checkPart(err); bad != nil {
		b.err = bad
	}
	if bad := b.altered(b.whole.check()); bad != nil {
		b.err = bad
	}
	if err == io.EOF { // else there is no trailer
		if bad := b.altered(b.late.check(last)); bad != nil {
			b.err = bad
		}
	}
	b.resp.Trailer = last.Trailer
}

// checkPart checks the digests of a part that has ended with err.
func (b *Body) checkPart(err error) error {
	if bad := b.altered(b.part.check()); bad != nil || err != io.EOF {
		return bad
	}
	last := b.last
	if last == nil {
		last = b.resp
	}
	return b.altered(b.tail.check(last))
}

// altered returns the reader's error for a digest that differs, nil for nil.
func (b *Body) altered(d *difference) error {
	if d == nil {
		return nil
	}
	return b.sender.Altered(d.name, d.want, d.got)
}

// resume reconnects, and sets err if the body ends here.
func (b *Body) resume() {
	cut := b.cut
	b.cut = nil
	ctx, ok := b.detach()
	if !ok {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	resp, err := b.reconnect(ctx, cut)
	if err == nil {
		err = b.attach(ctx, cut, resp)
	}
	if err == nil {
		return
	}
	b.release()
	if b.isClosed() {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	b.err = b.sender.Stopped(b.pos, cut, err, b.last != nil)
}

// detach gives the part at hand up, and returns a context for the next one
// that Close ends. It reports false after Close.
func (b *Body) detach() (context.Context, bool) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, false
	}
	ctx, cancel := context.WithCancel(b.req.Context())
	old, release := b.body, b.cancel
	b.body, b.cancel = http.NoBody, cancel
	b.mu.Unlock()
	_ = old.Close()
	if release != nil {
		release()
	}
	return ctx, true
}

// reconnect asks for the rest.
func (b *Body) reconnect(ctx context.Context, cut error) (*http.Response, error) {
	progressed := b.pos-b.fresh >= MinProgress
	if progressed {
		b.dry = 0
	} else if b.dry++; b.dry > b.limit {
		return nil, ErrLimit
	}
	req := b.req.Clone(ctx)
	req.Header.Set("Range", b.rest())
	req.Header.Set("If-Range", b.validator)
	return b.sender.Reconnect(req, b.pos, cut, progressed)
}

// rest is the Range of what is missing: to the end of the caller's own range,
// where there is one.
func (b *Body) rest() string {
	r := "bytes=" + strconv.FormatInt(b.pos, 10) + "-"
	if b.partial {
		r += strconv.FormatInt(b.end-1, 10)
	}
	return r
}

// attach goes on with an answer, if it carries the rest, and ends the body, if
// the answer proves that there is none. If neither, attach says why, and gives
// the answer up.
func (b *Body) attach(ctx context.Context, cut error, resp *http.Response) error {
	if b.complete(resp) {
		b.sender.Discard(ctx, resp)
		b.finish(cut)
		b.release()
		return nil
	}
	c, err := b.continuation(resp)
	if err != nil {
		b.sender.Discard(ctx, resp)
		return err
	}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.body = resp.Body
	}
	b.mu.Unlock()
	if closed {
		_ = resp.Body.Close()
		return http.ErrBodyReadAfterClose
	}
	b.part, b.tail, b.fresh = nil, nil, b.pos
	b.total, b.end, b.stop = c.total, c.end, c.stop
	b.last = resp
	b.part = newSum(digestOf(resp.Header, "Content-Digest"))
	b.tail = newLateSum(resp, "Content-Digest")
	return nil
}

// Close ends the body. It does not wait for a Read under way, but ends it, a
// reconnect included.
func (b *Body) Close() error {
	b.mu.Lock()
	body, cancel := b.body, b.cancel
	b.closed, b.cancel = true, nil
	b.mu.Unlock()
	err := body.Close() // during a reconnect there is none
	if cancel != nil {
		cancel()
	}
	return err
}

// release frees the context of a reconnect that is over.
func (b *Body) release() {
	b.mu.Lock()
	cancel := b.cancel
	b.cancel = nil
	b.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (b *Body) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// A copier is a Body over one that has WriteTo.
type copier Body

func (c *copier) Read(p []byte) (int, error) { return (*Body)(c).Read(p) }
func (c *copier) Close() error               { return (*Body)(c).Close() }

// WriteTo writes all that is left, over as many connections as it takes.
func (c *copier) WriteTo(w io.Writer) (int64, error) {
	b := (*Body)(c)
	t := &taker{b: b, w: w}
	for {
		for b.cut != nil && b.err == nil {
			b.resume()
		}
		if b.err == io.EOF {
			return t.n, nil
		}
		if b.err != nil {
			return t.n, b.err
		}
		err := t.from(b.body)
		if t.err != nil {
			return t.n, t.err
		}
		if err == nil {
			err = io.EOF
		}
		b.partEnded(err)
	}
}

// A taker counts what a part writes, and tells the writer's errors from the
// part's.
type taker struct {
	b   *Body
	w   io.Writer
	n   int64
	err error // the writer's
}

func (t *taker) from(body io.Reader) error {
	if from, ok := body.(io.WriterTo); ok {
		_, err := from.WriteTo(t)
		return err
	}
	_, err := io.Copy(t, body)
	return err
}

func (t *taker) Write(p []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	mine := t.b.take(p)
	n, err := t.w.Write(p[:mine])
	t.n += int64(n)
	switch {
	case err != nil:
		t.err = err
	case n < mine:
		t.err = io.ErrShortWrite
	case mine < len(p):
		return n, t.b.err
	}
	return n, t.err
}
