package recipes

import (
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func newFleet(log *slog.Logger) (*fleet.Fleet, error) {
	return fleet.New(fleet.Config{
		Redis:  &redis.UniversalOptions{Addrs: []string{"redis.internal:6379"}},
		Key:    []byte(os.Getenv("FLEET_KEY")), // the same in all processes, as of openssl rand -hex 32
		Logger: log,
	})
}

func worker(f transport.Fleet, log *slog.Logger) transport.Config {
	rule := policy.Rule{
		AttemptTimeout:  10 * time.Second,
		ShareRetryAfter: policy.On,                                 // all wait as one of them was told
		CircuitBreaker:  policy.CircuitBreaker{Enabled: policy.On}, // all learn that the host is down
		QuotaPacing:     policy.On,                                 // all know what is left of a quota
		RateLimit:       policy.RateLimit{PerSecond: 10, Burst: 2}, // of all together
	}.Or(profile.API())
	return transport.Config{
		Logger: log,
		Fleet:  f,
		Hosts:  map[string]policy.Rule{"api.example.com": rule},
	}
}
