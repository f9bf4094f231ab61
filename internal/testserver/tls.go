// Certificates and faulty TLS handshakes.

package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"
)

// A TLS chooses how a server uses TLS.
type TLS uint8

const (
	// NoTLS is plain HTTP.
	NoTLS TLS = iota
	// Trusted shows a certificate that Transport and Client trust.
	Trusted
	// Untrusted shows a certificate from an unknown issuer.
	Untrusted
	// Expired shows a certificate that expired an hour ago.
	Expired
	// WrongHost shows a certificate from a trusted issuer for another host.
	WrongHost
	// ClientCertificate asks for a client certificate. Transport and Client have
	// none, so the server sends an alert. With TLS 1.3 the client gets the alert
	// after its own handshake has succeeded.
	ClientCertificate
	// HangingHandshake reads and never answers.
	HangingHandshake
	// PlainAnswer answers the handshake with plain HTTP, like a server without
	// TLS.
	PlainAnswer
)

// certs are a server's certificate and the issuers that its clients trust.
type certs struct {
	server *tls.Config
	roots  *x509.CertPool
}

// newCerts makes a certificate for the host in addr that is its own issuer. It is
// valid for ten years. In a synctest bubble these are years of virtual time.
func newCerts(mode TLS, addr string) (*certs, error) {
	switch mode {
	case NoTLS:
		return &certs{}, nil
	case HangingHandshake, PlainAnswer:
		return &certs{roots: x509.NewCertPool()}, nil
	}
	cert, err := selfSigned(template(mode, addr))
	if err != nil {
		return nil, fmt.Errorf("testserver: certificate: %w", err)
	}
	c := &certs{
		roots:  x509.NewCertPool(),
		server: &tls.Config{Certificates: []tls.Certificate{cert}},
	}
	if mode != Untrusted {
		c.roots.AddCert(cert.Leaf)
	}
	if mode == ClientCertificate {
		c.server.ClientAuth = tls.RequireAnyClientCert
	}
	return c, nil
}

// template describes the certificate.
func template(mode TLS, addr string) *x509.Certificate {
	host, _, _ := net.SplitHostPort(addr)
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "testserver"},
		NotBefore:             now.Add(-24 * time.Hour),
		NotAfter:              now.AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{host},
	}
	if ip := net.ParseIP(host); ip != nil {
		t.DNSNames, t.IPAddresses = nil, []net.IP{ip}
	}
	switch mode {
	case Expired:
		t.NotAfter = now.Add(-time.Hour)
	case WrongHost:
		t.DNSNames, t.IPAddresses = []string{"elsewhere.test"}, nil
	}
	return t
}

func selfSigned(t *x509.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
