// The body of an event stream that reconnects with Last-Event-ID (WHATWG HTML,
// "Server-sent events").

package resume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/counted"
)

// maxEvent is the size of the largest event that is kept until it is complete.
const maxEvent = 1 << 20

// keptRoom is how much memory a stream keeps for the next event.
const keptRoom = 16 << 10

// ownRoom is how much memory each stream may take for the event under way. More than
// this counts in the memory for all streams.
const ownRoom = 64 << 10

// maxID is the size of the longest ID that is sent to a server. Servers refuse requests
// with large headers.
const maxID = 4 << 10

// lastEventID is the request header with the ID of the last event.
const lastEventID = "Last-Event-Id" // in canonical form

// The reasons why a stream is not continued after an ID.
const (
	ErrNoID     Impossible = "transport: the event stream has no event ID to continue from"
	ErrLoose    Impossible = "transport: an event without an ID came after the last ID, and the server may send it again"
	ErrBadID    Impossible = "transport: the last event ID does not fit into a header"
	ErrBigEvent Impossible = "transport: an event was too large to be kept until it was complete, or the memory for events was used up"
)

var (
	errStartsOver = errors.New("transport: the server sends the event stream from its beginning again")
	errNoStream   = errors.New("transport: the response does not continue the event stream")
)

// An EventSender is the transport as the reader of an event stream sees it.
type EventSender interface {
	Sender

	// AtLeast says before a reconnect how long it has to wait at least. This wait is
	// the server's own, and 0 if the server has not named any.
	AtLeast(wait time.Duration)

	// Held reports whether the last segment has lasted so long that its server is not
	// failing, although it may have sent no event.
	Held() bool

	// Memory returns the function that sets how much of the memory for all streams this
	// stream takes. The function reports false if there is no room for n bytes, which it
	// never does if the stream takes more. Memory is called at most once.
	Memory() (hold func(n int64) bool)
}

// Events is the body of an event stream that reconnects. It hands an event on when it is
// complete. When the connection is cut, the bytes of an incomplete event are dropped,
// because the server sends the event again. Wrap must be called before anything else.
// Read belongs to one goroutine, and Close may come from another. Events starts no
// goroutine.
type Events struct {
	*Body  // the segments; its own Read is not used
	sender EventSender

	scan    scanner
	buf     []byte // what was read and not delivered; nil: nothing
	at      int    // how much of it was delivered
	ready   int    // how much of it belongs to complete events
	firstID []byte // the first ID of the stream

	memory func(n int64) bool // holds memory for buf; nil: it was never large; guarded by mu

	was error // the error that ended the segment before

	begun    bool // an event or a comment came in this segment
	hasID    bool // an event had an ID
	loose    bool // an event without an ID came after the last ID
	fresh    bool // no event with an ID came in this segment
	progress bool // an event came in this segment
	clean    bool // the last segment has ended cleanly
	more     bool // a reconnect has brought an event
	passing  bool // everything passes through from here on
}

// CanReconnect reports whether resp, the response to req, is an event stream that may
// be read on with Last-Event-ID.
func CanReconnect(req *http.Request, resp *http.Response) bool {
	get := req.Method == http.MethodGet || req.Method == ""
	bare := req.Body == nil || req.Body == http.NoBody
	return get && bare && resp.Body != nil && classify.IsEventStream(resp)
}

// Wrap makes the event stream resp, the response to req, reconnect. body is for e alone.
// limit bounds the reconnects in a row without an event.
func (e *Events) Wrap(s EventSender, body *Body, req *http.Request, resp *http.Response, limit int) {
	*body = Body{sender: s, req: req, resp: resp, body: resp.Body, limit: int16(limit), end: unknown}
	e.Body, e.sender = body, s
	e.scan.id = []byte(req.Header.Get(lastEventID))
	resp.Body = e
}

