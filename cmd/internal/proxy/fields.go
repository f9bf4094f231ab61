// The fields of a request that a client may not set.

package proxy

import (
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// asRead returns the name of a field as an upstream may read it. CGI and WSGI take "_" for "-",
// and some servers take any sign for it.
func asRead(name string) string {
	return http.CanonicalHeaderKey(strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) {
			return c
		}
		return '-'
	}, name))
}

// aboutTheWay reports whether a field says by which way a request came, or for which URL. A
// proxy sets such fields, and upstreams believe them.
func aboutTheWay(name string) bool {
	name = asRead(name)
	return name == "Forwarded" || name == "True-Client-Ip" ||
		begins(name, "X-Forwarded", "X-Original-", "X-Real-", "X-Rewrite-")
}

// isSettings reports whether a field has the settings of an upgrade to HTTP/2.
func isSettings(name string) bool { return asRead(name) == "Http2-Settings" }

// upgradesToHTTP reports whether a version of HTTP is among the protocols of an Upgrade field, or
// TLS, which is HTTP over TLS (RFC 2817). After such an upgrade the connection would carry
// requests that the proxy does not see.
func upgradesToHTTP(values []string) bool {
	protocols := strings.FieldsFunc(strings.ToLower(strings.Join(values, ",")), func(c rune) bool {
		return c <= ' ' || strings.ContainsRune(",;/\"", c) // also for a server that reads the field loosely
	})
	return slices.ContainsFunc(protocols, func(name string) bool { return begins(name, "http", "h2", "tls") })
}

// notTrailers are fields that mean something before a body is read: who asks, for what, by
// which way (RFC 9110 §6.5.1). Some servers merge the trailer into the header. A client
// could then set fields that the proxy replaces or removes in the header.
var notTrailers = []string{
	"Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type",
	"Cookie", "Date", "Expect", "Host", "Keep-Alive", "Max-Forwards", "Origin", "Pragma", "Range",
	"Referer", "Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Via", "Warning",
}

// isTrailer reports whether a field may be in the trailer of a request.
func isTrailer(name string) bool {
	name = asRead(name)
	return !aboutTheWay(name) && !isSettings(name) && !slices.Contains(notTrailers, name) &&
		!begins(name, "Accept", "If-", "Proxy-", "Sec-", "Www-", "X-Http-Method", "X-Method-Override")
}

// begins reports whether a name begins with one of the prefixes.
func begins(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
