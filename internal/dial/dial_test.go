package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// A world is a network in memory with a name that has several addresses.
type world struct {
	*testserver.Net
	d *Dialer

	mu     sync.Mutex
	ips    []netip.Addr
	dialed []string        // the addresses, in order
	late   map[string]bool // their connections come 10 s late
	asked  int             // look-ups
	far    time.Duration   // to connect
}

func newWorld(t *testing.T, ips ...string) *world {
	w := &world{Net: testserver.NewNet(), late: map[string]bool{}}
	for _, ip := range ips {
		w.ips = append(w.ips, netip.MustParseAddr(ip))
		l, err := w.Listen(net.JoinHostPort(ip, "443"))
		require.NoError(t, err)
		go func() {
			for {
				if _, err := l.Accept(); err != nil {
					return
				}
			}
		}()
		t.Cleanup(func() { _ = l.Close() })
	}
	w.d = With(w.dial, func(context.Context, string, string) ([]netip.Addr, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked++
		return w.ips, nil
	})
	return w
}

func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ip, _, _ := net.SplitHostPort(addr)
	w.mu.Lock()
	w.dialed = append(w.dialed, ip)
	late := w.late[ip]
	w.mu.Unlock()
	if late {
		time.Sleep(10 * time.Second) // a dialer that does not look at its context
	}
	select {
	case <-time.After(w.far):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return w.Net.DialContext(ctx, network, addr)
}

// order returns the addresses in the order of the next dial.
func (w *world) order() string { return fmt.Sprint(w.d.memory.order("api.test:443", w.ips)) }

// connect dials the name and returns the address that it got, with the time that it took.
func (w *world) connect(ctx context.Context) (to string, took time.Duration, err error) {
	w.mu.Lock()
	w.dialed = nil
	w.mu.Unlock()
	start := time.Now()
	conn, err := w.d.DialContext(ctx, "tcp", "api.test:443")
	if err != nil {
		return "", time.Since(start), err
	}
	to, _, _ = net.SplitHostPort(conn.RemoteAddr().String())
	return to, time.Since(start), conn.Close()
}

func TestAddressesInTurn(t *testing.T) {
	refused := syscall.ECONNREFUSED
	for _, c := range []struct {
		name   string
		faults map[string]error
		to     string
		took   time.Duration
		dialed string
	}{
		{"the first address connects", nil, "192.0.2.1", 0, "192.0.2.1"},
		{"the first address refuses, and the next has its turn at once", map[string]error{"192.0.2.1": refused}, "2001:db8::1", 0, "192.0.2.1 2001:db8::1"},
		{"the first address drops packets, and the next has its turn after the stagger", map[string]error{"192.0.2.1": testserver.ErrBlackhole}, "2001:db8::1", 250 * time.Millisecond, "192.0.2.1 2001:db8::1"},
		{"two addresses drop packets", map[string]error{"192.0.2.1": testserver.ErrBlackhole, "2001:db8::1": testserver.ErrBlackhole}, "192.0.2.2", 500 * time.Millisecond, "192.0.2.1 2001:db8::1 192.0.2.2"},
		{"an address refuses while another is silent", map[string]error{"192.0.2.1": testserver.ErrBlackhole, "2001:db8::1": refused}, "192.0.2.2", 250 * time.Millisecond, "192.0.2.1 2001:db8::1 192.0.2.2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "192.0.2.1", "192.0.2.2", "2001:db8::1")
			for ip, err := range c.faults {
				w.Fail(ip, err)
			}
			to, took, err := w.connect(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.to, to, c.name)
			assert.Equal(t, c.took, took, c.name)
			assert.Equal(t, c.dialed, strings.Join(w.dialed, " "), "the families take turns (RFC 8305 §4)")
		})
	}
}

