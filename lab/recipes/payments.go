package recipes

import (
	"log/slog"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func payments(log *slog.Logger) transport.Config {
	rule := policy.Rule{
		IdempotencyKey: policy.UUIDKey, // for POSTs that have no key yet
		MaxAttempts:    4,
		AttemptTimeout: 20 * time.Second, // until the headers
		MaxElapsedTime: time.Minute,      // no retry starts later
	}.Or(profile.Stripe()) // else profile.API()
	return transport.Config{
		Logger: log,
		Hosts:  map[string]policy.Rule{"api.stripe.com": rule},
	}
}
