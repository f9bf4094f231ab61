package transport_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// marker is the secret of these tests.
const marker = "s3cret"

// written returns all texts that a Transport writes about a request to u if its attempts
// fail with err. They are the text of the error, the log, the events and the snapshot.
func written(t testing.TB, u *url.URL, err error) string {
	t.Helper()
	var log testkit.Text
	var hosts []string
	tr := mustNew(t, transport.Config{
		Base:   script(status(503), faults.Fail(err)),
		Rule:   policy.Rule{Attempts: 3, Classify: always}.Or(quick),
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Trace:  &transport.Trace{Event: func(e transport.Event) { hosts = append(hosts, e.Host) }},
	})
	req := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}
	_, got := tr.RoundTrip(req.WithContext(t.Context()))
	require.Error(t, got)
	resume := (&transport.ResumeError{Err: got, Cause: err}).Of(u.String())
	return fmt.Sprintln(got, log.String(), hosts, tr.Snapshot(), resume) + fmt.Sprintf("%#v %#v", got, resume)
}

// secretURLs hold the marker in each part of a URL that may be secret.
var secretURLs = []string{
	"http://h.test/?" + marker,
	"http://h.test/?token=" + marker,
	"http://h.test/?token%3D" + marker,
	"http://h.test/?token%3d" + marker + "=1",
	"http://h.test/?" + marker + "=",
	"http://h.test/?" + marker + "==",
	"http://h.test/?a=1&" + marker + "&b=2",
	"http://h.test/?a=1;token=" + marker,
	"http://h.test/?a;" + marker + "=1",
	"http://h.test/?q=" + "two words " + marker,
	"http://h.test/?q=\"quoted\" " + marker,
	"http://h.test/?next=http://u:" + marker + "@other.test/",
	"http://h.test?" + marker,
	"http://h.test/#" + marker,
	"http://h.test/#access_token=" + marker,
	"http://h.test/#a>" + marker,
	"http://h.test/#a\"" + marker,
	"http://h.test/#a`" + marker,
	"http://h.test/#a<" + marker,
	"http://h.test/#a " + marker,
	"http://h.test/?q=1#two words " + marker,
	"http://u:" + marker + "@h.test/",
	"http://" + marker + "@h.test/",
	"http://" + marker + ":@h.test/",
	"http://u:a%40" + marker + "@h.test:8080/",
	"http://h.test/a%3Ftoken=" + marker,
	"http://h.test/a;jsessionid=" + marker + "/b",
	"http://h.test/http://u:" + marker + "@other.test/",
	"http://h.test/http:%2F%2Fu%3A" + marker + "%40other.test/",
	"//u:" + marker + "@h.test/",
	"http:" + marker,
	"http:u:" + marker + "@h.test",
	"http:opaque?" + marker,
}

// The texts about a request hold no secret of its URL.
func TestRequestURLsAreRedacted(t *testing.T) {
	urls := []*url.URL{
		{Scheme: "http", Host: "h.test", Opaque: "//u:" + marker + "@h.test/path?" + marker},
		{Scheme: "http", Host: "h.test", Opaque: "//u:" + marker + "@h.test:bad/"},
		{Scheme: "http", Host: "h.test", Opaque: "u:" + marker + "@h.test"},
		{Scheme: "http", Host: "h.test", Opaque: "/path", RawQuery: marker},
		{Scheme: "http", Host: "u:" + marker + "@h.test"},
		{Scheme: "http", Host: "h.test?" + marker},
		{Scheme: "http", Host: "h.test#" + marker},
		{Scheme: "http", Host: "h.test/" + marker},
		{Scheme: "http", Host: marker + "@h.test"},
		{Scheme: "http", Host: marker + "@h.test:8080", Path: "/path"},
		{Scheme: "http", Host: "h.test#" + marker + ":8080"},
		{Scheme: "http", Host: "[::1]:80@" + marker + "@h.test"},
		{Scheme: "http", Host: "h.test", Path: "/a?token=" + marker},
		{Scheme: "http", Host: "h.test", Path: "/a#" + marker},
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
			fmt.Errorf("dial %s: refused", u.Host),
			fmt.Errorf("dial %q: refused", net.JoinHostPort(u.Hostname(), "80")),
		} {
			assert.NotContains(t, written(t, u, err), marker, "%#v and %q", u, err)
		}
	}
}

