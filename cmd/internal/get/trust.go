// Certificates, and errors of TLS in plain words.

package get

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-cleanhttp"
)

// trusting returns a base transport that trusts the certificates in a PEM file,
// besides those of the system.
func trusting(file string) (http.RoundTripper, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the certificates of the system: %w", err)
	}
	found := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		found++
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", file, found, err)
		}
		pool.AddCert(c)
	}
	if found == 0 {
		return nil, fmt.Errorf("%s: there is no certificate in it (PEM, BEGIN CERTIFICATE)", file)
	}
	base := cleanhttp.DefaultPooledTransport() // as the transport's own
	base.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return base, nil
}

// tlsText returns a line about the fault and its remedy if err is about TLS.
// Otherwise it returns "".
func tlsText(err error) string {
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("the certificate is for %s and not for %s; check the host in the URL", namesOf(e.Certificate), e.Host)
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired && e.Cert != nil {
		return validityText(e.Cert, time.Now())
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "no known authority has signed the certificate; give its CA with -cacert FILE"
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		return fmt.Sprintf("the server refuses TLS with this client (%s)", strings.TrimPrefix(e.Err.Error(), "tls: "))
	}
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	if noTLS || errors.Is(err, http.ErrSchemeMismatch) {
		return "the server does not speak TLS on this port; try http:// instead of https://"
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate is not valid: " + strings.TrimPrefix(e.Err.Error(), "x509: ")
	}
	return ""
}

func namesOf(c *x509.Certificate) string {
	names := c.DNSNames
	for _, ip := range c.IPAddresses {
		names = append(names[:len(names):len(names)], ip.String())
	}
	switch {
	case len(names) == 0:
		return "no host"
	case len(names) > 3:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:2], ", "), len(names)-2)
	}
	return strings.Join(names, ", ")
}

func validityText(c *x509.Certificate, now time.Time) string {
	const day = "2 January 2006"
	if now.Before(c.NotBefore) {
		return fmt.Sprintf("the certificate is not valid before %s; check the clock of this machine", c.NotBefore.Format(day))
	}
	return fmt.Sprintf("the certificate expired on %s; its owner has to renew it", c.NotAfter.Format(day))
}
