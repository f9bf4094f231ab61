package classify

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIdempotent(t *testing.T) {
	for method, want := range map[string]bool{
		"": true, "get": false, "propfind": false, "X": false, "*": false, "PRI": false,
		// IANA's registry of HTTP methods, read on 22 November 2026.
		"ACL": true, "BASELINE-CONTROL": true, "BIND": true, "CHECKIN": true, "CHECKOUT": true,
		"CONNECT": false, "COPY": true, "DELETE": true, "GET": true, "HEAD": true, "LABEL": true,
		"LINK": true, "LOCK": false, "MERGE": true, "MKACTIVITY": true, "MKCALENDAR": true,
		"MKCOL": true, "MKREDIRECTREF": true, "MKWORKSPACE": true, "MOVE": true, "OPTIONS": true,
		"ORDERPATCH": true, "PATCH": false, "POST": false, "PROPFIND": true, "PROPPATCH": true,
		"PUT": true, "QUERY": true, "REBIND": true, "REPORT": true, "SEARCH": true, "TRACE": true,
		"UNBIND": true, "UNCHECKOUT": true, "UNLINK": true, "UNLOCK": true, "UPDATE": true,
		"UPDATEREDIRECTREF": true, "VERSION-CONTROL": true,
	} {
		assert.Equal(t, want, Idempotent(&http.Request{Method: method}), "pitfall 22: method %q", method)
	}
	for key, want := range map[string]bool{
		"Idempotency-Key": true, "X-Idempotency-Key": true, "Idempotency": false,
	} {
		assert.Equal(t, want, Idempotent(&http.Request{Method: "POST", Header: http.Header{key: {"k"}}}), key)
		assert.Equal(t, want, Idempotent(&http.Request{Method: "POST", Header: http.Header{key: nil}}), "%s, not sent", key)
	}
	assert.False(t, Idempotent(nil))
	assert.False(t, Idempotent(&http.Request{Method: "POST"}), "no header at all")
}

// After a lost response, the second of two conditional requests would meet the effect of the first
// (RFC 9110 §13.1.1). A condition of a safe method does no harm.
func TestIdempotentConditions(t *testing.T) {
	for _, field := range []string{
		"If", "If-Match", "If-None-Match", "If-Unmodified-Since", "X-Goog-If-Generation-Match", "X-Amz-If-Match-Size", "X-Ms-If-Sequence-Number-Eq",
	} {
		for method, want := range map[string]bool{"GET": true, "HEAD": true, "PROPFIND": true, "PUT": false, "DELETE": false, "MOVE": false, "POST": false} {
			r := &http.Request{Method: method, Header: http.Header{field: {"x"}}}
			assert.Equal(t, want, Idempotent(r), "%s with %s", method, field)
			r.Header["Idempotency-Key"] = []string{"k"}
			assert.True(t, Idempotent(r), "%s with %s and a key", method, field)
		}
	}
	for _, field := range []string{"If-Modified-Since", "If-Range", "X-Amz-Copy-Source-If-Match"} {
		assert.True(t, Idempotent(&http.Request{Method: "PUT", Header: http.Header{field: {"x"}}}), field)
	}
}
