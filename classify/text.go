// Errors of the standard library that only their text tells apart.
//
// Only this file and text_http3.go look at the text of an error. Each entry
// names the place in the standard library that writes the text, as of Go 1.26.
// text_test.go provokes the real error if that is possible within a process, so
// that the tests fail if a release changes the text.
//
// Only the innermost errors are compared, never the text of an error that wraps
// another. A URL or a message of the caller can therefore not be mistaken for
// one of these texts.

package classify

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/aplomb-go/aplomb/internal/trait"
)

// A phrase is the beginning of the text of an error. net/http writes "net/http: " or
// "http: " there. The phrases have the second.
type phrase struct {
	text string
	kind ErrorType
	is   Class
}

// find returns what the first of the phrases says with which a text begins, and "" if there is none.
func find(phrases []phrase, text string) (ErrorType, Class) {
	for i := range phrases {
		if p := &phrases[i]; strings.HasPrefix(text, p.text) {
			return p.kind, p.is
		}
	}
	return "", Unknown
}

var phrases = []phrase{
	// The request can never be sent: net/http/transport.go, Transport.roundTrip, and
	// net/http/clientconn.go, validateClientConnRequest.
	{"http: nil Request.", ErrorProtocol, Final},
	{"http: invalid header ", ErrorProtocol, Final},
	{"http: invalid trailer ", ErrorProtocol, Final},
	{"http: invalid method ", ErrorProtocol, Final},
	{"unsupported protocol scheme ", ErrorProtocol, Final},
	{"http: no Host in request URL", ErrorProtocol, Final},
	// golang.org/x/net/http/httpproxy/proxy.go, config.proxyForURL.
	{"refusing to use HTTP_PROXY value in CGI environment; ", ErrorProtocol, Final},
	// net/http/request.go, errMissingHost and Request.write.
	{"http: Request.Write on Request with no Host or URL set", ErrorProtocol, Final},
	{"http: invalid Host header", ErrorProtocol, Final},
	{"http: can't write control character in Request.URL", ErrorProtocol, Final},
	// net/http/transfer.go, newTransferWriter and transferWriter.writeBody: the
	// caller's body is not as long as the caller said.
	{"http: Request.ContentLength=", ErrorProtocol, Final},
	{"http: ContentLength=", ErrorProtocol, Final},
	// net/http/internal/httpcommon, ErrRequestHeaderListSize.
	{"request header list larger than peer's advertised limit", ErrorProtocol, Final},
	// net/http/client.go, defaultCheckRedirect and Client.do. They arise if the
	// base transport is itself a client.
	{"stopped after 10 redirects", ErrorProtocol, Final},
	{"failed to parse Location header ", ErrorProtocol, Final},

	// The response is not HTTP: net/http/response.go, ReadResponse, and
	// net/http/transfer.go, parseTransferEncoding, fixLength,
	// parseContentLength.
	// The first is a TLS alert, which a server sends to a plain HTTP request on an
	// HTTPS port: the type of the record and the first byte of its version (RFC 8446 §5.1).
	{`malformed HTTP response "\x15\x03`, ErrorTLS, Final},
	{"malformed HTTP ", ErrorProtocol, Ambiguous},
	{"unsupported transfer encoding: ", ErrorProtocol, Ambiguous},
	{"too many transfer encodings: ", ErrorProtocol, Ambiguous},
	{"http: message cannot contain multiple Content-Length headers; ", ErrorProtocol, Ambiguous},
	{"invalid empty Content-Length ", ErrorProtocol, Ambiguous},
	{"bad Content-Length ", ErrorProtocol, Ambiguous},
	// net/http/transport.go, persistConn.readLoop, and net/http/h2_bundle.go,
	// http2errResponseHeaderListSize: the next response will not be smaller.
	{"http: server response headers exceeded ", ErrorProtocol, Final},
	{"http2: response header list larger than advertised limit", ErrorProtocol, Final},
	// net/http/h2_bundle.go, http2ConnectionError.Error, http2ErrFrameTooLarge.
	{"connection error: HTTP_1_1_REQUIRED", ErrorProtocol, Final},
	{"connection error: ", ErrorProtocol, Ambiguous},
	{"http2: frame too large", ErrorProtocol, Ambiguous},

	// net/http/transport.go, tlsHandshakeTimeoutError: nothing is sent before
	// the handshake is over. Its Timeout method does not say which timeout it
	// was.
	{"http: TLS handshake timeout", ErrorTLS, Refused},
	// crypto/tls and crypto/x509 begin every error without a type of its own
	// with their name. The configurations of the two sides do not fit together.
	{"tls: ", ErrorTLS, Final},
	{"x509: ", ErrorTLS, Final},

	// net/http/socks_bundle.go, socksDialer.connect and
	// socksUsernamePassword.Authenticate: the proxy does not let the client
	// through.
	{"no acceptable authentication methods", ErrorDial, Final},
	{"invalid username/password", ErrorDial, Final},
	{"username/password authentication failed", ErrorDial, Final},
	{"unknown error connection not allowed by ruleset", ErrorDial, Final},

	// net/http/transport.go, errServerClosedIdle: the server closed the
	// connection before the request arrived. The request may still have been
	// written after that. net/http itself sends it again only if it is
	// replayable.
	{"http: server closed idle connection", ErrorReset, Ambiguous},
	// net/http/transport.go, errCannotRewind: net/http wanted to send the
	// request again.
	{"http: cannot rewind body after connection loss", ErrorReset, Ambiguous},
	// net/http/h2_bundle.go, http2ClientConn.closeForLostPing and
	// http2errClientConnForceClosed.
	{"http2: client connection ", ErrorReset, Ambiguous},
	// net/http/h2_bundle.go, http2ClientConn.setGoAway and http2ErrCode.String: the
	// server wants HTTP/1.1 (RFC 9113 §7).
	{"http2: Transport received GOAWAY from server ErrCode:HTTP_1_1_REQUIRED", ErrorProtocol, Final},
	// net/http/h2_bundle.go, http2GoAwayError.Error: the GOAWAY said that the
	// stream was processed, and then the connection ended.
	{"http2: server sent GOAWAY and closed the connection; ", ErrorReset, Ambiguous},

	// net/http/h2_bundle.go, http2ClientConn.setGoAway: the streams after the
	// last stream of a GOAWAY were never processed (RFC 9113 §6.8). The second
	// text is for the first stream of a connection that ends with an error
	// code.
	{"http2: Transport received Server's graceful shutdown GOAWAY", ErrorReset, Refused},
	{"http2: Transport received GOAWAY from server ErrCode:", ErrorReset, Refused},
	// net/http/h2_bundle.go, http2clientStream.awaitOpenSlotForStreamLocked: no
	// stream was opened.
	{"http2: client conn not usable", ErrorReset, Refused},
	{"http2: client conn could not be established", ErrorDial, Refused},
}

