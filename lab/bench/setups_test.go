// How the clients are told to have a feature of README.md.

package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	azlog "github.com/Azure/azure-sdk-for-go/sdk/azcore/log"
	azpolicy "github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/cachepolicy"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/time/rate"

	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

const attemptTimeout = time.Second

var boundSetups = map[string]func(terms) doer{
	"aplomb":        aplombWith(policy.Rule{AttemptTimeout: attemptTimeout}),
	"retryablehttp": retryableWith(func(c *retryablehttp.Client) { c.HTTPClient.Timeout = attemptTimeout }),
	"rehttp": func(t terms) doer {
		rt := rehttp.NewTransport(t.base, rehttp.RetryAll(rehttp.RetryMaxRetries(3), rehttp.RetryTimeoutErr()), rehttp.ConstDelay(t.or(time.Second)))
		rt.PerAttemptTimeout = attemptTimeout
		return &http.Client{Transport: rt}
	},
	"failsafehttp": failsafeWith(func() failsafe.Policy[*http.Response] { return timeout.New[*http.Response](attemptTimeout) }),
	"heimdall":     func(t terms) doer { return newHeimdall(t, attemptTimeout) },
	"resty":        restyWith(func(c *resty.Client) { c.SetTimeout(attemptTimeout) }),
	"azcore":       azureWith(azpolicy.RetryOptions{TryTimeout: attemptTimeout}),
}

var budgetSetups = map[string]func(terms) doer{
	"failsafehttp": func(t terms) doer {
		retries := newFailsafe(t).WithBudget(budget.New()).Build()
		return &http.Client{Transport: failsafehttp.NewRoundTripper(t.base, retries)}
	},
}

var hedgeSetups = map[string]func(terms) doer{
	"aplomb":       aplombWith(policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}),
	"failsafehttp": failsafeWith(func() failsafe.Policy[*http.Response] { return hedgepolicy.NewWithDelay[*http.Response](time.Second) }),
}

var rateSetups = map[string]func(terms) doer{
	"aplomb": aplombWith(policy.Rule{RateLimit: policy.RateLimit{PerSecond: 10, Burst: 10}}),
	"failsafehttp": failsafeWith(func() failsafe.Policy[*http.Response] {
		return ratelimiter.NewSmoothBuilder[*http.Response](10, time.Second).WithMaxWaitTime(time.Minute).Build()
	}),
	"resty": restyWith(func(c *resty.Client) { c.SetRateLimiter(rate.NewLimiter(10, 10)) }),
}

var breakerSetups = map[string]func(terms) doer{
	"aplomb": aplombWith(policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}}),
	"failsafehttp": failsafeWith(func() failsafe.Policy[*http.Response] {
		return circuitbreaker.NewBuilder[*http.Response]().
			HandleIf(failed).
			WithFailureThreshold(10).
			WithDelay(time.Second).
			Build()
	}),
}

var sharingSetups = map[string]func(terms) doer{"aplomb": aplombWith(policy.Rule{ShareRetryAfter: policy.On}, nil)}

// fleetSetups: the clients of aplomb are members of a fleet in memory, which begins with the first of them.
var fleetSetups = func() map[string]func(terms) doer {
	memory := sync.OnceValue(fleettest.NewMemory)
	return map[string]func(terms) doer{"aplomb": func(t terms) doer {
		c := transport.Config{Fleet: memory().Member(), Rule: policy.Rule{ShareRetryAfter: policy.On}}
		return &http.Client{Transport: newTransport(t, c)}
	}}
}()

var providerSetups = map[string]func(terms) doer{
	"aplomb": aplombWith(policy.Rule{}, map[string]policy.Rule{
		"azure.example.com":  profile.Azure(),
		"openai.example.com": profile.OpenAI(),
		"github.example.com": profile.GitHub(),
	}),
}

func failed(resp *http.Response, err error) bool { return err != nil || resp.StatusCode >= 500 }

func stays(resp *http.Response) bool { return isUnretried(resp.Request) }

func isUnretried(req *http.Request) bool {
	return req.URL.Host == unretried || req.URL.Path == unretriedPath
}

