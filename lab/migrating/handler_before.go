package migrating

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/hashicorp/go-retryablehttp"
)

func checkBefore(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if resp != nil && resp.Header.Get("X-Shop") == "closed" {
		return false, errClosed
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

func handlerBefore(resp *http.Response, err error, attempts int) (*http.Response, error) {
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err == nil {
		err = errors.New(resp.Status)
	}
	return nil, fmt.Errorf("no order after %d attempts: %w", attempts, err)
}
