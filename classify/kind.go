// What sort of error is this, and what does it prove?

package classify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"slices"
)

// A Kind is the sort of an error of a base transport: the stage at which it
// arose where that is known, otherwise its manner. A dial that timed out is
// [Dial], not [Timeout].
type Kind uint8

const (
	// NoError is the kind of a nil error, and the zero value.
	NoError Kind = iota
	// Canceled: somebody gave the request up ([context.Canceled]).
	Canceled
	// Timeout: time ran out after the connection was made or at an unknown
	// stage ([context.DeadlineExceeded], or an error whose Timeout method says
	// so).
	Timeout
	// DNS: the name could not be resolved ([net.DNSError]).
	DNS
	// Dial: no connection to the server or the proxy could be made.
	Dial
	// TLS: the handshake failed, or a certificate, or an alert ended the
	// connection.
	TLS
	// Reset: the connection, or the stream of HTTP/2 or HTTP/3, ended before the
	// answer did.
	Reset
	// Protocol: the request cannot be sent as HTTP, or the answer is not HTTP.
	Protocol
	// Other: an error that nobody here recognises.
	Other
)

var kinds = [...]string{
	NoError: "none", Canceled: "canceled", Timeout: "timeout", DNS: "dns", Dial: "dial",
	TLS: "tls", Reset: "reset", Protocol: "protocol", Other: "other",
}

// String returns "canceled", "timeout", "dns", "dial", "tls", "reset",
// "protocol", "other", and "none" for [NoError]; for a value that is none of
// the constants, its number.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// ParseKind reads what [Kind.String] writes, except "none", which no error is.
// Anything else is an error, other spellings included.
func ParseKind(s string) (Kind, error) {
	if i := slices.Index(kinds[:], s); i > 0 {
		return Kind(i), nil
	}
	return NoError, fmt.Errorf(
		"classify: %q is not a kind of error: want canceled, timeout, dns, dial, tls, reset, protocol or other", s)
}

// KindOf returns the kind of an error, wrapped or not; [NoError] for nil.
func KindOf(err error) Kind {
	k, _ := judge(err)
	return k
}

// judge says what sort of error this is and what it proves about the server.
// What leaves it open whether the server acted is settled where not a byte was
// written.
func judge(err error) (Kind, Verdict) {
	kind, v := sort(err)
	if v == Ambiguous && wraps(err, isNothingWritten) {
		v = Refused
	}
	return kind, v
}

// sort is a list of guards that ends with no: an error that none of them knows
// is not a reason to send again.
//
// A guard for a stage comes before one for a manner, for the stage is what
// settles whether the request left. net/http may have sent the request before
// the stage at which it failed, but only where it holds that sending twice does
// no harm.
func sort(err error) (Kind, Verdict) {
	switch {
	case err == nil:
		return NoError, Unknown
	case errors.Is(err, context.Canceled):
		return Canceled, Final
	case isTLS(err):
		return TLS, Final // the next handshake would meet the same certificates
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return DNS, byDNS(dns)
	}
	if stream, ok := errors.AsType[streamError](err); ok {
		return Reset, byStream(stream)
	}
	if k, v := byText(err); k != NoError {
		return k, v
	}
	switch op, isOp := operation(err); {
	case isOp && isDial(op):
		return Dial, byDial(err)
	case isTimeout(err):
		return Timeout, Ambiguous
	case isOp, isReset(err):
		return Reset, Ambiguous
	case isRefusal(err):
		return Dial, Refused // TCP gives this to a SYN only
	case isMalformed(err):
		return Protocol, Ambiguous
	}
	return Other, Final
}

// isTLS reports what ended a handshake or a TLS connection for good. A
// handshake that was merely cut off looks like any other cut connection: from
// its error nobody can tell whether a request had been sent, so it is not here.
func isTLS(err error) bool {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return true
	}
	return wraps(err, func(e error) bool {
		switch e := e.(type) {
		case *tls.CertificateVerificationError, tls.RecordHeaderError, tls.AlertError,
			*tls.ECHRejectionError:
			return true
		case x509.CertificateInvalidError, x509.HostnameError, x509.UnknownAuthorityError,
			x509.SystemRootsError, x509.ConstraintViolationError, x509.InsecureAlgorithmError:
			return true
		case *net.OpError:
			// How crypto/tls reports an alert received and an alert sent.
			return e.Op == "remote error" || e.Op == "local error"
		}
		return false
	})
}

// byDNS takes a resolver's word for whether asking again can help. No request
// leaves before its name is resolved.
func byDNS(err *net.DNSError) Verdict {
	switch {
	case err.IsNotFound:
		return Final // the name does not exist, whatever else is set
	case err.IsTimeout, err.IsTemporary:
		return Refused
	}
	return Final
}

// operation finds what a net.OpError was about, the outermost first.
func operation(err error) (string, bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok {
		return "", false
	}
	return op.Op, true
}

// isDial knows the operations that come before any request: connecting (net),
// and speaking with a proxy about it (net/http).
func isDial(op string) bool {
	return op == "dial" || op == "proxyconnect" || op == "socks connect"
}

// byDial: the request never left. An address that cannot be dialled at all will
// not become one.
func byDial(err error) Verdict {
	permanent := wraps(err, func(e error) bool {
		switch e.(type) {
		case *net.AddrError, net.UnknownNetworkError, *net.ParseError, net.InvalidAddrError:
			return true
		}
		return false
	})
	if permanent {
		return Final
	}
	return Refused
}

// isTimeout asks the whole chain: an outer error's Timeout method, such as that
// of url.Error, does not always see what is further in.
func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return wraps(err, func(e error) bool {
		t, ok := e.(interface{ Timeout() bool })
		return ok && t.Timeout()
	})
}

func isReset(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	return isResetErrno(err)
}

// isMalformed knows the type that a broken header field has. It has no method
// that errors.As would need more than the type for.
func isMalformed(err error) bool {
	_, ok := errors.AsType[textproto.ProtocolError](err)
	return ok
}

// A streamError is the HTTP/2 stream error of net/http, whose own type is not
// exported: errors.As fills any struct with these fields (net/http's
// h2_error.go, http2StreamError.As).
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string {
	return fmt.Sprintf("stream %d: error code %d", e.StreamID, e.Code)
}

// refusedStream is REFUSED_STREAM: the stream ended before any processing
// (RFC 9113 §8.7). Every other code leaves it open.
const refusedStream = 0x7

func byStream(err streamError) Verdict {
	if err.Code == refusedStream {
		return Refused
	}
	return Ambiguous
}

// wraps asks f about err and about everything that it wraps.
func wraps(err error, f func(error) bool) bool {
	for err != nil {
		if f(err) {
			return true
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			return slices.ContainsFunc(e.Unwrap(), func(e error) bool { return wraps(e, f) })
		default:
			return false
		}
	}
	return false
}
