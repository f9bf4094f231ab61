// The representations of a server, which change, and ranges of them. Package transport's
// TestJoin has the servers that get a range wrong. Their bytes depend on a key.

package simulate

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

// A page is the content of a response's body. It is the bytes of a text from
// first to until.
type page struct {
	text  text
	first int64
	until int64
}

func (p page) size() int64 { return p.until - p.first }

// represent fills in the status and the header according to the script. It
// returns the content of the body.
func (s *attempt) represent(resp *http.Response) page {
	sc, method := s.script, s.req.Method
	resp.StatusCode = sc.status
	own := page{text{key: dice.Mix(uint64(s.id))}, 0, sc.page}
	switch {
	case sc.status == 204:
		return page{}
	case sc.status < 300 && s.call.plan.upgrade:
		resp.StatusCode = http.StatusSwitchingProtocols
		resp.Header.Set("Upgrade", "sim")
		sc.end = whole // the context does not end a connection that is handed over
		return own
	case sc.status < 300 && (method == "" || method == http.MethodGet || method == http.MethodHead):
		return s.document(resp)
	case sc.length:
		resp.ContentLength = own.size()
	}
	return own
}

// version returns how often a representation has changed, and the time of the
// last change.
func (h *host) version(now time.Duration) (n int, since time.Duration) {
	since = -time.Hour
	for _, at := range h.changes {
		if at <= now {
			n, since = n+1, at
		}
	}
	return n, since
}

// document responds to a GET or HEAD request with a representation or a range of it.
func (s *attempt) document(resp *http.Response) page {
	path := s.call.plan.path
	n, since := s.host.version(s.began)
	d := dice.Roll(s.world.plan.seed, ofHost, uint64(s.host.id), uint64(len(path)), uint64(path[len(path)-1]), uint64(n))
	key := text{key: d.Uint64()}
	total := int64(d.Between(1, 8<<10))
	if d.Chance(25) {
		total = int64(d.Between(8<<10, 400<<10))
	}
	doc := page{key, 0, total}
	tag := fmt.Sprintf(`"v%d"`, n)
	modified := s.world.start.Add(since).UTC().Format(http.TimeFormat)
	if s.script.typed {
		resp.Header.Set("Content-Type", "text/event-stream")
		s.events = true
	}
	s.validate(resp.Header, tag, modified)
	condition := s.req.Header.Get("If-Range")
	if s.rng != "" && (condition == "" || condition == tag || condition == modified) {
		return s.part(resp, doc)
	}
	if resp.Uncompressed = s.script.unpacks && condition == ""; s.script.length && !resp.Uncompressed {
		resp.ContentLength = total
	}
	return doc
}

// validate writes the validators of the version.
func (s *attempt) validate(h http.Header, tag, modified string) {
	if h.Get("Date") == "" {
		h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	switch s.script.tagged {
	case 0:
		h.Set("ETag", tag)
	case 1:
		h.Set("ETag", "W/"+tag)
	case 3:
		h.Set("Last-Modified", modified)
	}
}

// part responds with a range.
func (s *attempt) part(resp *http.Response, doc page) page {
	first, last, ok := parseRange(s.rng, doc.until)
	if !ok {
		resp.StatusCode = http.StatusRequestedRangeNotSatisfiable
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes */%d", doc.until))
		return page{}
	}
	resp.StatusCode = http.StatusPartialContent
	part := page{doc.text, first, last + 1}
	if s.script.length {
		resp.ContentLength = part.size()
	}
	resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.first, part.until-1, doc.until))
	return part
}

// parseRange reads "bytes=a-" and "bytes=a-b".
func parseRange(s string, total int64) (first, last int64, ok bool) {
	from, to, ok := strings.Cut(strings.TrimPrefix(s, "bytes="), "-")
	if !ok {
		return 0, 0, false
	}
	first, err := strconv.ParseInt(from, 10, 64)
	if err != nil || first >= total {
		return 0, 0, false
	}
	last = total - 1
	if to != "" {
		n, err := strconv.ParseInt(to, 10, 64)
		if err != nil {
			return 0, 0, false
		}
		last = min(last, n)
	}
	return first, last, first <= last
}

// A text is a sequence of bytes that depends on its key. No part of a text
// looks like another part of it or like a part of a text with another key.
type text struct {
	key uint64
}

// fill writes the bytes of the text from off on into p.
func (t text) fill(p []byte, off int64) {
	for len(p) > 0 {
		word := t.word(off)
		n := copy(p, word[off&7:])
		p, off = p[n:], off+int64(n)
	}
}

// word returns the eight bytes of the text around an offset. The first of them has an
// offset that eight divides.
func (t text) word(off int64) (word [8]byte) {
	binary.LittleEndian.PutUint64(word[:], dice.Mix(t.key+uint64(off>>3)))
	return word
}

// bytes returns the text's first n bytes.
func (t text) bytes(n int64) []byte {
	p := make([]byte, n)
	t.fill(p, 0)
	return p
}

// differs compares p with the bytes of the text from off on. It returns the
// first offset that differs, or -1.
func (t text) differs(p []byte, off int64) int64 {
	for len(p) > 0 {
		word := t.word(off)
		for _, b := range word[off&7:] {
			if len(p) == 0 {
				return -1
			}
			if p[0] != b {
				return off
			}
			p, off = p[1:], off+1
		}
	}
	return -1
}
