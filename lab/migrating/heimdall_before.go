package migrating

import (
	"net/http"
	"time"

	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
)

func heimdallBefore(base http.RoundTripper) *httpclient.Client {
	waits := heimdall.NewExponentialBackoff(100*time.Millisecond, 2*time.Second, 2, 50*time.Millisecond)
	return httpclient.NewClient(
		httpclient.WithHTTPClient(&http.Client{Transport: base, Timeout: 10 * time.Second}),
		httpclient.WithRetryCount(4),
		httpclient.WithRetrier(heimdall.NewRetrier(waits)),
	)
}
