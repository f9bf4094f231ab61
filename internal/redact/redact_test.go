package redact_test

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/redact"
)

// marker is the secret of these tests.
const marker = "s3cret"

// written returns all texts that this package makes of a URL and of an error about it.
func written(u *url.URL, err error) string {
	return fmt.Sprintln(redact.URL(u), redact.Host(u.Host), redact.Text(err, u.String()), redact.Cause(err, u.String()))
}

// secretURLs hold the marker in each part of a URL that may be secret.
var secretURLs = []string{
	"http://h.test/?" + marker, "http://h.test/?token=" + marker, "http://h.test/?token%3D" + marker,
	"http://h.test/?token%3d" + marker + "=1", "http://h.test/?" + marker + "=", "http://h.test/?" + marker + "==",
	"http://h.test/?a=1&" + marker + "&b=2", "http://h.test/?a=1;token=" + marker,
	"http://h.test/?a;" + marker + "=1", "http://h.test/?q=" + "two words " + marker,
	"http://h.test/?q=\"quoted\" " + marker, "http://h.test/?next=http://u:" + marker + "@other.test/",
	"http://h.test?" + marker, "http://h.test/#" + marker, "http://h.test/#access_token=" + marker,
	"http://h.test/#a>" + marker, "http://h.test/#a\"" + marker, "http://h.test/#a`" + marker,
	"http://h.test/#a<" + marker, "http://h.test/#a " + marker, "http://h.test/?q=1#two words " + marker,
	"http://u:" + marker + "@h.test/", "http://" + marker + "@h.test/", "http://" + marker + ":@h.test/",
	"http://u:a%40" + marker + "@h.test:8080/", "http://h.test/a%3Ftoken=" + marker,
	"http://h.test/a;jsessionid=" + marker + "/b", "http://h.test/http://u:" + marker + "@other.test/",
	"http://h.test/http:%2F%2Fu%3A" + marker + "%40other.test/", "http://h.test/u%3A" + marker + "%40h",
	"//u:" + marker + "@h.test/", "http:" + marker, "http:u:" + marker + "@h.test", "http:opaque?" + marker,
}

// No text about a URL holds its secrets.
func TestKnownURLs(t *testing.T) {
	urls := []*url.URL{
		{Scheme: "http", Host: "h.test", Opaque: "//u:" + marker + "@h.test/path?" + marker},
		{Scheme: "http", Host: "h.test", Opaque: "//u:" + marker + "@h.test:bad/"},
		{Scheme: "http", Host: "h.test", Opaque: "u:" + marker + "@h.test"},
		{Scheme: "http", Host: "h.test", Opaque: "/path", RawQuery: marker},
		{Scheme: "http", Host: marker + "@h.test:8080", Path: "/path"},
		{Scheme: "http", Host: "h.test", Path: "/a?token=" + marker},
		{Scheme: "http", Host: "h.test", Path: "/a#" + marker},
	}
	for _, host := range []string{
		"u:" + marker + "@h.test", "h.test?" + marker, "h.test#" + marker, "h.test/" + marker, "?" + marker,
		"u@h.test#" + marker, marker + "@h.test", marker + "\"@h.test", "h.test#" + marker + ":8080",
		"[::1]:80@" + marker + "@h.test",
	} {
		urls = append(urls, &url.URL{Scheme: "http", Host: host})
	}
	for _, s := range secretURLs {
		u, err := url.Parse(s)
		require.NoError(t, err)
		urls = append(urls, u)
	}
	for _, u := range urls {
		for _, err := range []error{
			io.ErrUnexpectedEOF,
			fmt.Errorf("cannot reach %s: %w", u, io.EOF),
			fmt.Errorf("cannot reach %q, nor (%v)", u, u),
			&url.Error{Op: "Get", URL: u.String(), Err: io.EOF},
			// The errors of a dial name the host alone.
			&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Name: u.Hostname(), Err: "no such host", IsNotFound: true}},
			fmt.Errorf("dial %s refused", u.Host),
			fmt.Errorf("dial %q: refused", net.JoinHostPort(u.Hostname(), "80")),
		} {
			assert.NotContains(t, written(u, err), marker, "%#v and %q", u, err)
		}
	}
}

