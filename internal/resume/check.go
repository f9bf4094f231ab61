// The checks before a body may be resumed, and before a response may continue it.
// If a check is in doubt, the answer is no, because bytes of two representations
// must never be spliced (RFC 9110 §15.3.7.3).

package resume

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/internal/replay"
)

// HasBody reports whether a response has a body that can be cut.
func HasBody(resp *http.Response) bool {
	return resp.Body != nil && resp.Body != http.NoBody && resp.ContentLength != 0
}

// Terms say what the rule and the caller allow.
type Terms struct {
	Max        int   // reconnects in a row without progress
	Again      int64 // bytes that are fetched a second time; not positive: none
	Repeatable bool  // the request may be sent again, whatever its method
}

// A Plan says how a body can be continued, with all that is needed of the header for it.
type Plan struct {
	Compares bool // everything is fetched again, and compared

	span      byteRange // of the representation; last and total may be unknown
	validator string    // sent in If-Range: an entity tag or a date; "": the body is compared
	keeps     bool      // a second response may bring the first bytes again, which are compared
	prints    prints
}

// An Impossible says why nothing can continue a body.
type Impossible string

// The reasons why nothing can continue a body.
const (
	ErrOff         Impossible = "transport: the rule or the caller allows no further request"
	ErrStatus      Impossible = "transport: the response is an error"
	ErrMethod      Impossible = "transport: only a GET, or a request that may be repeated, is sent again for it"
	ErrFinal       Impossible = "transport: another request would not help"
	ErrBelow       Impossible = "transport: a Transport below has asked for the rest"
	ErrRange       Impossible = "transport: the response has a Content-Range, and its status is not 206"
	ErrStream      Impossible = "transport: the response is a stream"
	ErrNoRanges    Impossible = "transport: the server says Accept-Ranges: none, and the request is not sent again whole"
	ErrNoValidator Impossible = "transport: the response has no strong validator, and the request is not sent again whole"
	ErrAgain       Impossible = "transport: there is no rest to ask for, and too many bytes to fetch them again (Resume.Again)"
	ErrMayStream   Impossible = "transport: a body without a length may be a stream if it has fewer than 512 bytes or came with a pause, so it is not fetched again"
)

// Error returns the reason.
func (i Impossible) Error() string { return string(i) }

// Check reports whether the body of resp, the response to req, can be continued after a
// cut, and how. There is a body. If it cannot, the error says why. Check does not
// allocate.
func Check(req *http.Request, resp *http.Response, may *Terms) (plan Plan, err error) {
	bare := req.Body == nil || req.Body == http.NoBody
	get := req.Method == http.MethodGet || req.Method == ""
	repeats := get && bare || req.Method == "QUERY" && (bare || replay.Independent(req)) // it only asks for content
	again := may.Again > 0 && (repeats || may.Repeatable && (bare || replay.Independent(req)))
	switch {
	case resp.StatusCode/100 != 2:
		return plan, ErrStatus
	case !repeats && !again:
		return plan, ErrMethod
	}
	f := fields(resp.Header)
	if resp.StatusCode != http.StatusPartialContent && f["Content-Range"] != nil {
		return plan, ErrRange
	}
	var says string
	ranged := repeats && plan.byRange(req, resp, f) // ranges are defined for GET and QUERY only (RFC 9110 §14.2, RFC 10008)
	if ranged {
		says = strings.Join(f["Accept-Ranges"], ",") // RFC 9110 §14.3
		plan.prints.coding, plan.prints.digest = printOf(f["Content-Encoding"]), printOf(f["Repr-Digest"])
	}
	none := says == "none"
	switch {
	case ranged && !none && plan.span.last != unknown: // a file, whatever its type
	case isStream(req, resp, f["Content-Type"]):
		return plan, ErrStream
	case ranged && !none:
	case again: // its end is where the base transport says it is, whatever length was announced
		r, _ := f.rangeOf()
		plan.Compares, plan.validator, plan.span = true, "", byteRange{r.first, unknown, unknown}
		if resp.ContentLength > 0 {
			plan.span.total = r.first + resp.ContentLength
		}
	case ranged:
		return plan, ErrNoRanges
	default:
		return plan, ErrNoValidator
	}
	plan.keeps = may.Again > 0 && (plan.Compares || resp.StatusCode == http.StatusOK && says != "bytes")
	if plan.keeps {
		plan.prints.head = headOf(resp)
	}
	return plan, nil
}

// A continuation says what a segment changes in its body.
type continuation struct {
	end, total int64 // of the body and the representation, as far as they are known now
	stop       int64 // where the segment ends
	skip       int64 // bytes at its beginning that the reader has
}

// continuation checks whether resp continues the body. If not, the error says why. The
// body of resp has not been read yet.
func (b *Body) continuation(resp *http.Response) (continuation, error) {
	switch {
	case !b.compares() && resp.StatusCode != http.StatusOK:
		return b.rest(resp, fields(resp.Header))
	case !b.keeps:
		return unfit("its status is 200, and the bytes that the reader has were not kept")
	case resp.Body == nil:
		return unfit("it has no body")
	case b.prints.head != headOf(resp):
		return continuation{}, errHeader
	}
	// The response brings everything again, perhaps although the rest was asked for. Its first bytes
	// have to be those that the reader has, because a stream may have a validator that never changes.
	return continuation{end: b.end, total: b.total, stop: b.end, skip: b.size()}, b.unmatched()
}

// rest checks whether resp carries the rest of the body.
func (b *Body) rest(resp *http.Response, f fields) (continuation, error) {
	switch {
	case resp.StatusCode != http.StatusPartialContent:
		return unfit("its status is %d", resp.StatusCode)
	case resp.Body == nil:
		return unfit("it has no body")
	case resp.Uncompressed:
		return unfit("it was decompressed on the way")
	case len(f["Content-Encoding"]) > 1, printOf(f["Content-Encoding"]) != b.prints.coding:
		// RFC 9110 §15.3.7 lets a 206 omit the field if the request had If-Range.
		// But some servers compress only whole responses, under the same tag. The
		// two cases look alike.
		return unfit("its Content-Encoding is another one: %q", f["Content-Encoding"])
	case f.isCoded() && resp.ContentLength < 0:
		// A compressor that stands in front of a file server leaves Content-Range as it
		// was, and takes Content-Length away. So the range may count the plain bytes.
		return unfit("it is coded, and has no Content-Length")
	case !f.has(b.validator):
		return unfit("it does not have the validator %s", b.validator)
	case b.prints.digest != 0 && f["Repr-Digest"] != nil && b.prints.digest != printOf(f["Repr-Digest"]):
		return unfit("its Repr-Digest is another one: %q", f["Repr-Digest"]) // of the whole, also with a part (RFC 9530 §3)
	}
	return b.continuationBy(resp, f)
}

// continuationBy checks the range of a response that has passed all other checks.
func (b *Body) continuationBy(resp *http.Response, f fields) (continuation, error) {
	r, ok := f.rangeOf()
	switch {
	case f.isMultipart():
		return unfit("it has several parts")
	case !ok:
		return unfit("its Content-Range is %q", f["Content-Range"])
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
	if b.compares() || resp.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		return false
	}
	f := fields(resp.Header)
	total, ok := f.unsatisfiedTotal()
	return ok && total == b.pos && b.end == unknown && len(b.resp.Trailer) == 0 &&
		(len(f.sameKind(b.validator)) == 0 || f.has(b.validator))
}

func unfit(format string, args ...any) (continuation, error) {
	return continuation{}, fmt.Errorf("transport: the response is not the rest: "+format, args...)
}
