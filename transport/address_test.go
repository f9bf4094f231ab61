// Names with several addresses, one of which is bad.

package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/dial"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	badIP  = "192.0.2.1" // resolved first
	goodIP = "192.0.2.2"
)

// A site is a name with a server at each of its addresses, in memory.
type site struct {
	*testserver.Net
	t         *testing.T
	bad, good *testserver.Server
	tr        *transport.Transport

	mu    sync.Mutex
	ips   []netip.Addr
	fault testserver.Step // of the bad server
	sick  bool
	late  time.Duration // the name server needs so long
}

// newSite makes a site and a Transport. own says that its base is the default base, which
// dials by address itself. Otherwise the base dials like a net.Dialer.
func newSite(t *testing.T, h2, own bool, rule policy.Rule) *site {
	s := &site{Net: testserver.NewNet(), t: t, ips: []netip.Addr{netip.MustParseAddr(badIP), netip.MustParseAddr(goodIP)}}
	start := func(ip string, handler func(*testserver.Received) testserver.Step) *testserver.Server {
		return testserver.Start(t, testserver.Config{Net: s.Net, Host: ip, HTTP2: h2, Handler: handler})
	}
	s.bad = start(badIP, func(*testserver.Received) testserver.Step {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sick {
			return s.fault
		}
		return testserver.OK("well")
	})
	s.good = start(goodIP, func(*testserver.Received) testserver.Step { return testserver.OK("well") })
	d := dial.With(func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // as in most net.Dialers
		defer cancel()
		return s.DialContext(ctx, network, addr)
	}, s.lookup)
	base := s.good.Transport()
	base.DialContext = s.serial
	if own {
		base.DialContext = d.DialContext
	}
	s.tr = mustNew(t, transport.Config{Base: base, Rule: rule})
	s.tr.DialWith(d)
	t.Cleanup(func() {
		time.Sleep(time.Minute) // the dials under way end
		s.tr.CloseIdleConnections()
	})
	return s
}

func (s *site) lookup(context.Context, string, string) ([]netip.Addr, error) {
	s.mu.Lock()
	ips, late := s.ips, s.late
	s.mu.Unlock()
	time.Sleep(late)
	return ips, nil
}

// serial dials as package net does: the addresses in order, each with a part of 30 s.
func (s *site) serial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	ips, _ := s.lookup(ctx, network, addr)
	for _, ip := range ips {
		part, cancel := context.WithTimeout(ctx, 30*time.Second/time.Duration(len(ips)))
		conn, err = s.DialContext(part, network, net.JoinHostPort(ip.String(), "80"))
		cancel()
		if err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// turn makes the bad server respond so.
func (s *site) turn(fault testserver.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sick, s.fault = true, fault
}

func (s *site) send(method string) (elapsed time.Duration, err error) {
	start := time.Now()
	resp, err := s.tr.RoundTrip(newRequest(s.t, method, "http://api.test/", strings.NewReader("")))
	elapsed = time.Since(start)
	if err != nil {
		return elapsed, err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err == nil && string(text) != "well" {
		err = errors.New(resp.Status)
	}
	return elapsed, err
}

var patient = policy.Rule{MaxAttempts: 4, AttemptTimeout: 300 * time.Millisecond, Backoff: backoff.Constant(10 * time.Millisecond), RetryBudget: policy.RetryBudget{Enabled: policy.Off}}

// An address is bad in one of many ways, from the beginning or with connections to it in
// the pool. The GETs succeed, and at most two are slow, because one alone may be slow by chance.
func TestOneAddressIsBad(t *testing.T) {
	badAddress(t, patient, func(t *testing.T, s *site, _ string) {
		slow, before := 0, s.bad.Arrivals()
		for i := range 30 {
			elapsed, err := s.send(http.MethodGet)
			assert.NoError(t, err, i)
			if elapsed > 100*time.Millisecond {
				slow++
			}
			assert.LessOrEqual(t, elapsed, 600*time.Millisecond, i)
		}
		assert.LessOrEqual(t, slow, 2)
		assert.LessOrEqual(t, s.bad.Arrivals()-before, 5, "requests that arrived")
	})
}

// A POST that may have arrived is not repeated. But after two in a row the next one goes to the
// other address, after four if the server is silent, and after five if it says that it cannot.
func TestOneAddressIsBadForPOSTs(t *testing.T) {
	untimed := patient
	untimed.AttemptTimeout = policy.Off
	for _, rule := range []policy.Rule{patient, untimed} {
		badAddress(t, rule, func(t *testing.T, s *site, fault string) {
			most := 2
			switch fault {
			case "500", "503":
				most = 5
			case "resets bodies":
				return // nothing follows the response to a POST
			case "is silent", "drops SYNs", "hangs":
				most = 4
				if rule.AttemptTimeout <= 0 {
					return // nothing ends the first attempt
				}
			}
			failed, before := 0, s.good.Arrivals()+s.bad.Arrivals()
			for range 10 {
				if _, err := s.send(http.MethodPost); err != nil {
					failed++
				}
			}
			assert.LessOrEqual(t, failed, most, "failed requests")
			assert.LessOrEqual(t, s.good.Arrivals()+s.bad.Arrivals()-before, 10, "requests that arrived")
		})
	}
}

// The first of two addresses accepts connections and resets them during the TLS handshake.
func TestOneAddressResetsHandshakes(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"default": {}, "API": profile.API(), "Service": profile.Service()} {
		for _, h2 := range []bool{false, true} {
			inBubble(t, name, func(t *testing.T) {
				n := testserver.NewNet()
				good := testserver.Start(t, testserver.Config{Net: n, Host: goodIP, TLS: testserver.Trusted, HTTP2: h2}, testserver.OK("well"))
				l, err := n.Listen(badIP + ":443")
				require.NoError(t, err)
				defer l.Close()
				resets := 0
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						_, _ = c.Read(make([]byte, 1))
						resets++
						_ = c.(*testserver.Conn).SetLinger(0)
						_ = c.Close()
					}
				}()
				d := dial.With(n.DialContext, func(context.Context, string, string) ([]netip.Addr, error) {
					return []netip.Addr{netip.MustParseAddr(badIP), netip.MustParseAddr(goodIP)}, nil
				})
				base := good.Transport()
				base.DialContext = d.DialContext
				base.TLSClientConfig.InsecureSkipVerify = true
				tr := mustNew(t, transport.Config{Base: base, Rule: rule})
				tr.DialWith(d)
				failed := 0
				for i := range 20 {
					got := do(tr, newRequest(t, []string{http.MethodPost, http.MethodGet}[i%2], "https://api.test/", strings.NewReader("")))
					if got.err != nil {
						failed++
					}
				}
				assert.LessOrEqual(t, failed, 2, "failed requests")
				assert.LessOrEqual(t, resets, 6)
				time.Sleep(time.Minute)
				tr.CloseIdleConnections()
			})
		}
	}
}