// A base transport's error may name any URL, such as that of a redirect.
func TestURLsInErrors(t *testing.T) {
	here, err := url.Parse("http://h.test/")
	require.NoError(t, err)
	broken := []string{
		"http://u:" + marker + "/@h.test/", // the password ends the host
		"http://u:pass word" + marker + "@h.test/", "http://h.test:" + marker + "/",
		"http://h.test/%zz?token=" + marker, "http://[::1" + marker + "/", "ht tp://h.test/?" + marker,
		":" + marker,
	}
	for _, s := range append(broken, secretURLs...) {
		_, perr := url.Parse(s)
		if perr == nil {
			perr = errors.New("no reason")
		}
		for _, err := range []error{
			perr,
			// net/http, Client.do, of a base that is a client.
			&url.Error{Op: "Get", URL: "http://h.test/", Err: fmt.Errorf("failed to parse Location header %q: %v", s, perr)},
			fmt.Errorf("outer: %w", errors.Join(io.EOF, &url.Error{Op: "Get", URL: s, Err: perr})),
		} {
			assert.NotContains(t, written(here, err), marker, "%q in %T %q", s, err, err)
		}
	}
	for _, text := range []string{
		"redirected to /login?" + marker, "redirected to \"/login?q=a " + marker + "\"",
		"lookup u:" + marker + "@h.test: no such host", "lookup u:a/" + marker + "@h.test: no such host",
		`{"url":"http://h.test/?` + marker + `","n":1}`, "see <http://h.test/?" + marker + ">.",
		"proxy=http://u:" + marker + "@proxy.test:3128", `the text ends early: "http://h.test/?q=a ` + marker,
		"http://h.test/a,http://u:" + marker + "@h.test/", "/login?next=http://h.test/&token=" + marker,
		`"a" "b\" "http://h.test/?` + marker, "redirected to http://h.test/#a>" + marker,
		"redirected to http://h.test/#a\"" + marker, "redirected to http://h.test/#a`" + marker,
		"redirected to (http://h.test/#a<b>" + marker + "): EOF", "redirected to http://h.test/#a " + marker,
		"redirected to http://h.test/?q=1#a b c " + marker + ": EOF", "redirected to http://h.test/?q=a>" + marker,
		"redirected to http:opaque#a>" + marker, "redirected to /login#" + marker, "see urn:a@b#" + marker,
		"redirected to </login#" + marker + ">, `/login#" + marker + "`, a>/login#" + marker,
		"redirected to (/login#a " + marker + ")", "redirected to http://h.test/#a\t" + marker + ": EOF",
		"redirected to http://h.test/#a,\t" + marker, "redirected to http://h.test/#a, b, " + marker + ": EOF",
		"redirected to /login#a, " + marker, "redirected to http://h.test/#a\n" + marker,
		"next=http://h.test/#a " + marker, "see http://h.test:" + marker + "/ x, invalid port \":" + marker + "\"",
	} {
		assert.NotContains(t, written(here, errors.New(text)), marker, "%s", text)
	}
}

