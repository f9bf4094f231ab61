package migrating

import (
	"bytes"
	"context"
	"net/http"
)

func loopAfter(ctx context.Context, client *http.Client, method, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return client.Do(req) // of newClient
}
