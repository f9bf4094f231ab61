package outages

import (
	"net/http"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A client makes a RoundTripper with the timeouts of a story.
type client struct {
	name string
	wrap func(*story, http.RoundTripper) http.RoundTripper
}

// The clients. The others have their own defaults, but for the timeout of an attempt. rehttp has no
// default, so it gets the number of tries and the waits of aplomb.
var (
	aplomb = aplombWith("aplomb", policy.Rule{})
	off    = aplombWith("off", policy.Rule{RetryBudget: policy.RetryBudget{Enabled: policy.Off}})

	retryable = client{"retryablehttp", func(s *story, base http.RoundTripper) http.RoundTripper {
		c := retryablehttp.NewClient()
		c.HTTPClient.Transport = base
		c.HTTPClient.Timeout = s.rule.AttemptTimeout
		c.Logger = nil
		return c.StandardClient().Transport
	}}
	re = client{"rehttp", func(s *story, base http.RoundTripper) http.RoundTripper {
		failed := func(a rehttp.Attempt) bool { return a.Error != nil } // it looks at the context itself
		when := rehttp.RetryAny(rehttp.RetryStatuses(429), rehttp.RetryStatusInterval(500, 600), failed)
		rt := rehttp.NewTransport(base, rehttp.RetryAll(rehttp.RetryMaxRetries(5), when), rehttp.ExpJitterDelay(time.Second, 32*time.Second))
		rt.PerAttemptTimeout = s.rule.AttemptTimeout
		return rt
	}}
	plain = client{"plain", func(_ *story, base http.RoundTripper) http.RoundTripper { return base }}

	clients = []client{aplomb, off, retryable, re, plain}
)

func aplombWith(name string, rule policy.Rule) client {
	return client{name, func(s *story, base http.RoundTripper) http.RoundTripper {
		return transport.MustNew(transport.Config{Base: base, Rule: rule.Or(s.rule)})
	}}
}
