package recipes

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func internal(log *slog.Logger) transport.Config {
	rule := policy.Rule{
		Idempotent:     func(*http.Request) bool { return true }, // its POSTs only ask
		AttemptTimeout: 200 * time.Millisecond,                   // four times the p99
		Backoff:        backoff.Constant(10 * time.Millisecond),
		Hedge:          policy.Hedge{Percentile: 97}, // beside the slowest 3 %; a POST needs transport.WithIdempotent(ctx)
	}.Or(profile.Service())
	return transport.Config{
		Logger: log,
		Hosts:  map[string]policy.Rule{"orders.internal": rule},
	}
}
