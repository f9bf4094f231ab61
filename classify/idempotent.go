// May this request be sent twice?

package classify

import "net/http"

// Idempotent reports whether sending r twice has the effect of sending it once
// (RFC 9110 §9.2.2): its method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE, an
// empty method being GET; or it carries an Idempotency-Key or X-Idempotency-Key
// field. As in net/http, the key being present is enough: a field without
// values marks the request and is not sent. Methods are case-sensitive. A nil
// request is not idempotent.
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

// has reports whether the field is there at all. The key is in canonical form.
func has(h http.Header, key string) bool {
	_, ok := h[key]
	return ok
}
