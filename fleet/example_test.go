package fleet_test

import (
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// All processes of a service behave like one client: they obey a wait that one of them was
// told, share 100 requests per second, and know together when a host is down.
func Example() {
	f, err := fleet.New(fleet.Config{
		Redis:  &redis.UniversalOptions{Addrs: []string{"redis.internal:6379"}, Password: os.Getenv("REDIS_PASSWORD")},
		Key:    []byte(os.Getenv("FLEET_KEY")), // random, as of openssl rand -hex 32
		Logger: slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	tr := transport.MustNew(transport.Config{
		Fleet: f,
		Rule:  policy.Rule{ShareRetryAfter: policy.On, Concurrency: policy.Concurrency{Max: 50}, QuotaPacing: policy.On},
		Hosts: map[string]policy.Rule{"api.example.com": {RateLimit: policy.RateLimit{PerSecond: 100, Burst: 1}}},
	})
	http.DefaultClient.Transport = tr
}

// A URL of Redis gives the options of a single server.
func ExampleConfig_url() {
	o, err := redis.ParseURL("rediss://user:secret@redis.internal:6380/2")
	if err != nil {
		log.Fatal(err)
	}
	config := fleet.Config{
		Redis: &redis.UniversalOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig},
		Key:   []byte(os.Getenv("FLEET_KEY")),
	}
	_ = config
}
