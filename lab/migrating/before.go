// The programs before the change.

package migrating

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/go-resty/resty/v2"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
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

func failsafeBefore(base http.RoundTripper) *http.Client {
	retries := failsafehttp.NewRetryPolicyBuilder().
		WithMaxRetries(4).
		WithBackoff(100*time.Millisecond, 2*time.Second).
		WithJitterFactor(0.2).
		Build()
	return &http.Client{Transport: failsafehttp.NewRoundTripper(base, retries)}
}

func heimdallBefore(base http.RoundTripper) *httpclient.Client {
	waits := heimdall.NewExponentialBackoff(100*time.Millisecond, 2*time.Second, 2, 50*time.Millisecond)
	return httpclient.NewClient(
		httpclient.WithHTTPClient(&http.Client{Transport: base, Timeout: 10 * time.Second}),
		httpclient.WithRetryCount(4),
		httpclient.WithRetrier(heimdall.NewRetrier(waits)),
	)
}

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
