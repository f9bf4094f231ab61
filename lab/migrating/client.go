package migrating

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func newClient(base http.RoundTripper) (*http.Client, error) {
	t, err := transport.New(transport.Config{
		Base: base,
		Rule: policy.Rule{
			Attempts: 5,
			Backoff:  backoff.Randomized{Interval: 100 * time.Millisecond, MaxInterval: 2 * time.Second},
		},
	})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t}, nil
}
