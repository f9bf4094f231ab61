// How can servers and clients talk without the kernel, in virtual time?

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

// backlog is how many connections wait for Accept; the next Dial waits, as it
// would for a kernel whose queue is full.
const backlog = 128

// A Net is a network in memory: host names, listeners and buffered stream
// connections that fail the way the kernel's TCP fails on Linux. Nothing in it
// leaves the process, nothing in it waits on anything but channels and
// package time, so all of it works inside a testing/synctest bubble, provided
// that NewNet is called inside the bubble.
//
// Any server can be put on it with [Net.Listen] and any client with
// [Net.DialContext]; Config.Net puts a [Server] on it. A Net is safe for
// concurrent use and needs no closing.
type Net struct {
	mu        sync.Mutex           // guards what follows; never held while waiting
	listeners map[string]*listener // by "host:port"
	hosts     map[string]bool      // names that were ever listened on: they resolve
	failures  map[string]error     // by host or "host:port"; see Fail
	nextPort  int                  // for clients and for port 0
	dials     int
}

// NewNet makes an empty network.
func NewNet() *Net {
	return &Net{
		listeners: map[string]*listener{},
		hosts:     map[string]bool{},
		failures:  map[string]error{},
		nextPort:  40000,
	}
}

// Listen opens a listener at addr, "host:port". Any host name will do; port 0
// picks one. It fails with EADDRINUSE where somebody listens already.
// The name resolves from then on, also after the listener was closed.
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

// DialContext connects to addr and has the signature that
// http.Transport.DialContext wants; network is ignored. Errors are those of a
// net.Dialer: a *net.OpError around ECONNREFUSED where nobody listens, around a
// *net.DNSError where the name was never listened on, around what Fail said, or
// around the context's end.
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
	case <-l.done: // looked at first, so that a closed listener never accepts
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
	return client, nil
}

// ErrBlackhole, given to [Net.Fail], makes dials hang until their context ends,
// as towards a host that drops every packet.
var ErrBlackhole = errors.New("testserver: no answer to SYN")

// Fail makes every later dial of target, a host name or "host:port", fail with
// err inside a *net.OpError: a *net.DNSError, a syscall.Errno such as
// EHOSTUNREACH, or [ErrBlackhole]. A nil err ends that.
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

// Dials counts the dials so far, those that failed included.
func (n *Net) Dials() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// know makes the host in addr resolve, before anybody listens there.
func (n *Net) know(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		n.hosts[strings.ToLower(host)] = true
	}
}

// lookup is the part of a dial that needs the lock: who is there, and which
// address the client gets.
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

// takePort hands out ports in order; the caller holds n.mu.
func (n *Net) takePort() int {
	n.nextPort++
	if n.nextPort > 65535 {
		n.nextPort = 40001
	}
	return n.nextPort
}

// hostKey spells an address in one way.
func hostKey(host, port string) string {
	return net.JoinHostPort(strings.ToLower(host), port)
}

// dialEnd is the error of a dial whose context ended: a deadline reads as a
// timeout, as it does from net.Dialer.
func dialEnd(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}

func errRefused() error { return os.NewSyscallError("connect", syscall.ECONNREFUSED) }

// An Addr is "host:port" on a Net.
type Addr string

// Network is "tcp": the connections behave like it.
func (Addr) Network() string { return "tcp" }

// String is the address as dialed.
func (a Addr) String() string { return string(a) }

// opError builds the *net.OpError that package net would build.
func opError(op string, local, remote net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: local, Addr: remote, Err: err}
}

// A listener accepts what DialContext puts into its queue. Closing done ends
// both sides; the queue itself is never closed, so that no send can panic.
type listener struct {
	net   *Net
	key   string
	queue chan *Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done: // first: after Close, Accept fails even if somebody waits
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

// Close refuses later dials and resets the connections nobody accepted.
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

// sweep resets what waits in the queue of a closed listener. Dial calls it too:
// its send may have come after Close looked.
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
