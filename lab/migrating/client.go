package migrating

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func newClient(base http.RoundTripper) *http.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			Attempts: 5,
			Backoff:  backoff.Randomized{Interval: 100 * time.Millisecond, MaxInterval: 2 * time.Second},
		},
	})
	return &http.Client{Transport: t}
}