// Parts that are not secret stay, because they help to find the fault.
func TestTextsStayReadable(t *testing.T) {
	for text, want := range map[string]string{
		"read tcp 127.0.0.1:4711->127.0.0.1:80: connection reset": "",
		"dial tcp: lookup h.test on [::1]:53: no such host":       "",
		"stream error: stream ID 5; CANCEL":                       "",
		`unsupported protocol scheme "gopher"`:                    "",
		"issue #5: what now? nothing!":                            "",
		"mail to admin@h.test":                                    "",
		"see https://h.test/a/b:":                                 "",
		"GET http://h.test/@scope/name: bad gateway":              "",
		`a "quoted\tpart" and "another"`:                          "",
		`Get "http://h.test/a?b=c": EOF`:                          `Get "http://h.test/a?b=xxxxx": EOF`,
		"see (http://h.test/a?b=c&d=e).":                          "see (http://h.test/a?b=xxxxx&d=xxxxx).",
		"http://u:p@h.test:80/a#b: refused":                       "http://xxxxx@h.test:80/a: refused",
		"see <http://h.test/?b=c>. Or <http://h.test/#d>: EOF":    "see <http://h.test/?b=xxxxx>. Or <http://h.test/>: EOF",
		"GET http://h.test/?b=c failed":                           "GET http://h.test/?b=xxxxx failed",
		`to "ftp://h.test/a b?c=d"`:                               `to "ftp://h.test/a b?c=xxxxx"`,
		"see urn:isbn:1?a=b":                                      "see urn:isbn:1?a=xxxxx",
		`to "/\z?b=c"`:                                            `to "/\\z?b=xxxxx"`,
		`to "/a b?c=d`:                                            `to "/a b?c=xxxxx"`,
		"path /a/b#c. Not found":                                  "path /a/b. Not found",
		`parse "http://h.test:s c/": invalid port ":s c"`:         `parse "xxxxx": invalid port "xxxxx"`,
		`a "see http://h.test/?a=b now"`:                          `a "see http://h.test/?a=xxxxx now"`,
		`a lone? "`:                                               "",
		`parse "": empty url`:                                     "",
		"what??? 50%? ???":                                        "",
		"see <http://h.test/#d>":                                  "see <http://h.test/>",
		"http://h.test/#a>b":                                      "http://h.test/",
		`"" "http://h.test/a\u0020b?c=d"`:                         `"" "http://h.test/a%20b?c=xxxxx"`,
	} {
		assert.Equal(t, cmp.Or(want, text), redact.Text(errors.New(text)))
	}
}

// A server may repeat the query of a request in a line that net/http quotes.
func TestPartsOfTheKnownURL(t *testing.T) {
	const known = "http://h.test/a?token=" + marker + "2&short=abc&c=d%20" + marker + "%2F3&" + marker + "4"
	for text, want := range map[string]string{
		"line: /a?token=" + marker + "2&short=abc":                        "line: /a?token=xxxxx&xxxxx",
		"line: short=abc&token=" + marker + "2":                           "line: xxxxx&token=xxxxx",
		"line: " + marker + "2 is no token, abc is short":                 "line: xxxxx is no token, abc is short",
		"line: " + marker + "4":                                           "line: xxxxx",
		"line: \"c\" is \"d " + marker + "/3\" or d%20" + marker + "%2F3": "line: \"c\" is \"xxxxx\" or xxxxx",
	} {
		assert.Equal(t, want, redact.Text(errors.New(text), known))
	}
}

// A text is bounded, and the secrets at its end are hidden or left out.
func TestLongTextsAreShort(t *testing.T) {
	for _, part := range []string{"a", "a ", `"`, "http://h.test/ ", "?", "\x00", "ö"} {
		for n := 2000; n < 2060; n++ {
			text := "malformed MIME header line: " + strings.Repeat(part, n/len(part)) + " http://u:" + marker + "@h.test/?" + marker
			err := fmt.Errorf("%s%s", text, strings.Repeat(part, 1<<13/len(part)))
			for _, got := range []string{redact.Text(err), redact.Cause(err)} {
				require.Less(t, len(got), 9000, part)
				require.NotContains(t, got, marker, part)
				require.True(t, strings.HasPrefix(got, "malformed MIME header line: ") && strings.HasSuffix(got, "…"), got)
			}
		}
	}
	names := &x509.Certificate{DNSNames: []string{strings.Repeat("a", 1<<16)}}
	assert.Less(t, len(redact.Cause(x509.HostnameError{Certificate: names, Host: "h.test"})), 9000)
	assert.Equal(t, strings.Repeat("a", 2048), redact.Text(errors.New(strings.Repeat("a", 2048))))
}

// The cost of a redaction grows with the text, not with its square.
func TestLongTexts(t *testing.T) {
	for _, part := range []string{`"`, `\"`, `"\z`, "http://", "?", "u:p@", "/;a=", `"http://`, "http://h/#", "/#>", "/?>", "http://h/# "} {
		text := "? " + strings.Repeat(part, 1<<20/len(part))
		assert.NotPanics(t, func() { redact.Text(errors.New(text)) })
	}
}

