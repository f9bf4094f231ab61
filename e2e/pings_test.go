// Health checks of connections, with a server that counts them.

package e2e

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

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
