package transport_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// overServer is a Transport over a server in memory, in a bubble.
func overServer(t *testing.T, c transport.Config, s testserver.Config, steps ...testserver.Step) (*http.Client, *testserver.Server) {
	t.Helper()
	s.Net = testserver.NewNet()
	srv := testserver.Start(t, s, steps...)
	c.Base = srv.Transport()
	tr := mustNew(t, c)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}, srv
}

var protocols = map[string]testserver.Config{
	"http1": {},
	"http2": {HTTP2: true},
	"tls":   {TLS: testserver.Trusted},
}

func TestStalledBodyIsResumed(t *testing.T) {
	for name, config := range protocols {
		inBubble(t, name, func(t *testing.T) {
			body := testserver.Pattern(100_000)
			content := testserver.Content(body, `"v1"`)
			c, srv := overServer(t, transport.Config{Rule: policy.Rule{StallTimeout: 20 * time.Second}.Or(exact)}, config,
				content.CutAt(10_000, testserver.Stall), content)
			start := time.Now()
			resp, err := c.Get(srv.URL)
			require.NoError(t, err)
			assert.Equal(t, testserver.Hash(body), testserver.Hash([]byte(mustRead(t, resp))))
			assert.Equal(t, 21*time.Second, time.Since(start), "the stall, and a back-off")
			require.NoError(t, resp.Body.Close())
		})
	}
}

// A body that cannot be resumed ends with a timeout.
func TestStalledBodyTimesOut(t *testing.T) {
	for name, config := range protocols {
		inBubble(t, name, func(t *testing.T) {
			c, srv := overServer(t, transport.Config{Rule: policy.Rule{StallTimeout: 20 * time.Second, Resume: policy.Off}}, config,
				testserver.OK("0123456789").CutAt(4, testserver.Stall))
			start := time.Now()
			resp, err := c.Get(srv.URL)
			require.NoError(t, err)
			time.Sleep(time.Hour) // the caller's own time does not count
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, "0123", string(got))
			assert.ErrorIs(t, err, policy.ErrStallTimeout)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, transport.IsTimeout(err))
			assert.Equal(t, classify.ErrorTimeout, classify.ErrorTypeOf(err))
			assert.Equal(t, "transport: no progress for 20s", err.Error())
			assert.Equal(t, time.Hour+20*time.Second, time.Since(start))
			_, again := resp.Body.Read(make([]byte, 1))
			assert.ErrorIs(t, again, policy.ErrStallTimeout)
			require.NoError(t, resp.Body.Close())
		})
	}
}

func TestStalledHeadersAreRetried(t *testing.T) {
	for name, config := range protocols {
		inBubble(t, name, func(t *testing.T) {
			c, srv := overServer(t, transport.Config{Rule: policy.Rule{StallTimeout: 20 * time.Second}.Or(exact)}, config,
				testserver.Hang(), testserver.OK("hello"))
			start := time.Now()
			resp, err := c.Get(srv.URL)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, time.Since(start), 21*time.Second)
			assert.LessOrEqual(t, time.Since(start), 28*time.Second)
			require.NoError(t, resp.Body.Close())
		})
	}
}

// The shorter of the two timeouts ends the wait for headers, and the error names it.
func TestStallAndAttemptTimeout(t *testing.T) {
	for _, row := range []struct {
		stall, attempt time.Duration
		want           error
	}{
		{time.Second, 2 * time.Second, policy.ErrStallTimeout},
		{2 * time.Second, time.Second, policy.ErrAttemptTimeout},
	} {
		bubble(t, func(t *testing.T) {
			c, srv := overServer(t, transport.Config{Rule: policy.Rule{StallTimeout: row.stall, AttemptTimeout: row.attempt, MaxAttempts: 1}},
				testserver.Config{}, testserver.Hang())
			start := time.Now()
			_, err := c.Get(srv.URL)
			assert.ErrorIs(t, err, row.want)
			assert.Equal(t, time.Second, time.Since(start))
		})
	}
}

// A server that reads no more of the request's body stalls the attempt. A slow reader of
// the caller does not.
func TestStalledUpload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := rt(func(req *http.Request) (*http.Response, error) {
			defer func() { _ = req.Body.Close() }()
			p := make([]byte, 1)
			for range 3 {
				_, err := req.Body.Read(p)
				assert.NoError(t, err)
			}
			<-req.Context().Done() // the connection's buffers are full
			return nil, context.Cause(req.Context())
		})
		src := oneShot("0123456789")
		src.onRead = func() { time.Sleep(time.Minute) }
		start := time.Now()
		tr := over(t, transport.Config{Rule: policy.Rule{StallTimeout: 20 * time.Second, MaxAttempts: 1}}, base)
		_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", src))
		assert.ErrorIs(t, err, policy.ErrStallTimeout)
		assert.Equal(t, 3*time.Minute+20*time.Second, time.Since(start))
	})
}

// AttemptTimeout does not run while the body is sent, however slowly.
func TestAttemptTimeoutAndSlowUpload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := rt(func(req *http.Request) (*http.Response, error) {
			defer func() { _ = req.Body.Close() }()
			for {
				if _, err := req.Body.Read(make([]byte, 1)); err == io.EOF {
					return play(req, status(200))
				}
				time.Sleep(5 * time.Second)
				if req.Context().Err() != nil {
					return nil, context.Cause(req.Context())
				}
			}
		})
		tr := over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: time.Second, StallTimeout: 20 * time.Second, MaxAttempts: 1}}, base)
		_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", oneShot("0123456789")))
		assert.NoError(t, err)
	})
}
