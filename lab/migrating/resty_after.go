package migrating

import (
	"net/http"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func restyAfter(base http.RoundTripper) (*resty.Client, error) {
	t, err := transport.New(transport.Config{
		Base: base,
		Rule: policy.Rule{
			Attempts: 5, // the retry count and the first attempt
			Backoff:  backoff.EqualJitter{Base: 100 * time.Millisecond, Max: 2 * time.Second},
		},
	})
	if err != nil {
		return nil, err
	}
	return resty.New().SetTransport(t), nil // without a retry count resty does not retry
}