var hostSetups = map[string]func(terms) doer{
	"aplomb": aplombWith(policy.Rule{}, map[string]policy.Rule{unretried: {MaxAttempts: 1}, retried + unretriedPath: {MaxAttempts: 1}}),
	"retryablehttp": retryableWith(func(c *retryablehttp.Client) {
		c.CheckRetry = func(_ context.Context, resp *http.Response, err error) (bool, error) {
			return failed(resp, err) && !stays(resp), nil
		}
	}),
	"rehttp": func(t terms) doer {
		elsewhere := func(a rehttp.Attempt) bool { return !isUnretried(a.Request) }
		retry := rehttp.RetryAll(rehttp.RetryMaxRetries(3), rehttp.RetryStatusInterval(500, 600), elsewhere)
		return &http.Client{Transport: rehttp.NewTransport(t.base, retry, rehttp.ConstDelay(t.delay))}
	},
	"failsafehttp": func(t terms) doer {
		retries := newFailsafe(t).AbortIf(func(resp *http.Response, _ error) bool { return stays(resp) }).Build()
		return &http.Client{Transport: failsafehttp.NewRoundTripper(t.base, retries)}
	},
	"resty": restyWith(func(c *resty.Client) {
		c.RetryConditions = []resty.RetryConditionFunc{func(resp *resty.Response, err error) bool {
			return failed(resp.RawResponse, err) && !stays(resp.RawResponse)
		}}
	}),
	"azcore": azureWith(azpolicy.RetryOptions{ShouldRetry: func(resp *http.Response, err error) bool { return failed(resp, err) && !stays(resp) }}),
}

var reasonSetups = map[string]func(terms) doer{
	"aplomb": func(t terms) doer {
		told := new(telling)
		trace := &transport.Trace{RequestEnd: func(_ context.Context, r transport.RequestEnd) { told.text = string(r.Reason) }}
		told.doer = &http.Client{Transport: newTransport(t, transport.Config{Traces: []*transport.Trace{trace}})}
		return told
	},
	"azcore": func(t terms) doer {
		told := &telling{doer: azureClient{newAzure(t, azpolicy.RetryOptions{})}}
		var mu sync.Mutex // the listener stays for the requests of other tests
		azlog.SetListener(func(_ azlog.Event, text string) {
			mu.Lock()
			defer mu.Unlock()
			for _, part := range []string{"exit due to", "exceeds", "exceeded"} {
				if strings.Contains(text, part) {
					told.text = text
				}
			}
		})
		return told
	},
}

type telling struct {
	doer
	text string
}

func (t *telling) reason() string { return t.text }

var fallbackSetups = map[string]func(terms) doer{
	"retryablehttp": retryableWith(func(c *retryablehttp.Client) {
		c.ErrorHandler = func(resp *http.Response, _ error, _ int) (*http.Response, error) {
			return substitute(), resp.Body.Close()
		}
	}),
	"failsafehttp": func(t terms) doer {
		instead := fallback.NewBuilderWithFunc(func(failsafe.Execution[*http.Response]) (*http.Response, error) { return substitute(), nil }).
			HandleIf(failed).
			Build()
		return &http.Client{Transport: failsafehttp.NewRoundTripper(t.base, instead)}
	},
}

func substitute() *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("instead"))}
}

var cacheSetups = map[string]func(terms) doer{
	"failsafehttp": failsafeWith(func() failsafe.Policy[*http.Response] {
		return cachepolicy.NewBuilder[*http.Response](cache{}).WithKey("page").Build()
	}),
}

// A cache is for one goroutine.
type cache map[string]*http.Response

func (c cache) Get(key string) (*http.Response, bool)   { resp, ok := c[key]; return resp, ok }
func (c cache) Set(key string, response *http.Response) { c[key] = response }

func aplombWith(rule policy.Rule, hosts ...map[string]policy.Rule) func(terms) doer {
	return func(t terms) doer {
		c := transport.Config{Rule: rule}
		for _, h := range hosts {
			c.Hosts = h
		}
		return &http.Client{Transport: newTransport(t, c)}
	}
}

func retryableWith(set func(*retryablehttp.Client)) func(terms) doer {
	return func(t terms) doer {
		c := newRetryable(t)
		set(c)
		return c.StandardClient()
	}
}

// failsafeWith adds a policy within the retries.
func failsafeWith(inner func() failsafe.Policy[*http.Response]) func(terms) doer {
	return func(t terms) doer {
		return &http.Client{Transport: failsafehttp.NewRoundTripper(t.base, newFailsafe(t).Build(), inner())}
	}
}

func restyWith(set func(*resty.Client)) func(terms) doer {
	return func(t terms) doer {
		c := newResty(t)
		set(c)
		return restyClient{c}
	}
}

func azureWith(retry azpolicy.RetryOptions) func(terms) doer {
	return func(t terms) doer { return azureClient{newAzure(t, retry)} }
}
