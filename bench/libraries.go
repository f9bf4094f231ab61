// Who is compared, and how is each set up?

package main

import (
	"errors"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
)

// A doer is what http.Client and its like have in common.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

// A library makes clients that send through base and wait delay between
// tries, where nobody asks for more. Everything else is as its documentation
// has it; setup says what that comes to.
type library struct {
	name   string
	module string // "": part of this program or of Go
	setup  string

	// wrap makes a RoundTripper; client does where the library is no
	// RoundTripper. One of them is set.
	wrap   func(base http.RoundTripper, delay time.Duration) http.RoundTripper
	client func(base http.RoundTripper, delay time.Duration) doer

	// carried finds a response in an error, where the library puts one there.
	carried func(error) *http.Response
}

func (l *library) newClient(base http.RoundTripper, delay time.Duration) doer {
	if l.client != nil {
		return l.client(base, delay)
	}
	return &http.Client{Transport: l.wrap(base, delay)}
}

// carriedBy returns the response that err carries, nil for none.
func (l *library) carriedBy(err error) *http.Response {
	if l.carried == nil {
		return nil
	}
	return l.carried(err)
}

var libraries = []library{{
	name:  "net/http",
	setup: "http.Client, without a wrapper",
	wrap:  func(base http.RoundTripper, _ time.Duration) http.RoundTripper { return base },
}, {
	name:  "aplomb",
	setup: "Config{} with Backoff: Constant; its default retry budget counts in the row of 40 GETs",
	wrap: func(base http.RoundTripper, delay time.Duration) http.RoundTripper {
		t, err := transport.New(transport.Config{Base: base, Rule: policy.Rule{Backoff: policy.Constant(delay)}})
		if err != nil {
			panic(err)
		}
		return t
	},
}, {
	name:   "retryablehttp",
	module: "github.com/hashicorp/go-retryablehttp",
	setup:  "NewClient, StandardClient; Logger nil; RetryWaitMin and RetryWaitMax set",
	wrap: func(base http.RoundTripper, delay time.Duration) http.RoundTripper {
		c := retryablehttp.NewClient()
		c.HTTPClient.Transport = base
		c.Logger = nil
		c.RetryWaitMin, c.RetryWaitMax = delay, delay
		return c.StandardClient().Transport
	},
}, {
	name:   "rehttp",
	module: "github.com/PuerkitoBio/rehttp",
	setup: "no default: RetryMaxRetries(3) as in its example; RetryTemporaryErr as in its example or " +
		"RetryStatuses(429) or RetryStatusInterval(500, 600), any method; ConstDelay",
	wrap: func(base http.RoundTripper, delay time.Duration) http.RoundTripper {
		when := rehttp.RetryAny(rehttp.RetryTemporaryErr(), rehttp.RetryStatuses(429), rehttp.RetryStatusInterval(500, 600))
		return rehttp.NewTransport(base, rehttp.RetryAll(rehttp.RetryMaxRetries(3), when), rehttp.ConstDelay(delay))
	},
}, {
	name:   "failsafehttp",
	module: "github.com/failsafe-go/failsafe-go",
	setup:  "NewRoundTripper with NewRetryPolicyBuilder; WithDelay set (default none)",
	wrap: func(base http.RoundTripper, delay time.Duration) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().WithDelay(delay).Build())
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
	setup:  "default without retries: WithRetryCount(4), constant back-off and 5 ms of jitter as in its README; its default timeout of 30 s",
	client: func(base http.RoundTripper, delay time.Duration) doer {
		return httpclient.NewClient(
			httpclient.WithHTTPClient(&http.Client{Transport: base, Timeout: 30 * time.Second}),
			httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewConstantBackoff(delay, 5*time.Millisecond))),
			httpclient.WithRetryCount(4),
		)
	},
}}

// version is the module's version in this build.
func (l *library) version(deps map[string]string) string {
	switch {
	case l.name == "net/http":
		return runtime.Version()
	case l.module == "":
		return "this one"
	}
	return deps[l.module]
}

// dependencies returns the versions of the modules in this build.
func dependencies() map[string]string {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			versions[m.Path] = m.Version
		}
	}
	return versions
}
