// The addresses of a name, the memory of them, and their order.

package dial

import (
	"context"
	"net"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"sync"
	"time"
)

type lookupFunc = func(ctx context.Context, network, addr string) ([]netip.Addr, error)

// lookupBy returns a lookup by the resolver of a net.Dialer, which cannot be read from
// its method. The dial gets its addresses from the resolver, tells the trace, and finds
// its context cancelled before it connects.
func lookupBy(dial Func) lookupFunc {
	return func(ctx context.Context, network, addr string) ([]netip.Addr, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var (
			mu    sync.Mutex // guards the following
			depth int        // lookups under way; the resolver may look up its own server
			found []netip.Addr
		)
		conn, err := dial(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			DNSStart: func(httptrace.DNSStartInfo) {
				mu.Lock()
				defer mu.Unlock()
				depth++
			},
			DNSDone: func(info httptrace.DNSDoneInfo) {
				mu.Lock()
				defer mu.Unlock()
				if depth--; depth == 0 && info.Err == nil {
					found = addrsOf(info.Addrs)
					cancel()
				}
			},
		}), network, addr)
		if conn != nil { // it did not look at the context
			_ = conn.Close()
		}
		mu.Lock()
		defer mu.Unlock()
		if found != nil {
			return found, nil
		}
		return nil, err
	}
}

func addrsOf(ips []net.IPAddr) []netip.Addr {
	all := make([]netip.Addr, 0, len(ips))
	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip.IP); ok {
			all = append(all, a.Unmap().WithZone(ip.Zone))
		}
	}
	return all
}

const (
	// remembered is how long an address that failed comes after the others. A name often
	// has an address that comes back, and trying it too early costs a stagger at most.
	remembered = time.Minute
	// maxNames and maxFailed bound the memory.
	maxNames  = 1024
	maxFailed = 16
)

// A memory keeps names that were dialled. When it is full, it begins anew.
type memory struct {
	mu    sync.Mutex // guards names and the values in it; never held while waiting
	names map[string]*name
}

type name struct {
	failed []failure     // the oldest first
	took   time.Duration // to connect, when an address did last; 0: none did yet
	races  bool          // a dial tries several addresses at the same time
}

type failure struct {
	ip netip.Addr
	at time.Time
}

// note reads or changes what is known of the name in addr.
func (m *memory) note(addr string, change func(*name)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[addr]
	if n == nil {
		if len(m.names) == maxNames {
			clear(m.names)
		}
		n = new(name)
		m.names[addr] = n
	}
	change(n)
}

// hasFailed reports whether an address of the name in addr failed within the last minute.
func (m *memory) hasFailed(addr string) (failed bool) {
	m.note(addr, func(n *name) { failed = len(n.lately()) > 0 })
	return failed
}

// lately returns the failures that are remembered, the oldest first; the lock of the memory is held.
func (n *name) lately() []failure {
	n.failed = slices.DeleteFunc(n.failed, func(f failure) bool { return time.Since(f.at) >= remembered })
	return n.failed
}

func (m *memory) fail(addr string, ip netip.Addr) {
	m.note(addr, func(n *name) {
		n.failed = slices.DeleteFunc(n.lately(), func(f failure) bool { return f.ip == ip })
		n.failed = append(n.failed[max(len(n.failed)-maxFailed+1, 0):], failure{ip, time.Now()})
	})
}

// mayRace reports whether a dial that has waited for an address for so long may try a further one. As long as
// nobody knows how far away the addresses are, a single dial of the name may, which is noted in mine.
func (m *memory) mayRace(addr string, waited time.Duration, mine *bool) (may bool) {
	m.note(addr, func(n *name) {
		if n.took == 0 && !n.races {
			n.races, *mine = true, true
		}
		may = waited >= longest || (n.took > 0 || *mine) && waited >= max(stagger, 2*n.took)
	})
	return may
}

// order returns the addresses in the order in which they are dialled. Those that failed
// lately come last, the oldest failure first.
func (m *memory) order(addr string, ips []netip.Addr) []netip.Addr {
	all := interleave(ips)
	m.note(addr, func(n *name) {
		failed := n.lately()
		rank := func(ip netip.Addr) int { return slices.IndexFunc(failed, func(f failure) bool { return f.ip == ip }) }
		slices.SortStableFunc(all, func(a, b netip.Addr) int { return rank(a) - rank(b) })
	})
	return all
}

// interleave returns the addresses with the families in turn, so that a broken family
// costs one turn (RFC 8305 §4). The family of the first address comes first. Within a
// family the order of the resolver stays (RFC 6724).
func interleave(ips []netip.Addr) []netip.Addr {
	var seen [2]int // of the first family, and of the other
	turns := map[netip.Addr]int{}
	for _, ip := range ips {
		family := 0
		if ip.Is4() != ips[0].Is4() {
			family = 1
		}
		turns[ip] = 2*seen[family] + family
		seen[family]++
	}
	return slices.SortedStableFunc(slices.Values(ips), func(a, b netip.Addr) int { return turns[a] - turns[b] })
}
