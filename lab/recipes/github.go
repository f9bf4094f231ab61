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
	rule := profile.GitHub()
	rule.AttemptTimeout = 20 * time.Second           // until the headers; GitHub itself gives up after 10 s
	rule.QuotaPacing = policy.On                     // spread the last fifth of the hour's quota
	rule.Concurrency = policy.Concurrency{Max: 50}   // GitHub allows 100 at a time, of all your programs
	rule.RateLimit = policy.RateLimit{PerSecond: 15} // points: GitHub allows 900 per minute
	rule.Cost = func(req *http.Request) int {
		if req.Method == http.MethodGet || req.Method == http.MethodHead {
			return 1
		}
		return 5
	}
	return transport.Config{
		Logger: log,
		Rule:   policy.Rule{StallTimeout: 30 * time.Second}, // of downloads and uploads
		Hosts:  map[string]policy.Rule{"api.github.com": rule},
	}
}
