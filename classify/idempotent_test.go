package classify

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIdempotent(t *testing.T) {
	for method, want := range map[string]bool{
		"": true, "GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "PUT": true, "DELETE": true,
		"POST": false, "PATCH": false, "CONNECT": false, "get": false, "PROPFIND": false, "X": false,
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
