// What becomes of a response's body whose connection is cut?
//
// A GET under a strong validator is continued where it stopped: the rest is
// asked for by Range and If-Range, as an attempt like any other, and its bytes
// follow those that the reader has. Only what provably is the rest of the same
// representation is ever delivered; in all other cases the reader gets the
// error of the cut, and why it stayed.

package transport

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// minProgress is how many new bytes make a reconnect count as a request of its
// own rather than as a retry: a server that got on that far is not failing, and
// a download of gigabytes may need more reconnects than any count of retries
// allows.
const minProgress = 64 << 10

// A sender is the loop as a resuming body sees it.
type sender interface {
	// lost reports whether err, from a Read of a body, is a lost connection,
	// such as makes a GET worth sending again.
	lost(o *download, err error) bool

	// again sends req, which asks for the rest from offset, and returns the
	// final answer. cut is why. After progress it counts as a request: the
	// series is new, and the first send comes at once but for a little jitter,
	// unless short parts have to be spaced out or a hedge was told to wait.
	// Otherwise it is a retry: cut is the outcome of the last send of o's
	// series, and rules, back-off and budget decide. It ends at once when req's
	// context does.
	again(o *download, req *http.Request, offset int64, cut error, progressed bool) (*http.Response, error)

	// stopped is told, once, that a body ends with e, and sets its Reason.
	stopped(o *download, e *ResumeError)
}

// A download is the exchange that a body came from.
type download struct {
	req     *http.Request // the caller's, who leaves it alone until the body is closed
	rule    *resolved
	series  series
	spacing spacing
}

// A series is a row of sends since the last progress: what an ordinary retry
// continues.
type series struct {
	sent      int           // sends so far
	prev      time.Duration // the last back-off value
	start     time.Time     // zero: not read
	notBefore time.Time     // what an answer that lost a race asked for
}

// resumeLimits is what a rule says about resuming.
type resumeLimits struct {
	resumes int // reconnects in a row without progress
}

// A resumingBody is a response's body that reconnects. Read and WriteTo belong
// to one goroutine, as with any reader; Close may come from another one, also
// during a Read. There is no goroutine of its own.
type resumingBody struct {
	sender sender
	download
	limits    resumeLimits
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

// resuming returns resp with a body that resumes, or resp as it is where its
// body cannot. It allocates once, and once more for a digest.
func resuming(s sender, o download, limits resumeLimits, resp *http.Response) *http.Response {
	if limits.resumes < 0 {
		return resp
	}
	span, validator, ok := resumable(o.req, resp)
	if !ok {
		return resp
	}
	if _, ok := resp.Body.(io.WriterTo); ok {
		b := new(resumingCopier)
		b.init(s, o, limits, resp, span, validator)
		resp.Body = b
		return resp
	}
	b := new(resumingBody)
	b.init(s, o, limits, resp, span, validator)
	resp.Body = b
	return resp
}

func (b *resumingBody) init(s sender, o download, limits resumeLimits, resp *http.Response, span byteRange, validator string) {
	b.sender, b.download, b.limits = s, o, limits
	b.resp, b.body, b.validator = resp, resp.Body, validator
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
}

// Read reads on, over as many connections as it takes.
func (b *resumingBody) Read(p []byte) (int, error) {
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
func (b *resumingBody) take(p []byte) int {
	if room := b.stop - b.pos; int64(len(p)) > room {
		p = p[:room]
		b.err = &IntegrityError{
			Field: "length",
			Want:  strconv.FormatInt(b.stop-b.fresh, 10),
			Got:   "more",
		}
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
func (b *resumingBody) partEnded(err error) {
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
func (b *resumingBody) needless() bool {
	return len(b.resp.Trailer) == 0 && b.req.Context().Err() == nil
}

func (b *resumingBody) endedBy(err error) {
	// Behind the last byte there is no rest to ask for, only trailers that are lost.
	if b.pos != b.end && b.sender.lost(&b.download, err) {
		b.cut = err
	} else {
		b.err = err // as the base transport gives it
	}
}

// finish ends a body that is complete, if it is what the server announced. err is
// how its last part ended.
func (b *resumingBody) finish(err error) {
	last := b.resp
	if b.last != nil {
		last = b.last
	}
	b.err = io.EOF
	if bad := b.checkPart(err); bad != nil {
		b.err = bad
	}
	if bad := b.whole.check(); bad != nil {
		b.err = bad
	}
	if err == io.EOF { // else there is no trailer
		if bad := b.late.check(last); bad != nil {
			b.err = bad
		}
	}
	b.resp.Trailer = last.Trailer
}

// checkPart checks the digests of a part that has ended with err.
func (b *resumingBody) checkPart(err error) error {
	if bad := b.part.check(); bad != nil || err != io.EOF {
		return bad
	}
	if b.last != nil {
		return b.tail.check(b.last)
	}
	return b.tail.check(b.resp)
}

// resume reconnects, and sets err if the body ends here.
func (b *resumingBody) resume() {
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
	e := &ResumeError{Offset: b.pos, Err: cut, Cause: err}
	b.sender.stopped(&b.download, e)
	b.err = e
	if b.last == nil && e.hopeless() {
		b.err = cut
	}
}

// detach gives the part at hand up, and returns a context for the next one
// that Close ends. It reports false after Close.
func (b *resumingBody) detach() (context.Context, bool) {
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
func (b *resumingBody) reconnect(ctx context.Context, cut error) (*http.Response, error) {
	progressed := b.pos-b.fresh >= minProgress
	if progressed {
		b.dry = 0
	} else if b.dry++; b.dry > b.limits.resumes {
		return nil, errResumes
	}
	req := b.req.Clone(ctx)
	req.Header.Set("Range", b.rest())
	req.Header.Set("If-Range", b.validator)
	return b.sender.again(&b.download, req, b.pos, cut, progressed)
}

// rest is the Range of what is missing: to the end of the caller's own range,
// where there is one.
func (b *resumingBody) rest() string {
	r := "bytes=" + strconv.FormatInt(b.pos, 10) + "-"
	if b.partial {
		r += strconv.FormatInt(b.end-1, 10)
	}
	return r
}

// attach goes on with an answer, if it carries the rest, and ends the body, if
// the answer proves that there is none. If neither, attach says why, and gives
// the answer up.
func (b *resumingBody) attach(ctx context.Context, cut error, resp *http.Response) error {
	if b.complete(resp) {
		discard(ctx, resp)
		b.finish(cut)
		b.release()
		return nil
	}
	c, err := b.continuation(resp)
	if err != nil {
		discard(ctx, resp)
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
func (b *resumingBody) Close() error {
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
func (b *resumingBody) release() {
	b.mu.Lock()
	cancel := b.cancel
	b.cancel = nil
	b.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (b *resumingBody) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// A resumingCopier is a resumingBody over one that has WriteTo.
type resumingCopier struct{ resumingBody }

// WriteTo writes all that is left, over as many connections as it takes.
func (b *resumingCopier) WriteTo(w io.Writer) (int64, error) {
	t := &taker{b: &b.resumingBody, w: w}
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
	b   *resumingBody
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

// onlyReader hides all methods but Read.
type onlyReader struct{ io.Reader }
