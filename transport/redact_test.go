package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
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
// fail with err. They are the text of the error, the log, the hooks and the snapshot.
func written(t testing.TB, u *url.URL, err error) string {
	t.Helper()
	var log testkit.Text
	var hosts []string
	tr := mustNew(t, transport.Config{
		Base:   script(status(503), faults.Fail(err)),
		Rule:   policy.Rule{MaxAttempts: 3, Classify: always}.Or(quick),
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Traces: []*transport.Trace{&transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) { hosts = append(hosts, e.Host) }}},
	})
	req := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}
	_, got := tr.RoundTrip(req.WithContext(t.Context()))
	require.Error(t, got)
	resume := transport.BodyError(req, got, err)
	e, ok := errors.AsType[*transport.Error](got)
	require.True(t, ok, "%T", got)
	copied := *e
	return fmt.Sprintln(got, log.String(), hosts, tr.Snapshot().Hosts, resume, transport.Explain(nil, got)) +
		fmt.Sprintf("%#v %#v %v %+v %#v", got, resume, copied, copied, copied)
}

// The texts about a request hold no secret of its URL.
func TestRequestURLsAreRedacted(t *testing.T) {
	urls := []*url.URL{
		{Scheme: "http", Host: "h.test", Opaque: "//u:" + marker + "@h.test/path?" + marker},
		{Scheme: "http", Host: marker + "@h.test:8080", Path: "/path"},
		{Scheme: "http", Host: "h.test/" + marker},
		{Scheme: "http", Host: "h.test", User: url.UserPassword("u", marker), Path: "/a;b=" + marker, RawQuery: "key=" + marker, Fragment: marker},
	}
	for _, u := range urls {
		for _, err := range []error{
			io.ErrUnexpectedEOF,
			fmt.Errorf("cannot reach %s: %w", u, io.EOF),
			fmt.Errorf("cannot reach %q, nor (%v)", u, u),
			&url.Error{Op: "Get", URL: u.String(), Err: errors.New("redirected to http://other.test/?" + marker)},
			&url.Error{Op: "Get", URL: u.String(), Err: &url.Error{Op: "Get", URL: "http://h.test:port/?" + marker, Err: io.EOF}},
			errors.Join(&url.Error{Op: "Get", URL: u.Redacted(), Err: io.EOF}, &url.Error{Op: "Get", URL: u.String() + "&b=" + marker, Err: io.EOF}),
			// The errors of a dial name the host alone.
			&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Name: u.Hostname(), Err: "no such host", IsNotFound: true}},
			fmt.Errorf("dial %s: refused", u.Host),
			fmt.Errorf("dial %q: refused", net.JoinHostPort(u.Hostname(), "80")),
		} {
			assert.NotContains(t, written(t, u, err), marker, "%#v and %q", u, err)
		}
	}
}

// net/http quotes a malformed header line. A server may repeat the query there, and make the line long.
func TestMalformedHeadersAreShortAndWithoutSecrets(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "h.test", Path: "/a", RawQuery: "key=" + marker}
	for _, line := range []string{
		"GET /a?key=" + marker, "no key=" + marker, "no such key " + marker,
		strings.Repeat("a", 8<<20) + marker, strings.Repeat("key="+marker+" ", 1<<20),
	} {
		text := written(t, u, textproto.ProtocolError("malformed MIME header line: "+line))
		assert.NotContains(t, text, marker, "%.40s", line)
		assert.Less(t, len(text), 1<<16, "%.40s", line)
	}
}

// always is a classifier that makes every error worth a retry.
func always(o classify.Outcome) classify.Class {
	if o.Err != nil {
		return classify.Ambiguous
	}
	return classify.Unknown
}

// TestNameOfAHostCostsNothing: each hook is told the name of its host, and building the name anew
// for each would cost an allocation.
func TestNameOfAHostCostsNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop()})
	mustRoundTrip(t, tr, getRequest(t, "https://api.example.com/v1/things"))
	s := tr.Hosts().Peek(&url.URL{Scheme: "https", Host: "api.example.com"})
	assert.Equal(t, "https://api.example.com", transport.SafeName(s))
	assert.Zero(t, testing.AllocsPerRun(100, func() { transport.SafeName(s) }))
}
