package recipes

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func github(log *slog.Logger) transport.Config {
	rule := policy.Rule{
		AttemptTimeout: 20 * time.Second,                // until the headers; GitHub itself gives up after 10 s
		QuotaPacing:    policy.On,                       // spread the last fifth of the hour's quota
		Concurrency:    policy.Concurrency{Max: 50},     // GitHub allows 100 at a time, of all your programs
		RateLimit:      policy.RateLimit{PerSecond: 15}, // points: GitHub allows 900 per minute
		Cost: func(req *http.Request) int {
			if req.Method == http.MethodGet || req.Method == http.MethodHead {
				return 1
			}
			return 5
		},
	}.Or(profile.GitHub())
	return transport.Config{
		Logger: log,
		Rule:   policy.Rule{StallTimeout: 30 * time.Second}, // of downloads and uploads
		Hosts:  map[string]policy.Rule{"api.github.com": rule},
	}
}
