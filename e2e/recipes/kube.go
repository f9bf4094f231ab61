package recipes

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func kube(log *slog.Logger) func(http.RoundTripper) http.RoundTripper {
	rule := policy.Rule{
		AttemptTimeout: 65 * time.Second, // until the headers; the API server itself gives up after 60 s
		ConnectTimeout: 5 * time.Second,
	}.Or(profile.API())
	return func(base http.RoundTripper) http.RoundTripper {
		return unasked{transport.MustNew(transport.Config{Base: base, Rule: rule, Logger: log})}
	}
}

// unasked takes the server's wait out of a response with which aplomb gave up. With it, client-go
// would send the request ten more times.
type unasked struct{ next http.RoundTripper }

func (u unasked) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := u.next.RoundTrip(req)
	if err == nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}
