// Which errors of the standard library can only be told apart by their text?
//
// This file and text_http3.go are the fence around text matching: nothing else
// in the module looks at an error's words. Each entry names the place in the standard library that
// writes it, as of Go 1.26, and text_test.go provokes the real error wherever
// that can be done in a process, so that a release which changes the words
// fails the tests.
//
// Only the innermost errors are looked at here, never the text of an error that
// wraps another: a URL or a message of the caller's cannot be mistaken for one
// of these.

package classify

import (
	"reflect"
	"strings"
)

// A phrase is the text of an error, or its beginning where more follows.
type phrase struct {
	text string
	more bool
	kind Kind
	is   Verdict
}

func (p *phrase) matches(text string) bool {
	return text == p.text || p.more && strings.HasPrefix(text, p.text)
}

var phrases = []phrase{
	// The request cannot be sent, now or later: net/http/transport.go,
	// Transport.roundTrip.
	{"http: nil Request.URL", false, Protocol, Final},
	{"http: nil Request.Header", false, Protocol, Final},
	{"net/http: invalid header ", true, Protocol, Final},
	{"net/http: invalid trailer ", true, Protocol, Final},
	{"net/http: invalid method ", true, Protocol, Final},
	{"unsupported protocol scheme ", true, Protocol, Final},
	{"http: no Host in request URL", false, Protocol, Final},
	// The same from net/http/clientconn.go, validateClientConnRequest.
	{"http: invalid header ", true, Protocol, Final},
	{"http: invalid trailer ", true, Protocol, Final},
	{"http: invalid method ", true, Protocol, Final},
	// net/http/request.go, errMissingHost and Request.write.
	{"http: Request.Write on Request with no Host or URL set", false, Protocol, Final},
	{"http: invalid Host header", false, Protocol, Final},
	{"net/http: can't write control character in Request.URL", false, Protocol, Final},
	// net/http/transfer.go, newTransferWriter and transferWriter.writeBody: the
	// caller's body is not as long as the caller said.
	{"http: Request.ContentLength=", true, Protocol, Final},
	{"http: ContentLength=", true, Protocol, Final},
	// net/http/internal/httpcommon, ErrRequestHeaderListSize.
	{"request header list larger than peer's advertised limit", false, Protocol, Final},
	// net/http/client.go, defaultCheckRedirect and Client.do; of a base
	// transport that is a client.
	{"stopped after 10 redirects", false, Protocol, Final},
	{"failed to parse Location header ", true, Protocol, Final},

	// The answer is not HTTP: net/http/response.go, ReadResponse, and
	// net/http/transfer.go, parseTransferEncoding, fixLength, parseContentLength.
	{"malformed HTTP response ", true, Protocol, Ambiguous},
	{"malformed HTTP status code ", true, Protocol, Ambiguous},
	{"malformed HTTP version ", true, Protocol, Ambiguous},
	{"unsupported transfer encoding: ", true, Protocol, Ambiguous},
	{"too many transfer encodings: ", true, Protocol, Ambiguous},
	{"http: message cannot contain multiple Content-Length headers; ", true, Protocol, Ambiguous},
	{"invalid empty Content-Length ", true, Protocol, Ambiguous},
	{"bad Content-Length ", true, Protocol, Ambiguous},
	// net/http/transport.go, persistConn.readLoop.
	{"net/http: server response headers exceeded ", true, Protocol, Ambiguous},
	// net/http/h2_bundle.go, http2ConnectionError.Error, http2ErrFrameTooLarge.
	{"connection error: ", true, Protocol, Ambiguous},
	{"http2: frame too large", false, Protocol, Ambiguous},

	// net/http/transport.go, errRequestCanceledConn and, for Request.Cancel,
	// errRequestCanceled (the text of h2_bundle.go's http2errRequestCanceled).
	{"net/http: request canceled while waiting for connection", false, Canceled, Final},
	{"net/http: request canceled", false, Canceled, Final},

	// net/http/transport.go, tlsHandshakeTimeoutError: nothing is sent before
	// the handshake is over. Its Timeout method does not say which timeout.
	{"net/http: TLS handshake timeout", false, TLS, Refused},
	// crypto/tls and crypto/x509 put their name before all that has no type of
	// its own: configurations and peers that do not fit together.
	{"tls: ", true, TLS, Final},
	{"x509: ", true, TLS, Final},

	// net/http/socks_bundle.go, socksDialer.connect and
	// socksUsernamePassword.Authenticate: the proxy will not let us through.
	{"no acceptable authentication methods", false, Dial, Final},
	{"invalid username/password", false, Dial, Final},
	{"username/password authentication failed", false, Dial, Final},
	{"unknown error connection not allowed by ruleset", false, Dial, Final},

	// net/http/transport.go, Transport.dialConn: a proxy's answer to CONNECT, the
	// words of its status line and nothing else. Ambiguous, since others make
	// such errors of a server's answer.
	{"Too Many Requests", false, Dial, Ambiguous},
	{"Internal Server Error", false, Dial, Ambiguous},
	{"Bad Gateway", false, Dial, Ambiguous},
	{"Service Unavailable", false, Dial, Ambiguous},
	{"Gateway Timeout", false, Dial, Ambiguous},

	// net/http/transport.go, errServerClosedIdle: the server's FIN came before
	// the request, which may yet have been written after it. net/http itself
	// sends only what is replayable again.
	{"http: server closed idle connection", false, Reset, Ambiguous},
	// net/http/transport.go, errCannotRewind: net/http wanted to send again.
	{"net/http: cannot rewind body after connection loss", false, Reset, Ambiguous},
	// net/http/h2_bundle.go, http2ClientConn.closeForLostPing and
	// http2errClientConnForceClosed.
	{"http2: client connection lost", false, Reset, Ambiguous},
	{"http2: client connection force closed via ClientConn.Close", false, Reset, Ambiguous},
	// net/http/h2_bundle.go, http2GoAwayError.Error: given to the streams that
	// the GOAWAY counted in, before the connection went away.
	{"http2: server sent GOAWAY and closed the connection; ", true, Reset, Ambiguous},

	// net/http/h2_bundle.go, http2ClientConn.setGoAway: given to the streams
	// above the GOAWAY's last, so never processed (RFC 9113 §6.8). The second is
	// for the first stream of a connection that ends with an error code.
	{"http2: Transport received Server's graceful shutdown GOAWAY", false, Reset, Refused},
	{"http2: Transport received GOAWAY from server ErrCode:", true, Reset, Refused},
	// net/http/h2_bundle.go, http2clientStream.awaitOpenSlotForStreamLocked: no
	// stream was opened.
	{"http2: client conn not usable", false, Reset, Refused},
	{"http2: client conn could not be established", false, Dial, Refused},
}

