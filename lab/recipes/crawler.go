package recipes

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func crawler(log *slog.Logger) transport.Config {
	return transport.Config{
		Logger: log,
		Base:   &http.Transport{MaxIdleConns: 2000, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true},
		Rule: policy.Rule{
			MaxAttempts:     3,
			ConnectTimeout:  5 * time.Second,
			AttemptTimeout:  20 * time.Second, // until the headers
			StallTimeout:    20 * time.Second,
			MaxElapsedTime:  time.Minute,
			ShareRetryAfter: policy.On,                                // a site counts all requests of the crawler
			MaxRetryAfter:   time.Hour,                                // a page with a nearer deadline fails at once
			RateLimit:       policy.RateLimit{PerSecond: 1, Burst: 1}, // for each host
			Concurrency:     policy.Concurrency{FailFast: policy.On, Max: 4},
			CircuitBreaker:  policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}, // a host that is down costs no time
		},
	}
}

// again returns when to ask for the page again. It is the zero Time if that is not known.
func again(err error) time.Time {
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return e.Until
	}
	return time.Time{}
}
