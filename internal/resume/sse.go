// The parser of event streams (WHATWG HTML, "Server-sent events").

package resume

import (
	"bytes"
	"math"
	"time"
)

// bom may stand at the beginning of an event stream.
const bom = "\xEF\xBB\xBF"

// A scanner finds the ends of events in a stream, and notes what a reconnect needs. The
// caller keeps the bytes of the event under way. An event ends with its blank line. A
// comment that stands before the first field of an event counts as an event of its own.
type scanner struct {
	pos   int  // how many bytes of the event under way were looked at
	line  int  // where its last line begins
	cr    bool // the last byte was a CR, so an LF after it belongs to it
	begun bool // the first line of the stream has gone by

	last  event         // that next has found
	under event         // the event under way
	id    []byte        // the last event ID; what the caller sent before the first id came
	newID []byte        // the ID of the event under way
	retry time.Duration // the reconnection time that the server asked for; 0: none
}

// An event is what a reconnect has to know of an event.
type event struct {
	fields bool // it has a field, and is more than a comment
	id     bool // it has an ID of its own
	same   bool // this ID is that of the event before
	data   bool // it has data that is not empty
}

// restart prepares the scanner for the stream of another response.
func (s *scanner) restart() {
	*s = scanner{id: s.id, newID: s.newID, retry: s.retry}
}

// next returns how many bytes of data the event takes that data begins with, and sets
// last. It returns 0 if the event is not complete. Then data has to be the same at the
// next call, with more bytes behind.
func (s *scanner) next(data []byte) int {
	for ; s.pos < len(data); s.pos++ {
		c := data[s.pos]
		switch {
		case c == '\n' && s.cr: // the line has ended with the CR
			s.cr = false
			s.line = s.pos + 1
			if s.under == (event{}) {
				return s.found()
			}
		case c == '\n' || c == '\r':
			s.cr = c == '\r'
			ends := s.lineEnded(data[s.line:s.pos])
			s.line = s.pos + 1
			if ends {
				return s.found()
			}
		default:
			s.cr = false
		}
	}
	return 0
}

// found ends an event.
func (s *scanner) found() int {
	n := s.line
	s.last, s.under = s.under, event{}
	if s.last.id {
		s.last.same = bytes.Equal(s.id, s.newID)
		s.id, s.newID = s.newID, s.id
	}
	s.pos, s.line = 0, 0
	return n
}

// lineEnded parses a line, and reports whether an event ends with it.
func (s *scanner) lineEnded(line []byte) bool {
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte(bom))
	}
	if len(line) == 0 {
		return true
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	if len(name) == 0 {
		return !s.under.fields // a comment
	}
	s.under.fields = true
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		s.under.data = s.under.data || len(value) > 0
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			s.under.id = true
			s.newID = append(s.newID[:0], value[:min(len(value), maxID+1)]...) // more than maxID is too long to be sent
		}
	case "retry":
		if d, ok := milliseconds(value); ok {
			s.retry = d
		}
	}
	return false
}

// milliseconds parses a number of ASCII digits.
func milliseconds(digits []byte) (time.Duration, bool) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int64(c-'0'), most/10-1)
	}
	return time.Duration(n) * time.Millisecond, len(digits) > 0
}
