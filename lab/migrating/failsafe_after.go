package migrating

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func failsafeAfter(base http.RoundTripper) *http.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			Attempts: 5, // MaxRetries and the first attempt
			Backoff:  backoff.Geometric{First: 100 * time.Millisecond, Max: 2 * time.Second},
		},
	})
	return &http.Client{Transport: t}
}
