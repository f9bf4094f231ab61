// The order of the addresses.

package dial

import (
	"net/netip"
	"slices"
)

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