// Read reads the events that are complete, and reconnects as often as needed.
func (e *Events) Read(p []byte) (int, error) {
	for {
		switch {
		case e.at < e.ready:
			return e.deliver(p)
		case e.err != nil:
			return 0, e.err
		case len(p) == 0:
			return 0, nil
		case e.cut != nil:
			e.resume()
			continue
		}
		n, err := counted.Read(e.body, p)
		idle := n == 0 && err == nil
		n = e.take(p[:n])
		if err != nil {
			e.segmentEnded(err)
		}
		if n > 0 || idle {
			return n, nil
		}
	}
}

// deliver hands on bytes that were kept.
func (e *Events) deliver(p []byte) (int, error) {
	if e.isClosed() {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, e.buf[e.at:e.ready])
	e.at += n
	e.pos += int64(n)
	if e.at == e.ready {
		e.keep(e.buf[e.ready:])
		e.hold()
	}
	return n, nil
}

// keep keeps the bytes of the event under way, and nothing else.
func (e *Events) keep(rest []byte) {
	e.at, e.ready = 0, 0
	if len(rest) == 0 || cap(e.buf) > keptRoom {
		e.buf = nil // most streams wait for an event most of the time
	}
	if len(rest) > 0 {
		e.buf = append(e.buf[:0], rest...)
	}
}

// hold reports whether there is room for the bytes that are kept. After Close they need
// none.
func (e *Events) hold() bool {
	n := int64(len(e.buf))
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.memory == nil && n <= ownRoom:
		return true
	case e.memory == nil:
		e.memory = e.sender.Memory()
	}
	if e.closed {
		n = 0
	}
	return e.memory(n)
}

// Close ends the body like that of a Body, and gives its memory back.
func (e *Events) Close() error {
	defer func() { // also if the base transport panics
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.memory != nil {
			e.memory(0)
		}
	}()
	return e.Body.Close()
}

// take takes the bytes p that arrived. It returns how many of them the reader gets at
// once, which then stand at the beginning of p. Other bytes are kept.
func (e *Events) take(p []byte) (n int) {
	switch {
	case e.passing:
		n = len(p)
	case len(e.buf) == 0:
		ready, rest := e.events(p)
		e.keep(p[rest:])
		n = ready
	default:
		e.buf = append(e.buf, p...)
		ready, rest := e.events(e.buf)
		if ready < rest { // else each Read would move a large event under way to its own place
			e.buf = append(e.buf[:ready], e.buf[rest:]...)
		}
		e.ready = ready
	}
	if !e.hold() || len(e.buf)-e.ready > maxEvent {
		e.passing, e.ready = true, len(e.buf)
	}
	e.pos += int64(n)
	return n
}

// events finds the complete events that data begins with. It moves those that the reader
// gets to the beginning, and returns their size, and where the event under way begins.
func (e *Events) events(data []byte) (ready, rest int) {
	for e.err == nil && !e.passing {
		n := e.scan.next(data[rest:])
		if n == 0 {
			return ready, rest
		}
		ready += copy(data[ready:], e.judge(data[rest:rest+n]))
		rest += n
	}
	if e.passing {
		ready += copy(data[ready:], data[rest:])
	}
	return ready, len(data)
}

// judge returns the bytes of an event that the reader gets. If the server begins with the
// last event of the segment before, the reader has that event already.
func (e *Events) judge(block []byte) []byte {
	ev, later := e.scan.last, e.last != nil
	if later && !e.begun {
		block = bytes.TrimPrefix(block, []byte(bom)) // it stands within the reader's stream
	}
	e.begun = true
	if ev.id {
		again := later && e.fresh
		e.fresh, e.loose = false, false
		switch {
		case again && ev.same:
			return nil
		case again && bytes.Equal(e.scan.id, e.firstID):
			e.stop(e.was, errStartsOver)
			return nil
		case !e.hasID:
			e.firstID = bytes.Clone(e.scan.id)
		}
		e.hasID = true
	} else if ev.data {
		e.loose = true
	}
	e.progress = e.progress || ev.fields
	e.more = e.more || ev.fields && later
	e.passing = len(block) > maxEvent
	return block
}

