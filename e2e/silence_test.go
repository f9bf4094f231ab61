// Connections of HTTP/2 that die without a word, under clients that use them for all
// their requests.

package e2e

import (
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
