// Which requests share a limit of the server?

package policy

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/internal/scope"
)

// KeyByCredentials is a Rule.ThrottleKey for servers that count the requests of each client. It returns the
// credentials in Authorization, X-Api-Key and the like, as the default does. It is safe for concurrent use.
func KeyByCredentials(req *http.Request) string { return scope.Text(req.Header) }

// KeyByHost is a Rule.ThrottleKey for servers that count by something that is not in the request, such as the
// client's address. It does not tell the requests to a host apart, and is safe for concurrent use.
func KeyByHost(*http.Request) string { return "" }

// KeyByRoute is a Rule.ThrottleKey for servers that count the requests of each route. It returns the
// credentials that the default scope sees, the method, and the path without its ids. An id is
// a part of the path that has a digit, unless it is a version such as v1. It is safe for
// concurrent use.
func KeyByRoute(req *http.Request) string {
	parts := strings.Split(req.URL.Path, "/")
	for i, part := range parts {
		if strings.ContainsAny(part, digits) && strings.Trim(part, digits) != "v" {
			parts[i] = "*"
		}
	}
	return scope.Text(req.Header) + "\n" + cmp.Or(req.Method, http.MethodGet) + " " + strings.Join(parts, "/")
}

const digits = "0123456789"
