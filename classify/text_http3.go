// Errors of an HTTP/3 transport.
//
// The errors are those of github.com/quic-go/quic-go as of v0.65. This module
// does not import quic-go, so it cannot ask for its types. The texts contain
// the names that RFC 9114 and RFC 9000 give to their codes. Each entry names
// the place in quic-go that writes the text. The module in e2e provokes the
// real errors.
//
// Some of these errors wrap others, such as net.ErrClosed, that say less. So
// the texts of outer errors are compared as well, unlike those of net/http.
// Each text stands at the beginning of an error, and an error that adds words
// of its own begins differently.

package classify

import (
	"strconv"
	"strings"
)

// http3Phrases are errors without a code.
var http3Phrases = []phrase{
	// http3/transport.go, Transport.roundTripOpt: the request can never be
	// sent.
	{"http3: nil Request.URL", false, ErrorProtocol, Final},
	{"http3: nil Request.Header", false, ErrorProtocol, Final},
	{"http3: no Host in request URL", false, ErrorProtocol, Final},
	{"http3: unsupported protocol scheme: ", true, ErrorProtocol, Final},
	{"http3: invalid method ", true, ErrorProtocol, Final},
	{"http3: invalid http header field ", true, ErrorProtocol, Final},

	// http3/stream.go, RequestStream.ReadResponse, and http3/client.go,
	// ClientConn.doRequest: the response is not HTTP/3.
	{"http3: expected first frame to be a HEADERS frame", false, ErrorProtocol, Ambiguous},
	{"http3: HEADERS frame too large: ", true, ErrorProtocol, Ambiguous},
	{"http3: too many 1xx informational responses", false, ErrorProtocol, Ambiguous},

	// http3/client.go, errGoAway: no more streams may be opened.
	{"connection in graceful shutdown", false, ErrorReset, Refused},
	// interface.go, Err0RTTRejected: the server discarded the data that was
	// sent before the end of the handshake.
	{"0-RTT rejected", false, ErrorReset, Refused},
	// internal/qerr/errors.go, HandshakeTimeoutError and
	// VersionNegotiationError: there was no connection.
	{"timeout: handshake did not complete in time", false, ErrorDial, Refused},
	{"no compatible QUIC version found ", true, ErrorDial, Final},
	// internal/qerr/errors.go, IdleTimeoutError and StatelessResetError: there
	// was a connection. The timeout is listed here because it wraps a closed
	// connection.
	{"timeout: no recent network activity", false, ErrorTimeout, Ambiguous},
	{"received a stateless reset", false, ErrorReset, Ambiguous},
}

// byHTTP3Text reads the text of an error of quic-go, which may wrap others.
func byHTTP3Text(text string) (ErrorType, Class) {
	for i := range http3Phrases {
		if p := &http3Phrases[i]; p.matches(text) {
			return p.kind, p.is
		}
	}
	if kind, is := byHTTP3Code(text); kind != "" {
		return kind, is
	}
	if kind, is := byQUICCode(text); kind != "" {
		return kind, is
	}
	return byQUICStream(text)
}

// byHTTP3Code reads an error of an HTTP/3 stream or connection. http3/error.go,
// Error.Error, writes "H3_REQUEST_CANCELLED" or "H3_FRAME_ERROR (local): why".
// For a code that it does not know it writes "H3 error (0x42)".
func byHTTP3Code(text string) (ErrorType, Class) {
	name, unknown := "H3 error", strings.HasPrefix(text, "H3 error (0x")
	if !unknown {
		name = text[:len(text)-len(strings.TrimLeft(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"))]
	}
	rest := text[len(name):]
	if unknown {
		_, rest, _ = strings.Cut(rest, ")")
	}
	local := strings.HasPrefix(rest, " (local)")
	switch {
	case rest != "" && !local && !strings.HasPrefix(rest, ": "):
		return "", Unknown
	case !unknown && !strings.HasPrefix(name, "H3_") && name != "QPACK_DECOMPRESSION_FAILED":
		return "", Unknown
	case name == "H3_REQUEST_CANCELLED" && local:
		return ErrorCanceled, Final
	case local:
		return ErrorProtocol, Ambiguous // this side says that the server broke the rules
	case name == "H3_REQUEST_REJECTED":
		return ErrorReset, Refused // not processed at all (RFC 9114 §8.1)
	case name == "H3_VERSION_FALLBACK":
		return ErrorProtocol, Final // the server cannot answer over HTTP/3
	}
	return ErrorReset, Ambiguous
}

// byQUICCode reads an error of a QUIC connection. internal/qerr/errors.go,
// TransportError.Error and ApplicationError.Error, write "CONNECTION_REFUSED
// (remote)", "CRYPTO_ERROR 0x12a (local): why" and "Application error 0x10c
// (remote)".
func byQUICCode(text string) (ErrorType, Class) {
	code, rest, _ := strings.Cut(text, " (")
	if !strings.HasPrefix(rest, "remote)") && !strings.HasPrefix(rest, "local)") {
		return "", Unknown
	}
	switch {
	case code == "CONNECTION_REFUSED":
		return ErrorDial, Refused // RFC 9000 §20.1
	case strings.HasPrefix(code, "CRYPTO_ERROR 0x"):
		return ErrorTLS, Final // a TLS alert, which the next handshake would cause again
	case strings.HasPrefix(code, "Application error 0x"):
		return byHTTP3Number(strings.TrimPrefix(code, "Application error 0x"), 16, rest[0] == 'l')
	}
	return "", Unknown
}

// byQUICStream reads an error of a QUIC stream. errors.go, StreamError.Error,
// writes "stream 4 canceled by remote with error code 268".
func byQUICStream(text string) (ErrorType, Class) {
	rest, ok := strings.CutPrefix(text, "stream ")
	if !ok {
		return "", Unknown
	}
	id, rest, ok := strings.Cut(rest, " canceled by ")
	by, code, ok2 := strings.Cut(rest, " with error code ")
	if _, err := strconv.ParseUint(id, 10, 62); !ok || !ok2 || err != nil || by != "remote" && by != "local" {
		return "", Unknown
	}
	return byHTTP3Number(code, 10, by == "local")
}

// byHTTP3Number reads an error of HTTP/3 that has only the number of its code
// (RFC 9114 §8.1).
func byHTTP3Number(number string, base int, local bool) (ErrorType, Class) {
	code, err := strconv.ParseUint(number, base, 62)
	if err != nil {
		return "", Unknown
	}
	text := "H3 error (0x0)"
	switch code {
	case 0x10b:
		text = "H3_REQUEST_REJECTED"
	case 0x10c:
		text = "H3_REQUEST_CANCELLED"
	case 0x110:
		text = "H3_VERSION_FALLBACK"
	}
	if local {
		text += " (local)"
	}
	return byHTTP3Code(text)
}

// isUnusable reports whether no stream could be opened on a connection, so that
// nothing of the request was sent: http3/client.go, errConnUnusable.
func isUnusable(text string) bool { return strings.HasPrefix(text, "http3: conn unusable: ") }
