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
// with or without a port. If it is in canonical form, Canonical returns it without an allocation.
func Canonical(scheme, host string) string {
	host = strings.ToLower(host)
	name, port := SplitPort(host)
	name = strings.TrimSuffix(name, ".")
	if inner, ok := strings.CutPrefix(name, "["); ok && strings.HasSuffix(inner, "]") {
		var buf [64]byte
		if addr, err := netip.ParseAddr(inner[:len(inner)-1]); err == nil && addr.Is6() {
			if text := addr.AppendTo(buf[:0]); string(text) != inner[:len(inner)-1] {
				name = "[" + string(text) + "]"
			}
		}
	}
	for len(port) > 1 && port[0] == '0' {
		port = port[1:] // the connection goes to the same port with and without leading zeros
	}
	switch {
	case port == "" || port == DefaultPort(scheme):
		return name
	case len(host) == len(name)+len(":")+len(port) && strings.HasPrefix(host, name):
		return host
	}
	return name + ":" + port
}

// isCanonical reports whether host is surely canonical: a name in lower case without a trailing dot, and perhaps
// a port without leading zeros that no scheme implies. Nearly every host is.
func isCanonical(host string) bool {
	for i := range len(host) {
		switch c := host[i]; {
		case 'A' <= c && c <= 'Z', c >= 0x80, c == '[':
			return false
		case c == ':':
			n, err := strconv.Atoi(host[i+1:])
			return err == nil && n != 80 && n != 443 && host[i+1] >= '1' && i > 0 && host[i-1] != '.'
		}
	}
	return !strings.HasSuffix(host, ".")
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
