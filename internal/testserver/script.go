// Steps, which say how the server answers, and the answers of a Content to Range.

package testserver

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"time"
)

// A Script is a list of steps for requests in the order of arrival. The last step
// serves all later requests. An empty Script answers 200 with an empty body.
type Script []Step

// A Step says how the server answers a request. The functions below make steps.
// A Step's methods return a changed copy, so several scripts can share a Step.
//
// By default a step reads the whole request body. It answers Expect: 100-continue
// first. Then it writes the headers, with a Content-Length, and the body, and
// keeps the connection alive. The zero Step answers 200 with no body.
//
// Most steps work over HTTP/1.1 and HTTP/2. If a step closes, resets or garbles an
// HTTP/2 connection, all streams of the connection suffer. If a step works over
// only one protocol, its comment says so. Over the other protocol it answers 500
// with a text about the mistake.
type Step struct {
	kind   kind
	code   int
	header http.Header
	infos  []info
	raw    string // the bytes of rawBytes, or the protocol of switching

	body    []byte
	size    int64 // bytes of the pattern if body is nil, or -1 for ever
	length  int64 // the promised Content-Length plus 1, or 0 for the true length
	framing framing
	gzip    bool
	etag    string // for ranged
	after   func(context.Context) Step

	delay      time.Duration
	dripBytes  int
	dripEvery  time.Duration
	early      int64 // bytes of upload to read before the answer, plus 1
	cut        int64 // bytes of body before the cut, plus 1, or 0 for no cut
	cutEnd     End
	then       End
	h2code     H2Code
	h2cut      bool // the cut is RST_STREAM(h2code)
	rstAfter   bool // RST_STREAM(h2code) after the whole answer
	announceGo bool // GOAWAY naming this stream before the answer
}

// A kind is the kind of a step. Most steps are answers.
type kind uint8

const (
	answer kind = iota
	hang
	cutBeforeHeaders
	cutInHeaders
	rawBytes
	badChunk
	switching
	tunnel
	resetStream
	goAwayBelow
	goAwayEqual
	ranged
)

type framing uint8

const (
	byLength framing = iota
	byChunks
	byClose
)

type info struct {
	code   int
	header http.Header
}

// An End says how the connection goes on after a step or a cut.
type End uint8

const (
	// Keep keeps the connection for the next request. If an early answer left a
	// part of the upload unread, Keep reads it first. After a cut or raw bytes no
	// answer can follow, so Keep then means Close. Keep is the zero value.
	Keep End = iota
	// Close sends FIN. The answer does not announce it. If a part of the upload
	// is unread, the kernel sends a reset instead.
	Close
	// Reset sends RST. The client first reads the bytes that it has received,
	// then gets ECONNRESET. On systems other than Linux it may lose the bytes.
	Reset
	// Stall writes no more until the client leaves or the server closes. After an
	// early answer it does not read either, so it cannot notice that the client
	// leaves.
	Stall
	// HalfClose sends FIN. Then it reads until the client closes its side.
	HalfClose
)

// OK answers 200 with a body.
func OK(body string) Step { return Status(http.StatusOK).Body(body) }

// Status answers with a status and no body. For 101 see [SwitchProtocols]. For
// other 1xx, which come before an answer, see [Step.Info].
func Status(code int) Step { return Step{code: code} }

// Bytes answers 200 with the first n bytes of [Pattern]. It holds only a small
// piece of them in memory.
func Bytes(n int64) Step { return Step{code: http.StatusOK, size: n} }

// Endless answers 200 with [Pattern] until the client leaves or the server closes.
// [Step.Drip] slows it down.
func Endless() Step { return Bytes(-1) }

// Content answers like a file server, with Accept-Ranges. It sends etag, quotes
// included, as the ETag unless etag is empty. It answers Range and If-Range as
// [http.ServeContent] does, and all other requests with 200 and the whole body.
// Cuts count the bytes of each answer separately.
func Content(body []byte, etag string) Step {
	return Step{kind: ranged, code: http.StatusOK, body: body, etag: etag}
}

// After reads the request, and then plays the step that f returns. f may wait, so it can
// play a queue or a lock. Its context ends when the client leaves, as far as the server
// can notice that, or when the server closes. Then nothing is answered.
func After(f func(context.Context) Step) Step { return Step{after: f} }

