// What do plain HTTP and the Go standard library say about an outcome?

package classify

import "net/http"

// Default is the verdict where nobody else has an opinion. It never answers
// [Unknown].
//
// Of the answers, 421 and 425 are [Refused] (RFC 9110 §15.5.20, RFC 8470 §5.2);
// 408, 429 and every 5xx except 501, 505 and 511 are [Ambiguous], for a server
// that failed may have failed half-way; the rest is [Final].
//
// Of the errors, those that prove that the request never left are Refused: a
// connection that could not be made, a name server that failed for the moment,
// a TLS handshake that timed out, a stream that an HTTP/2 or HTTP/3 server refused or
// left out of its GOAWAY. Those that leave it open are Ambiguous: resets, an
// early end, timeouts of an attempt, a malformed answer. Those that the next
// attempt would meet again are Final: certificates and TLS alerts, a name that
// does not exist, a bad URL or header, too many redirects, plain HTTP on an
// HTTPS port. So is every error after the end of the caller's own context, and
// every error that nobody recognises ([Other]); to send again on those too, put
// Error(Ambiguous, Other) in front.
func Default(o Outcome) Verdict {
	switch {
	case o.Err == nil && o.Response != nil:
		return byStatus(o.Response.StatusCode)
	case o.Err == nil:
		return Final // neither an answer nor an error: nothing to go by
	case o.ended():
		return Final // whatever the error is, nobody waits for a better one
	}
	_, v := judge(o.Err)
	return v
}

// byStatus is Default for answers. Success comes first: it is on the path of
// every request.
func byStatus(code int) Verdict {
	switch {
	case code < http.StatusBadRequest || code > 599:
		return Final
	case code < http.StatusInternalServerError:
		return by4xx(code)
	}
	switch code {
	case http.StatusNotImplemented, // the server does not know the method
		http.StatusHTTPVersionNotSupported,
		http.StatusNetworkAuthenticationRequired: // RFC 6585 §6: a person has to log in
		return Final
	}
	return Ambiguous
}

func by4xx(code int) Verdict {
	switch code {
	case http.StatusRequestTimeout, // RFC 9110 §15.5.9
		http.StatusTooManyRequests: // RFC 6585 §4; it does not say that nothing was done
		return Ambiguous
	case http.StatusMisdirectedRequest, // RFC 9110 §15.5.20: any method, over another connection
		http.StatusTooEarly: // RFC 8470 §5.2: not processed, to be sent after the handshake
		return Refused
	}
	return Final
}

// Refusals is an opt-in for APIs that take mostly POST: a 429, or a 503 that
// names a wait ([DefaultHint]), is taken for the server's own word that it did
// not act, so it is [Refused] and any method may be sent again. A lost answer
// still may not. For everything else it answers [Unknown].
//
// A 429 that means "quota used up" is told apart by [Signals]; ask that first:
// First(Signals, Refusals).
func Refusals(o Outcome) Verdict {
	if o.Response == nil {
		return Unknown
	}
	switch o.Response.StatusCode {
	case http.StatusTooManyRequests:
		return Refused
	case http.StatusServiceUnavailable:
		if _, ok := DefaultHint(o); ok {
			return Refused
		}
	}
	return Unknown
}
