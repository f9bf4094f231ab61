// Can a body be resumed, and is an answer the rest of it? Where in doubt, no:
// bytes of two representations must never be spliced (RFC 9110 §15.3.7.3).

package resume

import (
	"errors"
	"fmt"
	"net/http"
)

// Likely is the cheap look that most responses do not pass: a body, and a
// header that names the version of what it carries.
func Likely(resp *http.Response) bool {
	return resp.Body != nil && resp.Body != http.NoBody &&
		(len(resp.Header["Etag"]) > 0 || len(resp.Header["Last-Modified"]) > 0)
}

// A Plan is how a body can be continued.
type Plan struct {
	span      byteRange // of the representation; last and total may be unknown
	validator string    // sent in If-Range: an entity tag or a date
}

// Check reports whether the body of resp, the response to req, can be continued
// when it is cut, and how. It is a list of guards, each with its reason. It does
// not allocate.
func Check(req *http.Request, resp *http.Response) (plan Plan, ok bool) {
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent:
		return // no other carries a representation of the target
	case req.Method != http.MethodGet && req.Method != "":
		return // ranges are defined for GET only (RFC 9110 §14.2)
	case req.Body != nil && req.Body != http.NoBody:
		return // it would have to be sent again
	case resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0:
		return // nothing that could be cut
	case resp.Uncompressed:
		return // offsets in what the caller reads are not the representation's
	}
	if plan.validator, ok = strongValidator(resp.Header); !ok {
		return
	}
	if _, ok = encodingOf(resp.Header); !ok {
		return
	}
	if ranges := resp.Header["Accept-Ranges"]; len(ranges) == 1 && ranges[0] == "none" {
		return plan, false // the server's own word (RFC 9110 §14.3)
	}
	plan.span, ok = spanOf(req, resp)
	return plan, ok
}

// spanOf returns the span of a 200, which is everything, or of a 206.
func spanOf(req *http.Request, resp *http.Response) (byteRange, bool) {
	if resp.StatusCode == http.StatusOK {
		if n := resp.ContentLength; n > 0 {
			return byteRange{0, n - 1, n}, true
		}
		return byteRange{0, unknown, unknown}, !isMultipart(resp.Header)
	}
	span, ok := rangeOf(resp)
	asked := len(req.Header["Range"]) == 1 // else this is not an answer to anything
	return span, ok && asked && (resp.ContentLength < 0 || resp.ContentLength == span.length())
}

var (
	// ErrLimit is the cause of a body that ends after as many reconnects in a row
	// without progress as are allowed.
	ErrLimit = errors.New("transport: too many reconnects in a row without progress")

	errBadCount = errors.New("transport: the response body's Read returned an invalid count")
)

// A continuation is what an answer adds to a body.
type continuation struct {
	end, total int64 // the body's, as far as they are known now
	stop       int64 // where the answer's part ends
}

// continuation checks whether an answer is the rest of the body, and returns
// why it is not. Nothing of it has been read yet.
func (b *Body) continuation(resp *http.Response) (continuation, error) {
	coding, single := encodingOf(resp.Header)
	switch {
	case resp.StatusCode != http.StatusPartialContent:
		return unfit("it has status %d", resp.StatusCode)
	case resp.Body == nil:
		return unfit("it has no body")
	case resp.Uncompressed:
		return unfit("it was decompressed on the way")
	case !single || coding != b.encoding:
		// RFC 9110 §15.3.7 lets a 206 leave the field out where If-Range was
		// sent. But servers exist that compress whole answers only, under an
		// unchanged tag; nothing tells those two apart.
		return unfit("its Content-Encoding is %q, not %q", coding, b.encoding)
	case !sameValidator(resp.Header, b.validator):
		return unfit("it is not under the validator %s", b.validator)
	case b.otherDigest(resp.Header):
		return unfit("its Repr-Digest is another one")
	}
	r, ok := rangeOf(resp)
	switch {
	case isMultipart(resp.Header):
		return unfit("it is in several parts")
	case !ok:
		return unfit("its Content-Range is %q", resp.Header["Content-Range"])
	case r.first != b.pos:
		return unfit("it begins at %d instead of %d", r.first, b.pos)
	case b.total != unknown && r.total != b.total:
		return unfit("it is of %s bytes instead of %d", number(r.total), b.total)
	case b.end == unknown && r.total == unknown:
		return unfit("it does not tell where the whole ends")
	case b.end != unknown && r.total < b.end:
		// What was promised never shrinks: a clean end there would hide what is
		// missing.
		return unfit("it is of %d bytes, and the body goes to %d", r.total, b.end-1)
	case b.end != unknown && r.last >= b.end:
		return unfit("it goes to %d instead of %d", r.last, b.end-1)
	case resp.ContentLength >= 0 && resp.ContentLength != r.length():
		return unfit("it is of %d bytes and says %d", resp.ContentLength, r.length())
	}
	// A part that ends early is in order (RFC 9110 §15.3.7): the rest of the
	// rest is asked for when it has ended.
	return continuation{end: min(b.end, r.total), total: r.total, stop: r.last + 1}, nil
}

// complete reports whether an answer proves that nothing is missing: a 416 whose
// total is the number of bytes that were read. A server that knew another
// version of the representation would ignore the Range because of its If-Range
// (RFC 9110 §13.1.5), and not answer 416. It proves nothing if an end was
// promised, which is not reached, or if trailers were, which are lost.
func (b *Body) complete(resp *http.Response) bool {
	total, ok := unsatisfiedTotal(resp)
	return ok && total == b.pos && b.end == unknown &&
		len(b.resp.Trailer) == 0 && !otherValidator(resp.Header, b.validator)
}

// otherDigest reports whether an answer names a digest of the representation
// that is not the one which the body is computed against.
func (b *Body) otherDigest(h http.Header) bool {
	if b.whole == nil || b.partial {
		return false
	}
	d := digestOf(h, "Repr-Digest")
	return d.name == b.whole.name && d.want != b.whole.want
}

func unfit(format string, args ...any) (continuation, error) {
	return continuation{}, fmt.Errorf("transport: the answer is not the rest: "+format, args...)
}

func number(n int64) string {
	if n == unknown {
		return "unknown"
	}
	return fmt.Sprint(n)
}
