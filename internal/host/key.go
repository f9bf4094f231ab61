// A key names the host of a request.

package host

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// A Key names a host by a scheme and a canonical host: in lower case, without the
// default port of the scheme and without a trailing dot, and an IPv6 address as in RFC 5952. The key comes from the URL
// and not from the Host header, because the connection goes to the URL's host, and
// that host fails or limits.
//
// A DNS name has 253 bytes at most, but net/http takes any length. The key of a
// longer name has a hash and the end of the name. So memory stays bounded, and a
// pattern such as *.example.com still matches.
type Key struct {
	Scheme string
	Host   string
}

const (
	maxHostLen   = 320 // with room for a port and for the zone of an IPv6 address
	maxSchemeLen = 64
)

// KeyOf returns the key of a request's URL. It allocates only if the URL is not in
// canonical form.
func KeyOf(u *url.URL) Key {
	k := Key{Scheme: u.Scheme, Host: u.Host}
	if !isCanonical(k.Host) {
		k.Host = Canonical(k.Scheme, k.Host)
	}
	if len(k.Scheme) > maxSchemeLen {
		k.Scheme = shortened(k.Scheme, maxSchemeLen)
	}
	if len(k.Host) > maxHostLen {
		k.Host = shortened(k.Host, maxHostLen)
	}
	return k
}

// shortened returns a hash of s and its end, with so many bytes together. The hash
// resists collisions, because servers must not be able to choose names that share a
// state.
func shortened(s string, most int) string {
	sum := sha256.Sum256([]byte(s))
	hash := hex.EncodeToString(sum[:16])
	return hash + "~" + s[len(s)-(most-len(hash)-1):]
}

// Canonical returns host in canonical form for scheme. host is as in url.URL.Host,
// with or without a port.
func Canonical(scheme, host string) string {
	host = strings.ToLower(host)
	name, port := SplitPort(host)
	name = strings.TrimSuffix(name, ".")
	if inner, ok := strings.CutPrefix(name, "["); ok && strings.HasSuffix(inner, "]") {
		if addr, err := netip.ParseAddr(inner[:len(inner)-1]); err == nil && addr.Is6() {
			name = "[" + addr.String() + "]"
		}
	}
	if n, err := strconv.ParseUint(port, 10, 64); err == nil { // else no connection is made
		port = strconv.FormatUint(n, 10) // the connection goes to the same port with and without leading zeros
	}
	if port == "" || port == DefaultPort(scheme) {
		return name
	}
	return name + ":" + port
}

// isCanonical reports whether host is surely canonical: no upper-case letter,
// nothing that could be a default port, no trailing dot, and no IPv6 address with
// more than its canonical text. Nearly every host is.
// Letters beyond ASCII take the slow way.
func isCanonical(host string) bool {
	n := len(host)
	if n == 0 || host[n-1] == '.' || host[n-1] == ':' {
		return n == 0
	}
	for i := range n {
		switch c := host[i]; {
		case 'A' <= c && c <= 'Z', c >= 0x80:
			return false
		case c == ':' && host[0] != '[':
			// A port follows. There may be a dot before it.
			return i > 0 && host[i-1] != '.' && isPlainPort(host[i:])
		case c == ']':
			return i > 0 && (i == n-1 || isPlainPort(host[i+1:])) && isPlainIPv6(host[1:i])
		}
	}
	return host[0] != '['
}

// isPlainPort reports whether s is a colon and a port that no scheme implies,
// without leading zeros. Any other text, such as the rest of an IPv6 address
// without brackets, takes the slow way. s does not end with a colon.
func isPlainPort(s string) bool {
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s[0] == ':' && s[1] != '0' && s != ":80" && s != ":443"
}

// isPlainIPv6 reports whether s is the canonical text of an IPv6 address. It does not allocate then.
func isPlainIPv6(s string) bool {
	var buf [64]byte
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is6() && string(addr.AppendTo(buf[:0])) == s
}

// SplitPort splits "name:port" and "[v6]:port". The port is "" if there is none.
// The brackets stay with the name. An IPv6 address without brackets has no port,
// because its last colon belongs to the address.
func SplitPort(host string) (name, port string) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.Contains(host[i:], "]") {
		return host, ""
	}
	if strings.IndexByte(host, ':') < i && host[0] != '[' {
		return host, ""
	}
	return host[:i], host[i+1:]
}

// DefaultPort returns the port that scheme implies, or "" if it is unknown.
func DefaultPort(scheme string) string {
	switch scheme {
	case "http":
		return "80"
	case "https":
		return "443"
	}
	return ""
}
