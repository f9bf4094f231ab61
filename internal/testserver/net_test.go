// The network in memory. Tests of its connections also run over TCP, because both
// must fail in the same way.

package testserver_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
)

// A stream has the methods of connections over TCP and in memory.
type stream interface {
	net.Conn
	CloseWrite() error
	SetLinger(int) error
}

// pairs runs a test over TCP, and in a synctest bubble in memory.
func pairs(t *testing.T, test func(t *testing.T, client, server stream)) {
	t.Run("tcp", func(t *testing.T) {
		l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		c := testkit.Must(net.Dial("tcp", l.Addr().String()))(t)
		pair(t, l, c, test)
	})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := ts.NewNet()
			l := testkit.Must(n.Listen("a.test:80"))(t)
			c := testkit.Must(n.DialContext(t.Context(), "tcp", "A.test:80"))(t)
			pair(t, l, c, test)
		})
	})
}

func pair(t *testing.T, l net.Listener, c net.Conn, test func(t *testing.T, client, server stream)) {
	s := testkit.Must(l.Accept())(t)
	defer l.Close()
	defer c.Close()
	defer s.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	require.NoError(t, s.SetDeadline(time.Now().Add(patience)))
	assert.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
	assert.Equal(t, c.RemoteAddr().String(), s.LocalAddr().String())
	test(t, c.(stream), s.(stream))
}

func write(t *testing.T, w io.Writer, text string) {
	n := testkit.Must(io.WriteString(w, text))(t)
	require.Equal(t, len(text), n)
}

func TestConnHalfClose(t *testing.T) {
	pairs(t, func(t *testing.T, c, s stream) {
		write(t, c, "ping")
		require.NoError(t, c.CloseWrite())
		b := testkit.Must(io.ReadAll(s))(t)
		assert.Equal(t, "ping", string(b))
		_, err := io.WriteString(c, "more")
		assert.ErrorIs(t, err, syscall.EPIPE)
		write(t, s, "pong")
		require.NoError(t, s.Close())
		b = testkit.Must(io.ReadAll(c))(t)
		assert.Equal(t, "pong", string(b))
	})
}

func TestConnReset(t *testing.T) {
	pairs(t, func(t *testing.T, c, s stream) {
		write(t, s, "last words")
		require.NoError(t, s.SetLinger(0))
		require.NoError(t, s.Close())
		b, err := io.ReadAll(c)
		assert.Equal(t, "last words", string(b))
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		assert.ErrorAs(t, err, new(*net.OpError))
		_, err = io.WriteString(c, "x")
		assert.Error(t, err)
		_, err = s.Read(make([]byte, 1))
		assert.ErrorIs(t, err, net.ErrClosed)
		_, err = s.Write([]byte("x"))
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.ErrorIs(t, s.Close(), net.ErrClosed)
	})
}

