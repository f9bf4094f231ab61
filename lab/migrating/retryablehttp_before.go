package migrating

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

func retryablehttpBefore(base http.RoundTripper) *http.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient.Transport = base
	client.Logger = nil
	client.RetryMax = 4
	client.RetryWaitMin = 100 * time.Millisecond
	client.RetryWaitMax = 2 * time.Second
	return client.StandardClient()
}
