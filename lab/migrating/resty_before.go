package migrating

import (
	"net/http"
	"time"

	"github.com/go-resty/resty/v2"
)

func restyBefore(base http.RoundTripper) *resty.Client {
	return resty.New().
		SetTransport(base).
		SetRetryCount(4).
		SetRetryWaitTime(100 * time.Millisecond).
		SetRetryMaxWaitTime(2 * time.Second).
		AddRetryCondition(func(resp *resty.Response, err error) bool {
			return err != nil || resp.StatusCode() == 429 || resp.StatusCode() >= 500
		})
}
