package migrating

import (
	"fmt"
	"net/http"
)

func handlerBefore(resp *http.Response, err error, attempts int) (*http.Response, error) {
	if err != nil {
		return nil, fmt.Errorf("the shop is down after %d attempts: %w", attempts, err)
	}
	_ = resp.Body.Close()
	return nil, fmt.Errorf("the shop is down after %d attempts: %s", attempts, resp.Status)
}