// byText looks for a phrase in the innermost errors; NoError where there is
// none.
func byText(err error) (kind Kind, is Verdict) {
	wraps(err, func(e error) bool {
		kind, is = byTextOf(e)
		return kind != NoError
	})
	return kind, is
}

func byTextOf(err error) (Kind, Verdict) {
	text := err.Error()
	if kind, is := byHTTP3Text(text); kind != NoError {
		return kind, is
	}
	switch err.(type) {
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
		return NoError, Unknown
	}
	cause, ok := cannotRetry(text)
	if !ok {
		return byPhrase(text)
	}
	if kind, is := byPhrase(cause); kind != NoError {
		return kind, is
	}
	return Reset, Ambiguous // net/http would have sent again, for reasons of its own
}

func byPhrase(text string) (Kind, Verdict) {
	for i := range phrases {
		if p := &phrases[i]; p.matches(text) {
			return p.kind, p.is
		}
	}
	return byStreamText(text)
}

// isNothingWritten knows the errors of a connection on which no byte of the
// request was written. That of net/http is known by its name, since its text is
// that of the error inside: net/http/transport.go, nothingWrittenError.
func isNothingWritten(err error) bool {
	t := reflect.TypeOf(err)
	return t.Name() == "nothingWrittenError" && t.PkgPath() == "net/http" || isUnusable(err.Error())
}

// cannotRetry takes the cause out of the error by which HTTP/2 says that it
// would have sent again, had the body not been used: net/http/h2_bundle.go,
// http2shouldRetryRequest. The cause is there as text only.
func cannotRetry(text string) (cause string, ok bool) {
	rest, ok := strings.CutPrefix(text, "http2: Transport: cannot retry err [")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "] after Request.Body was written; define Request.GetBody to avoid this error")
}

// byStreamText reads the text of an HTTP/2 stream error: as a cause in
// cannotRetry, and from golang.org/x/net/http2, whose type lacks the As method.
// net/http/h2_bundle.go, http2StreamError.Error, writes "stream error: stream ID
// 5; REFUSED_STREAM; received from peer".
func byStreamText(text string) (Kind, Verdict) {
	rest, ok := strings.CutPrefix(text, "stream error: stream ID ")
	if !ok {
		return NoError, Unknown
	}
	_, rest, _ = strings.Cut(rest, "; ")
	code, _, _ := strings.Cut(rest, "; ")
	if code == "REFUSED_STREAM" {
		return Reset, Refused
	}
	return Reset, Ambiguous
}