// TestShownParts: what is no secret stays in a URL.
func TestShownParts(t *testing.T) {
	for text, want := range map[string]string{
		"https://h.test:8080/a/b":           "",
		"http://h.test/?a=1&b=&&c":          "http://h.test/?a=xxxxx&xxxxx&&xxxxx",
		"http://h.test/?" + long(40) + "=1": "http://h.test/?" + long(40) + "=xxxxx",
		"http://h.test/?" + long(41) + "=1": "http://h.test/?xxxxx",
		"http://h.test/a;b=1;c/d":           "http://h.test/a;b=xxxxx;c/d",
		"http://h.test/a;b=1;c=2;d/e":       "http://h.test/a;b=xxxxx;c=xxxxx;d/e",
		"http://h.test/a%3fb/c":             "http://h.test/xxxxx",
		"http://h.test/a%23b":               "http://h.test/xxxxx",
		"http://h.test//u@n/x":              "http://h.test//xxxxx@n/x",
		"http://h.test/a//u@n/x":            "http://h.test/a//xxxxx@n/x",
		"http://h.test/u@n/x":               "",
		"http://h.test/a%2Fb%40c":           "",
		"mailto:a@b":                        "mailto:xxxxx",
		"/a?b=c":                            "/a?b=xxxxx",
	} {
		u, err := url.Parse(text)
		require.NoError(t, err)
		assert.Equal(t, cmp.Or(want, text), redact.URL(u))
	}
	assert.Equal(t, "http://h.test/a?b=xxxxx", redact.URL(&url.URL{Scheme: "http", Opaque: "//h.test/a", RawQuery: "b=c"}))
	assert.Equal(t, "http://xxxxx@h?31m.test/a", redact.URL(&url.URL{Scheme: "http", Host: "u:p@h\u009b31m.test", Path: "/a"}))
	assert.Equal(t, "http:/a", redact.URL(&url.URL{Scheme: "http", Opaque: "/a"}))
	assert.Equal(t, "<nil>", redact.URL(nil))
	assert.Equal(t, "dial xxxxx@h.test: refused", redact.Text(errors.New("dial u:p@h.test: refused"), "http://u:p@h.test/"))
	assert.Equal(t, "mail to a@b", redact.Text(errors.New("mail to a@b"), "http://@h.test/"))
	assert.Equal(t, "to xxxxx", redact.Text(errors.New("to http://[::1"+marker), "http://[::1", "http://[::1"+marker), "the longest first")
	assert.Equal(t, "h.test:80", redact.Host("@h.test:80/a"))
	assert.Equal(t, "xxxxx@h.test", redact.Host("a@b@h.test"))
}

func long(n int) string { return strings.Repeat("n", n) }

func TestCause(t *testing.T) {
	day := time.Now().AddDate(0, 0, 3).UTC()
	names := &x509.Certificate{DNSNames: []string{"a.test", "b.test"}}
	dial := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, Err: fmt.Errorf("connect: %w", syscall.ECONNREFUSED)}
	for want, err := range map[string]error{
		"certificate expired on 2001-02-03": fmt.Errorf("x: %w", x509.CertificateInvalidError{
			Reason: x509.Expired, Cert: &x509.Certificate{NotAfter: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)}}),
		"certificate not valid before " + day.Format(time.DateOnly): x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{NotBefore: day}},
		"x509: certificate is not authorized to sign other certificates": x509.CertificateInvalidError{
			Reason: x509.NotAuthorizedToSign, Cert: &x509.Certificate{}},
		"certificate for a.test, not for h.test":      x509.HostnameError{Certificate: names, Host: "h.test"},
		"certificate not for xxxxx@h.test":            x509.HostnameError{Certificate: &x509.Certificate{}, Host: "u@h.test"},
		"certificate of an unknown authority":         x509.UnknownAuthorityError{},
		"no such host":                                &net.DNSError{Err: "NXDOMAIN", Name: "h.test", IsNotFound: true},
		"no address from the DNS: server misbehaving": &net.DNSError{Err: "server misbehaving", Name: "h.test"},
		"connection refused":                          &url.Error{Op: "Get", URL: "http://h.test/", Err: dial},
		"no connection in time":                       &net.OpError{Op: "dial", Net: "tcp", Err: deadline{}},
		"connection timed out":                        &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ETIMEDOUT},
		"i/o timeout":                                 &net.OpError{Op: "read", Net: "tcp", Err: deadline{}},
		"read tcp: http://h.test/?a=xxxxx":            &net.OpError{Op: "read", Net: "tcp", Err: errors.New("http://h.test/?a=b")},
		"odd":                                         &url.Error{Op: "Get", URL: "http://h.test/", Err: errors.New("odd")},
		`Put "x": odd`:                                errors.New(`Put "x": odd`),
		"two lines ?[31m":                             errors.New("transport: two\nlines \x1b[31m"),
		"transport: no":                               errors.New("transport: transport: no"),
	} {
		assert.Equal(t, want, redact.Cause(err))
	}
	assert.Equal(t, "127.0.0.1:80", redact.Addr(fmt.Errorf("x: %w", dial)))
	assert.Empty(t, redact.Addr(&net.OpError{}))
	assert.Empty(t, redact.Addr(io.EOF))
}

