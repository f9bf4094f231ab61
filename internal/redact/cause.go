// Errors in a few words.

package redact

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/aplomb-go/aplomb/classify"
)

// Cause says in a few words what is wrong. It names the day on which a certificate
// expired, and leaves out what a log line says elsewhere: the method, the URL and the
// address. It hides the secrets of the URLs that are known. The text is a line that can be
// printed.
func Cause(err error, known ...string) string { return Printable(causeIn(err, known)) }

func causeIn(err error, known []string) string {
	if text := certificate(err); text != "" {
		return text
	}
	whole := Text(err, known...)
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return "no such host"
		case strings.Contains(whole, dns.Err):
			return "no address from the DNS: " + dns.Err
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		text := innermost(op.Err).Error()
		switch {
		case op.Timeout() && classify.ErrorTypeOf(err) == classify.ErrorDial && !strings.Contains(text, "connection"):
			return "no connection in time"
		case !strings.Contains(whole, text): // so it may have a secret
		case op.Op == "dial" && !strings.Contains(text, "connection"):
			return "dial: " + text
		default:
			return text
		}
	}
	if u, ok := err.(*url.Error); ok && strings.HasPrefix(whole, u.Op+" \"") {
		if _, inner, ok := strings.Cut(whole, "\": "); ok {
			whole = inner
		}
	}
	return strings.TrimPrefix(whole, "transport: ")
}

// certificate says why the certificate of a server was not accepted. It returns "" for
// another error.
func certificate(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && invalid.Cert != nil {
		if from := invalid.Cert.NotBefore; time.Now().Before(from) {
			return "certificate not valid before " + from.UTC().Format(time.DateOnly)
		}
		return "certificate expired on " + invalid.Cert.NotAfter.UTC().Format(time.DateOnly)
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		names := name.Certificate.DNSNames
		if len(names) == 0 {
			return "certificate not for " + Host(name.Host)
		}
		return "certificate for " + names[0] + ", not for " + Host(name.Host)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "certificate of an unknown authority"
	}
	return ""
}

// Printable replaces what cannot be printed: line breaks, escape sequences of terminals, and
// what changes the direction of a text. A server chooses the names in its certificate, and
// Go reports them before it has checked who signed it. So a server could write lines of its
// own into a log that prints messages as they are.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, s)
}

// innermost returns the error that others wrap.
func innermost(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

// A Sentence is a text of several parts.
type Sentence struct{ strings.Builder }

// Add adds a part if there is something to say.
func (s *Sentence) Add(said bool, format string, args ...any) {
	if said {
		fmt.Fprintf(s, format, args...)
	}
}

// Rough rounds a time for people.
func Rough(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return max(d, 0).Round(time.Millisecond)
}

// Addr returns the address to which a connection failed, if the error says it.
func Addr(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		return op.Addr.String()
	}
	return ""
}