// byWholeText knows the texts that are none of these with words behind them.
func byWholeText(text string) (ErrorType, Class) {
	switch text {
	// net/http/transport.go, errRequestCanceledConn and, for Request.Cancel, errRequestCanceled (the text
	// of h2_bundle.go's http2errRequestCanceled). An http.Client adds to them that its Timeout is over.
	case "net/http: request canceled while waiting for connection", "net/http: request canceled":
		return ErrorCanceled, Final
	// net/http/transport.go, Transport.dialConn: a proxy's response to CONNECT. The text is the
	// reason phrase of its status line, and the error wraps nothing. The phrases are those of RFC 9110
	// §15, for 408 and 504 also those of RFC 2616 §6.1.1, and for 503 also that of nginx. A proxy may
	// write others, and then its status is not known. The class is Ambiguous, because other
	// transports make such errors of a server's response. Package transport knows better if its base is
	// net/http's.
	case "Request Timeout", "Request Time-out", "Too Many Requests", "Internal Server Error", "Bad Gateway",
		"Service Unavailable", "Service Temporarily Unavailable", "Gateway Timeout", "Gateway Time-out":
		return ErrorDial, Ambiguous
	}
	return "", Unknown
}

// isReasonPhrase reports whether an error is the reason phrase of a failure, other than those above. A
// proxy that says so to a CONNECT will say the same again.
func isReasonPhrase(err error) bool {
	text := err.Error()
	for code := http.StatusBadRequest; code <= http.StatusNetworkAuthenticationRequired; code++ {
		if text != "" && text == http.StatusText(code) {
			return true
		}
	}
	return false
}

