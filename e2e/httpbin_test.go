// go-httpbin as the server.

package e2e

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mccutchen/go-httpbin/v2/httpbin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A binBench has a client with aplomb, and a bare client, of a go-httpbin behind a
// network with faults.
type binBench struct {
	*server
	*network
	bare, hc *http.Client
	r        *recorder
}

func newHTTPBin(t testing.TB, rule policy.Rule) *binBench {
	s := newServer(t, func(string) http.Handler {
		return httpbin.New(httpbin.WithMaxBodySize(4<<20), httpbin.WithMaxDuration(time.Minute))
	})
	b := &binBench{server: s, network: newNetwork(t, s.url)}
	b.bare = &http.Client{Transport: base(t, b.network, false)}
	b.hc, b.r = under(t, base(t, b.network, false), rule, nil)
	return b
}

// do makes a request and returns the response with its body, which was read.
func (b *binBench) do(ctx context.Context, t testing.TB, hc *http.Client, method, path string, body []byte, header ...string) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, bytes.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return resp, got, err
}

// everySecond refuses every second request, beginning with the first.
func everySecond(n int, w http.ResponseWriter, req *http.Request) bool {
	return n%2 == 1 && busyUntil(n+1)(n, w, req)
}

// The caller gets the last status, after as many attempts as the table of the README
// says.
func TestHTTPBinStatus(t *testing.T) {
	b := newHTTPBin(t, policy.Rule{Budget: policy.Budget{Burst: policy.Off}})
	tests := []struct {
		method           string
		status, attempts int
	}{
		{http.MethodGet, 500, 6}, {http.MethodGet, 502, 6}, {http.MethodPut, 503, 6}, {http.MethodDelete, 504, 6},
		{http.MethodGet, 408, 6}, {http.MethodGet, 429, 6},
		{http.MethodPost, 500, 1}, {http.MethodPost, 503, 1}, {http.MethodPost, 425, 6},
		{http.MethodGet, 404, 1}, {http.MethodGet, 418, 1}, {http.MethodGet, 501, 1}, {http.MethodGet, 505, 1}, {http.MethodGet, 511, 1},
	}
	for _, test := range tests {
		b.answer(nil)
		resp, _, err := b.do(bounded(t), t, b.hc, test.method, fmt.Sprint("/status/", test.status), nil)
		require.NoError(t, err)
		assert.Equal(t, test.status, resp.StatusCode)
		assert.Equal(t, test.attempts, b.seen(), "%s %d", test.method, test.status)
	}

	b.answer(nil)
	resp, _, err := b.do(bounded(t), t, b.hc, http.MethodGet, "/response-headers?Retry-After=1", nil)
	require.NoError(t, err)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	assert.Equal(t, 1, b.seen(), "a Retry-After with a 200")
}

// A request that was misdirected is sent again over other connections only.
func TestHTTPBinMisdirected(t *testing.T) {
	b := newHTTPBin(t, policy.Rule{})
	b.answer(nil)
	resp, _, err := b.do(bounded(t), t, b.hc, http.MethodPost, "/status/421", nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)
	assert.Greater(t, b.seen(), 1)
	assert.Equal(t, b.dialled(), b.seen(), "each attempt has a connection of its own")
}

// Half of all requests fail at random.
func TestHTTPBinUnstable(t *testing.T) {
	b := newHTTPBin(t, policy.Rule{Attempts: 40, Budget: policy.Budget{Burst: policy.Off}})
	failed := func(hc *http.Client) (n int) {
		for range 40 {
			resp, _, err := b.do(bounded(t), t, hc, http.MethodGet, "/unstable", nil)
			require.NoError(t, err)
			if resp.StatusCode != http.StatusOK {
				n++
			}
		}
		return n
	}
	require.NotZero(t, failed(b.bare))
	assert.Zero(t, failed(b.hc))
}

