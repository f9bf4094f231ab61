package migrating

import (
	"net/http"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func restyAfter(base http.RoundTripper) *resty.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			Attempts: 5, // the retry count and the first attempt
			Backoff:  backoff.EqualJitter{Base: 100 * time.Millisecond, Max: 2 * time.Second},
		},
	})
	return resty.New().SetTransport(t) // without a retry count resty does not retry
}
