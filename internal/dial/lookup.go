// The addresses of a name.

package dial

import (
	"context"
	"net"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"sync"
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
		if len(found) > 0 {
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

// ofNetwork returns the addresses that network allows.
func ofNetwork(network string, ips []netip.Addr) []netip.Addr {
	if network != "tcp4" && network != "tcp6" {
		return ips
	}
	return slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return ip.Is4() != (network == "tcp4") })
}