// segmentEnded judges the end of a segment. The bytes of the event under way are dropped
// if the server sends them again, and after an error, which tears no event then.
func (e *Events) segmentEnded(err error) {
	switch {
	case e.err != nil: // an event has ended the body
	case err == io.EOF && !e.goesOn():
		e.ready, e.err = len(e.buf), io.EOF
		e.resp.Trailer = e.latest().Trailer
	case err == io.EOF:
		e.cut, e.clean = io.ErrUnexpectedEOF, true
	case Tried(e.body) || !e.sender.Lost(err):
		e.err = err
	default:
		e.cut, e.clean = err, false
		if why := e.cannot(); why != nil {
			e.stop(err, why)
		}
	}
	if e.buf = e.buf[:e.ready]; e.ready == 0 {
		e.keep(nil)
		e.hold()
	}
	if e.err != nil {
		e.release()
	}
}

// goesOn reports whether a stream goes on after a clean end.
func (e *Events) goesOn() bool {
	return e.hasID && e.cannot() == nil && !Tried(e.body) && e.sender.Lost(io.ErrUnexpectedEOF)
}

// cannot returns why the stream cannot be continued, and nil if it can.
func (e *Events) cannot() error {
	switch {
	case e.passing:
		return ErrBigEvent
	case len(e.scan.id) == 0:
		return ErrNoID
	case e.loose:
		return ErrLoose
	case len(e.scan.id) > maxID || bytes.ContainsFunc(e.scan.id, isControl):
		return ErrBadID
	}
	return nil
}

// isControl reports whether a header cannot have a character.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// resume makes one reconnect. It sets err if the body ends here.
func (e *Events) resume() {
	ctx, cut := e.detach()
	if ctx == nil {
		return
	}
	e.was = cut
	resp, err := e.reconnect(ctx, cut)
	if err == nil {
		err = e.attach(ctx, resp)
	}
	if err != nil {
		e.stop(cut, err)
	}
}

// reconnect asks for the events after the last.
func (e *Events) reconnect(ctx context.Context, cut error) (*http.Response, error) {
	progressed := e.progress || e.sender.Held()
	if progressed {
		e.dry = 0
	} else if e.dry++; e.dry > e.limit {
		return nil, ErrLimit
	}
	req := e.req.Clone(ctx)
	if e.hasID {
		req.Header.Set(lastEventID, string(e.scan.id))
	}
	e.sender.AtLeast(e.scan.retry)
	return e.sender.Reconnect(req, e.pos, cut, progressed)
}

// attach makes a response the next segment if it is an event stream. A 204 is the
// server's word that the stream has ended.
func (e *Events) attach(ctx context.Context, resp *http.Response) error {
	if resp.StatusCode == http.StatusNoContent {
		e.sender.Discard(ctx, resp)
		e.err = io.EOF
		e.release()
		return nil
	}
	if resp.Body == nil || !classify.IsEventStream(resp) {
		e.sender.Discard(ctx, resp)
		return fmt.Errorf("%w: its status is %d, its Content-Type is %q", errNoStream, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	if !e.put(resp) {
		return http.ErrBodyReadAfterClose
	}
	e.scan.restart()
	e.last, e.begun, e.fresh, e.progress = resp, false, true, false
	e.sender.Continued(e.pos)
	return nil
}

// stop ends the body. If the stream ended cleanly, and the server itself sends no more
// of it, that end stands. If a limit was in the way, events may be missing.
func (e *Events) stop(cut, cause error) {
	e.release()
	if e.isClosed() {
		e.err = http.ErrBodyReadAfterClose
		return
	}
	e.err = e.sender.Stopped(e.pos+int64(e.ready-e.at), cut, cause, e.more)
	if e.clean && (errors.Is(cause, errNoStream) || cause == ErrLimit || cause == errStartsOver) {
		e.err = io.EOF
	}
	e.cut = nil
}
