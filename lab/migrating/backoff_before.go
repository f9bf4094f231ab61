package migrating

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
)

func backoffBefore(ctx context.Context, client *http.Client, method, url string, body []byte) (*http.Response, error) {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval = 100 * time.Millisecond
	waits.MaxInterval = 2 * time.Second
	return backoff.Retry(ctx, func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		resp, err := client.Do(req)
		if err == nil && resp.StatusCode >= 500 {
			_ = resp.Body.Close()
			return nil, fmt.Errorf("%s %s: %s", method, url, resp.Status)
		}
		return resp, err
	}, backoff.WithBackOff(waits), backoff.WithMaxTries(5))
}

func pingBefore(ctx context.Context, ping func(context.Context) error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		return struct{}{}, ping(ctx)
	}, backoff.WithMaxTries(5))
	return err
}
