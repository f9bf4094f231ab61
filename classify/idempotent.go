// Whether a request may be sent twice.

package classify

import "net/http"

// Idempotent reports whether sending r twice has the effect of sending it once
// (RFC 9110 §9.2.2). That is the case if it has an Idempotency-Key or
// X-Idempotency-Key field, or if IANA's registry of HTTP methods calls its
// method idempotent. These methods are GET, HEAD, OPTIONS, TRACE, PUT, DELETE,
// QUERY, and most methods of WebDAV, such as PROPFIND, REPORT and SEARCH, but
// not LOCK. An empty method means GET. Methods are case-sensitive.
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
		http.MethodPut, http.MethodDelete:
		return true
	case "PROPFIND", "QUERY", "REPORT", "SEARCH": // safe as well
		return true
	case "ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK",
		"MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE",
		"ORDERPATCH", "PROPPATCH", "REBIND", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK",
		"UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL":
		return true
	}
	return has(r.Header, "Idempotency-Key") || has(r.Header, "X-Idempotency-Key")
}

// has reports whether the field is present, even without values. The key is in
// canonical form.
func has(h http.Header, key string) bool {
	_, ok := h[key]
	return ok
}
