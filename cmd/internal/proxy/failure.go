// The response to a request that failed.

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aplomb-go/aplomb/internal/terminal"
	"github.com/aplomb-go/aplomb/transport"
)

// statusClientGone is the status of a request if its client has gone. It is only for
// the metrics, because nobody gets it. Many proxies use it.
const statusClientGone = 499

// fail responds to a request for which the transport has returned an error.
func (p *proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := described(err)
	status := statusOf(e, context.Cause(r.Context()))
	if to, ok := r.Context().Value(targetKey{}).(target); ok && to.client.isLate() {
		status = http.StatusRequestTimeout
		w.Header().Set("Connection", "close")
	}
	p.stats.responded(status)
	if seconds := secondsUntil(e.Until, time.Now()); seconds > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	w.Header().Set("Proxy-Status", proxyStatus(errorType(e), e.Reason, len(e.Attempts)))
	// The text may have names that a server chose, and somebody may read it in a terminal.
	http.Error(w, "proxy: "+terminal.Printable(strings.TrimPrefix(e.Error(), "transport: ")), status)
}

// described returns an error with its history. The error of a single attempt comes
// without, but the text of a transport.Error hides secrets.
func described(err error) *transport.Error {
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return e
	}
	return &transport.Error{Err: err, Attempts: make([]transport.Attempt, 1)}
}

// statusOf returns the status of the response to a request that failed. ended says why
// the context of the request ended, or is nil.
func statusOf(e *transport.Error, ended error) int {
	switch {
	case ended == errEnding:
		return http.StatusServiceUnavailable
	case ended != nil:
		return statusClientGone
	case len(e.Attempts) == 0:
		return http.StatusServiceUnavailable // a limit refused it
	case e.Timeout():
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// secondsUntil returns the whole seconds from now until a time, or 0 if the time is
// not known or has come.
func secondsUntil(until, now time.Time) int64 {
	if wait := until.Sub(now); !until.IsZero() && wait > 0 {
		return int64((wait + time.Second - 1) / time.Second)
	}
	return 0
}

// errorType returns the type of an error as RFC 9209 §2.3 has it.
func errorType(e *transport.Error) string {
	dns, isDNS := errors.AsType[*net.DNSError](e)
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](e)
	op, isOp := errors.AsType[*net.OpError](e)
	switch {
	case len(e.Attempts) == 0:
		return "destination_unavailable"
	case isDNS && dns.IsTimeout:
		return "dns_timeout"
	case isDNS:
		return "dns_error"
	case isCertificate:
		return "tls_certificate_error"
	case errors.Is(e, syscall.ECONNREFUSED):
		return "connection_refused"
	case isOp && op.Op == "dial" && e.Timeout():
		return "connection_timeout"
	case isOp && op.Op == "dial":
		return "destination_ip_unroutable"
	case e.Timeout():
		return "http_response_timeout"
	case errors.Is(e, io.EOF), errors.Is(e, io.ErrUnexpectedEOF), errors.Is(e, syscall.ECONNRESET), errors.Is(e, syscall.EPIPE):
		return "connection_terminated"
	case errors.Is(e, context.Canceled):
		return "http_request_error"
	}
	return "http_protocol_error"
}

// proxyStatus returns the value of a Proxy-Status header (RFC 9209). kind is the type
// of the error, or empty if the response is the upstream's.
func proxyStatus(kind string, reason transport.Reason, attempts int) string {
	if kind != "" {
		kind = "; error=" + kind
	}
	return fmt.Sprintf(`aplomb%s; details="%v, attempts: %d"`, kind, reason, attempts)
}
