// The connection of an attempt, as the base transport tells it.

package attempt

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// A Link is the connection of one attempt. The base transport tells it by the hooks of
// net/http/httptrace. It may call them from goroutines of its own, and also after the
// attempt. A base transport that calls no hooks tells nothing. The nil link belongs to an
// attempt whose connection nobody needs to know.
type Link struct {
	out   Outgoing // the copy that the attempt sends
	trace httptrace.ClientTrace
	ctx   *attemptContext

	asked atomic.Bool // a connection is wanted
	got   atomic.Bool // there was one, so the server may have seen the request

	mu     sync.Mutex // guards remote
	remote net.Addr
}

func (l *Link) getConn(string) {
	l.asked.Store(true)
	l.ctx.seekConnection()
}

func (l *Link) gotConn(info httptrace.GotConnInfo) {
	l.got.Store(true)
	if info.Conn != nil {
		func() {
			// net/http never asks a user's connection for its address, so a connection that cannot
			// tell it is used like any other.
			defer func() { _ = recover() }()
			remote := info.Conn.RemoteAddr()
			l.mu.Lock()
			l.remote = remote
			l.mu.Unlock()
		}()
	}
	l.ctx.connect()
}

// Connected reports whether the attempt surely had a connection.
func (l *Link) Connected() bool { return l != nil && l.got.Load() }

// Unsent reports whether the attempt surely never had a connection. That a connection was
// there and no byte was written would prove nothing: over HTTP/2 the hooks that say so may
// come after the server has acted.
func (l *Link) Unsent() bool { return l != nil && l.asked.Load() && !l.got.Load() }

// ConnectedLate reports whether an attempt had a connection although err says that there was
// none in time. The base transport may send a request over a connection that comes in the
// same moment as the end of the context.
func (l *Link) ConnectedLate(err error) bool {
	return l.Connected() && errors.Is(err, errUnconnected)
}

// Addr returns the address of the server or the proxy, or "" if it is not known.
func (l *Link) Addr() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remote == nil {
		return ""
	}
	return l.remote.String()
}

// Untraced returns a context without the caller's ClientTrace. A trace of its own covers the
// hooks for package net, which have a key that nobody else can name.
func Untraced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(untraced{ctx}, &httptrace.ClientTrace{DNSStart: func(httptrace.DNSStartInfo) {}})
}

// untraced hides a ClientTrace.
type untraced struct{ context.Context }

func (u untraced) Value(key any) any {
	v := u.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}
