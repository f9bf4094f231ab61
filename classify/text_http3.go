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

import "strings"

// http3Phrases are errors that their beginning tells.
var http3Phrases = []phrase{
	// http3/transport.go, Transport.roundTripOpt: the request can never be
	// sent.
	{"http3: nil Request.", ErrorProtocol, Final},
	{"http3: no Host in request URL", ErrorProtocol, Final},
	{"http3: unsupported protocol scheme: ", ErrorProtocol, Final},
	{"http3: invalid method ", ErrorProtocol, Final},
	{"http3: invalid http header field ", ErrorProtocol, Final},

	// http3/stream.go, RequestStream.ReadResponse, and http3/client.go,
	// ClientConn.doRequest: the response is not HTTP/3.
	{"http3: expected first frame to be a HEADERS frame", ErrorProtocol, Ambiguous},
	{"http3: HEADERS frame too large: ", ErrorProtocol, Ambiguous},
	{"http3: too many 1xx informational responses", ErrorProtocol, Ambiguous},

	// http3/client.go, errGoAway: no more streams may be opened.
	{"connection in graceful shutdown", ErrorReset, Refused},
	// interface.go, Err0RTTRejected: the server discarded the data that was
	// sent before the end of the handshake.
	{"0-RTT rejected", ErrorReset, Refused},
	// internal/qerr/errors.go, HandshakeTimeoutError and
	// VersionNegotiationError: there was no connection.
	{"timeout: handshake did not complete in time", ErrorDial, Refused},
	{"no compatible QUIC version found ", ErrorDial, Final},
	// internal/qerr/errors.go, IdleTimeoutError and StatelessResetError: there
	// was a connection. The timeout is listed here because it wraps a closed
	// connection.
	{"timeout: no recent network activity", ErrorTimeout, Ambiguous},
	{"received a stateless reset", ErrorReset, Ambiguous},

	// internal/qerr/errors.go, TransportError.Error, writes "CONNECTION_REFUSED (remote)" and
	// "CRYPTO_ERROR 0x12a (local): why": RFC 9000 §20.1, and a TLS alert, which the next handshake
	// would cause again.
	{"CONNECTION_REFUSED (", ErrorDial, Refused},
	{"CRYPTO_ERROR 0x", ErrorTLS, Final},
}

// byHTTP3Text reads the text of an error of quic-go, which may wrap others.
func byHTTP3Text(text string) (ErrorType, Class) {
	if kind, is := find(http3Phrases, text); kind != "" {
		return kind, is
	}
	code, local := http3Code(text)
	switch code {
	case "":
		return "", Unknown
	case "H3_REQUEST_CANCELLED", "0x10c", "268":
		if local {
			return ErrorCanceled, Final
		}
	case "H3_REQUEST_REJECTED", "0x10b", "267":
		if !local {
			return ErrorReset, Refused // not processed at all (RFC 9114 §8.1)
		}
	case "H3_VERSION_FALLBACK", "0x110", "272":
		if !local {
			return ErrorProtocol, Final // the server cannot answer over HTTP/3
		}
	}
	if local {
		return ErrorProtocol, Ambiguous // this side says that the server broke the rules
	}
	return ErrorReset, Ambiguous
}

// http3Code returns the name or the number of the code of HTTP/3 in an error (RFC 9114 §8.1), and
// whether this side chose it. It returns "" if there is none. The texts are these:
//
//   - errors.go, StreamError.Error: "stream 4 canceled by remote with error code 268".
//   - internal/qerr/errors.go, ApplicationError.Error: "Application error 0x10c (remote): why".
//   - http3/error.go, Error.Error: "H3_REQUEST_CANCELLED", "H3_FRAME_ERROR (local): why", and "H3
//     error (0x42)" for a code that it does not know.
func http3Code(text string) (code string, local bool) {
	if by, code, ok := strings.Cut(text, " with error code "); ok && strings.HasPrefix(by, "stream ") {
		local = strings.HasSuffix(by, " canceled by local")
		if local || strings.HasSuffix(by, " canceled by remote") {
			return code, local
		}
	}
	code, _, _ = strings.Cut(text, ": ")
	code, local = strings.CutSuffix(code, " (local)")
	if number, ok := strings.CutPrefix(code, "Application error "); ok && strings.HasPrefix(number, "0x") {
		return strings.TrimSuffix(number, " (remote)"), local
	}
	if strings.HasPrefix(code, "H3_") && !strings.Contains(code, " ") ||
		strings.HasPrefix(code, "H3 error (0x") || code == "QPACK_DECOMPRESSION_FAILED" {
		return code, local
	}
	return "", false
}
