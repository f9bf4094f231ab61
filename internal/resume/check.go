// The checks before a body may be resumed, and before a response may continue it.
// If a check is in doubt, the answer is no, because bytes of two representations
// must never be spliced (RFC 9110 §15.3.7.3).

package resume

import (
	"fmt"
	"net/http"

	"github.com/aplomb-go/aplomb/internal/replay"
)

// HasBody reports whether a response has a body that can be cut.
func HasBody(resp *http.Response) bool {
	return resp.Body != nil && resp.Body != http.NoBody && resp.ContentLength != 0
}

// Likely reports whether the response is a success with a body that can be cut. A response
// that is an error may ask for a wait, so it is not fetched again at once.
func Likely(resp *http.Response) bool { return resp.StatusCode/100 == 2 && HasBody(resp) }

func isGet(req *http.Request) bool { return req.Method == http.MethodGet || req.Method == "" }

// Repeats reports whether a request only asks for content and can be sent again as it was: a
// GET without a body, or a QUERY (RFC 10008) whose body can be made again.
func Repeats(req *http.Request) bool {
	bare := req.Body == nil || req.Body == http.NoBody
	return isGet(req) && bare || req.Method == "QUERY" && (bare || replay.Independent(req))
}

// A Plan says how a body can be continued.
type Plan struct {
	span      byteRange // of the representation; last and total may be unknown
	validator string    // sent in If-Range: an entity tag or a date; "": the body is compared
	encoding  string    // Content-Encoding
	keeps     bool      // the server may respond to a Range with a 200, which is compared
}

// Compares reports whether the body is continued by a second response to the whole
// request. Wrap then needs a Prefix.
func (p *Plan) Compares() bool { return p.validator == "" }

// Keeps reports whether a Prefix helps although the body is continued by a Range.
func (p *Plan) Keeps() bool { return p.keeps }

// An Impossible says why nothing can continue a body.
type Impossible string

// The reasons why nothing can continue a body.
const (
	ErrOff         Impossible = "transport: the rule or the caller allows no further request"
	ErrStatus      Impossible = "transport: the response is an error"
	ErrMethod      Impossible = "transport: only a GET, or a request that may be repeated, is sent again for it"
	ErrFinal       Impossible = "transport: another request would not help"
	ErrBelow       Impossible = "transport: a Transport below has asked for the rest"
	ErrStream      Impossible = "transport: the response is a stream"
	ErrNoRanges    Impossible = "transport: the server says Accept-Ranges: none, and the request is not sent again whole"
	ErrNoValidator Impossible = "transport: the response has no strong validator, and the request is not sent again whole"
	ErrAgain       Impossible = "transport: there is no rest to ask for, and too many bytes to fetch them again (Resume.Again)"
	ErrOld         Impossible = "transport: there is no rest to ask for, and a body without a length is not fetched again after 30 s"
)

// Error returns the reason.
func (i Impossible) Error() string { return string(i) }

// Check reports whether the body of resp, the response to req, can be continued after a
// cut, and how. There is a body. If it cannot, the error says why. again says that the request may be sent
// again whole. Check does not allocate.
func Check(req *http.Request, resp *http.Response, again bool) (plan Plan, err error) {
	switch {
	case !Likely(resp):
		return plan, ErrStatus
	case !isGet(req) && !Repeats(req) && !again:
		return plan, ErrMethod
	case ranged(req, resp, &plan) && plan.span.last != unknown:
		return plan, nil // a file, whatever its type
	case IsStream(req, resp):
		return Plan{}, ErrStream
	case plan.validator != "" && !saysOfRanges(resp, "none"):
		return plan, nil
	case again:
		return compared(resp), nil
	case plan.validator != "":
		return Plan{}, ErrNoRanges
	}
	return Plan{}, ErrNoValidator
}

// compared returns the plan for a body that is fetched again and compared. Its end is
// where the base transport says it is.
func compared(resp *http.Response) Plan {
	plan := Plan{span: byteRange{0, unknown, unknown}}
	if r, ok := rangeOf(resp); ok {
		plan.span.first = r.first
	}
	return plan
}

// ranged reports whether the rest of a body can be asked for with a Range. It sets the
// plan.
func ranged(req *http.Request, resp *http.Response, plan *Plan) (ok bool) {
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent:
		return false // no other status carries a representation of the target
	case !Repeats(req):
		return false // and ranges are defined for GET and QUERY only (RFC 9110 §14.2, RFC 10008)
	case resp.Uncompressed:
		return false // the caller's offsets are not those of the representation
	}
	validator, ok := strongValidator(resp.Header)
	if !ok {
		return false
	}
	if plan.encoding, ok = encodingOf(resp.Header); !ok {
		return false
	}
	if plan.span, ok = spanOf(req, resp); !ok {
		return false
	}
	plan.validator = validator
	plan.keeps = resp.StatusCode == http.StatusOK && !saysOfRanges(resp, "bytes")
	return !saysOfRanges(resp, "none")
}

