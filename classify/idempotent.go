// Whether a request may be sent twice.

package classify

import (
	"net/http"
	"strings"
)

// Idempotent reports whether sending r twice has the effect of sending it once
// (RFC 9110 §9.2.2). That is the case if it has an Idempotency-Key or
// X-Idempotency-Key field, or if IANA's registry of HTTP methods calls its
// method idempotent. These methods are GET, HEAD, OPTIONS, TRACE, PUT, DELETE,
// QUERY, and most methods of WebDAV, such as PROPFIND, REPORT and SEARCH, but
// not LOCK. An empty method means GET. Methods are case-sensitive.
//
// A request that changes something is not idempotent if it has a condition: If,
// If-Match, If-None-Match, If-Unmodified-Since, or a field that begins with
// x-goog-if-, x-amz-if- or x-ms-if-. If its response is lost, the second request
// meets the effect of the first one and fails with 412 (RFC 9110 §13.1.1). With a
// key it is idempotent all the same.
//
// As in net/http, a key without values marks the request as idempotent and is
// not sent. A nil request is not idempotent.
func Idempotent(r *http.Request) bool {
	if r == nil {
		return false
	}
	// IANA's registry has these methods (https://www.iana.org/assignments/http-methods, as of
	// 17 June 2026), and PRI, which is not a method but the beginning of an HTTP/2 connection. Those
	// that are not idempotent are CONNECT, LOCK, PATCH and POST.
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
		"PROPFIND", "QUERY", "REPORT", "SEARCH": // safe
		return true
	case http.MethodPut, http.MethodDelete,
		"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK",
		"MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE",
		"ORDERPATCH", "PROPPATCH", "REBIND", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK",
		"UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL":
		if !isConditional(r.Header) {
			return true
		}
	}
	return has(r.Header, "Idempotency-Key") || has(r.Header, "X-Idempotency-Key")
}

// isConditional reports whether a request that changes something has a condition.
func isConditional(h http.Header) bool {
	for name := range h {
		switch name {
		case "If", "If-Match", "If-None-Match", "If-Unmodified-Since":
			return true
		}
		for _, prefix := range [...]string{"X-Goog-If-", "X-Amz-If-", "X-Ms-If-"} {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// has reports whether the field is present, even without values. The key is in
// canonical form.
func has(h http.Header, key string) bool {
	_, ok := h[key]
	return ok
}