// All addresses of a name are well, and far away. Ten dials at once or in turn make two connections more
// than ten. If addresses are dead, no dial waits for the others.
func TestAddressesThatAreFarAway(t *testing.T) {
	var ips []string
	for i := range 6 {
		ips = append(ips, fmt.Sprint("192.0.2.", i+1))
	}
	for _, far := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, 280 * time.Millisecond, 600 * time.Millisecond, 1500 * time.Millisecond} {
		for _, dead := range []int{0, 1, 2} {
			for _, together := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, ips...)
					w.far = far
					for i := range dead {
						w.Fail(ips[i], testserver.ErrBlackhole)
					}
					var all sync.WaitGroup
					for i := range 10 {
						all.Go(func() {
							if !together {
								time.Sleep(time.Duration(i) * 20 * time.Second)
							}
							begun := time.Now()
							conn, err := w.d.DialContext(t.Context(), "tcp", "api.test:443")
							if assert.NoError(t, err) {
								assert.NoError(t, conn.Close())
							}
							assert.LessOrEqual(t, time.Since(begun), time.Duration(dead)*max(stagger, 2*far)+far+stagger+stagger/10, "%v, %d dead", far, dead)
						})
					}
					all.Wait()
					if dead == 0 && far < time.Second {
						w.mu.Lock()
						assert.LessOrEqual(t, len(w.dialed), 12, "%v, together %v", far, together)
						w.mu.Unlock()
					}
				})
			}
		}
	}
}

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory{names: map[string]*name{}}
		ip := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }
		for i := range 17 {
			m.fail("a", ip(i))
		}
		assert.Equal(t, []netip.Addr{ip(0), ip(99), ip(1), ip(16)}, m.order("a", []netip.Addr{ip(1), ip(16), ip(0), ip(99)}), "the oldest of 17 is forgotten")
		time.Sleep(remembered)
		m.fail("a", ip(2))
		assert.Len(t, m.names["a"].failed, 1)
		most := 0
		for i := range 2000 {
			m.fail(fmt.Sprint(i), ip(0))
			most = max(most, len(m.names))
		}
		assert.Equal(t, 1024, most, "names")
		v6 := netip.MustParseAddr("2001:db8::1")
		assert.Equal(t, []netip.Addr{v6, ip(1), ip(2)}, m.order("new", []netip.Addr{v6, ip(1), ip(2)}))
		assert.Equal(t, []netip.Addr{ip(1), v6, ip(2)}, m.order("new", []netip.Addr{ip(1), ip(2), v6}))
	})
}

func TestAddressesThatFailedComeLast(t *testing.T) {
	for _, fault := range []error{syscall.ECONNREFUSED, testserver.ErrBlackhole} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "192.0.2.1", "192.0.2.2")
			w.Fail("192.0.2.1", fault)
			_, _, err := w.connect(t.Context())
			require.NoError(t, err)
			to, took, err := w.connect(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "192.0.2.2", to)
			assert.Zero(t, took)
			assert.Equal(t, []string{"192.0.2.2"}, w.dialed, "the address that failed is not tried again yet")

			w.Fail("192.0.2.1", nil)
			time.Sleep(remembered)
			to, _, err = w.connect(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "192.0.2.1", to, "the failure is forgotten after a while")

			to, _, err = w.connect(Elsewhere(t.Context(), netip.MustParseAddr("192.0.2.1")))
			require.NoError(t, err)
			assert.Equal(t, "192.0.2.2", to, "an address that failed a request comes last, too")
		})
	}
}

func TestAllAddressesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "192.0.2.1", "192.0.2.2")
		w.Fail("192.0.2.1", syscall.ECONNREFUSED)
		w.Fail("192.0.2.2", syscall.EHOSTUNREACH)
		_, took, err := w.connect(t.Context())
		assert.ErrorIs(t, err, syscall.ECONNREFUSED, "the error of the first address")
		assert.Zero(t, took)
		_, _, err = w.connect(t.Context())
		assert.ErrorIs(t, err, syscall.ECONNREFUSED, "both failed, so the one that failed first comes first")
	})
}

