// The connection of an attempt, as the base transport tells it.

package transport

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/lane"
)

// A link is the connection of one attempt. The base transport tells it by the hooks of
// net/http/httptrace. It may call them from goroutines of its own, and also after the
// attempt. A base transport that calls no hooks tells nothing. The nil link belongs to an
// attempt whose connection nobody needs to know.
type link struct {
	trace httptrace.ClientTrace
	ctx   *attemptContext
	opens *lane.Lane // the attempt makes the first connection of this lane; nil: of none

	asked atomic.Bool // a connection is wanted
	got   atomic.Bool // there was one, so the server may have seen the request

	mu     sync.Mutex // guards remote
	remote net.Addr
}

// hook returns a context with which the base transport tells about the attempt.
func (l *link) hook(ctx context.Context) context.Context {
	l.trace.GetConn, l.trace.GotConn = l.getConn, l.gotConn
	if l.opens != nil {
		// Not GotConn: net/http offers a new connection of HTTP/2 to other requests a
		// little later.
		l.trace.WroteHeaders = l.opens.Connected
	}
	return httptrace.WithClientTrace(ctx, &l.trace)
}

func (l *link) getConn(string) {
	l.asked.Store(true)
	l.ctx.connecting()
}

func (l *link) gotConn(info httptrace.GotConnInfo) {
	l.got.Store(true)
	if info.Conn != nil {
		remote := remoteOf(info.Conn)
		l.mu.Lock()
		l.remote = remote
		l.mu.Unlock()
	}
	l.ctx.connected()
}

// remoteOf returns the address at the other end of a connection. net/http never asks a
// user's connection for it, so a connection that cannot tell it is used like any other.
func remoteOf(conn net.Conn) (remote net.Addr) {
	defer func() { _ = recover() }()
	return conn.RemoteAddr()
}

// unsent reports whether the attempt surely never had a connection. That a connection was
// there and no byte was written would prove nothing: over HTTP/2 the hooks that say so may
// come after the server has acted.
func (l *link) unsent() bool { return l != nil && l.asked.Load() && !l.got.Load() }

// connectedLate reports whether an attempt had a connection although err says that there was
// none in time. The base transport may send a request over a connection that comes in the
// same moment as the end of the context.
func (l *link) connectedLate(err error) bool {
	return l != nil && l.got.Load() && errors.Is(err, errUnconnected)
}

// addr returns the address of the server or the proxy, or "" if it is not known.
func (l *link) addr() string {
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

// laneWait bounds how long an attempt waits for the connection that another attempt makes
// for both. After that it makes one of its own.
const laneWait = time.Second

// awaitLane waits until the lane of the next attempt is connected, unless this attempt is
// to make the connection. If the host moves to another lane meanwhile, it waits for that
// one, within the same laneWait. It reports whether it waited. Nothing is sent meanwhile,
// and no timeout of an attempt runs.
func (x *exchange) awaitLane() (waited bool) {
	var until time.Time
	for x.ctx.Err() == nil {
		to := x.via
		if lanes := x.state.LanesMade(); to == nil && lanes != nil && x.rule.lanes {
			to = lanes.Current()
		}
		if to.IsConnected() || !x.comes(to) {
			break
		}
		if !waited {
			until = time.Now().Add(laneWait)
			if latest := x.latest(); !latest.IsZero() && latest.Before(until) {
				until = latest
			}
		}
		waited = true
		wait := time.Until(until)
		if wait <= 0 {
			break
		}
		x.sleeper.sleep(x.ctx, wait, to.Ready())
	}
	return waited
}

// comes reports whether another attempt makes the first connection of a lane. If nobody
// does, the next attempt of this exchange does, and the lane is noted for it.
func (x *exchange) comes(to *lane.Lane) bool {
	if to.IsConnected() || to == x.opens {
		return false
	}
	x.opens.Connected() // it takes another lane now
	if x.opens = nil; to.Ahead() {
		x.opens = to
		return false
	}
	return true
}
