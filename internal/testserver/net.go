// A network in memory, for virtual time.

package testserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// backlog is the number of connections that can wait for Accept. If the queue is
// full, the next dial waits, as it does with the kernel's queue.
const backlog = 128

// A Net is a network in memory. It has host names, listeners and connections, and
// these fail the way TCP fails on Linux. No byte leaves the process. A Net waits
// only on channels and timers, so it works inside a testing/synctest bubble if
// NewNet is called inside that bubble.
//
// Any server can use [Net.Listen] and any client [Net.DialContext]. To put a
// [Server] on a Net, set Config.Net. A Net is safe for concurrent use and need
// not be closed.
type Net struct {
	mu        sync.Mutex           // guards the fields below; never held while waiting
	listeners map[string]*listener // the key is "host:port"
	hosts     map[string]bool      // names that resolve: some server has listened on them
	failures  map[string]error     // the key is a host or "host:port"; see Fail
	muted     map[string]bool      // the key is a host or "host:port"; see Mute
	conns     map[*Conn]bool       // the clients' ends of the open connections
	nextPort  int                  // the last port given to a client or to port 0
	dials     int
}

// NewNet returns an empty network.
func NewNet() *Net {
	return &Net{
		listeners: map[string]*listener{},
		hosts:     map[string]bool{},
		failures:  map[string]error{},
		muted:     map[string]bool{},
		conns:     map[*Conn]bool{},
		nextPort:  40000,
	}
}

// Listen opens a listener at addr, which is "host:port" with any host name. If the
// port is 0, Listen picks a port. If the address already has a listener, Listen
// fails with EADDRINUSE. From now on the host name resolves, even after the
// listener is closed.
func (n *Net) Listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == "0" {
		port = strconv.Itoa(n.takePort())
	}
	key := hostKey(host, port)
	if n.listeners[key] != nil {
		return nil, opError("listen", Addr(key), nil, os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	l := &listener{net: n, key: key, queue: make(chan *Conn, backlog), done: make(chan struct{})}
	n.listeners[key] = l
	n.hosts[strings.ToLower(host)] = true
	return l, nil
}

// DialContext connects to addr. It fits http.Transport.DialContext and ignores
// network. Its error is a *net.OpError, like that of a net.Dialer. The OpError
// wraps ECONNREFUSED if addr has no listener, a *net.DNSError if the host name
// never had a listener, or the error given to [Net.Fail]. If the context ends,
// the OpError wraps its error, or os.ErrDeadlineExceeded after a deadline.
func (n *Net) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	key := hostKey(host, port)
	l, local, err := n.lookup(host, key)
	switch {
	case errors.Is(err, ErrBlackhole):
		<-ctx.Done()
		return nil, opError("dial", nil, Addr(key), dialEnd(ctx))
	case err != nil:
		return nil, opError("dial", nil, Addr(key), err)
	}
	client, server := newPair(local, Addr(key))
	select {
	case <-l.done: // checked first, because select could choose the queue even then
		return nil, opError("dial", nil, Addr(key), errRefused())
	default:
	}
	select {
	case l.queue <- server:
	case <-l.done:
		return nil, opError("dial", nil, Addr(key), errRefused())
	case <-ctx.Done():
		return nil, opError("dial", nil, Addr(key), dialEnd(ctx))
	}
	l.sweep()
	n.opened(host, key, client)
	return client, nil
}

// opened registers a connection, so that Silence finds it.
func (n *Net) opened(host, key string, c *Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.muted[key] || n.muted[strings.ToLower(host)] {
		c.Silence()
	}
	n.conns[c] = true
	c.closed = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, c)
	}
}

// Silence makes the open connections to target silent (see [Conn.Silence]). The target is
// a host name or "host:port". Later connections work. It returns how many it has silenced.
func (n *Net) Silence(target string) (silenced int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if matches(target, string(c.remote)) {
			c.Silence()
			silenced++
		}
	}
	return silenced
}

// endSilent resets the silent connections, whose ends would wait for ever.
func (n *Net) endSilent() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		for _, h := range [...]*half{c.in, c.out} {
			h.with(func() { h.silent, h.reset = false, h.reset || h.silent })
		}
	}
}