func TestTheContextEndsADial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "192.0.2.1", "192.0.2.2")
		w.Fail("192.0.2.1", testserver.ErrBlackhole)
		w.Fail("192.0.2.2", testserver.ErrBlackhole)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, took, err := w.connect(ctx)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
		assert.Equal(t, time.Second, took)

		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, took, err = w.connect(Elsewhere(ctx, netip.MustParseAddr("192.0.2.1")))
		require.Error(t, err)
		assert.Equal(t, 100*time.Millisecond, took)
		assert.Equal(t, []string{"192.0.2.2"}, w.dialed)
		assert.Equal(t, "[192.0.2.2 192.0.2.1]", w.order(), "100 ms say nothing about an address")
	})
}

// closeCounter counts how often a connection is closed.
type closeCounter struct {
	net.Conn
	closed *atomic.Int32
}

func (c closeCounter) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

func TestAConnectionThatComesLateIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "192.0.2.1", "192.0.2.2")
		w.late["192.0.2.1"] = true
		var closed atomic.Int32
		d := With(func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := w.dial(context.WithoutCancel(ctx), network, addr)
			if err != nil {
				return nil, err
			}
			return closeCounter{conn, &closed}, nil
		}, w.d.lookup)
		conn, err := d.DialContext(t.Context(), "tcp", "api.test:443")
		require.NoError(t, err)
		assert.Equal(t, "192.0.2.2:443", conn.RemoteAddr().String())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 1, closed.Load(), "times closed")
		require.NoError(t, conn.Close())
		assert.EqualValues(t, 2, closed.Load(), "times closed")

		w = newWorld(t, "192.0.2.3", "192.0.2.4")
		w.late["192.0.2.3"] = true
		w.Fail("192.0.2.4", syscall.ECONNREFUSED)
		_, took, err := w.connect(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, took)
		assert.Equal(t, "[192.0.2.3 192.0.2.4]", w.order(), "the address that connected has not failed")
	})
}

// What is no name, or not for all families, is left to the dial. A dial that goes elsewhere takes an address for failed
// that nobody has named, unless one has failed lately.
func TestElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2001:db8::1", "192.0.2.1")
		for _, addr := range []string{"192.0.2.1:443", ":443", "api.test"} {
			_, _ = w.d.DialContext(t.Context(), "tcp", addr)
		}
		_, _ = w.d.DialContext(t.Context(), "tcp4", "api.test:443")
		assert.Zero(t, w.asked, "nothing to look up")
		assert.Equal(t, []string{"192.0.2.1", "", "", "api.test"}, w.dialed)

		for range 3 {
			to, _, err := w.connect(Elsewhere(t.Context(), netip.Addr{}))
			require.NoError(t, err)
			assert.Equal(t, "192.0.2.1", to)
			time.Sleep(40 * time.Second)
		}
		to, _, err := w.connect(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "192.0.2.1", to, "the other failed 40 s ago")
	})
}

// TestNew says which transports are dialled by address.
func TestNew(t *testing.T) {
	dialer := &net.Dialer{Timeout: time.Second}
	tls := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no") }
	for _, c := range []struct {
		name string
		base *http.Transport
		ok   bool
	}{
		{"net/http's own dialling", &http.Transport{}, true},
		{"http.DefaultTransport", http.DefaultTransport.(*http.Transport), true},
		{"the method of a net.Dialer", &http.Transport{DialContext: dialer.DialContext}, true},
		{"a func that calls the method of a net.Dialer", &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addr)
		}}, false},
		{"the method of another type", &http.Transport{DialContext: testserver.NewNet().DialContext}, false},
		//lint:ignore SA1019 old transports still set Dial
		{"a Dial of the user's", &http.Transport{Dial: dialer.Dial}, false},
		{"a DialTLSContext", &http.Transport{DialTLSContext: tls}, false},
	} {
		assert.Equal(t, c.ok, New(c.base) != nil, c.name)
	}
	own := New(&http.Transport{DialContext: new(world).d.DialContext})
	assert.NotNil(t, own, "the method of a Dialer")
}

