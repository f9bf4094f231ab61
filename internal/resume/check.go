// The checks before a body may be resumed, and before a response may continue it.
// If a check is in doubt, the answer is no, because bytes of two representations
// must never be spliced (RFC 9110 §15.3.7.3).

package resume

import (
	"fmt"
	"net/http"
)

// Likely is a cheap test that most responses fail. It reports whether the
// response has a body and a header that may identify its version. Only then is
// Check worth its time.
func Likely(resp *http.Response) bool {
	return resp.Body != nil && resp.Body != http.NoBody &&
		(len(resp.Header["Etag"]) > 0 || len(resp.Header["Last-Modified"]) > 0)
}

// A Plan says how a body can be resumed.
type Plan struct {
	span      byteRange // of the representation; last and total may be unknown
	validator string    // sent in If-Range: an entity tag or a date
	encoding  string    // Content-Encoding
}

// Check reports whether the body of resp, the response to req, can be resumed
// after a cut, and how. It does not allocate.
func Check(req *http.Request, resp *http.Response) (plan Plan, ok bool) {
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent:
		return // no other status carries a representation of the target
	case req.Method != http.MethodGet && req.Method != "":
		return // ranges are defined for GET only (RFC 9110 §14.2)
	case req.Body != nil && req.Body != http.NoBody:
		return // the request body would have to be sent again
	case resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0:
		return // there is nothing to cut
	case resp.Uncompressed:
		return // the caller's offsets are not those of the representation
	}
	if plan.validator, ok = strongValidator(resp.Header); !ok {
		return
	}
	if plan.encoding, ok = encodingOf(resp.Header); !ok {
		return
	}
	if ranges := resp.Header["Accept-Ranges"]; len(ranges) == 1 && ranges[0] == "none" {
		return plan, false // the server's own word (RFC 9110 §14.3)
	}
	plan.span, ok = spanOf(req, resp)
	return plan, ok
}

// spanOf returns the bytes of the representation that resp carries: all of them
// for a 200, a range for a 206. A 206 to a request without a Range has no span.
func spanOf(req *http.Request, resp *http.Response) (byteRange, bool) {
	if resp.StatusCode == http.StatusOK {
		if n := resp.ContentLength; n > 0 {
			return byteRange{0, n - 1, n}, true
		}
		return byteRange{0, unknown, unknown}, !isMultipart(resp.Header)
	}
	span, ok := rangeOf(resp)
	asked := len(req.Header["Range"]) == 1
	return span, ok && asked && (resp.ContentLength < 0 || resp.ContentLength == span.length())
}

// A continuation says what a segment changes in its body.
type continuation struct {
	end, total int64 // of the body and the representation, as far as they are known now
	stop       int64 // where the segment ends
}

// continuation checks whether resp carries the rest of the body. If not, the error
// says why. The body of resp has not been read yet.
func (b *Body) continuation(resp *http.Response) (continuation, error) {
	coding, single := encodingOf(resp.Header)
	switch {
	case resp.StatusCode != http.StatusPartialContent:
		return unfit("its status is %d", resp.StatusCode)
	case resp.Body == nil:
		return unfit("it has no body")
	case resp.Uncompressed:
		return unfit("it was decompressed on the way")
	case !single || coding != b.encoding:
		// RFC 9110 §15.3.7 lets a 206 omit the field if the request had If-Range.
		// But some servers compress only whole responses, under the same tag. The
		// two cases look alike.
		return unfit("its Content-Encoding is %q, not %q", coding, b.encoding)
	case !sameValidator(resp.Header, b.validator):
		return unfit("it does not have the validator %s", b.validator)
	case b.otherDigest(resp.Header):
		return unfit("its Repr-Digest is another one")
	}
	return b.continuationBy(resp)
}

// continuationBy checks the range of a response that has passed all other checks.
func (b *Body) continuationBy(resp *http.Response) (continuation, error) {
	r, ok := rangeOf(resp)
	switch {
	case isMultipart(resp.Header):
		return unfit("it has several parts")
	case !ok:
		return unfit("its Content-Range is %q", resp.Header["Content-Range"])
	case r.first != b.pos:
		return unfit("it begins at %d instead of %d", r.first, b.pos)
	case b.total != unknown && r.total != b.total:
		return unfit("it is of %s bytes instead of %d", number(r.total), b.total)
	case b.end == unknown && r.total == unknown:
		return unfit("it does not tell where the whole ends")
	case b.end != unknown && r.total < b.end:
		// A promised end never shrinks. A clean end at the smaller total would hide
		// that bytes are missing.
		return unfit("it is of %d bytes, and the body goes to %d", r.total, b.end-1)
	case b.end != unknown && r.last >= b.end:
		return unfit("it goes to %d instead of %d", r.last, b.end-1)
	case resp.ContentLength >= 0 && resp.ContentLength != r.length():
		return unfit("its range has %d bytes, its Content-Length is %d", r.length(), resp.ContentLength)
	}
	// A server may return less than the rest (RFC 9110 §15.3.7). At the end of such
	// a segment the body asks for the bytes after it.
	return continuation{end: min(b.end, r.total), total: r.total, stop: r.last + 1}, nil
}

// complete reports whether resp proves that no byte is missing: it is a 416 whose
// total is the number of bytes that were read. A server with another version of
// the representation would have ignored the Range because of If-Range
// (RFC 9110 §13.1.5). A 416 proves nothing if an end was promised that is not
// reached, or if announced trailers are lost.
func (b *Body) complete(resp *http.Response) bool {
	total, ok := unsatisfiedTotal(resp)
	return ok && total == b.pos && b.end == unknown &&
		len(b.resp.Trailer) == 0 && !otherValidator(resp.Header, b.validator)
}

// otherDigest reports whether a header contradicts the digest that the whole body
// is checked against.
func (b *Body) otherDigest(h http.Header) bool {
	if b.sums == nil || b.sums.whole == nil || b.partial {
		return false
	}
	d := digestOf(h, "Repr-Digest")
	return d.name == b.sums.whole.name && d.want != b.sums.whole.want
}

func unfit(format string, args ...any) (continuation, error) {
	return continuation{}, fmt.Errorf("transport: the response is not the rest: "+format, args...)
}

func number(n int64) string {
	if n == unknown {
		return "unknown"
	}
	return fmt.Sprint(n)
}
