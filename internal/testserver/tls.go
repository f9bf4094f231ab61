// Which certificate does the server show, and does it finish the handshake?

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

// A TLS says how a server uses TLS.
type TLS uint8

const (
	// NoTLS is plain HTTP.
	NoTLS TLS = iota
	// Trusted shows a certificate that Transport and Client trust.
	Trusted
	// Untrusted shows one whose issuer they do not know.
	Untrusted
	// Expired shows one that ended an hour ago.
	Expired
	// WrongHost shows one for another name, from a trusted issuer.
	WrongHost
	// ClientCertificate asks for a certificate that Transport and Client do not
	// have, and answers with an alert. With TLS 1.3 the client learns it after
	// its handshake.
	ClientCertificate
	// HangingHandshake reads and never says a word.
	HangingHandshake
	// PlainAnswer answers the handshake in plain HTTP, as a server without TLS
	// does.
	PlainAnswer
)

// certs are a server's certificate and the issuers that its clients trust.
type certs struct {
	server *tls.Config
	roots  *x509.CertPool
}

// newCerts makes what mode needs for the host in addr, valid for ten years of
// the bubble's time or the world's. The certificate is its own issuer.
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

// template is the certificate's content.
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