// Mute chooses whether later connections to target are silent from their beginning. They
// are accepted, like those of a host whose process hangs.
func (n *Net) Mute(target string, muted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.muted[strings.ToLower(target)] = muted
}

// Open returns the number of open connections to target, as the clients see them.
func (n *Net) Open(target string) (open int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if matches(target, string(c.remote)) {
			open++
		}
	}
	return open
}

// matches reports whether addr, which is "host:port", belongs to target.
func matches(target, addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	return strings.EqualFold(target, addr) || strings.EqualFold(target, host)
}

// ErrBlackhole is an error for [Net.Fail]. It makes dials hang until their context
// ends, as if the host dropped every packet.
var ErrBlackhole = errors.New("testserver: no answer to SYN")

// Fail makes every later dial of target fail with err inside a *net.OpError. The
// target is a host name or "host:port". Typical errors are a *net.DNSError, a
// syscall.Errno such as EHOSTUNREACH, and [ErrBlackhole]. If err is nil, dials of
// target work again.
func (n *Net) Fail(target string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	target = strings.ToLower(target)
	if err == nil {
		delete(n.failures, target)
		return
	}
	n.failures[target] = err
}

// Dials returns the number of dials so far, including dials that failed.
func (n *Net) Dials() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// know makes the host in addr resolve before it has a listener.
func (n *Net) know(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		n.hosts[strings.ToLower(host)] = true
	}
}

// lookup returns the listener for a dial and the client's own address. It is the
// part of DialContext that needs the lock.
func (n *Net) lookup(host, key string) (*listener, Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials++
	host = strings.ToLower(host)
	if err := n.failures[key]; err != nil {
		return nil, "", err
	}
	if err := n.failures[host]; err != nil {
		return nil, "", err
	}
	l := n.listeners[key]
	switch _, notIP := netip.ParseAddr(host); {
	case l != nil:
		return l, Addr("client.test:" + strconv.Itoa(n.takePort())), nil
	case notIP == nil || n.hosts[host]:
		return nil, "", errRefused()
	}
	return nil, "", &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// takePort returns the next port; the lock is held.
func (n *Net) takePort() int {
	n.nextPort++
	if n.nextPort > 65535 {
		n.nextPort = 40001
	}
	return n.nextPort
}

// hostKey returns the key of an address. The case of the host does not matter.
func hostKey(host, port string) string {
	return net.JoinHostPort(strings.ToLower(host), port)
}

// dialEnd returns the error of a dial whose context has ended. Like net.Dialer, it
// reports a deadline as os.ErrDeadlineExceeded.
func dialEnd(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}

func errRefused() error { return os.NewSyscallError("connect", syscall.ECONNREFUSED) }

// An Addr is "host:port" on a Net.
type Addr string

// Network returns "tcp", because the connections behave like TCP.
func (Addr) Network() string { return "tcp" }

// String returns "host:port".
func (a Addr) String() string { return string(a) }

// opError wraps err in a *net.OpError as package net does.
func opError(op string, local, remote net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: local, Addr: remote, Err: err}
}

// A listener accepts the connections that DialContext puts into its queue. Closing
// done ends both dials and Accept. The queue is never closed, because a dial
// could be sending to it.
type listener struct {
	net   *Net
	key   string
	queue chan *Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done: // checked first, because select could choose the queue even then
		return nil, opError("accept", Addr(l.key), nil, net.ErrClosed)
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, opError("accept", Addr(l.key), nil, net.ErrClosed)
	}
}

// Close refuses later dials and resets the connections that still wait for Accept.
func (l *listener) Close() error {
	err := opError("close", Addr(l.key), nil, net.ErrClosed)
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, l.key)
		l.net.mu.Unlock()
		close(l.done)
		l.sweep()
		err = nil
	})
	return err
}

// sweep resets the connections that wait in the queue of a closed listener.
// DialContext calls it too, because its send can come after Close has swept.
func (l *listener) sweep() {
	select {
	case <-l.done:
	default:
		return
	}
	for {
		select {
		case c := <-l.queue:
			_ = c.SetLinger(0)
			_ = c.Close()
		default:
			return
		}
	}
}

func (l *listener) Addr() net.Addr { return Addr(l.key) }
