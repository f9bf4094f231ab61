package get

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unprinted returns the characters of an output that act on a terminal.
func unprinted(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// drawing are the sequences with which bars draws.
var drawing = regexp.MustCompile(`\r\x1b\[2K\x1b\[C\x1b\[J\r|\x1b\[\d+A|\r`)

// A failing base fails every request.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// counting counts the requests to a base.
type counting struct {
	http.RoundTripper
	sent atomic.Int64
}

func (c *counting) RoundTrip(req *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return c.RoundTripper.RoundTrip(req)
}

// A server chooses the names in its certificate, and Go tells them before it checks who
// signed it. The author of a link chooses its host.
func TestNothingActsOnTheTerminal(t *testing.T) {
	const evil = "\x1b[1A\x1b[2Ka.bin: done: 5 bytes\x1b[8m\n\a\u009b31m\u202e\x7f"
	rules := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(`{"rule": {"attempts": 2, "backoff": {"type": "constant", "delay": "1ms"}}}`), 0o600))
	for _, err := range []error{
		x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"\n" + evil}}, Host: "h.test"},
		x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"h"}}, Host: evil},
		&url.Error{Op: "Get", URL: "https://h.test/", Err: fmt.Errorf("proxy says %s: %w", "\n"+evil, io.ErrUnexpectedEOF)},
		errors.New("\n" + evil),
	} {
		base := &counting{RoundTripper: failing{err}}
		for _, args := range [][]string{
			{"https://h.test/a.bin"},
			{"-plain", "https://h.test/a.bin"},
			{"-v", "https://h.test/a.bin"},
			{"-v", "-plain", "https://h.test/a.bin"},
			{"-o", "-", "https://h%C2%9B31m.test/"},
			{"-plain", "-o", "-", "https://h%C2%9B31m.test/"},
			{"https://h%C2%9B31m.test/"},
			{"https://h%C2%9B31m.test/%1b[31m"},
			{"-mirrors", "https://h.test/a.bin", "https://h%C2%9B31m.test/a.bin"},
			{"-mirrors", "-plain", "https://h.test/a.bin", "https://h%C2%9B31m.test/%1b[31m"},
			{"ftp://h%C2%9B31m.test/a"},
			{"-unknown" + evil},
			{"-rate", evil, "http://a/b"},
			{"-o", evil + "/", "http://a/b"},
			{"-rule", evil, "http://a/b"},
		} {
			if args[0] != "-rule" {
				args = append([]string{"-rule", rules}, args...)
			}
			dir := t.TempDir()
			t.Chdir(dir)
			var out bytes.Buffer
			w := world{stdout: &out, stderr: &out, base: base, screen: func(io.Writer) (int, int) { return 200, 24 }}
			if code := run(t.Context(), args, w); code == exitFine {
				t.Errorf("%q: exit status %d", args, code)
			}
			text := drawing.ReplaceAllString(out.String(), "")
			assert.Empty(t, unprinted(text), "%q in %q", args, text)
			if strings.Contains(text, "\na.bin: done") || strings.Contains(text, "\na.bin: ?[1A") {
				t.Errorf("%q: a line of the server's own: %q", args, text)
			}
		}
		assert.True(t, base.sent.Load() >= 6, "%v: %d requests", err, base.sent.Load())
	}
}

// A row of a bar may show any text.
func TestRowsArePrintable(t *testing.T) {
	for _, r := range []row{{name: "a", why: "\x1b[31m\n\u009b"}, {name: "\x1b[31m"}, {name: "a", status: "\x1b[31m"}} {
		assert.Empty(t, unprinted(strings.Join(frame([]row{r}, 0, 80, 24), "")))
	}
}

// A secret may stand in any argument, also in one that stands in the wrong place.
func TestErrorsKeepSecrets(t *testing.T) {
	const secret = "s3cret"
	dir := t.TempDir()
	for _, u := range []string{
		"https://h.test/?key=" + secret,
		"https://h.test/?" + secret,
		"https://h.test/#" + secret,
		"https://u:" + secret + "@h.test/",
		"https://" + secret + "@h.test/",
		"https://u:" + secret + "/@h.test/",
		"https://h.test:" + secret + "/",
		"ftp://u:" + secret + "@h.test/?" + secret + "#" + secret,
		"u:" + secret + "@h.test/",
		"u:" + secret + "@h.test:80/?" + secret,
		"//u:" + secret + "@h.test/",
		"h.test/?key=" + secret,
		"https:u:" + secret + "@h.test",
		"https://%zz" + secret,
	} {
		base := failing{fmt.Errorf("cannot reach %s", u)}
		for _, args := range [][]string{
			{u}, {"-o", "-", u}, {"-o", dir, u}, {u, u}, {"-rate", u, u}, {"-limit", u, u}, {"-attempts=" + u}, {"-stall", u},
			{"-plain=" + u}, {"-unknown=" + u}, {"-" + u}, {"-rule", u, u}, {"-cacert", u, u}, {"-o", u, "http://a/b", "http://a/c"},
			{"-attempts", "1", "-plain", "-o", "-", u}, {"-v", "-attempts", "1", "-plain", "-o", "-", u}, {"-o", u + "/", "http://a/b"},
			{"-mirrors", "-o", dir, u, "https://m.test/a"}, {"-mirrors", "-plain", "-o", dir, "https://m.test/a", u},
			{"-mirrors", "-o", "-", u, u}, {"-sha256", u, u},
			{"-attempts", "1", "-plain", "-o", "-", "https://h.test/a"}, {"-attempts", "1", "-plain", "-o", dir, "https://h.test/a"},
		} {
			var out bytes.Buffer
			run(t.Context(), args, world{stdout: &out, stderr: &out, base: base})
			assert.NotContains(t, out.String(), secret, "%q: %s", args, out.String())
		}
	}
}

// The URL that a redirect leaves may be signed.
func TestRedirectsGetNoReferer(t *testing.T) {
	var referer atomic.Pointer[http.Header]
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		referer.Store(&r.Header)
		_, _ = io.WriteString(w, "hello")
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/loop" {
			http.Redirect(w, r, "/loop", http.StatusFound)
			return
		}
		http.Redirect(w, r, other.URL+"/b.bin", http.StatusFound)
	}))
	defer server.Close()
	call := func(u string) (int, string) {
		var out bytes.Buffer
		code := run(context.Background(), []string{"-o", t.TempDir(), u}, world{stdout: &out, stderr: &out})
		return code, out.String()
	}
	if code, out := call(server.URL + "/a.bin?signature=s3cret"); code != exitFine {
		t.Fatalf("exit status %d: %s", code, out)
	}
	assert.Empty(t, referer.Load().Get("Referer"), "Referer")
	if code, out := call(server.URL + "/loop"); code != exitFailed || !strings.Contains(out, "redirects again and again") {
		t.Errorf("exit status %d: %s", code, out)
	}
}
