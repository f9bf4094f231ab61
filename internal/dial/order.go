// The order of the addresses.

package dial

import "net/netip"

// interleave returns the addresses with the families in turn, so that a broken family
// costs one turn (RFC 8305 §4). The family of the first address comes first. Within a
// family the order of the resolver stays (RFC 6724).
func interleave(ips []netip.Addr) []netip.Addr {
	var first, other []netip.Addr
	for _, ip := range ips {
		if ip.Is4() == ips[0].Is4() {
			first = append(first, ip)
		} else {
			other = append(other, ip)
		}
	}
	all := make([]netip.Addr, 0, len(ips))
	for i := range max(len(first), len(other)) {
		if i < len(first) {
			all = append(all, first[i])
		}
		if i < len(other) {
			all = append(all, other[i])
		}
	}
	return all
}
