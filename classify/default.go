// The classes that plain HTTP and the errors of the standard library allow.

package classify

import (
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/internal/auth"
	"github.com/aplomb-go/aplomb/internal/field"
)

// Default is the classifier that decides if no other classifier has an opinion.
// It never returns [Unknown].
//
// Responses:
//
//   - [Refused]: 421 (RFC 9110 §15.5.20) and 425 (RFC 8470 §5.2). A 413 that
//     names a wait in Retry-After (§15.5.14). A 417 to a request with
//     Expect: 100-continue (§15.5.18), which can be sent again without the field.
//   - [Ambiguous]: 408, 429, and every 5xx except 501, 505, 507, 508 and 511. A
//     server that failed may have done part of the work. A 504 to a request with
//     Cache-Control: only-if-cached is [Final], because a cache answers so if it
//     has nothing stored (RFC 9111 §5.2.1.7).
//   - [Final]: every other status.
//
// Errors:
//
//   - Refused, because the request never left: no connection could be made, a
//     name server failed temporarily, a TLS handshake timed out, or an HTTP/2
//     or HTTP/3 server refused the stream or left it out of its GOAWAY.
//   - Ambiguous, because the request may have arrived: resets, an early end,
//     timeouts of an attempt, a cancellation that is not the caller's, a malformed
//     response.
//   - Final, because the next attempt would fail in the same way: certificate
//     errors and most TLS alerts, a name that does not exist, a bad URL or header,
//     a response header over the limit, too many redirects, plain HTTP on an HTTPS
//     port, and a server that wants HTTP/1.1 (HTTP_1_1_REQUIRED, RFC 9113 §7), unless
//     package transport has a pool without HTTP/2.
//   - Final: every error after the end of the caller's own context, and every
//     error of the type [ErrorOther]. To send again after those, put
//     OnError(Ambiguous, ErrorOther) in front of Default.
func Default(o Outcome) Class {
	switch {
	case o.Err == nil && o.Response != nil: // success first, because every request passes through here
		if code := o.Response.StatusCode; code >= http.StatusBadRequest && code <= 599 {
			return byFailure(o, code)
		}
		return Final
	case o.Err == nil:
		return Final // neither a response nor an error, so nothing is known
	case o.ended():
		return Final // the caller has stopped waiting
	}
	_, v := judge(o.Err)
	return v
}

// byFailure is [Default] for responses of status 400 to 599.
func byFailure(o Outcome, code int) Class {
	switch code {
	case http.StatusRequestEntityTooLarge: // RFC 9110 §15.5.14: with Retry-After the condition will pass
		if _, ok := field.RetryAfter(o.Response); ok {
			return Refused
		}
	case http.StatusExpectationFailed: // RFC 9110 §10.1.1: to be repeated without the expectation
		if o.Request != nil && field.Says(o.Request.Header, "Expect", "100-continue") { // the only expectation that there is
			return Refused
		}
	case http.StatusMisdirectedRequest, // RFC 9110 §15.5.20: any method, over another connection
		http.StatusTooEarly: // RFC 8470 §5.2: not processed, to be sent after the handshake
		return Refused
	case http.StatusRequestTimeout, // RFC 9110 §15.5.9
		http.StatusTooManyRequests: // RFC 6585 §4 does not promise that the server did nothing
		return Ambiguous
	case http.StatusNotImplemented, // the server does not know the method
		http.StatusHTTPVersionNotSupported,
		http.StatusInsufficientStorage,           // RFC 4918 §11.5: not before a user asks again
		http.StatusLoopDetected,                  // RFC 5842 §7.2: the resource itself has a loop
		http.StatusNetworkAuthenticationRequired: // RFC 6585 §6: a person has to log in
		return Final
	case http.StatusGatewayTimeout:
		if o.Request != nil && onlyIfCached(o.Request.Header) {
			return Final
		}
	}
	if code < http.StatusInternalServerError {
		return Final
	}
	return Ambiguous
}

// onlyIfCached reports whether a request asks caches alone.
func onlyIfCached(h http.Header) bool {
	return strings.Contains(strings.ToLower(strings.Join(h["Cache-Control"], ",")), "only-if-cached")
}

// Refusals is an opt-in classifier for APIs that mostly take POST. It returns
// [Refused] for a 429 and for a 503 that names a wait ([RetryAfter]), so any
// method may be sent again after these. It takes such a response as a promise
// that the server did not act. For every other outcome, such as a lost
// response, it returns [Unknown].
//
// A wait of zero counts as a wait, but a time in the past does not. Such a time
// was not chosen for this response. It comes from an old page or a wrong clock.
//
// A 429 can also mean that a quota is used up for good. [Signals] recognises
// that case. To use both, write First(Signals, Refusals).
func Refusals(o Outcome) Class {
	if o.Response == nil {
		return Unknown
	}
	switch o.Response.StatusCode {
	case http.StatusTooManyRequests:
		return Refused
	case http.StatusServiceUnavailable:
		if wait, ok := RetryAfter(o); ok && (wait > 0 || field.NamesZero(o.Response)) {
			return Refused
		}
	}
	return Unknown
}

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
// Nor is a request that counts once only, with or without a key. It has a DPoP (RFC 9449), an
// X-WSSE, a nonce of OAuth 1.0, of Hawk or in a Signature-Input (RFC 9421), or the nonce count of
// Digest. The second response would say that the nonce was used, and hide the first.
//
// As in net/http, a key without values marks the request as idempotent and is
// not sent. A nil request is not idempotent.
func Idempotent(r *http.Request) bool {
	if r == nil || auth.SingleUse(r) {
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
