// What should the server do with a request?

package testserver

import (
	"net/http"
	"slices"
	"time"
)

// A Script is a list of steps, one for each request in the order of arrival;
// the last one repeats for ever. An empty Script answers 200 with an empty body.
type Script []Step

// A Step says what the server does with one request. Steps are made by the
// constructors below and refined by their methods, each of which returns a
// changed copy, so a Step may be kept, shared and used in many scripts.
//
// A step unless told otherwise reads the whole request body (answering Expect:
// 100-continue), writes the headers and then the body with its Content-Length,
// and keeps the connection alive. The zero Step answers 200 with no body.
//
// All steps work over HTTP/1.1 and HTTP/2, if need be with the nearest meaning:
// what closes, resets or garbles the connection does so to every stream on it.
// The exceptions say so; used over the other protocol they answer 500 and a
// text that names the mistake.
type Step struct {
	kind   kind
	code   int
	header http.Header
	infos  []info
	raw    string // for rawBytes; the protocol for switching

	body    []byte
	size    int64 // bytes of pattern when body is nil; endless: -1
	length  int64 // the promised Content-Length plus one; 0 means the true one
	framing framing
	gzip    bool
	etag    string // for ranged

	delay      time.Duration
	dripBytes  int
	dripEvery  time.Duration
	early      int64 // bytes of upload to read before the answer, plus one
	cut        int64 // bytes of body before the cut, plus one; 0 means no cut
	cutEnd     End
	then       End
	h2code     H2Code
	h2cut      bool // the cut is RST_STREAM(h2code)
	rstAfter   bool // RST_STREAM(h2code) after the whole answer
	announceGo bool // GOAWAY naming this stream before the answer
}

// A kind is the shape of a step; answer is the ordinary one.
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

// An End says what becomes of the connection where a step, or a cut, ends.
type End uint8

const (
	// Keep keeps the connection for the next request, and reads the rest of the
	// upload first if an early answer left one. It is the zero value. For a cut
	// or raw bytes, after which nothing sensible can follow, it means Close.
	Keep End = iota
	// Close sends FIN, without having announced it. If bytes of the upload are
	// unread the kernel makes it a reset.
	Close
	// Reset sends RST: the client gets ECONNRESET, after what it has already
	// received (on Linux and in memory; other kernels may drop that).
	Reset
	// Stall writes nothing more, until the client leaves or the server closes.
	// After an early answer it does not read either, and then it cannot notice
	// that the client leaves.
	Stall
	// HalfClose sends FIN and reads on until the client closes its side.
	HalfClose
)

// OK answers 200 with a body.
func OK(body string) Step { return Status(http.StatusOK).Body(body) }

// Status answers with a status and no body. See SwitchProtocols for 101, and
// Step.Info for other 1xx, which come before an answer.
func Status(code int) Step { return Step{code: code} }

// Bytes answers 200 with the first n bytes of [Pattern], of which no more than
// a piece is in memory at a time.
func Bytes(n int64) Step { return Step{code: http.StatusOK, size: n} }

// Endless answers 200 with [Pattern] for ever, until the client leaves or the
// server closes; see Step.Drip to slow it down.
func Endless() Step { return Bytes(-1) }

// Content answers as a file server does, with Accept-Ranges and the ETag as
// given, quotes included ("" for none): 200 with everything; 206 for one
// range, if If-Range is absent or equal to a strong etag; 416 where the range
// begins beyond the end. Cuts count the bytes of each answer by itself.
func Content(body []byte, etag string) Step {
	return Step{kind: ranged, code: http.StatusOK, body: body, etag: etag}
}

// Hang reads the request and never answers, until the client leaves or the
// server closes.
func Hang() Step { return Step{kind: hang} }

// ResetBeforeHeaders reads the request, then resets the connection.
func ResetBeforeHeaders() Step { return Step{kind: cutBeforeHeaders, cutEnd: Reset} }

// CloseBeforeHeaders reads the request, then sends FIN without a byte of answer.
// As the second step on a kept-alive connection it is the stale connection on
// which a client's request crosses the server's FIN.
func CloseBeforeHeaders() Step { return Step{kind: cutBeforeHeaders, cutEnd: Close} }

// ResetInHeaders writes half a header section of a 200, then resets the
// connection. See Step.CutHeaders for other answers and ends.
func ResetInHeaders() Step { return Status(http.StatusOK).CutHeaders(Reset) }

// CloseInHeaders writes half a header section of a 200, then sends FIN.
func CloseInHeaders() Step { return Status(http.StatusOK).CutHeaders(Close) }

// Raw reads the request, writes exactly these bytes to the connection, under
// TLS but above nothing else, and closes it; see Step.Then for other ends
// (Then(Stall) leaves it open). Over HTTP/2 the bytes garble the connection.
func Raw(bytes string) Step { return Step{kind: rawBytes, raw: bytes} }

// BadStatusLine answers with a line that is no status line.
func BadStatusLine() Step { return Raw("HTTP/1.1 two hundred\r\n\r\n") }

// BadChunk answers 200 in chunks: a good one of 5 bytes, "hello", then one
// whose size is no number. HTTP/1.1 only.
func BadChunk() Step { return Step{kind: badChunk, code: http.StatusOK} }

// SwitchProtocols answers 101 with the given Upgrade protocol, then echoes
// every byte until the client closes its side. HTTP/1.1 only.
func SwitchProtocols(protocol string) Step {
	return Step{kind: switching, code: http.StatusSwitchingProtocols, raw: protocol}
}

