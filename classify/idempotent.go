// Whether a request may be sent twice.

package classify

import "net/http"

// Idempotent reports whether sending r twice has the effect of sending it once
// (RFC 9110 §9.2.2). That is the case if its method is GET, HEAD, OPTIONS,
// TRACE, PUT or DELETE, or if it has an Idempotency-Key or X-Idempotency-Key
// field. An empty method means GET. Methods are case-sensitive.
//
// As in net/http, a key without values marks the request as idempotent and is
// not sent. A nil request is not idempotent.
func Idempotent(r *http.Request) bool {
	if r == nil {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
		http.MethodPut, http.MethodDelete:
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
