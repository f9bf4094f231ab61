// Whether a response brings the bytes that a body lacks. If a check is in doubt, the answer is no,
// because bytes of two representations must never be spliced (RFC 9110 §15.3.7.3).

package resume

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"reflect"

	"github.com/aplomb-go/aplomb/internal/replay"
)

// check checks whether resp continues the body, and takes over what the response says of the ends of
// the body. If it does not continue the body, the error says why. The body of resp has not been read
// yet. If again is set, the response brings everything again, perhaps although the rest was asked for.
// Its first bytes have to be those that the reader has, because a stream may have a validator that
// never changes.
func (b *Body) check(resp *http.Response) (again bool, err error) {
	switch {
	case !b.Compares && resp.StatusCode != http.StatusOK:
		return false, b.checkRange(resp, fields(resp.Header))
	case !b.keeps:
		return true, unfit("its status is 200, and the bytes that the reader has were not kept")
	case resp.Body == nil:
		return true, unfit("it has no body")
	case b.header != fingerprintOf(resp, true).header:
		return true, errHeader
	}
	b.stop = b.end
	return true, b.unmatched()
}

// checkRange checks whether resp carries the missing bytes of the same representation.
func (b *Body) checkRange(resp *http.Response, f fields) error {
	got := fingerprintOf(resp, false)
	switch {
	case resp.StatusCode != http.StatusPartialContent:
		return unfit("its status is %d", resp.StatusCode)
	case resp.Body == nil:
		return unfit("it has no body")
	case resp.Uncompressed:
		return unfit("it was decompressed on the way")
	case got.coding != b.coding:
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
	case b.digest != 0 && f["Repr-Digest"] != nil && b.digest != got.digest:
		return unfit("its Repr-Digest is another one: %q", f["Repr-Digest"]) // of the whole, also with a part (RFC 9530 §3)
	}
	return b.checkOffsets(resp, f)
}

// checkOffsets checks the range of a response that has passed all other checks.
func (b *Body) checkOffsets(resp *http.Response, f fields) error {
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
	// a part the body asks for the bytes after it. A server may also leave the total
	// out (RFC 9110 §14.4). Then the range has to be just the missing bytes, and the
	// total stays as it is known.
	b.end, b.total, b.stop = min(b.end, r.total), min(b.total, r.total), r.last+1
	return nil
}

// complete reports whether resp proves that no byte is missing: it is a 416 whose
// total is the number of bytes that were read. A server with another version of
// the representation would have ignored the Range because of If-Range
// (RFC 9110 §13.1.5). A 416 proves nothing if an end was promised that is not
// reached, or if announced trailers are lost.
func (b *Body) complete(resp *http.Response) bool {
	if b.Compares || resp.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		return false
	}
	f := fields(resp.Header)
	total, ok := f.unsatisfiedTotal()
	return ok && total == b.pos && b.end == unknown && len(b.resp.Trailer) == 0 &&
		(len(f.sameKind(b.validator)) == 0 || f.has(b.validator))
}

// hasGarbage reports whether net/http's decompressor failed behind the end of a gzip stream. A second
// response would have the same bytes there. A cut in the header of a further stream looks the same, which
// is 10 bytes long. Only a field of gzip.Reader tells this from any other cut. Without it the answer is no.
func (b *Body) hasGarbage() bool {
	b.mu.Lock() // a Close under way would use the field
	defer b.mu.Unlock()
	part := b.part
	for inner, ok := part.(interface{ Inner() io.ReadCloser }); ok; inner, ok = part.(interface{ Inner() io.ReadCloser }) {
		part = inner.Inner()
	}
	if b.closed || b.recovery != nil && b.recovery.late || b.pos == b.begin || !replay.IsOfNetHTTP(part) {
		return false
	}
	stream := reflect.ValueOf(part).Elem().FieldByName("zr")
	if !stream.IsValid() || stream.Type() != reflect.TypeFor[*gzip.Reader]() || stream.IsNil() {
		return false
	}
	size := stream.Elem().FieldByName("size") // that the stream under way has brought
	return size.IsValid() && size.CanUint() && size.Uint() == 0
}

func unfit(format string, args ...any) error {
	return fmt.Errorf("transport: the response is not the rest: "+format, args...)
}