func TestConnResetWakesReader(t *testing.T) {
	pairs(t, func(t *testing.T, c, s stream) {
		go func() {
			_ = s.SetLinger(0)
			_ = s.Close()
		}()
		_, err := c.Read(make([]byte, 1))
		assert.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

func TestConnCloseWithUnreadBytesResets(t *testing.T) {
	pairs(t, func(t *testing.T, c, s stream) {
		write(t, c, "unread")
		_, err := io.ReadFull(s, make([]byte, 1)) // now the rest has arrived, too
		require.NoError(t, err)
		require.NoError(t, s.Close())
		_, err = c.Read(make([]byte, 1))
		assert.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

func TestConnWriteAfterPeerClosed(t *testing.T) {
	pairs(t, func(t *testing.T, c, s stream) {
		require.NoError(t, s.Close())
		_, err := c.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		write(t, c, "swallowed")
		_, err = c.Write([]byte("x"))
		assert.ErrorIs(t, err, syscall.EPIPE)
	})
}

func TestConnDeadlines(t *testing.T) {
	pairs(t, func(t *testing.T, c, s stream) {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, err := c.Read(make([]byte, 1))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		assert.True(t, ne.Timeout())

		write(t, s, "there")
		_, err = c.Read(make([]byte, 1))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		testkit.Must(io.ReadFull(c, make([]byte, 5)))(t)

		require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Millisecond)))
		_, err = io.Copy(c, zeros{}) // writes until there is no room
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

// A new deadline also ends a Read that waits already.
func TestConnDeadlineWhileWaiting(t *testing.T) {
	pairs(t, func(t *testing.T, c, s stream) {
		done := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			done <- err
		}()
		require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
		assert.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
	})
}

func TestConnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := ts.NewNet()
		l := testkit.Must(n.Listen("a.test:80"))(t)
		defer l.Close()
		c := testkit.Must(n.DialContext(t.Context(), "tcp", "a.test:80"))(t)
		s := testkit.Must(l.Accept())(t)

		wrote := 0
		done := make(chan error)
		go func() {
			for {
				k, err := c.Write(make([]byte, 1000))
				wrote += k
				if err != nil {
					done <- err
					return
				}
			}
		}()
		synctest.Wait() // until the writer waits for room
		assert.Equal(t, 65000, wrote)
		testkit.Must(io.ReadFull(s, make([]byte, 1000)))(t)
		synctest.Wait()
		assert.Equal(t, 66000, wrote)
		require.NoError(t, s.Close())
		assert.ErrorIs(t, <-done, syscall.ECONNRESET)
	})
}

func TestDialErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := ts.NewNet()
		dial := func(addr string, timeout time.Duration) error {
			c, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			conn, err := n.DialContext(c, "tcp", addr)
			if err == nil {
				conn.Close()
				return nil
			}
			var op *net.OpError
			require.ErrorAs(t, err, &op)
			assert.Equal(t, "dial", op.Op)
			return err
		}
		var dns *net.DNSError
		require.ErrorAs(t, dial("a.test:80", time.Second), &dns)
		assert.True(t, dns.IsNotFound)
		assert.ErrorIs(t, dial("10.0.0.1:80", time.Second), syscall.ECONNREFUSED)

		l := testkit.Must(n.Listen("a.test:0"))(t)
		addr := l.Addr().String()
		_, err := n.Listen(addr)
		assert.ErrorIs(t, err, syscall.EADDRINUSE)
		assert.NoError(t, dial(addr, time.Second))
		assert.ErrorIs(t, dial("a.test:80", time.Second), syscall.ECONNREFUSED)

		n.Fail("A.test", &net.DNSError{Err: "server misbehaving", Name: "a.test", IsTemporary: true})
		require.ErrorAs(t, dial(addr, time.Second), &dns)
		assert.True(t, dns.IsTemporary)
		n.Fail("a.test", ts.ErrBlackhole)
		begin := time.Now()
		err = dial(addr, time.Minute)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(begin))
		n.Fail("a.test", nil)
		assert.NoError(t, dial(addr, time.Second))

		require.NoError(t, l.Close())
		assert.ErrorIs(t, dial(addr, time.Second), syscall.ECONNREFUSED)
		_, err = l.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.Equal(t, 8, n.Dials(), "dials")
	})
}

// Without Accept the queue holds 128 connections, and the next dial waits. If the
// listener closes, it resets them all.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := ts.NewNet()
		l := testkit.Must(n.Listen("a.test:80"))(t)
		var first net.Conn
		for i := range 128 {
			c := testkit.Must(n.DialContext(t.Context(), "tcp", "a.test:80"))(t)
			if i == 0 {
				first = c
			}
		}
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.DialContext(c, "tcp", "a.test:80")
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, l.Close())
		_, err = first.Read(make([]byte, 1))
		assert.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

// Any http.Server can listen on the network.
func TestNetCarriesHTTPServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := ts.NewNet()
		l := testkit.Must(n.Listen("api.test:80"))(t)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		})}
		go func() { _ = srv.Serve(l) }()
		defer func() { _ = srv.Close() }()
		tr := &http.Transport{DialContext: n.DialContext}
		defer tr.CloseIdleConnections()
		resp := testkit.Must((&http.Client{Transport: tr}).Get("http://api.test/"))(t)
		resp.Body.Close()
		assert.Equal(t, 200, resp.StatusCode)
	})
}