// A base transport's error may name any URL, such as that of a redirect.
func TestURLsInErrorsAreRedacted(t *testing.T) {
	here, err := url.Parse("http://h.test/")
	require.NoError(t, err)
	broken := []string{
		"http://u:" + marker + "/@h.test/", // the password ends the host
		"http://u:pass word" + marker + "@h.test/",
		"http://h.test:" + marker + "/",
		"http://h.test/%zz?token=" + marker,
		"http://[::1" + marker + "/",
		"ht tp://h.test/?" + marker,
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
			assert.NotContains(t, written(t, here, err), marker, "%q in %T %q", s, err, err)
		}
	}
	for _, text := range []string{
		"redirected to /login?" + marker,
		"redirected to \"/login?q=a " + marker + "\"",
		"lookup u:" + marker + "@h.test: no such host",
		`{"url":"http://h.test/?` + marker + `","n":1}`,
		"see <http://h.test/?" + marker + ">.",
		"proxy=http://u:" + marker + "@proxy.test:3128",
		`the text ends early: "http://h.test/?q=a ` + marker,
		"http://h.test/a,http://u:" + marker + "@h.test/",
		"/login?next=http://h.test/&token=" + marker,
		`"a" "b\" "http://h.test/?` + marker,
		"redirected to http://h.test/#a>" + marker,
		"redirected to http://h.test/#a\"" + marker,
		"redirected to http://h.test/#a`" + marker,
		"redirected to (http://h.test/#a<b>" + marker + "): EOF",
		"redirected to http://h.test/#a " + marker,
		"redirected to http://h.test/?q=1#a b c " + marker + ": EOF",
		"redirected to http://h.test/?q=a>" + marker,
		"redirected to http:opaque#a>" + marker,
		"redirected to /login#" + marker,
		"redirected to (/login#a " + marker + ")",
		"redirected to http://h.test/#a\t" + marker + ": EOF",
		"redirected to http://h.test/#a,\t" + marker,
		"redirected to http://h.test/#a, b, " + marker + ": EOF",
		"redirected to /login#a, " + marker,
		"redirected to http://h.test/#a\n" + marker,
	} {
		assert.NotContains(t, written(t, here, errors.New(text)), marker, "%s", text)
	}
}

// Parts that are not secret stay, because they help to find the fault.
func TestRedactedTextsStayReadable(t *testing.T) {
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
		"see <http://h.test/?b=c> and <http://h.test/#d>: EOF":    "see <http://h.test/?b=xxxxx> and <http://h.test/>: EOF",
		"GET http://h.test/?b=c failed":                           "GET http://h.test/?b=xxxxx failed",
		"path /a/b#c: not found":                                  "path /a/b: not found",
	} {
		if want == "" {
			want = text
		}
		assert.Equal(t, want, transport.SafeText(errors.New(text)))
	}
}

// The cost of a redaction grows with the text, not with its square.
func TestRedactionOfLongTexts(t *testing.T) {
	for _, part := range []string{`"`, `\"`, `"\z`, "http://", "?", "u:p@", "/;a=", `"http://`, "http://h/#", "/#>", "/?>", "http://h/# "} {
		text := strings.Repeat(part, 1<<20/len(part))
		assert.NotPanics(t, func() { transport.SafeText(errors.New(text)) })
	}
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
		assert.NotContains(t, written(t, u, err), marker)
	})
}

// always is a classifier that makes every error worth a retry.
func always(o classify.Outcome) classify.Verdict {
	if o.Err != nil {
		return classify.Ambiguous
	}
	return classify.Unknown
}

// TestNameOfAHostCostsNothing: each event names its host, and building the name anew
// for each would cost an allocation.
func TestNameOfAHostCostsNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop()})
	mustRoundTrip(t, tr, getRequest(t, "https://api.example.com/v1/things"))
	s := tr.Hosts().Peek(&url.URL{Scheme: "https", Host: "api.example.com"})
	assert.Equal(t, "https://api.example.com", transport.SafeName(s))
	assert.Zero(t, testing.AllocsPerRun(100, func() { transport.SafeName(s) }))
}
