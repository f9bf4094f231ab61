// The set-ups of the other libraries.

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/go-resty/resty/v2"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
)

var peers = []library{{
	name:   "retryablehttp",
	module: "github.com/hashicorp/go-retryablehttp",
	setup:  "NewClient and StandardClient; Logger nil; RetryWaitMin and RetryWaitMax are the delay",
	wrap:   func(t terms) http.RoundTripper { return newRetryable(t).StandardClient().Transport },
}, {
	name:   "rehttp",
	module: "github.com/PuerkitoBio/rehttp",
	setup: "it has no default; RetryMaxRetries(3) as in its example; RetryTemporaryErr as in its example, " +
		"RetryStatuses(429) or RetryStatusInterval(500, 600), any method; ConstDelay",
	wrap: func(t terms) http.RoundTripper {
		when := rehttp.RetryAny(rehttp.RetryTemporaryErr(), rehttp.RetryStatuses(429), rehttp.RetryStatusInterval(500, 600))
		return rehttp.NewTransport(t.base, rehttp.RetryAll(rehttp.RetryMaxRetries(3), when), rehttp.ConstDelay(t.or(time.Second)))
	},
}, {
	name:   "failsafehttp",
	module: "github.com/failsafe-go/failsafe-go",
	setup:  "NewRoundTripper with NewRetryPolicyBuilder; WithDelay is the delay, its default is none",
	wrap: func(t terms) http.RoundTripper {
		return failsafehttp.NewRoundTripper(t.base, newFailsafe(t).Build())
	},
	carried: func(err error) *http.Response {
		if e, ok := errors.AsType[retrypolicy.ExceededError](err); ok {
			resp, _ := e.LastResult.(*http.Response)
			return resp
		}
		return nil
	},
}, {
	name:   "heimdall",
	module: "github.com/gojek/heimdall/v7",
	setup: "its default is no retries; WithRetryCount(4), NewConstantBackoff and up to 5 ms of jitter as in its README " +
		"(no jitter if the delay is 0); its default timeout of 30 s",
	client: func(t terms) doer { return newHeimdall(t, 30*time.Second) },
}, {
	name:   "resty",
	module: "github.com/go-resty/resty/v2",
	setup: "its default is no retries; SetRetryCount(3) as in its README, AddRetryCondition for errors, 429 and 5xx; " +
		"responses are read into memory, as by default; small request bodies are given as []byte, others as io.Reader",
	client: func(t terms) doer { return restyClient{newResty(t)} },
	native: func(t terms) nativeCall {
		client := newResty(t)
		return func(ctx context.Context, method, url string, body []byte) error {
			r := client.R().SetContext(ctx)
			if body != nil {
				r.SetBody(body)
			}
			_, err := r.Execute(method, url)
			return err
		}
	},
}, {
	name:   "azcore",
	module: "github.com/Azure/azure-sdk-for-go/sdk/azcore",
	setup: "NewPipeline with its default policies over an http.Client, as in its SDKs; RetryDelay is the delay; " +
		"responses are read into memory, as by default; request bodies that cannot seek are read into memory by NewRequestFromRequest",
	client: func(t terms) doer { return azureClient{newAzure(t, policy.RetryOptions{})} },
	native: func(t terms) nativeCall {
		pipeline := newAzure(t, policy.RetryOptions{})
		return func(ctx context.Context, method, url string, body []byte) error {
			req, err := runtime.NewRequest(ctx, method, url)
			if err != nil {
				return err
			}
			if body != nil {
				if err := req.SetBody(streaming.NopCloser(bytes.NewReader(body)), "text/plain"); err != nil {
					return err
				}
			}
			return finish(pipeline.Do(req))
		}
	},
}}

// or returns the delay, or the usual one of a client.
func (t terms) or(usual time.Duration) time.Duration {
	if t.usual {
		return usual
	}
	return t.delay
}

func newRetryable(t terms) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient.Transport = t.base
	c.Logger = nil
	if !t.usual {
		c.RetryWaitMin, c.RetryWaitMax = t.delay, t.delay
	}
	return c
}

func newFailsafe(t terms) retrypolicy.Builder[*http.Response] {
	return failsafehttp.NewRetryPolicyBuilder().WithDelay(t.or(0))
}

func newHeimdall(t terms, timeout time.Duration) *httpclient.Client {
	return httpclient.NewClient(
		httpclient.WithHTTPClient(&http.Client{Transport: t.base, Timeout: timeout}),
		httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewConstantBackoff(t.or(2*time.Millisecond), min(t.or(time.Second), 5*time.Millisecond)))),
		httpclient.WithRetryCount(4),
	)
}

func newResty(t terms) *resty.Client {
	return resty.New().
		SetTransport(t.base).
		SetLogger(silent{}).
		SetRetryCount(3).
		SetRetryWaitTime(t.or(100 * time.Millisecond)).
		SetRetryMaxWaitTime(t.or(2 * time.Second)).
		AddRetryCondition(func(resp *resty.Response, err error) bool {
			return err != nil || resp.StatusCode() == http.StatusTooManyRequests || resp.StatusCode() >= 500
		})
}

// silent is a resty.Logger.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// A restyClient translates from and to net/http's types.
type restyClient struct{ *resty.Client }

func (c restyClient) Do(req *http.Request) (*http.Response, error) {
	r := c.R().SetContext(req.Context())
	r.Header = req.Header.Clone()
	switch {
	case req.Body == nil:
	case req.GetBody != nil: // the caller has it in memory
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		r.SetBody(body)
	default:
		r.SetBody(req.Body)
	}
	resp, err := r.Execute(req.Method, req.URL.String())
	if err != nil {
		return nil, err
	}
	raw := *resp.RawResponse
	raw.Body = io.NopCloser(bytes.NewReader(resp.Body()))
	return &raw, nil
}

func newAzure(t terms, retry policy.RetryOptions) runtime.Pipeline {
	// 0 means its default. A negative delay should mean none, but v1.24.0 then
	// waits for MaxRetryDelay.
	retry.RetryDelay = cmp.Or(t.or(800*time.Millisecond), time.Nanosecond)
	return runtime.NewPipeline("bench", "v1.0.0", runtime.PipelineOptions{}, &policy.ClientOptions{
		Transport: &http.Client{Transport: t.base}, Retry: retry,
	})
}

// An azureClient translates from net/http's request.
type azureClient struct{ runtime.Pipeline }

func (c azureClient) Do(req *http.Request) (*http.Response, error) {
	r, err := runtime.NewRequestFromRequest(req)
	if err != nil {
		return nil, err
	}
	return c.Pipeline.Do(r)
}