// Hang reads the request and does not answer. It ends when the client leaves or
// the server closes.
func Hang() Step { return Step{kind: hang} }

// ResetBeforeHeaders reads the request, then resets the connection.
func ResetBeforeHeaders() Step { return Step{kind: cutBeforeHeaders, cutEnd: Reset} }

// CloseBeforeHeaders reads the request, then sends FIN without any answer. As the
// second step on a kept-alive connection it plays a stale connection, on which
// the request and the server's FIN cross.
func CloseBeforeHeaders() Step { return Step{kind: cutBeforeHeaders, cutEnd: Close} }

// ResetInHeaders writes half of the headers of a 200, then resets the connection.
// For other answers and ends see [Step.CutHeaders].
func ResetInHeaders() Step { return Status(http.StatusOK).CutHeaders(Reset) }

// CloseInHeaders writes half of the headers of a 200, then sends FIN.
func CloseInHeaders() Step { return Status(http.StatusOK).CutHeaders(Close) }

// Raw reads the request and writes exactly these bytes to the connection, through
// TLS if there is TLS. Then it closes the connection, unless [Step.Then] says
// otherwise. For example, Then(Stall) leaves the connection open. Over HTTP/2 the
// bytes garble the connection.
func Raw(bytes string) Step { return Step{kind: rawBytes, raw: bytes} }

// BadStatusLine answers with a malformed status line.
func BadStatusLine() Step { return Raw("HTTP/1.1 two hundred\r\n\r\n") }

// BadChunk answers 200 in chunks. The first chunk is "hello". The size of the
// second chunk is not a number. HTTP/1.1 only.
func BadChunk() Step { return Step{kind: badChunk, code: http.StatusOK} }

// SwitchProtocols answers 101 with the given Upgrade protocol, then echoes
// every byte until the client closes its side. HTTP/1.1 only.
func SwitchProtocols(protocol string) Step {
	return Step{kind: switching, code: http.StatusSwitchingProtocols, raw: protocol}
}

// Tunnel answers 200, as a proxy answers CONNECT, then echoes every byte until the
// client closes its side.
func Tunnel() Step { return Step{kind: tunnel, code: http.StatusOK} }

// RefuseStream answers RST_STREAM with REFUSED_STREAM. This tells the client that
// the server has not acted on the request. HTTP/2 only.
func RefuseStream() Step { return RSTStream(RefusedStream) }

// RSTStream reads the request, then answers with RST_STREAM and no headers. To
// reset a stream after headers see [Step.RSTAt]. HTTP/2 only.
func RSTStream(code H2Code) Step { return Step{kind: resetStream, h2code: code} }

// GoAway sends a GOAWAY whose last stream is below this stream. This tells the
// client that the server has not acted on the request. The connection closes
// when earlier streams have ended. If the code is NoError, net/http's client
// sends the request again by itself. HTTP/2 only.
func GoAway(code H2Code) Step { return Step{kind: goAwayBelow, h2code: code} }

// GoAwayProcessed sends a GOAWAY whose last stream is this stream, and closes the
// connection without an answer. So the server may have acted on the request. For
// a graceful GOAWAY see [Step.AnnounceGoAway]. HTTP/2 only.
func GoAwayProcessed(code H2Code) Step { return Step{kind: goAwayEqual, h2code: code} }

// Header adds a header field. If a name is added twice, it is sent twice. The
// server adds a Date if the step has none. To send no Date, add an empty Date.
func (s Step) Header(name, value string) Step {
	s.header = s.header.Clone()
	if s.header == nil {
		s.header = http.Header{}
	}
	s.header.Add(name, value)
	return s
}

// Code sets the status.
func (s Step) Code(code int) Step { s.code = code; return s }

// Body sets the body.
func (s Step) Body(body string) Step {
	s.body = []byte(body)
	s.size = 0
	return s
}

// Gzip compresses the body and adds Content-Encoding. It does nothing for Bytes and
// Endless. Cuts and lengths count compressed bytes.
func (s Step) Gzip() Step { s.gzip = true; return s }

// Length sets Content-Length to n, even if the body has another length. If n is
// too large, the answer ends in a FIN, which the client sees as an unexpected
// EOF. If n is too small, the rest of the body follows the answer as garbage.
func (s Step) Length(n int64) Step { s.length = n + 1; return s }

