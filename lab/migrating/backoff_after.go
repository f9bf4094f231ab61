package migrating

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

func backoffAfter(ctx context.Context, client *http.Client, method, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req) // of newClient
	if err == nil && resp.StatusCode >= 500 {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return resp, err
}

func pingAfter(ctx context.Context, ping func(context.Context) error) error {
	return policy.Do(ctx, policy.Rule{Attempts: 5, Backoff: backoff.Randomized{}}, nil, ping)
}
