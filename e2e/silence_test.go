// Connections of HTTP/2: those that die without a word, under clients that use them for all
// their requests, and health checks with a server that counts them.

package e2e

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A client whose only connection swallows all bytes makes a slow attempt for each of two downloads, and
// then goes on over a new connection. Without other pools all its attempts go over the dead connection.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []client{s3Client(), azureClient(), githubClient()} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, n, r := overTLS(t, c, policy.Rule{AttemptTimeout: patient})
			require.NoError(t, s.download(bounded(t)))
			require.NoError(t, n.silence())
			for range 2 {
				require.NoError(t, s.download(bounded(t)))
			}
			told := r.told()
			require.Len(t, told, 2)
			for _, e := range told {
				assert.Equal(t, transport.ReasonRetry, e.Reason)
				require.ErrorIs(t, e.Attempt.Err, policy.ErrAttemptTimeout)
			}
			for range 20 {
				require.NoError(t, s.download(bounded(t)))
			}
			assert.Len(t, r.told(), 2, "the other requests need one attempt")
			assert.LessOrEqual(t, n.dialled(), 3, "a connection beside the current pool is kept for 2 s")
		})
	}
}

// overTLS opens a client with a Transport and without its own retries. Its server speaks
// HTTP/2 over TLS, and has seen no other protocol.
func overTLS(t *testing.T, c client, rule policy.Rule) (session, *network, *recorder) {
	s := startServer(t, true, func(url string) http.Handler {
		next := c.serve(t, url)
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			assert.Equal(t, 2, req.ProtoMajor)
			next.ServeHTTP(w, req)
		})
	})
	n := newNetwork(t, s.url)
	b := &http.Transport{DialContext: n.dial, TLSClientConfig: &tls.Config{RootCAs: s.roots}, ForceAttemptHTTP2: true}
	t.Cleanup(b.CloseIdleConnections)
	hc, r := under(t, b, rule.Or(c.rule), nil)
	return c.open(t, setup{http: hc, url: s.url}), n, r
}

// A server of gRPC allows three pings on a connection over which it sends nothing, answers
// the fourth with GOAWAY and ENHANCE_YOUR_CALM, and closes the connection a second later. So
// the period of the pings decides how long a stream may be silent there. With the period of
// aplomb's default base, 30 s, that is two minutes. Pings that are 5 min apart do not count.
func TestPingsThatAreCounted(t *testing.T) {
	for _, row := range []struct{ period, ended time.Duration }{ // ended: 0 is not within an hour
		{10 * time.Second, 40 * time.Second},
		{30 * time.Second, 2 * time.Minute},
		{time.Minute, 4 * time.Minute},
		{6 * time.Minute, 0},
		{0, 0},
	} {
		t.Run(row.period.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := testserver.NewNet()
				ln, err := n.Listen("counts.test:80")
				require.NoError(t, err)
				const silence = time.Hour
				server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
					select {
					case <-s.Context().Done():
					case <-time.After(silence):
					}
					return nil
				}))
				served := make(chan error, 1)
				go func() { served <- server.Serve(ln) }()
				base := &http.Transport{
					DialContext: n.DialContext,
					Protocols:   new(http.Protocols),
					HTTP2:       &http.HTTP2Config{SendPingTimeout: row.period, PingTimeout: time.Minute},
				}
				base.Protocols.SetUnencryptedHTTP2(true)

				body, end := io.Pipe() // a call that is under way
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://counts.test/service/method", body)
				require.NoError(t, err)
				req.Header.Set("Content-Type", "application/grpc")
				req.Header.Set("Te", "trailers")
				start := time.Now()
				resp, err := base.RoundTrip(req)
				if row.ended == 0 {
					require.NoError(t, err)
					assert.Equal(t, silence, time.Since(start))
					_ = resp.Body.Close()
				} else {
					assert.Equal(t, row.ended+time.Second, time.Since(start))
					assert.ErrorContains(t, err, "ENHANCE_YOUR_CALM")
				}
				_ = end.Close()
				base.CloseIdleConnections()
				server.Stop()
				require.NoError(t, <-served)
			})
		})
	}
}