// Tunnel answers 200 as a proxy answers CONNECT, then echoes every byte until
// the client closes its side.
func Tunnel() Step { return Step{kind: tunnel, code: http.StatusOK} }

// RefuseStream answers RST_STREAM with REFUSED_STREAM: the server's word that
// it has not acted on the request. HTTP/2 only.
func RefuseStream() Step { return RSTStream(RefusedStream) }

// RSTStream reads the request, then answers with RST_STREAM and no headers; see
// Step.RSTAt for later ones. HTTP/2 only.
func RSTStream(code H2Code) Step { return Step{kind: resetStream, h2code: code} }

// GoAway sends a GOAWAY whose last stream is below this one, so that it is known
// not to have been acted on, and closes the connection once earlier streams
// have ended. HTTP/2 only. net/http's client sends the request again by itself
// if the code is NoError.
func GoAway(code H2Code) Step { return Step{kind: goAwayBelow, h2code: code} }

// GoAwayProcessed sends a GOAWAY that names this stream as the last, so that it
// may have been acted on, and closes the connection without an answer. HTTP/2
// only. See Step.AnnounceGoAway for a graceful one.
func GoAwayProcessed(code H2Code) Step { return Step{kind: goAwayEqual, h2code: code} }

// Header adds a header field; a name given twice is sent twice. The server sets
// Date itself unless this does; an empty Date suppresses it.
func (s Step) Header(name, value string) Step {
	s.header = s.header.Clone()
	if s.header == nil {
		s.header = http.Header{}
	}
	s.header.Add(name, value)
	return s
}

// Body sets the body.
func (s Step) Body(body string) Step {
	s.body = []byte(body)
	s.size = 0
	return s
}

// Gzip compresses the body that was given, whole, and says so in
// Content-Encoding. It does nothing for Bytes and Endless. Cuts and lengths
// count compressed bytes.
func (s Step) Gzip() Step { s.gzip = true; return s }

// Length promises n bytes, whatever the body is. A promise that is longer than
// the body ends in FIN, which the client sees as an unexpected EOF; after a
// shorter one the connection carries the rest as garbage.
func (s Step) Length(n int64) Step { s.length = n + 1; return s }

// Chunked sends the body without a length: in chunks over HTTP/1.1.
func (s Step) Chunked() Step { s.framing = byChunks; return s }

// UntilClose sends the body without a length and ends it by FIN, as HTTP/1.0
// does. Over HTTP/2 it is the same as Chunked.
func (s Step) UntilClose() Step { s.framing = byClose; return s }

// Delay waits between the end of the request body and the first byte of the
// answer.
func (s Step) Delay(d time.Duration) Step { s.delay = d; return s }

// Drip writes the body in pieces of n bytes (at least 1) and waits every before
// each of them.
func (s Step) Drip(n int, every time.Duration) Step {
	s.dripBytes, s.dripEvery = max(n, 1), every
	return s
}

// Info sends an informational response, status 100 to 199 except 101, when the
// request was read and before Delay begins; call it again for more of them. The
// pairs are header names and values.
func (s Step) Info(code int, pairs ...string) Step {
	h := http.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	s.infos = append(slices.Clip(s.infos), info{code, h})
	return s
}

// Early answers after k bytes of the request body at most, without waiting for
// the rest; 0 means after the headers, and answers no Expect: 100-continue.
// What becomes of the rest is for Then: by default it is read after the answer.
func (s Step) Early(k int64) Step { s.early = k + 1; return s }

// Then says what becomes of the connection after the whole answer: with Close,
// the client finds a kept-alive connection closed that nobody had announced.
func (s Step) Then(end End) Step { s.then = end; return s }

// CutHeaders ends the answer in the middle of its headers.
func (s Step) CutHeaders(end End) Step {
	s.kind, s.cutEnd = cutInHeaders, end
	return s
}

// CutAt ends the answer after k bytes of body, with the headers still promising
// all of it.
func (s Step) CutAt(k int64, end End) Step {
	s.cut, s.cutEnd, s.h2cut = k+1, end, false
	return s
}

// RSTAt resets the stream, not the connection, after k bytes of body. HTTP/2
// only.
func (s Step) RSTAt(k int64, code H2Code) Step {
	s.cut, s.h2cut, s.h2code = k+1, true, code
	return s
}

// ThenRST resets the stream with code after the whole answer, as servers do
// (with NoError) to stop the upload after an early answer. HTTP/2 only.
func (s Step) ThenRST(code H2Code) Step {
	s.rstAfter, s.h2code = true, code
	return s
}

// AnnounceGoAway sends, before the answer, a GOAWAY with NO_ERROR that names
// this stream as the last; the connection closes after the answer. HTTP/2 only.
func (s Step) AnnounceGoAway() Step { s.announceGo = true; return s }

// patternText has a prime length, so that bytes shifted by a power of two, or
// delivered twice, do not match.
const patternText = "0123456789abcdefghijklmnopqrstuvwxyz\n"

// Pattern is the first n bytes of the body that Bytes and Endless send.
func Pattern(n int) []byte {
	p := make([]byte, n)
	fillPattern(p, 0)
	return p
}

// fillPattern writes the pattern's bytes from offset off on.
func fillPattern(p []byte, off int64) {
	at := int(off % int64(len(patternText)))
	for i := range p {
		p[i] = patternText[at]
		at = (at + 1) % len(patternText)
	}
}
