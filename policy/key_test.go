package policy

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRouteScope(t *testing.T) {
	scopeOf := func(method, path, token string) string {
		req := httptest.NewRequest(method, "http://h.test"+path, nil)
		req.Header.Set("Authorization", "Bearer "+token)
		return KeyByRoute(req)
	}
	same := scopeOf("GET", "/v1/users/17/orders", "a")
	assert.Equal(t, same, scopeOf("GET", "/v1/users/18/orders?page=2", "a"))
	assert.Equal(t, same, scopeOf("", "/v1/users/0b6e2c1a-44a5-4d0e-9d4b-3a1f0c1f2d3e/orders", "a"), "no method is GET")
	for name, other := range map[string]string{
		"method":  scopeOf("PUT", "/v1/users/17/orders", "a"),
		"route":   scopeOf("GET", "/v1/users/17/export", "a"),
		"version": scopeOf("GET", "/v2/users/17/orders", "a"),
		"token":   scopeOf("GET", "/v1/users/17/orders", "b"),
	} {
		assert.NotEqual(t, same, other, name)
	}
	assert.NotContains(t, same, "17")
}