// A response that comes too late is an error in either case. With aplomb each attempt
// has a time of its own.
func TestHTTPBinDelay(t *testing.T) {
	b := newHTTPBin(t, policy.Rule{Attempts: 3, AttemptTimeout: 100 * time.Millisecond})
	ctx, cancel := context.WithTimeout(bounded(t), 100*time.Millisecond)
	defer cancel()
	_, _, err := b.do(ctx, t, b.bare, http.MethodGet, "/delay/50", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	b.answer(nil)
	_, _, err = b.do(bounded(t), t, b.hc, http.MethodGet, "/delay/50", nil)
	require.ErrorIs(t, err, policy.ErrAttemptTimeout)
	gaveUp := &transport.Error{}
	require.ErrorAs(t, err, &gaveUp)
	assert.Equal(t, transport.ReasonAttempts, gaveUp.Reason)
	assert.Len(t, gaveUp.Attempts, 3)
}

// A drip has no validator, so it is fetched again if it stands still. If it does so each time, it
// ends with an error.
func TestHTTPBinDrip(t *testing.T) {
	t.Parallel()
	b := newHTTPBin(t, policy.Rule{Stall: policy.Stall{Timeout: impatient}})
	ctx, cancel := context.WithTimeout(bounded(t), impatient)
	defer cancel()
	_, _, err := b.do(ctx, t, b.bare, http.MethodGet, "/drip?numbytes=10&duration=50s&delay=0s", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	b.answer(nil)
	_, got, err := b.do(bounded(t), t, b.hc, http.MethodGet, "/drip?numbytes=10&duration=50s&delay=0s", nil)
	require.ErrorIs(t, err, transport.ErrStalled)
	assert.Less(t, len(got), 10)
	assert.Equal(t, 1+policy.Defaults().Resume.Max, b.seen())

	patience, _ := under(t, base(t, b.network, false), policy.Rule{Stall: policy.Stall{Timeout: patient}}, nil)
	_, got, err = b.do(bounded(t), t, patience, http.MethodGet, "/drip?numbytes=10&duration=500ms&delay=0s", nil)
	require.NoError(t, err)
	assert.Equal(t, "**********", string(got))
}

// A response without a rest to ask for is fetched again. If it is always cut at the same
// byte, or is another one each time, it ends with an error and keeps what was read. The
// ETag of /range has no quotes. The body of /etag tells the fields of the request,
// so it differs for the rest although the strong ETag is the same.
func TestHTTPBinCuts(t *testing.T) {
	pad := strings.Repeat("x", 4000)
	tests := []struct {
		path, accept string
		cut          int
		reason       transport.Reason // of the last event
	}{
		{path: "/range/100000", cut: 50_000, reason: transport.ReasonResumeMax},
		{path: "/etag/strong?pad=" + pad, cut: 3000, reason: transport.ReasonMismatch},
		{path: "/stream/100", cut: 5000, reason: transport.ReasonResumeMax},
		{path: "/bytes/100000?seed=1", cut: 50_000, reason: transport.ReasonResumeMax},
		{path: "/drip?numbytes=100000&duration=0s&delay=0s", cut: 50_000, reason: transport.ReasonResumeMax},
		{path: "/gzip", cut: 300, reason: transport.ReasonNotResumable}, // so few bytes without a length may be a stream
		{path: "/gzip", accept: "gzip", cut: 300, reason: transport.ReasonResumeMax},
	}
	for _, test := range tests {
		endpoint := strings.FieldsFunc(test.path, func(r rune) bool { return r == '/' || r == '?' })[0]
		t.Run(endpoint+" "+test.accept, func(t *testing.T) {
			b := newHTTPBin(t, policy.Rule{})
			var header []string
			if test.accept != "" {
				header = []string{"Accept-Encoding", test.accept}
			}
			_, want, err := b.do(bounded(t), t, b.hc, http.MethodGet, test.path, nil, header...)
			require.NoError(t, err)
			for _, cut := range [][]toxic{cutAfter(down, test.cut), resetAfter(down, test.cut)} {
				require.NoError(t, b.set(cut...))
				_, _, err = b.do(bounded(t), t, b.bare, http.MethodGet, test.path, nil, header...)
				require.Error(t, err, "bare")
				before := len(b.r.told())
				resp, got, err := b.do(bounded(t), t, b.hc, http.MethodGet, test.path, nil, header...)
				require.Error(t, err)
				require.NotNil(t, resp)
				assert.Less(t, len(got), len(want))
				if !strings.HasPrefix(test.path, "/gzip") { // whose content tells the moment
					assert.True(t, bytes.HasPrefix(want, got))
				}
				told := b.r.told()[before:]
				if assert.NotEmpty(t, told) {
					assert.Equal(t, test.reason, told[len(told)-1].Reason)
				}

				healed, _ := under(t, base(t, b.network, false), policy.Rule{}, func(int, transport.Event) { assert.NoError(t, b.set()) })
				_, got, err = b.do(bounded(t), t, healed, http.MethodGet, test.path, nil, header...)
				if test.reason == transport.ReasonMismatch || test.reason == transport.ReasonNotResumable {
					require.Error(t, err)
					continue
				}
				require.NoError(t, err, "cut once")
				if !strings.HasPrefix(test.path, "/gzip") {
					assert.True(t, bytes.Equal(want, got))
				}
			}
		})
	}
}

// Redirects are followed above aplomb, so each hop has attempts of its own. A 307
// carries the body on.
func TestHTTPBinRedirect(t *testing.T) {
	b := newHTTPBin(t, policy.API())
	b.answer(everySecond)
	resp, _, err := b.do(bounded(t), t, b.bare, http.MethodGet, "/redirect/3", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)

	b.answer(everySecond)
	resp, _, err = b.do(bounded(t), t, b.hc, http.MethodGet, "/redirect/3", nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, 8, b.seen())
	assert.Len(t, b.r.told(), 4)

	b.answer(everySecond)
	resp, got, err := b.do(bounded(t), t, b.hc, http.MethodPost, "/redirect-to?status_code=307&url=/post", []byte("text"), "Content-Type", "text/plain")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	var told struct{ Data string }
	require.NoError(t, json.Unmarshal(got, &told))
	assert.Equal(t, "text", told.Data)
	assert.Equal(t, 4, b.seen())
}

// Conditional requests and their fields survive a refusal, and their results are
// final.
func TestHTTPBinConditions(t *testing.T) {
	b := newHTTPBin(t, policy.Rule{})
	for _, test := range []struct {
		name, value string
		status      int
	}{
		{"If-None-Match", `"v1"`, http.StatusNotModified},
		{"If-Match", `"v2"`, http.StatusPreconditionFailed},
		{"Range", "bytes=0-9", http.StatusPartialContent},
		{"Range", "bytes=90000-", http.StatusRequestedRangeNotSatisfiable},
	} {
		b.answer(everySecond)
		resp, _, err := b.do(bounded(t), t, b.bare, http.MethodGet, "/etag/v1", nil, test.name, test.value)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		b.answer(everySecond)
		resp, _, err = b.do(bounded(t), t, b.hc, http.MethodGet, "/etag/v1", nil, test.name, test.value)
		require.NoError(t, err)
		assert.Equal(t, test.status, resp.StatusCode)
		assert.Equal(t, 2, b.seen())
	}
}

// A challenge is final, and its answer survives a refusal. So do trailers.
func TestHTTPBinDigestAndTrailers(t *testing.T) {
	b := newHTTPBin(t, policy.Rule{})
	const path = "/digest-auth/auth/user/password"
	resp, _, err := b.do(bounded(t), t, b.hc, http.MethodGet, path, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	assert.Equal(t, 1, b.seen())

	hash := func(parts ...string) string { return fmt.Sprintf("%x", md5.Sum([]byte(strings.Join(parts, ":")))) }
	challenge := resp.Header.Get("Www-Authenticate")
	nonce := regexp.MustCompile(`nonce=(\w+)`).FindStringSubmatch(challenge)
	require.Len(t, nonce, 2, challenge)
	answer := hash(hash("user", "go-httpbin", "password"), nonce[1], "00000001", "c", "auth", hash("GET", path))
	authorization := fmt.Sprintf(`Digest username="user", realm="go-httpbin", nonce="%s", uri="%s", qop=auth, nc=00000001, cnonce="c", response="%s"`, nonce[1], path, answer)
	for _, hc := range []*http.Client{b.bare, b.hc} {
		b.answer(everySecond)
		resp, _, err = b.do(bounded(t), t, hc, http.MethodGet, path, nil, "Authorization", authorization)
		require.NoError(t, err)
		if hc == b.bare {
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		}
	}
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, 2, b.seen())

	b.answer(everySecond)
	resp, _, err = b.do(bounded(t), t, b.hc, http.MethodGet, "/trailers?X-End=yes", nil)
	require.NoError(t, err)
	assert.Equal(t, "yes", resp.Trailer.Get("X-End"))
	assert.Equal(t, 2, b.seen())
}

// An upload that is cut is sent again whole if it is a PUT. A POST may have been
// acted on.
func TestHTTPBinUpload(t *testing.T) {
	body := content(1 << 20)
	for _, test := range []struct {
		method string
		again  bool
	}{{http.MethodPut, true}, {http.MethodPost, false}} {
		t.Run(test.method, func(t *testing.T) {
			b := newHTTPBin(t, policy.Rule{})
			require.NoError(t, b.set(resetAfter(up, 300_000)...))
			_, _, err := b.do(bounded(t), t, b.bare, test.method, "/upload", body)
			require.Error(t, err)
			b.r.on = func(int, transport.Event) { assert.NoError(t, b.set()) }
			_, got, err := b.do(bounded(t), t, b.hc, test.method, "/upload", body)
			told := b.r.told()
			require.Len(t, told, 1)
			if !test.again {
				require.Error(t, err)
				assert.Equal(t, transport.ReasonNotIdempotent, told[0].Reason)
				return
			}
			require.NoError(t, err)
			var received struct {
				N int `json:"bytes_received"`
			}
			require.NoError(t, json.Unmarshal(got, &received))
			assert.Equal(t, len(body), received.N)
		})
	}
}

// The socket of go-httpbin is another implementation than that of the client.
func TestHTTPBinWebSocket(t *testing.T) {
	b := newHTTPBin(t, policy.Rule{})
	b.answer(everySecond)
	_, err := dial(bounded(t), setup{http: b.bare, url: b.url}, "/websocket/echo")
	require.Error(t, err)
	b.answer(everySecond)
	c, err := dial(bounded(t), setup{http: b.hc, url: b.url}, "/websocket/echo?max_fragment_size=65536&max_message_size=65536")
	require.NoError(t, err)
	defer func() { _ = c.CloseNow() }()
	for i := range 10 {
		want := bytes.Repeat([]byte{byte(i)}, 10_000)
		require.NoError(t, c.Write(bounded(t), 2, want))
		_, got, err := c.Read(bounded(t))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got))
	}
	assert.Equal(t, 2, b.seen())
}
