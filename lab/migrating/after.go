// The programs with aplomb.

package migrating

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/retry"
	"github.com/aplomb-go/aplomb/transport"
)

func retryablehttpAfter(base http.RoundTripper) *http.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			MaxAttempts: 5, // RetryMax and the first attempt
			Backoff:     backoff.Exponential{Base: 100 * time.Millisecond, Max: 2 * time.Second},
		},
	})
	return &http.Client{Transport: t}
}

func rehttpAfter(base http.RoundTripper) *http.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			MaxAttempts: 5, // RetryMaxRetries and the first attempt
			Backoff:     backoff.Exponential{Base: 100 * time.Millisecond, Max: 2 * time.Second, Jitter: backoff.JitterFull},
		},
	})
	return &http.Client{Transport: t}
}

func failsafeAfter(base http.RoundTripper) *http.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			MaxAttempts: 5, // MaxRetries and the first attempt
			Backoff:     backoff.Exponential{Base: 100 * time.Millisecond, Max: 2 * time.Second},
		},
	})
	return &http.Client{Transport: t}
}

func heimdallAfter(base http.RoundTripper) *http.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			MaxAttempts:    5, // the retry count and the first attempt
			AttemptTimeout: 10 * time.Second,
			Backoff: backoff.Exponential{
				Base: 100 * time.Millisecond, Max: 2 * time.Second, JitterFactor: 0.5},
		},
	})
	return &http.Client{Transport: t}
}

func restyAfter(base http.RoundTripper) *resty.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			MaxAttempts: 5, // the retry count and the first attempt
			Backoff:     backoff.Exponential{Base: 100 * time.Millisecond, Max: 2 * time.Second, Jitter: backoff.JitterEqual},
		},
	})
	return resty.New().SetTransport(t) // without a retry count resty does not retry
}

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
	return retry.Do(ctx, policy.Rule{MaxAttempts: 5, Backoff: backoff.Randomized{}}, nil, ping)
}

func loopAfter(ctx context.Context, client *http.Client, method, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return client.Do(req) // of newClient
}

func newClient(base http.RoundTripper) *http.Client {
	t := transport.MustNew(transport.Config{
		Base: base,
		Rule: policy.Rule{
			MaxAttempts: 5,
			Backoff:     backoff.Randomized{InitialInterval: 100 * time.Millisecond, MaxInterval: 2 * time.Second},
		},
	})
	return &http.Client{Transport: t}
}