// A deadline is the error of a socket whose deadline has passed.
type deadline struct{}

func (deadline) Error() string { return "i/o timeout" }
func (deadline) Timeout() bool { return true }

func TestRough(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 1499 * time.Microsecond: time.Millisecond, 999400 * time.Microsecond: 999 * time.Millisecond,
		time.Second: time.Second, 1234 * time.Millisecond: 1230 * time.Millisecond, 9999 * time.Millisecond: 10 * time.Second,
		10 * time.Second: 10 * time.Second, 10234 * time.Millisecond: 10 * time.Second,
	} {
		assert.Equal(t, want, redact.Rough(d), d)
	}
	var s redact.Sentence
	s.Add(true, "%d", 1)
	s.Add(false, "%d", 2)
	assert.Equal(t, "1", s.String())
}

// FuzzRedaction puts the marker into the secret parts of a URL, with any text around it,
// and puts the URL into an error of any shape.
func FuzzRedaction(f *testing.F) {
	f.Add("q", "value", "frag", "user", uint64(1))
	f.Add("a=b&c", "%3D", "#", "u:p", uint64(2))
	f.Add("\"", "\\", " ", "@", uint64(3))
	f.Add("a@b", ":80", "#", "/", uint64(4))
	f.Fuzz(func(t *testing.T, a, b, c, d string, seed uint64) {
		if strings.Contains(a+b+c+d, marker) {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		u := &url.URL{Scheme: "http", Host: "h.test", Path: "/path"}
		switch r.IntN(8) {
		case 0:
			u.RawQuery = url.QueryEscape(a) + "=" + url.QueryEscape(b+marker+c)
		case 1:
			u.RawQuery = url.QueryEscape(a + marker + b)
		case 2:
			u.Fragment = a + marker + b
		case 3:
			u.User = url.UserPassword(a, b+marker+c)
		case 4:
			u.User = url.User(a + marker + b)
		case 5:
			u.Opaque = "//" + url.UserPassword(a, b+marker+c).String() + "@h.test/"
		case 6:
			u.Host = a + marker + b + "@h.test" + c
		case 7:
			u.Host = "h.test" + "/?#\\ "[r.IntN(5):][:1] + marker + a
		}
		text := u.String()
		err := []error{
			io.EOF,
			fmt.Errorf("%s", text),
			fmt.Errorf("%q", text),
			fmt.Errorf("x: (%s), and %q: %w", text, text, io.EOF),
			&url.Error{Op: d, URL: text, Err: errors.New(text)},
			fmt.Errorf("failed to parse Location header %q: %v", text, d),
			fmt.Errorf("dial tcp: lookup %s: no such host", u.Hostname()),
			fmt.Errorf("dial %q: refused", u.Host),
		}[r.IntN(8)]
		assert.NotContains(t, written(u, err), marker)
	})
}
