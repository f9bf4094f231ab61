// Header fields that say which bytes a response carries, and that identify the
// representation.

package resume

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// unknown stands for an end or a total that no response has named yet. It is above
// every offset, so comparisons need no extra case for it.
const unknown = math.MaxInt64

// A byteRange is the value of a Content-Range: the bytes from first to last, both
// included. total is the length of the representation, or unknown.
type byteRange struct{ first, last, total int64 }

func (r byteRange) length() int64 { return r.last - r.first + 1 }

// parseContentRange parses "bytes first-last/total" (RFC 9110 §14.4). If total is
// "*", it is unknown. The unit may be in any case (§14.1). parseContentRange
// refuses all other departures from the grammar, and values that contradict each
// other. "bytes */n", which belongs to a 416, is not a range.
func parseContentRange(s string) (byteRange, bool) {
	unit, s, _ := strings.Cut(s, " ")
	span, size, slash := strings.Cut(s, "/")
	from, to, dash := strings.Cut(span, "-")
	first, ok1 := parseOffset(from)
	last, ok2 := parseOffset(to)
	total, ok3 := int64(unknown), true
	if size != "*" {
		total, ok3 = parseOffset(size)
	}
	r := byteRange{first, last, total}
	ok := strings.EqualFold(unit, "bytes") && slash && dash && ok1 && ok2 && ok3 &&
		first <= last && last < total
	if !ok {
		return byteRange{}, false
	}
	return r, true
}

// parseOffset parses one or more digits. It refuses the greatest number, which
// stands for unknown.
func parseOffset(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil && n < unknown
}

// Fields are those of a response. Its header is read before the caller has the response. From then
// on it is the caller's, who may change it while the body is read.
type fields http.Header

// rangeOf returns the range of a 206. It reports false if there are two ranges, or
// if the body has several parts with ranges of their own.
func (f fields) rangeOf() (byteRange, bool) {
	if values := f["Content-Range"]; len(values) == 1 && !f.isMultipart() {
		return parseContentRange(values[0])
	}
	return byteRange{}, false
}

// unsatisfiedTotal returns the total that a 416 names with "bytes */total"
// (RFC 9110 §14.4).
func (f fields) unsatisfiedTotal() (int64, bool) {
	values := f["Content-Range"]
	if len(values) != 1 {
		return 0, false
	}
	unit, size, _ := strings.Cut(values[0], " ")
	size, ok := strings.CutPrefix(size, "*/")
	total, valid := parseOffset(size)
	return total, ok && valid && strings.EqualFold(unit, "bytes")
}

// isMultipart reports whether the body holds several ranges with headers between
// them (RFC 9110 §15.3.7.2). Such a body is not a run of the representation's bytes.
func (f fields) isMultipart() bool {
	const multipart = "multipart/byteranges"
	for _, v := range f["Content-Type"] {
		v = strings.TrimLeft(v, " \t")
		if len(v) >= len(multipart) && strings.EqualFold(v[:len(multipart)], multipart) {
			return true
		}
	}
	return false
}

// isCoded reports whether the body is compressed, or coded in another way.
func (f fields) isCoded() bool {
	v := f["Content-Encoding"]
	return len(v) > 0 && !strings.EqualFold(v[0], "identity")
}

// byRange reports whether the rest of a body can be asked for with a Range, unless the server
// says that it has none. It sets the plan.
func (p *Plan) byRange(req *http.Request, resp *http.Response, f fields) (ok bool) {
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent:
		return false // no other status carries a representation of the target
	case resp.Uncompressed:
		return false // the caller's offsets are not those of the representation
	case resp.StatusCode == http.StatusOK && len(req.Header["Range"]) > 0:
		return false // some servers send the range with this status, so the offsets are not known
	}
	if p.validator, ok = f.validator(); !ok || len(f["Content-Encoding"]) > 1 || resp.ContentLength < 0 && f.isCoded() {
		return false // for the last of these see rest
	}
	// The span has all of the representation for a 200, and a range for a 206. A 206 to a request
	// without a Range has no span.
	n := resp.ContentLength
	if resp.StatusCode == http.StatusPartialContent {
		p.span, ok = f.rangeOf()
		return ok && len(req.Header["Range"]) == 1 && (n < 0 || n == p.span.length())
	}
	if p.span = (byteRange{0, n - 1, n}); n <= 0 {
		p.span = byteRange{0, unknown, unknown}
	}
	return n > 0 || !f.isMultipart()
}

// clockSlack is how much older than its Date a response's Last-Modified must be
// to be strong. RFC 9110 §8.8.2.2 asks for a second if both come from the same
// clock, and otherwise for enough to make up for the difference of the clocks. A
// client does not know the clocks, so this is the minute of RFC 7232 §2.2.2.
const clockSlack = time.Minute

// validator returns the validator that identifies the representation byte by
// byte. That is a strong entity tag. If there is no tag at all, it is a strong
// Last-Modified, since RFC 9110 §13.1.5 allows a date only to a client without a
// tag. A weak tag rules the date out as well, because with a weak tag the server
// does not promise equal bytes. The grammar (§8.8.3) allows an empty tag, but an empty
// tag identifies nothing.
func (f fields) validator() (string, bool) {
	if tags := f["Etag"]; len(tags) > 0 {
		tag := tags[0]
		if len(tags) > 1 || len(tag) < 3 || tag[0] != '"' || tag[len(tag)-1] != '"' {
			return "", false
		}
		for _, c := range []byte(tag[1 : len(tag)-1]) {
			if c == '"' || c <= ' ' || c == 0x7f {
				return "", false
			}
		}
		return tag, true
	}
	modified := f["Last-Modified"]
	if len(modified) != 1 || len(f["Date"]) != 1 {
		return "", false
	}
	m, err1 := http.ParseTime(modified[0])
	d, err2 := http.ParseTime(f["Date"][0])
	return modified[0], err1 == nil && err2 == nil && d.Sub(m) >= clockSlack
}

// sameKind returns the values of the field that has a validator. A date is none beside a tag.
func (f fields) sameKind(validator string) []string {
	if validator[0] == '"' || len(f["Etag"]) > 0 {
		return f["Etag"]
	}
	return f["Last-Modified"]
}

// has reports whether a response has the validator, and no other of its kind. If the date of the
// first response was strong, the same date needs no Date beside it.
func (f fields) has(validator string) bool {
	values := f.sameKind(validator)
	return len(values) == 1 && values[0] == validator
}
