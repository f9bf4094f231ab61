// Answers to requests for a part of a Content.

package testserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// forRange turns a Content step into the answer to the request r.
func (s Step) forRange(r *Received) Step {
	whole, etag := s.body, s.etag
	s.kind, s.etag = answer, ""
	s = s.Header("Accept-Ranges", "bytes")
	if etag != "" {
		s = s.Header("ETag", etag)
	}
	if r.Header.Get("Range") == "" || !sameVersion(r.Header.Get("If-Range"), etag) {
		return s
	}
	first, end, ok := oneRange(r.Header.Get("Range"), len(whole))
	switch {
	case !ok:
		return s
	case first >= len(whole):
		s.code, s.body = http.StatusRequestedRangeNotSatisfiable, []byte{}
		return s.Header("Content-Range", fmt.Sprintf("bytes */%d", len(whole)))
	}
	s.code, s.body = http.StatusPartialContent, whole[first:end]
	return s.Header("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, end-1, len(whole)))
}

// sameVersion evaluates If-Range, RFC 9110 section 13.1.5. A weak etag never
// matches. A date never matches either, because Content has no date.
func sameVersion(ifRange, etag string) bool {
	return ifRange == "" || ifRange == etag && !strings.HasPrefix(etag, "W/")
}

// oneRange parses "bytes=a-b", "bytes=a-" and "bytes=-n" into [first, end). The
// caller ignores all other values, including lists of several ranges.
func oneRange(v string, size int) (first, end int, ok bool) {
	spec, isBytes := strings.CutPrefix(v, "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	if !isBytes || !dash {
		return 0, 0, false
	}
	a, errA := strconv.Atoi(from)
	b, errB := strconv.Atoi(to)
	switch {
	case from == "" && errB == nil && b > 0:
		return max(size-b, 0), size, true
	case errA == nil && to == "":
		return a, size, true
	case errA == nil && errB == nil && b >= a:
		return a, min(b, size-1) + 1, true
	}
	return 0, 0, false
}
