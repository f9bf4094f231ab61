package migrating

import (
	"net/http"
	"time"

	"github.com/PuerkitoBio/rehttp"
)

func rehttpBefore(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: rehttp.NewTransport(base,
		rehttp.RetryAll(
			rehttp.RetryMaxRetries(4),
			rehttp.RetryAny(
				rehttp.RetryIsErr(func(err error) bool { return err != nil }),
				rehttp.RetryStatuses(429),
				rehttp.RetryStatusInterval(500, 600),
			),
		),
		rehttp.ExpJitterDelay(100*time.Millisecond, 2*time.Second),
	)}
}
