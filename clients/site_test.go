// Servers of providers, and their clients with and without a Transport.

package clients

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A site is a server in memory, over TLS and under the name of a provider. So clients need no
// other URL than their own.
type site struct {
	*ts.Server
	t     *testing.T
	began time.Time
}

// newSite starts a server in the bubble of t.
func newSite(t *testing.T, cfg ts.Config) *site {
	t.Helper()
	cfg.Net, cfg.TLS = ts.NewNet(), ts.Trusted
	return &site{Server: ts.Start(t, cfg), t: t, began: time.Now()}
}

// plain returns a client of net/http alone.
func (s *site) plain() *http.Client { return &http.Client{Transport: s.Transport()} }

// under returns a client with a Transport.
func (s *site) under(rule policy.Rule) *http.Client {
	s.t.Helper()
	tr, err := transport.New(transport.Config{Base: s.Transport(), Rule: rule})
	require.NoError(s.t, err)
	return &http.Client{Transport: tr}
}

// early returns how many requests came after the first and before a time since the server's
// beginning.
func (s *site) early(until time.Duration) (n int) {
	for _, a := range s.Log()[1:] {
		if a.Time.Before(s.began.Add(until)) {
			n++
		}
	}
	return n
}

// inMemory calls f in a bubble, where time is virtual.
func inMemory(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// bounded is the context of a call that must end.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// json answers with a status and a body of JSON.
func json(code int, body string) ts.Step {
	return ts.Status(code).Header("Content-Type", "application/json").Body(body)
}

// busyFor answers with a step for the first time after it is made, and then as next says.
func busyFor(d time.Duration, step ts.Step, next func(*ts.Received) ts.Step) func(*ts.Received) ts.Step {
	end := time.Now().Add(d)
	return func(r *ts.Received) ts.Step {
		if time.Now().Before(end) {
			return step
		}
		return next(r)
	}
}

// firstly answers the first n requests with a step, and then as next says.
func firstly(n int, step ts.Step, next func(*ts.Received) ts.Step) func(*ts.Received) ts.Step {
	return func(r *ts.Received) ts.Step {
		if r.N <= n {
			return step
		}
		return next(r)
	}
}

// serveHTTP serves a handler of net/http in memory, under any name. It returns a client.
func serveHTTP(t *testing.T, handler http.Handler) *http.Client {
	t.Helper()
	wire := ts.NewNet()
	l, err := wire.Listen("server:80")
	require.NoError(t, err)
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // its error is that of Close
	}()
	base := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return wire.DialContext(ctx, network, "server:80")
	}}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		_ = server.Close()
		<-done
	})
	return &http.Client{Transport: base}
}
