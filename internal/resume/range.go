// Which part of a representation does a response carry, and by what is that
// representation known?

package resume

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// unknown stands for an end or a total that nobody has told yet. It is above
// every offset, so that comparisons need no case of their own.
const unknown = math.MaxInt64

// A byteRange is what Content-Range says: the bytes from first to last, both
// included, of total, which may be unknown.
type byteRange struct{ first, last, total int64 }

func (r byteRange) length() int64 { return r.last - r.first + 1 }

// parseContentRange reads "bytes first-last/total", where total may be "*"
// (RFC 9110 §14.4). It takes nothing that the grammar does not allow but the
// case of the unit (§14.1), and nothing that contradicts itself. "bytes */n",
// which goes with a 416, is no range.
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

// unsatisfiedTotal returns the total that a 416 names, by "bytes */total"
// (RFC 9110 §14.4).
func unsatisfiedTotal(resp *http.Response) (int64, bool) {
	values := resp.Header["Content-Range"]
	if resp.StatusCode != http.StatusRequestedRangeNotSatisfiable || len(values) != 1 {
		return 0, false
	}
	unit, size, _ := strings.Cut(values[0], " ")
	size, ok := strings.CutPrefix(size, "*/")
	total, valid := parseOffset(size)
	return total, ok && valid && strings.EqualFold(unit, "bytes")
}

// parseOffset reads 1*DIGIT. The greatest number is left out: it means unknown
// here.
func parseOffset(s string) (int64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n < unknown
}

// rangeOf returns the range of a 206. Two of them, or one in a header and
// others in the parts of a multipart body, are none.
func rangeOf(resp *http.Response) (byteRange, bool) {
	values := resp.Header["Content-Range"]
	if len(values) != 1 || isMultipart(resp.Header) {
		return byteRange{}, false
	}
	return parseContentRange(values[0])
}

// isMultipart reports whether the body is several ranges in one
// (RFC 9110 §15.3.7.2): its bytes are not the representation's.
func isMultipart(h http.Header) bool {
	const multipart = "multipart/byteranges"
	for _, v := range h["Content-Type"] {
		v = strings.TrimLeft(v, " \t")
		if len(v) >= len(multipart) && strings.EqualFold(v[:len(multipart)], multipart) {
			return true
		}
	}
	return false
}

// clockSlack is how much older than its Date a response's Last-Modified must be
// to be strong. RFC 9110 §8.8.2.2 asks for a second where both are known to
// come from one clock, and otherwise for enough to rule the clocks out. A
// client cannot know about the clocks, so this is the minute of the older
// texts (RFC 7232 §2.2.2).
const clockSlack = time.Minute

// strongValidator returns what identifies the representation byte by byte: a
// strong entity tag or, where there is no tag at all, a strong Last-Modified
// (RFC 9110 §13.1.5 allows a date only to clients that have no tag). A weak tag
// rules the date out, too: the server says itself that equal bytes are not
// promised.
func strongValidator(h http.Header) (string, bool) {
	if tags := h["Etag"]; len(tags) > 0 {
		return tags[0], len(tags) == 1 && isStrongTag(tags[0])
	}
	modified, sent := h["Last-Modified"], h["Date"]
	if len(modified) != 1 || len(sent) != 1 {
		return "", false
	}
	m, err1 := http.ParseTime(modified[0])
	d, err2 := http.ParseTime(sent[0])
	return modified[0], err1 == nil && err2 == nil && d.Sub(m) >= clockSlack
}

// isStrongTag reports whether s is an entity tag without W/ (RFC 9110 §8.8.3).
// An empty one is allowed there, but no server that means it sends it.
func isStrongTag(s string) bool {
	if len(s) < 3 || s[0] != '"' || s[len(s)-1] != '"' {
		return false
	}
	for _, c := range []byte(s[1 : len(s)-1]) {
		if c == '"' || c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// otherValidator reports whether a response names a validator of the same kind
// that is another one.
func otherValidator(h http.Header, validator string) bool {
	name := "Last-Modified"
	if validator[0] == '"' {
		name = "Etag"
	}
	return len(h[name]) > 0 && !sameValidator(h, validator)
}

// sameValidator reports whether a response names the validator, and no other of
// its kind.
func sameValidator(h http.Header, validator string) bool {
	values := h["Last-Modified"]
	if validator[0] == '"' {
		values = h["Etag"]
	}
	return len(values) == 1 && values[0] == validator
}

// encodingOf returns Content-Encoding. ok is false where it stands in several
// lines, which nobody compares.
func encodingOf(h http.Header) (coding string, ok bool) {
	values := h["Content-Encoding"]
	if len(values) == 0 {
		return "", true
	}
	return values[0], len(values) == 1
}
