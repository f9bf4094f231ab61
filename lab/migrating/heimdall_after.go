package migrating

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func heimdallAfter(base http.RoundTripper) *http.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			Attempts:       5, // the retry count and the first attempt
			AttemptTimeout: 10 * time.Second,
			Backoff: backoff.Exponential{
				Base: 100 * time.Millisecond, Max: 2 * time.Second, Jitter: 50 * time.Millisecond},
		},
	})
	return &http.Client{Transport: t}
}
