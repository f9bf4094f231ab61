package resume

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A told is what a reader of a whole stream knows at its end, by the letter of WHATWG
// HTML, "Interpreting an event stream".
type told struct {
	events []string // the data of the events
	id     string
	retry  int
}

// interpret reads a whole stream as the standard says it.
func interpret(stream string) (t told) {
	stream = strings.TrimPrefix(stream, bom)
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	data, id := "", ""
	for _, line := range lines[:len(lines)-1] { // the last line has no end
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			t.id = id
			if data != "" {
				t.events = append(t.events, strings.TrimSuffix(data, "\n"))
			}
			data = ""
		case name == "data":
			data += value + "\n"
		case name == "id" && !strings.Contains(value, "\x00"):
			id = value
		case name == "retry" && value != "" && strings.Trim(value, "0123456789") == "":
			if n, err := strconv.Atoi(value); err == nil && n < 1e9 {
				t.retry = n
			} else {
				t.retry = -1
			}
		}
	}
	return t
}

// cutInto feeds a scanner with pieces of the stream, and returns the ends of the events
// that it finds.
func cutInto(s *scanner, stream string, size int) (ends []int) {
	from := 0
	for at := 0; at < len(stream); {
		at = min(at+size, len(stream))
		for {
			n := s.next([]byte(stream[from:at]))
			if n == 0 {
				break
			}
			from += n
			ends = append(ends, from)
		}
	}
	return ends
}

var streams = []string{
	"",
	"data: a\n\n",
	"id: 1\ndata: a\n\nid: 2\ndata: b\ndata: c\n\n",
	"id: 1\r\ndata: a\r\n\r\nid: 2\r\ndata: b\r\n\r\n",
	"id: 1\rdata: a\r\rid: 2\rdata: b\r\r",
	bom + ": hello\nid: 1\ndata: a\n\n",
	bom + bom + "id: 1\n\n",
	": ping\n\n: ping\n\n",
	"id: 1\n: a comment in an event\ndata: a\n\n",
	"id: 1\x00\ndata: a\n\n",
	"id: 1\n\nid\ndata: no ID any more\n\n",
	"id:1\n\nid: 2\n",
	"retry: 3000\n\nretry: 12x\n\nretry:\n\n",
	"retry: 99999999999999999999999\n\n",
	"data\n\ndata\ndata\n\ndata:",
	"\n\n\r\r\n\n",
	"ID: 1\nevent: x\nfoo\n\n",
	"id:  1\n\nid:\t2\n\n",
}

// checkScanner compares the scanner with the standard.
func checkScanner(t *testing.T, stream string) {
	whole := &scanner{}
	ends := cutInto(whole, stream, len(stream)+1)
	for _, size := range []int{1, 2, 3, 7} {
		s := &scanner{}
		assert.Equal(t, ends, cutInto(s, stream, size), "in pieces of %d", size)
		assert.Equal(t, string(whole.id), string(s.id))
		assert.Equal(t, whole.retry, s.retry)
	}
	want := interpret(stream)
	assert.Equal(t, want.id, string(whole.id))
	switch want.retry {
	case -1:
		assert.Greater(t, whole.retry, 100*time.Hour)
	default:
		assert.Equal(t, time.Duration(want.retry)*time.Millisecond, whole.retry)
	}
	// A reader of the complete events alone has all events, and none is torn.
	last := 0
	var events []string
	for _, end := range ends {
		if last == 0 {
			last = len(stream) - len(strings.TrimPrefix(stream, bom))
		}
		events = append(events, interpret("\n"+stream[last:end]).events...) // a BOM is one only at the beginning
		last = end
	}
	assert.Equal(t, want.events, interpret(stream[:last]).events)
	assert.Equal(t, want.events, events, "an event is in one piece")
}

func TestScanner(t *testing.T) {
	for _, stream := range streams {
		t.Run(strconv.Quote(stream), func(t *testing.T) { checkScanner(t, stream) })
	}
}

func FuzzScanner(f *testing.F) {
	for _, stream := range streams {
		f.Add(stream)
	}
	f.Fuzz(checkScanner)
}
