package migrating

import (
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
)

func failsafeBefore(base http.RoundTripper) *http.Client {
	retries := failsafehttp.NewRetryPolicyBuilder().
		WithMaxRetries(4).
		WithBackoff(100*time.Millisecond, 2*time.Second).
		WithJitterFactor(0.2).
		Build()
	return &http.Client{Transport: failsafehttp.NewRoundTripper(base, retries)}
}
