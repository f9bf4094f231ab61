// A cut: the request for the missing bytes, and the response that brings them.

package resume

import (
	"context"
	"io"
	"net/http"
	"strconv"
)

// MinProgress is how many bytes a part must have for the next continuation to
// count as a request and not as a retry. A server that delivers so much is not
// failing. A download of gigabytes may need more continuations than any count of
// retries allows.
const MinProgress = 64 << 10

// A Cut is the end of a part before the end of the body.
type Cut struct {
	Offset int64 // of the first missing byte
	Err    error // that ended the part

	// Request sets Part and Progressed. Part is the body of the response that was cut, which the
	// Fetcher closes. Progressed reports whether it had MinProgress bytes or more.
	Part       io.ReadCloser
	Progressed bool

	body *Body
}

// proceed continues the body, unless it has ended. It returns the error that ended it.
func (b *Body) proceed() error {
	if b.err == nil {
		cut := Cut{Offset: b.pos, Err: b.recovery.due, body: b}
		b.recovery.due = nil
		err := b.Fetcher.Fetch(&cut)
		if err == nil {
			return nil
		}
		b.release()
		switch {
		case err == io.EOF:
			b.finish()
		case b.isClosed():
			b.err = http.ErrBodyReadAfterClose
		default:
			b.err = b.Fetcher.Ended(b.pos, cut.Err, err)
		}
	}
	if b.err == io.EOF && b.isClosed() {
		return http.ErrBodyReadAfterClose
	}
	return b.err
}

// Request returns the request for the missing bytes, or for everything again. req is the caller's.
// The context of the request ends with the body, and has the deadline of the Read. An error says why
// nothing can be asked for.
func (c *Cut) Request(req *http.Request) (rest *http.Request, err error) {
	b := c.body
	r := b.recovery
	r.cut, c.Part = c.Err, http.NoBody
	ctx, cancel := context.WithCancelCause(req.Context())
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		cancel(nil)
		return nil, http.ErrBodyReadAfterClose
	}
	release := r.cancel
	c.Part, b.part, r.cancel = b.part, http.NoBody, cancel
	b.mu.Unlock()
	if release != nil {
		release(nil)
	}
	if c.Progressed = !b.Compares && b.pos-r.start >= MinProgress; c.Progressed {
		b.dry = 0
	} else if b.dry++; b.dry > b.limit {
		return nil, ErrLimit
	}
	if b.Compares {
		if err := b.unmatched(); err != nil {
			return nil, err
		}
	}
	rest = req.Clone(&readContext{ctx, r.until})
	if !b.Compares {
		rest.Header.Set("Range", b.missingRange(req))
		rest.Header.Set("If-Range", b.validator)
	}
	if rest.Body != nil && rest.GetBody != nil { // net/http's own, for a body in memory
		rest.Body, err = rest.GetBody()
	}
	return rest, err
}

// missingRange returns the Range header for the missing bytes. If the caller asked for a range,
// they end with that range.
func (b *Body) missingRange(req *http.Request) string {
	r := "bytes=" + strconv.FormatInt(b.pos, 10) + "-"
	if len(req.Header["Range"]) > 0 {
		r += strconv.FormatInt(b.end-1, 10)
	}
	return r
}

// Use makes a response the next part if it continues the body. It returns io.EOF if the response
// proves that no byte is missing, and otherwise why it is not the next part. It may read the bytes
// that the reader has. lost reports whether that ended because the connection was lost again. The
// Fetcher discards a response for which Use returns an error.
func (c *Cut) Use(resp *http.Response) (lost bool, err error) {
	b := c.body
	if b.complete(resp) {
		return false, io.EOF
	}
	again, err := b.check(resp)
	if err != nil {
		return false, err
	}
	if !b.put(resp.Body) {
		return false, ErrLate
	}
	if !b.Compares {
		b.recovery.start = b.pos
	}
	if again {
		if err := b.match(resp.Body); err != nil {
			b.mu.Lock()
			b.part = http.NoBody
			b.mu.Unlock()
			return err != errDiffers && err != ErrLate && !b.isClosed(), err
		}
	}
	b.recovery.last = resp
	return false, nil
}

// put makes body the part that is read. After Close, or if the Read took too long, it reports false.
func (b *Body) put(body io.ReadCloser) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.recovery.late {
		return false
	}
	b.part = body
	return true
}