// Chunked sends the body without a Content-Length. Over HTTP/1.1 it uses chunks.
func (s Step) Chunked() Step { s.framing = byChunks; return s }

// UntilClose sends the body without a Content-Length and ends it by FIN, as in
// HTTP/1.0. Over HTTP/2 it is the same as Chunked.
func (s Step) UntilClose() Step { s.framing = byClose; return s }

// Delay waits for d between the end of the request body and the first byte of the
// answer.
func (s Step) Delay(d time.Duration) Step { s.delay = d; return s }

// Drip writes the body in pieces of n bytes. Before each piece it waits for the time
// every. If n is less than 1, pieces have 1 byte.
func (s Step) Drip(n int, every time.Duration) Step {
	s.dripBytes, s.dripEvery = max(n, 1), every
	return s
}

// Info sends an informational response after reading the request and before Delay.
// The code is 100 to 199 except 101. The pairs are header names and values. For
// several such responses, call Info several times.
func (s Step) Info(code int, pairs ...string) Step {
	h := http.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	s.infos = append(slices.Clip(s.infos), info{code, h})
	return s
}

// Early answers after at most k bytes of the request body, without waiting for the
// rest. If k is 0, it answers after the headers and sends no 100 Continue. By
// default the step reads the rest after the answer. For other ends see Then.
func (s Step) Early(k int64) Step { s.early = k + 1; return s }

// Then says how the connection goes on after the whole answer. With Close, the
// server closes a connection that it had promised to keep alive.
func (s Step) Then(end End) Step { s.then = end; return s }

// CutHeaders ends the answer in the middle of its headers.
func (s Step) CutHeaders(end End) Step {
	s.kind, s.cutEnd = cutInHeaders, end
	return s
}

// CutAt ends the answer after k bytes of body. The headers promise the whole body.
func (s Step) CutAt(k int64, end End) Step {
	s.cut, s.cutEnd, s.h2cut = k+1, end, false
	return s
}

// RSTAt resets the stream after k bytes of body. The connection stays. HTTP/2
// only.
func (s Step) RSTAt(k int64, code H2Code) Step {
	s.cut, s.h2cut, s.h2code = k+1, true, code
	return s
}

// ThenRST resets the stream after the whole answer. Servers do this with NoError to
// stop an upload after an early answer. HTTP/2 only.
func (s Step) ThenRST(code H2Code) Step {
	s.rstAfter, s.h2code = true, code
	return s
}

// AnnounceGoAway sends a GOAWAY with NO_ERROR before the answer. Its last stream is
// this stream. The connection closes after the answer. HTTP/2 only.
func (s Step) AnnounceGoAway() Step { s.announceGo = true; return s }

// patternText has a prime length. So if bytes are delivered twice, or at a wrong
// place, they do not match.
const patternText = "0123456789abcdefghijklmnopqrstuvwxyz\n"

// Pattern returns the first n bytes of the body that Bytes and Endless send.
func Pattern(n int) []byte {
	p := make([]byte, n)
	fillPattern(p, 0)
	return p
}

// fillPattern fills p with the pattern from offset off.
func fillPattern(p []byte, off int64) {
	at := int(off % int64(len(patternText)))
	for i := range p {
		p[i] = patternText[at]
		at = (at + 1) % len(patternText)
	}
}

// forRange turns a Content step into the answer to the request r.
func (s Step) forRange(r *Received) Step {
	a := &written{header: http.Header{"Content-Type": nil}} // nil: it is not guessed
	if s.etag != "" {
		a.header.Set("ETag", s.etag)
	}
	ask := &http.Request{Method: http.MethodGet, Header: http.Header{"Range": r.Header["Range"], "If-Range": r.Header["If-Range"]}}
	http.ServeContent(a, ask, "", time.Time{}, bytes.NewReader(s.body))
	s.kind, s.code, s.body = answer, a.code, a.Bytes()
	a.header.Del("Content-Length") // the step has its own
	for name, values := range a.header {
		for _, v := range values {
			s = s.Header(name, v)
		}
	}
	return s
}

// A written keeps what a handler writes.
type written struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (w *written) Header() http.Header  { return w.header }
func (w *written) WriteHeader(code int) { w.code = code }
