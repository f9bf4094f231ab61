package migrating

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

func loopBefore(ctx context.Context, client *http.Client, method, url string, body []byte) (*http.Response, error) {
	wait := 100 * time.Millisecond
	for attempt := 1; ; attempt++ {
		req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err == nil && resp.StatusCode < 500 || attempt == 5 {
			return resp, err
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
