// TLS alerts that come when a connection has been made.

package transport_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// alert is an error as crypto/tls reports an alert of the peer.
func alert(code uint8) error {
	return &net.OpError{Op: "remote error", Net: "tcp", Err: tls.AlertError(code)}
}

const (
	unexpectedMessage, internalError = 10, 80
	badCertificate, protocolVersion  = 42, 70
)

// The body of a response comes after the handshake. So an alert cuts the connection, unless it is
// about certificates or the two configurations. The reader gets the base's own error.
func TestAlertInABody(t *testing.T) {
	for code, whole := range map[uint8]bool{unexpectedMessage: true, internalError: true, badCertificate: false, protocolVersion: false} {
		inBubble(t, alert(code).Error(), func(t *testing.T) {
			own := alert(code)
			base := script(cutWith(own, "01234", `ETag: "v1"`), func(req *http.Request) (*http.Response, error) {
				return newResponse(req, 206, testkit.CutAt("56789", io.EOF), `ETag: "v1"`, "Content-Range: bytes 5-9/10"), nil
			})
			got := do(over(t, transport.Config{Rule: quick}, base), getRequest(t, "http://h.test/"))
			if whole {
				assert.NoError(t, got.err)
				assert.Equal(t, "0123456789", got.body)
			} else {
				assert.True(t, got.err == own, "%T", got.err)
				assert.Equal(t, "01234", got.body)
			}
		})
	}
}

// If an attempt surely had a connection, an alert came after its handshake. Without that it may be
// the response to the handshake, which the next would get as well.
func TestAlertAfterTheHandshake(t *testing.T) {
	for name, row := range map[string]struct {
		code     uint8
		got      bool
		attempts int
	}{
		"after":              {internalError, true, 2},
		"perhaps in it":      {internalError, false, 1},
		"about certificates": {badCertificate, true, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			own := alert(row.code)
			base := rt(func(req *http.Request) (*http.Response, error) {
				if trace := httptrace.ContextClientTrace(req.Context()); row.got {
					trace.GetConn("h.test:443")
					trace.GotConn(httptrace.GotConnInfo{})
				}
				return nil, own
			})
			seen := &recorder{}
			rule := policy.Rule{ConnectTimeout: time.Minute, Attempts: 2}.Or(quick)
			_, err := mustNew(t, transport.Config{Base: base, Rule: rule, Trace: seen.trace()}).RoundTrip(getRequest(t, "https://h.test/"))
			require.ErrorIs(t, err, own)
			require.Len(t, seen.all, row.attempts)
			assert.True(t, seen.all[0].Err == own, "%T", seen.all[0].Err)
			assert.Equal(t, map[int]classify.Verdict{1: classify.Final, 2: classify.Ambiguous}[row.attempts], seen.all[0].Verdict)
		})
	}
}
