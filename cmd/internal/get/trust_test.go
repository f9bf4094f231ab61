package get

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// certificate returns a self-signed certificate and the same as PEM.
func certificate(t *testing.T, from, to time.Time, host string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true}
	if ip := net.ParseIP(host); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Each error of TLS is one short line that says what to do.
func TestTLS(t *testing.T) {
	now := time.Now()
	good := func(t *testing.T) (tls.Certificate, []byte) {
		return certificate(t, now.Add(-time.Hour), now.Add(time.Hour), "127.0.0.1")
	}
	for _, c := range []struct {
		name    string
		make    func(t *testing.T) (tls.Certificate, []byte)
		trusted bool
		config  func(*tls.Config)
		code    int
		says    string
	}{
		{"trusted", good, true, nil, exitFine, "a.bin: done: 5 bytes"},
		{"not trusted", good, false, nil, exitFailed,
			"aplomb get: a.bin: no known authority has signed the certificate; give its CA with -cacert FILE\n"},
		{"another host", func(t *testing.T) (tls.Certificate, []byte) {
			return certificate(t, now.Add(-time.Hour), now.Add(time.Hour), "host.example")
		}, true, nil, exitFailed,
			"aplomb get: a.bin: the certificate is for host.example and not for 127.0.0.1; check the host in the URL\n"},
		{"expired", func(t *testing.T) (tls.Certificate, []byte) {
			return certificate(t, time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2002, 2, 3, 0, 0, 0, 0, time.UTC), "127.0.0.1")
		}, true, nil, exitFailed,
			"aplomb get: a.bin: the certificate expired on 3 February 2002; its owner has to renew it\n"},
		{"not valid yet", func(t *testing.T) (tls.Certificate, []byte) {
			from := time.Date(2090, 1, 2, 0, 0, 0, 0, time.UTC)
			return certificate(t, from, from.Add(time.Hour), "127.0.0.1")
		}, true, nil, exitFailed,
			"aplomb get: a.bin: the certificate is not valid before 2 January 2090; check the clock of this machine\n"},
		{"a client certificate is wanted", good, true, func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert; c.MaxVersion = tls.VersionTLS12 }, exitFailed,
			"aplomb get: a.bin: the server refuses TLS with this client (handshake failure)\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			own, text := c.make(t)
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "hello")
			}))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
			if c.config != nil {
				c.config(s.TLS)
			}
			s.StartTLS()
			defer s.Close()
			dir := t.TempDir()
			if !c.trusted {
				_, text = good(t) // of somebody else
			}
			ca := filepath.Join(dir, "ca.pem")
			require.NoError(t, os.WriteFile(ca, append([]byte("# a comment\n"), text...), 0o600))
			var out bytes.Buffer
			args := []string{"-o", dir, "-attempts", "1", "-cacert", ca, s.URL + "/a.bin"}
			assert.Equal(t, c.code, run(t.Context(), args, world{stdout: &out, stderr: &out}), "exit status")
			assert.Contains(t, out.String(), c.says)
		})
	}
}

func TestNoTLS(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a server of another protocol
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "SSH-2.0-example\r\n")
			_ = c.Close()
		}
	}()
	for _, address := range []string{strings.TrimPrefix(plain.URL, "http://"), l.Addr().String()} {
		var out bytes.Buffer
		args := []string{"-o", t.TempDir(), "-attempts", "1", "https://" + address + "/a.bin"}
		code := run(t.Context(), args, world{stdout: &out, stderr: &out})
		if want := "aplomb get: a.bin: the server does not speak TLS on this port; try http:// instead of https://\n"; code != exitFailed || out.String() != want {
			t.Errorf("exit status %d: %s", code, out.String())
		}
	}
}

func TestBrokenCA(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	_, text := certificate(t, time.Now(), time.Now().Add(time.Hour), "host.example")
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("nonsense")})...)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	if _, err := trusting(file); err == nil || !strings.Contains(err.Error(), "ca.pem: certificate 2: ") {
		t.Error(err)
	}
}
