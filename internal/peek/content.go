// The content of a body: decoded, and the first event of an event stream.

package peek

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// decoded returns up to n bytes of the content of a body whose beginning is head. It knows the codings of
// the standard library (RFC 9110 §8.4.1). A body that has another, or is not coded as it says, is returned
// as it is, and nil stays nil.
func decoded(coding string, head []byte, n int) []byte {
	var r io.Reader
	err := errors.ErrUnsupported
	switch {
	case len(head) == 0:
	case coding == "gzip", coding == "x-gzip":
		r, err = gzip.NewReader(bytes.NewReader(head))
	case coding == "deflate":
		if r, err = zlib.NewReader(bytes.NewReader(head)); err != nil { // without its frame (RFC 9110 §8.4.1.2)
			r, err = flate.NewReader(bytes.NewReader(head)), nil
		}
	}
	if err != nil {
		return head[:min(n, len(head))]
	}
	content, _ := io.ReadAll(io.LimitReader(r, int64(n))) // the head may end anywhere
	return content
}

// An Event is an event of an event stream (WHATWG HTML, "Server-sent events").
type Event struct {
	Type string // of the field "event"; empty if the event has none
	Data []byte // the lines of the field "data", with a line feed between two of them
}

// IsEventStream reports whether a response is an event stream that can be read, which is
// a success of type text/event-stream without a Content-Encoding.
func IsEventStream(resp *http.Response) bool {
	return resp != nil && resp.StatusCode == http.StatusOK && ServerSent(resp) &&
		len(resp.Header["Content-Encoding"]) == 0
}

// ServerSent reports whether a response has the type text/event-stream.
func ServerSent(resp *http.Response) bool {
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}

// FirstEvent waits for the first event of a response that is an event stream, and
// returns it. A comment is no event. Events for which skip reports true do not count, but
// after such an event FirstEvent waits for 5 s at most. A nil skip skips none. The body can
// still be read in full afterwards.
//
// ok is false if the response is no event stream, if its body has ended or cannot be read
// ahead, if the event does not end within the first 64 KiB, or if the 5 s are over. If the
// body fails or the context ends before the event, ok is false and err says why.
func (o Outcome) FirstEvent(skip func(Event) bool) (e Event, ok bool, err error) {
	if !IsEventStream(o.Response) {
		return Event{}, false, nil
	}
	skipped := false
	found := func(head []byte) bool {
		e, ok, skipped = firstEvent(head, skip)
		return ok
	}
	_, err = o.Await(Limit, func(head []byte) bool { return found(head) || skipped })
	if err == nil && !ok {
		err = o.awaitBriefly(found)
	}
	switch {
	case ok:
		return e, true, nil
	case err == io.EOF, errors.Is(err, errNotAhead):
		return Event{}, false, nil
	}
	return Event{}, false, err
}

// awaitBriefly waits until enough reports true for the bytes of a response whose first bytes have come. All
// its calls for one response end 5 s after the first began, with io.EOF.
func (o Outcome) awaitBriefly(enough func(head []byte) bool) error {
	body := o.ahead(Limit)
	if body.brief.IsZero() {
		body.brief = time.Now().Add(briefly)
	}
	ctx, cancel := context.WithDeadlineCause(o.context(), body.brief, io.EOF)
	defer cancel()
	return body.await(ctx, Limit, enough)
}

// firstEvent returns the first event in the beginning of a stream that skip does not skip. skipped reports
// whether there was one before it. The end of a line is a carriage return, a line feed, or both.
func firstEvent(head []byte, skip func(Event) bool) (e Event, ok, skipped bool) {
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	head = bytes.ReplaceAll(bytes.ReplaceAll(head, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	for {
		var lines []byte
		if lines, head, ok = bytes.Cut(head, []byte("\n\n")); !ok {
			return Event{}, false, skipped
		}
		e, filled := eventOf(lines)
		switch {
		case !filled: // an event without data is none
		case skip == nil || !skip(e):
			return e, true, skipped
		default:
			skipped = true
		}
	}
}

// eventOf returns the event of some lines, and whether it has data.
func eventOf(lines []byte) (e Event, filled bool) {
	var data [][]byte
	for line := range bytes.SplitSeq(lines, []byte("\n")) {
		name, value, _ := bytes.Cut(line, []byte(":")) // a comment has an empty name
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			e.Type = string(value)
		case "data":
			data = append(data, value)
		}
	}
	e.Data = bytes.Join(data, []byte("\n"))
	return e, data != nil
}
