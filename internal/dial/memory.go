// What is known of a name: its addresses, and which of them failed lately.

package dial

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// remembered is how long an address that failed comes after the others. A name often
	// has an address that comes back, and trying it too early costs a stagger at most.
	remembered = time.Minute
	// maxNames and maxFailed bound the memory.
	maxNames  = 1024
	maxFailed = 16
)

// A memory keeps the names that were dialled last. The zero memory is empty.
type memory struct {
	mu    sync.Mutex // guards names and what it holds; never held while waiting
	names map[string]*name
}

type name struct {
	ips    []netip.Addr
	failed []failure // the oldest first
}

type failure struct {
	ip netip.Addr
	at time.Time
}

// of returns the name in addr; the lock is held.
func (m *memory) of(addr string) *name {
	n := m.names[addr]
	if n != nil {
		return n
	}
	if len(m.names) >= maxNames {
		for other := range m.names { // any
			delete(m.names, other)
			break
		}
	}
	if m.names == nil {
		m.names = map[string]*name{}
	}
	n = new(name)
	m.names[addr] = n
	return n
}

func (m *memory) found(addr string, ips []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.of(addr)
	n.ips = ips
}

// known returns the addresses that the last look-up found.
func (m *memory) known(addr string) []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.names[addr]; n != nil {
		return n.ips
	}
	return nil
}

func (m *memory) fail(addr string, ip netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.of(addr)
	now := time.Now()
	n.failed = slices.DeleteFunc(n.failed, func(f failure) bool { return f.ip == ip || now.Sub(f.at) >= remembered })
	if len(n.failed) == maxFailed {
		n.failed = slices.Delete(n.failed, 0, 1)
	}
	n.failed = append(n.failed, failure{ip, now})
}

// order returns the addresses in the order in which they are dialled. Those that failed
// lately come last, and among them the one whose failure is the longest ago comes first.
func (m *memory) order(addr string, ips []netip.Addr) []netip.Addr {
	if len(ips) < 2 {
		return ips
	}
	all := interleave(ips)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[addr]
	if n == nil {
		return all
	}
	now := time.Now()
	rank := func(ip netip.Addr) int {
		i := slices.IndexFunc(n.failed, func(f failure) bool { return f.ip == ip })
		if i >= 0 && now.Sub(n.failed[i].at) >= remembered {
			return -1
		}
		return i
	}
	slices.SortStableFunc(all, func(a, b netip.Addr) int { return rank(a) - rank(b) })
	return all
}
