package recipes

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func internal(log *slog.Logger) transport.Config {
	rule := policy.Service()
	rule.Idempotent = func(*http.Request) bool { return true } // its POSTs only ask
	rule.AttemptTimeout = 200 * time.Millisecond               // four times the p99
	rule.Backoff = backoff.Constant(10 * time.Millisecond)
	rule.Hedge.Percentile = 97 // beside the slowest 3 % of requests with transport.WithIdempotent(ctx)
	return transport.Config{
		Logger: log,
		Hosts:  map[string]policy.Rule{"orders.internal": rule},
	}
}
