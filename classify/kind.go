// The types of errors, and what an error proves about the server.

package classify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"

	"github.com/aplomb-go/aplomb/internal/trait"
)

// An ErrorType says at which stage an error of a base transport arose. If the stage
// is unknown, it says how the attempt failed. A dial that timed out is [ErrorDial],
// not [ErrorTimeout]. It is the value of error.type in metrics and spans. The zero value is the
// type of a nil error.
type ErrorType string

const (
	// ErrorCanceled means that the request was canceled ([context.Canceled]), by its
	// caller or by a base transport.
	ErrorCanceled ErrorType = "canceled"
	// ErrorTimeout means that time ran out after the connection was made, or at an
	// unknown stage ([context.DeadlineExceeded], or an error with a Timeout
	// method that returns true).
	ErrorTimeout ErrorType = "timeout"
	// ErrorDNS means that the name could not be resolved ([net.DNSError]).
	ErrorDNS ErrorType = "dns"
	// ErrorDial means that no connection to the server or the proxy could be made.
	ErrorDial ErrorType = "dial"
	// ErrorTLS means that the handshake failed, a certificate was not accepted, or an
	// alert that may belong to a handshake ended the connection.
	ErrorTLS ErrorType = "tls"
	// ErrorReset means that the connection, or the stream of HTTP/2 or HTTP/3, ended
	// before the response did. A TLS alert about a damaged record belongs here.
	ErrorReset ErrorType = "reset"
	// ErrorProtocol means that the request cannot be sent as HTTP, or that the
	// response is not HTTP.
	ErrorProtocol ErrorType = "protocol"
	// ErrorOther is the type of an error that this package does not recognise. Its text is
	// the fallback of OpenTelemetry.
	ErrorOther ErrorType = "_OTHER"
)

// ErrorTypeOf returns the type of an error, wrapped or not, and "" for nil.
func ErrorTypeOf(err error) ErrorType {
	k, _ := judge(err)
	return k
}

// judge returns the kind of an error and what it proves about the server. An
// Ambiguous error becomes Refused if no byte of the request was written.
func judge(err error) (ErrorType, Class) {
	kind, v := sort(err)
	if v == Ambiguous && trait.Wraps(err, isNothingWritten) {
		v = Refused
	}
	if kind == ErrorOther && trait.Wraps(err, isUnanswered) && !trait.Wraps(err, isReasonPhrase) {
		v = Ambiguous
	}
	return kind, v
}

// isUnanswered reports whether a Transport of ours knows that an error came before any response.
func isUnanswered(err error) bool {
	_, ok := err.(interface{ Unanswered() })
	return ok
}

// sort returns the kind and the class of an error. An unknown error is not a
// reason to send again.
//
// The checks for a stage come before the checks for a manner of failing,
// because the stage shows whether the request left. net/http may have sent the
// request in an attempt before the stage that failed, but only if it considers
// it safe to send the request twice.
func sort(err error) (ErrorType, Class) {
	switch {
	case err == nil:
		return "", Unknown
	case errors.Is(err, context.Canceled):
		// Somebody other than the caller has cancelled, such as a source of tokens below, or a dial that
		// several requests share. Default has dealt with the caller before.
		if op, _ := errors.AsType[*net.OpError](err); isDial(op) {
			return ErrorCanceled, Refused
		}
		return ErrorCanceled, Ambiguous
	case isTLS(err):
		if endsConnection(err) {
			return ErrorReset, Ambiguous
		}
		return ErrorTLS, Final // the next handshake would meet the same certificates
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		// No request leaves before its name is resolved. The resolver says whether asking again can help. If
		// a name does not exist, it does not matter what else is set.
		if !dns.IsNotFound && (dns.IsTimeout || dns.IsTemporary) {
			return ErrorDNS, Refused
		}
		return ErrorDNS, Final
	}
	if k, v := byText(err); k != "" {
		return k, v
	}
	switch op, isOp := errors.AsType[*net.OpError](err); {
	case isDial(op):
		return ErrorDial, byDial(err)
	case isTimeout(err):
		return ErrorTimeout, Ambiguous
	case isOp, isReset(err):
		return ErrorReset, Ambiguous
	case isRefusal(err):
		return ErrorDial, Refused // TCP gives this to a SYN only
	}
	if _, malformed := errors.AsType[textproto.ProtocolError](err); malformed { // a header field of the response
		return ErrorProtocol, Ambiguous
	}
	return ErrorOther, Final
}

// isTLS reports whether an error ended a handshake or a TLS connection for
// good. A handshake that was cut off is not included, because its error looks
// like that of any cut connection and does not show whether a request had been
// sent.
func isTLS(err error) bool {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return true
	}
	return trait.Wraps(err, func(e error) bool {
		switch e := e.(type) {
		case *tls.CertificateVerificationError, tls.RecordHeaderError, tls.AlertError, *tls.ECHRejectionError,
			x509.CertificateInvalidError, x509.HostnameError, x509.UnknownAuthorityError,
			x509.SystemRootsError, x509.ConstraintViolationError, x509.InsecureAlgorithmError:
			return true
		case *net.OpError:
			// crypto/tls reports received and sent alerts in this way.
			return e.Op == "remote error" || e.Op == "local error"
		}
		return false
	})
}

// endsConnection reports whether a TLS alert says that the connection ended, and
// nothing of certificates or of the two configurations (RFC 8446 §6.2). Alerts about
// damaged records arise after a handshake. The others can also be the response to a
// handshake: Go's servers send internal_error if their GetCertificate fails. They count
// if an error around the alert says that the handshake was over.
func endsConnection(err error) bool {
	after, ok := errors.AsType[interface {
		error
		HandshakeDone() bool
	}](err)
	done := ok && after.HandshakeDone()
	return trait.Wraps(err, func(e error) bool { return byAlert(e.Error(), done) })
}

// isDial reports whether an operation comes before any request. That is
// connecting (net) or asking a proxy to connect (net/http). A nil operation does not.
func isDial(op *net.OpError) bool {
	return op != nil && (op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect")
}

// byDial returns the class for a failed dial, after which the request never
// left. It is Final if the address cannot be dialled at all.
func byDial(err error) Class {
	permanent := trait.Wraps(err, func(e error) bool {
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

// isTimeout asks every error in the chain. The Timeout method of an outer
// error, such as url.Error, does not always ask the errors inside.
func isTimeout(err error) bool {
	return trait.Wraps(err, func(e error) bool {
		t, ok := e.(interface{ Timeout() bool })
		return ok && t.Timeout()
	})
}

func isReset(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || isResetErrno(err)
}