// badAddress calls use with a site whose first address is bad, for each way of that.
func badAddress(t *testing.T, rule policy.Rule, use func(t *testing.T, s *site, fault string)) {
	sick := func(step testserver.Step) func(*site) { return func(s *site) { s.turn(step) } }
	for name, fault := range map[string]func(*site){
		"refuses": func(s *site) {
			s.bad.Refuse()
			s.bad.ResetAll()
		},
		"is silent":      func(s *site) { s.Mute(badIP, true); s.Silence(badIP) },
		"drops SYNs":     func(s *site) { s.Fail(badIP, testserver.ErrBlackhole); s.Silence(badIP) },
		"503":            sick(testserver.Status(503)),
		"500":            sick(testserver.Status(500)),
		"resets":         sick(testserver.ResetBeforeHeaders()),
		"resets in half": sick(testserver.ResetInHeaders()),
		"hangs":          sick(testserver.Hang()),
		"resets bodies":  sick(testserver.OK("well").CutAt(0, testserver.Reset)),
	} {
		for _, pooled := range []bool{false, true} {
			for _, kind := range []struct {
				name    string
				h2, own bool
			}{{"http1", false, false}, {"h2c", true, false}, {"default http1", false, true}, {"default h2c", true, true}} {
				inBubble(t, strings.Join([]string{name, kind.name, map[bool]string{false: "cold", true: "pooled"}[pooled]}, "/"), func(t *testing.T) {
					s := newSite(t, kind.h2, kind.own, rule)
					if pooled {
						together(4, func(_ int) { _, _ = s.send(http.MethodGet) })
						synctest.Wait() // for dials that nobody needs any more
					}
					fault(s)
					use(t, s, name)
				})
			}
		}
	}
}

// All connections of a pool of HTTP/1.1 are reset when they are used. net/http resends a GET
// over each of them and over a new one within one attempt. After a second attempt nothing goes
// to the bad address.
func TestResendsOverAPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSite(t, false, false, patient)
		s.tr.Base().(*http.Transport).MaxIdleConnsPerHost = 4
		s.turn(testserver.OK("well").Delay(time.Millisecond))
		together(4, func(_ int) { _, _ = s.send(http.MethodGet) })
		require.Equal(t, 4, s.Open(badIP), "open connections")
		s.turn(testserver.ResetBeforeHeaders())
		before := s.bad.Arrivals()
		var reused []bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = append(reused, i.Reused) }})
		resp := mustRoundTrip(t, s.tr, newRequest(t, http.MethodGet, "http://api.test/", nil).WithContext(ctx))
		_ = resp.Body.Close()
		assert.Len(t, transport.HistoryOf(resp, nil).Attempts, 3, "attempts")
		assert.Equal(t, []bool{true, true, true, true, false, false, false}, reused, "the last two are those of the retries")
		assert.Equal(t, 6, s.bad.Arrivals()-before, "requests that arrived")
		for range 10 {
			_, err := s.send(http.MethodGet)
			assert.NoError(t, err)
		}
		assert.Equal(t, 6, s.bad.Arrivals()-before, "requests that arrived")
	})
}