// byText looks for a phrase in the innermost errors. It returns "" if it
// finds none.
func byText(err error) (kind ErrorType, is Class) {
	trait.Wraps(err, func(e error) bool {
		kind, is = byTextOf(e)
		return kind != ""
	})
	return kind, is
}

func byTextOf(err error) (ErrorType, Class) {
	text := err.Error()
	if kind, is := byHTTP3Text(text); kind != "" {
		return kind, is
	}
	switch err.(type) {
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
		return "", Unknown
	}
	// net/http/h2_bundle.go, http2shouldRetryRequest: the request would have been sent again if its
	// body had not been used. The cause exists as text only.
	cause, used := strings.CutPrefix(text, "http2: Transport: cannot retry err [")
	if kind, is := byPhrase(cause); kind != "" || !used {
		return kind, is
	}
	return ErrorReset, Ambiguous
}

func byPhrase(text string) (ErrorType, Class) {
	if kind, is := find(phrases, strings.TrimPrefix(text, "net/")); kind != "" {
		return kind, is
	}
	if kind, is := byWholeText(text); kind != "" {
		return kind, is
	}
	return byStreamText(text)
}

// isNothingWritten reports whether no byte of the request was written to the
// connection. The error of net/http is recognised by the name of its type,
// since its text is that of the error inside: net/http/transport.go,
// nothingWrittenError. That of HTTP/3 says that no stream could be opened: http3/client.go,
// errConnUnusable.
func isNothingWritten(err error) bool {
	t := reflect.TypeOf(err)
	return t.Name() == "nothingWrittenError" && t.PkgPath() == "net/http" ||
		strings.HasPrefix(err.Error(), "http3: conn unusable: ")
}

// byStreamText reads the text of an HTTP/2 stream error. net/http/h2_bundle.go,
// http2StreamError.Error, writes "stream error: stream ID 5; REFUSED_STREAM; received from peer".
// golang.org/x/net/http2 writes the same.
func byStreamText(text string) (ErrorType, Class) {
	rest, ok := strings.CutPrefix(text, "stream error: stream ID ")
	if !ok {
		return "", Unknown
	}
	_, rest, _ = strings.Cut(rest, "; ")
	code, cause, _ := strings.Cut(rest, "; ")
	if kind, is := byPhrase(cause); kind != "" {
		return kind, is
	}
	switch {
	case strings.HasPrefix(code, "REFUSED_STREAM"): // before any processing (RFC 9113 §8.7), which no other code proves
		return ErrorReset, Refused
	case strings.HasPrefix(code, "HTTP_1_1_REQUIRED"): // over HTTP/2 the server will say the same again (§7)
		return ErrorProtocol, Final
	}
	return ErrorReset, Ambiguous
}

// byAlert reports whether a text is that of a TLS alert that ends a connection. done says
// that the handshake was over. The texts are those of crypto/tls/alert.go, alertText. Their
// type is not exported, and errors.As finds no crypto/tls.AlertError in them.
func byAlert(text string, done bool) bool {
	switch text {
	case "tls: bad record MAC", "tls: decryption failed", "tls: record overflow", "tls: decompression failure":
		return true
	case "tls: unexpected message", "tls: error decoding message", "tls: error decrypting message", "tls: illegal parameter",
		"tls: internal error", "tls: user canceled":
		return done
	}
	return false
}
