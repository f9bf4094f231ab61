package recipes

import (
	"log/slog"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func payments(log *slog.Logger) transport.Config {
	rule := profile.Stripe()             // else policy.API()
	rule.IdempotencyKey = policy.UUIDKey // for POSTs that have no key yet
	rule.MaxAttempts = 4
	rule.AttemptTimeout = 20 * time.Second // until the headers
	rule.MaxElapsedTime = time.Minute      // no retry starts later
	return transport.Config{
		Logger: log,
		Hosts:  map[string]policy.Rule{"api.stripe.com": rule},
	}
}