// The first address accepts connections, and its TLS handshake hangs. No request has left
// then, so that a POST is sent again as well.
func TestAddressThatHangsAtTLS(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, h2 := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				s := &site{Net: testserver.NewNet(), t: t, ips: []netip.Addr{netip.MustParseAddr(badIP), netip.MustParseAddr(goodIP)}}
				cfg := testserver.Config{Net: s.Net, Host: badIP, HTTP2: h2, TLS: testserver.Trusted}
				s.bad = testserver.Start(t, cfg, testserver.OK("well"))
				cfg.Host = goodIP
				s.good = testserver.Start(t, cfg, testserver.OK("well"))
				s.Mute(badIP, true)
				base := s.good.Transport()
				base.TLSClientConfig.InsecureSkipVerify = true
				base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return s.DialContext(ctx, network, net.JoinHostPort(badIP, "443"))
				}
				s.tr = mustNew(t, transport.Config{Base: base, Rule: patient})
				d := dial.With(s.DialContext, s.lookup)
				s.tr.DialWith(d)
				for range 3 {
					resp := mustRoundTrip(t, s.tr, newRequest(t, method, "https://api.test/", strings.NewReader("order")))
					_ = resp.Body.Close()
				}
				assert.Equal(t, 3, s.good.Arrivals(), "requests that arrived")
				time.Sleep(5 * time.Minute)
				s.tr.CloseIdleConnections()
			})
		}
	}
}

// A name outside ASCII is looked up as net/http dials it.
func TestOtherAddressOfANameOutsideASCII(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSite(t, false, false, patient)
		s.tr.DialWith(dial.With(s.DialContext, func(ctx context.Context, network, addr string) ([]netip.Addr, error) {
			assert.Equal(t, "xn--bcher-kva.test:80", addr)
			return s.lookup(ctx, network, addr)
		}))
		s.turn(testserver.ResetBeforeHeaders())
		resp := mustRoundTrip(t, s.tr, newRequest(t, http.MethodGet, "http://bücher.test/", nil))
		_ = resp.Body.Close()
		assert.Equal(t, 1, s.good.Arrivals(), "requests that arrived")
	})
}

// The first address never accepts a connection. A POST arrives once, at the other.
func TestPOSTToAnotherAddress(t *testing.T) {
	for name, fault := range map[string]func(*site){
		"refuses":    func(s *site) { s.bad.Refuse() },
		"drops SYNs": func(s *site) { s.Fail(badIP, testserver.ErrBlackhole) },
	} {
		for _, h2 := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				s := newSite(t, h2, false, patient)
				fault(s)
				elapsed, err := s.send(http.MethodPost)
				assert.NoError(t, err, name)
				assert.LessOrEqual(t, elapsed, 600*time.Millisecond, name)
				assert.Equal(t, 1, s.good.Arrivals(), "requests that arrived, %v", name)
				assert.Zero(t, s.bad.Arrivals(), "requests that arrived, %v", name)
			})
		}
	}
}

// The name moves, and connections to the old address stay open.
func TestNameMoves(t *testing.T) {
	for name, fault := range map[string]func(*site){
		"silent": func(s *site) { s.Silence(badIP); s.Mute(badIP, true) },
		"503":    func(s *site) { s.turn(testserver.Status(503)) },
		"500":    func(s *site) { s.turn(testserver.Status(500)) },
	} {
		for _, h2 := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				s := newSite(t, h2, false, patient)
				s.ips = s.ips[:1]
				_, err := s.send(http.MethodGet)
				require.NoError(t, err)
				s.ips = []netip.Addr{netip.MustParseAddr(goodIP)}
				fault(s)
				before := s.bad.Arrivals()
				for i := range 10 {
					elapsed, err := s.send(http.MethodGet)
					assert.NoError(t, err, name)
					assert.True(t, i < 2 || elapsed < 100*time.Millisecond, name)
				}
				assert.LessOrEqual(t, s.bad.Arrivals()-before, 5, "requests that arrived, %v", name)
			})
		}
	}
}