// saysOfRanges reports whether the server says just this of ranges (RFC 9110 §14.3).
func saysOfRanges(resp *http.Response, word string) bool {
	ranges := resp.Header["Accept-Ranges"]
	return len(ranges) == 1 && ranges[0] == word
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
	end, total int64   // of the body and the representation, as far as they are known now
	stop       int64   // where the segment ends
	skip       int64   // bytes at its beginning that the reader has
	like       *Prefix // they are compared with this; nil: they are the same
}

// continuation checks whether resp continues the body. If not, the error says why. The
// body of resp has not been read yet.
func (b *Body) continuation(resp *http.Response) (continuation, error) {
	switch {
	case b.away && !b.compares():
		return b.elsewhere(resp)
	case !b.compares() && resp.StatusCode == http.StatusOK:
		return b.whole(resp)
	case !b.compares():
		return b.rest(resp)
	case resp.Body == nil:
		return unfit("it has no body")
	case !b.prefix.agrees(resp), b.otherDigest(resp):
		return continuation{}, errHeader
	}
	return continuation{end: b.end, total: b.total, stop: b.stop, skip: b.prefix.size, like: b.prefix}, nil
}

// whole checks whether resp, a 200, brings the whole representation again, although the
// rest was asked for. Its first bytes have to be those that the reader has, because a stream
// may have a validator that never changes.
func (b *Body) whole(resp *http.Response) (continuation, error) {
	coding, single := encodingOf(resp.Header)
	switch {
	case resp.Body == nil, b.partial, resp.Uncompressed, !single, coding != b.encoding, lengthOf(resp) != b.end,
		!sameValidator(resp.Header, b.validator), b.otherDigest(resp):
		return unfit("its status is %d", resp.StatusCode)
	case b.prefix == nil:
		return unfit("its status is 200, and the bytes that the reader has were not kept")
	case b.pos > int64(b.left):
		return continuation{}, ErrAgain
	case !b.prefix.agrees(resp):
		return continuation{}, errHeader
	}
	return continuation{end: b.end, total: b.total, stop: b.end, skip: b.pos, like: b.prefix}, nil
}

// rest checks whether resp carries the rest of the body.
func (b *Body) rest(resp *http.Response) (continuation, error) {
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
	case b.otherDigest(resp):
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
	case b.total != unknown && r.total == unknown && r.last != b.end-1:
		return unfit("it is of unknown length, and goes to %d instead of %d", r.last, b.end-1)
	case b.total != unknown && r.total != unknown && r.total != b.total:
		return unfit("it is of %d bytes instead of %d", r.total, b.total)
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
	// a segment the body asks for the bytes after it. A server may also leave the total
	// out (RFC 9110 §14.4). Then the range has to be just the missing bytes, and the
	// total stays as it is known.
	return continuation{end: min(b.end, r.total), total: min(b.total, r.total), stop: r.last + 1}, nil
}

// complete reports whether resp proves that no byte is missing: it is a 416 whose
// total is the number of bytes that were read. A server with another version of
// the representation would have ignored the Range because of If-Range
// (RFC 9110 §13.1.5). A 416 proves nothing if an end was promised that is not
// reached, or if announced trailers are lost.
func (b *Body) complete(resp *http.Response) bool {
	if b.compares() || b.away {
		return false
	}
	total, ok := unsatisfiedTotal(resp)
	return ok && total == b.pos && b.end == unknown &&
		len(b.resp.Trailer) == 0 && !otherValidator(resp.Header, b.validator)
}

// otherDigest reports whether a header contradicts the digest that the whole body
// is checked against.
func (b *Body) otherDigest(resp *http.Response) bool {
	if b.sums == nil || b.sums.whole == nil || b.partial {
		return false
	}
	d := digestOf(resp.Header, "Repr-Digest")
	if b.sums.whole.isChecksum() {
		if resp.StatusCode == http.StatusPartialContent {
			return false // S3 may send the checksum of a part of the object
		}
		d = storeDigest(resp.Header)
	}
	return d.name == b.sums.whole.name && d.want != b.sums.whole.want
}

func unfit(format string, args ...any) (continuation, error) {
	return continuation{}, fmt.Errorf("transport: the response is not the rest: "+format, args...)
}
