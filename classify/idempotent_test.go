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