// TestNetDialer dials over real sockets of this machine. The Resolver and the Control of
// the net.Dialer stay in force, each name is asked for once, and nothing is connected
// while it is looked up.
func TestNetDialer(t *testing.T) {
	good, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer good.Close()
	_, port, _ := net.SplitHostPort(good.Addr().String())

	var asked atomic.Int32
	var mu sync.Mutex
	var controlled []string
	dialer := &net.Dialer{
		Timeout:  30 * time.Second,
		Resolver: &net.Resolver{PreferGo: true, Dial: testserver.NameServer(&asked, "127.0.0.2", "127.0.0.1")},
		Control: func(_, address string, _ syscall.RawConn) error {
			mu.Lock()
			defer mu.Unlock()
			controlled = append(controlled, address)
			if strings.HasPrefix(address, "127.0.0.2:") {
				return syscall.EPERM // a guard against some addresses
			}
			return nil
		},
	}
	d := New(&http.Transport{DialContext: dialer.DialContext})
	var hooks []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		DNSDone:     func(i httptrace.DNSDoneInfo) { hooks = append(hooks, "found") },
		ConnectDone: func(_, addr string, err error) { mu.Lock(); defer mu.Unlock(); hooks = append(hooks, "connected") },
	})
	conn, err := New(&http.Transport{DialContext: d})(ctx, "tcp", "api.example:"+port)
	require.NoError(t, err)
	defer conn.Close()
	assert.Equal(t, good.Addr().String(), conn.RemoteAddr().String())
	assert.EqualValues(t, 1, asked.Load(), "times asked")
	assert.Equal(t, []string{"127.0.0.2:" + port, "127.0.0.1:" + port}, controlled)
	assert.Equal(t, []string{"found", "connected", "connected"}, hooks, "a trace of the request sees what it saw before")

	again, err := d(t.Context(), "tcp", "api.example:"+port)
	require.NoError(t, err)
	defer again.Close()
	assert.Equal(t, "127.0.0.1:"+port, controlled[len(controlled)-1], "the address that failed comes last, also in the other transport of the base")
	assert.Len(t, controlled, 3)
	_, err = d(t.Context(), "tcp", "127.0.0.1:"+port)
	assert.NoError(t, err, "a literal address")
}

// The resolver may look up its own server first. The dial ends with the addresses of the name.
func TestLookup(t *testing.T) {
	var closed atomic.Int32
	ips, err := lookupBy(func(ctx context.Context, _, _ string) (net.Conn, error) {
		trace := httptrace.ContextClientTrace(ctx)
		trace.DNSStart(httptrace.DNSStartInfo{})
		trace.DNSStart(httptrace.DNSStartInfo{})
		trace.DNSDone(httptrace.DNSDoneInfo{Addrs: []net.IPAddr{{IP: net.IPv4(192, 0, 2, 9)}}})
		require.NoError(t, ctx.Err())
		trace.DNSDone(httptrace.DNSDoneInfo{Addrs: []net.IPAddr{{IP: net.IPv4(192, 0, 2, 1)}}})
		require.Error(t, ctx.Err())
		client, _ := net.Pipe()
		return closeCounter{client, &closed}, ctx.Err()
	})(t.Context(), "tcp", "api.test:443")
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.1")}, ips)
	assert.EqualValues(t, 1, closed.Load(), "times closed")
}

func TestNameThatDoesNotExist(t *testing.T) {
	var asked atomic.Int32
	dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: testserver.NameServer(&asked)}}
	_, err := New(&http.Transport{DialContext: dialer.DialContext})(t.Context(), "tcp", "api.example:443")
	var dns *net.DNSError
	require.ErrorAs(t, err, &dns)
	assert.True(t, dns.IsNotFound)
	var op *net.OpError
	assert.ErrorAs(t, err, &op, "the error of package net")
}
