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

// multipart is the media type of a body with several ranges and headers between them (RFC 9110
// §15.3.7.2). It is not a run of the representation's bytes.
const multipart = "multipart/byteranges"

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
	s, bytes := strings.CutPrefix(strings.ToLower(s), "bytes ")
	span, size, slash := strings.Cut(s, "/")
	from, to, dash := strings.Cut(span, "-")
	first, ok1 := parseOffset(from)
	last, ok2 := parseOffset(to)
	total, ok3 := int64(unknown), true
	if size != "*" {
		total, ok3 = parseOffset(size)
	}
	ok := bytes && slash && dash && ok1 && ok2 && ok3 && first <= last && last < total
	return byteRange{first, last, total}, ok
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

// setSpan takes the range of a 206 as that of the body, whose length is as announced. It reports false
// if they do not agree.
func (p *Plan) setSpan(f fields, length int64) bool {
	r, ok := f.rangeOf()
	if ok {
		p.begin, p.end, p.total = r.first, r.last+1, r.total
	}
	return ok && (length < 0 || length == r.length())
}

// unsatisfiedTotal returns the total that a 416 names with "bytes */total"
// (RFC 9110 §14.4).
func (f fields) unsatisfiedTotal() (int64, bool) {
	values := f["Content-Range"]
	if len(values) != 1 {
		return 0, false
	}
	size, ok := strings.CutPrefix(strings.ToLower(values[0]), "bytes */")
	total, valid := parseOffset(size)
	return total, ok && valid
}

// isMultipart reports whether the body has several ranges.
func (f fields) isMultipart() bool {
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

// clockSlack is how much older than its Date a response's Last-Modified must be
// to be strong. RFC 9110 §8.8.2.2 asks for a second if both come from the same
// clock, and otherwise for enough to make up for the difference of the clocks. A
// client does not know the clocks, so this is the minute of RFC 7232 §2.2.2.
const clockSlack = time.Minute

// strongDate returns the only Last-Modified if it is strong, and else "". It identifies the representation
// only if there is no entity tag at all, because RFC 9110 §13.1.5 allows a date only to a client
// without a tag. With a weak tag the server does not promise equal bytes.
func (f fields) strongDate() string {
	modified := f["Last-Modified"][0]
	m, err1 := http.ParseTime(modified)
	d, err2 := http.ParseTime(http.Header(f).Get("Date"))
	if err1 != nil || err2 != nil || d.Sub(m) < clockSlack {
		return ""
	}
	return modified
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
