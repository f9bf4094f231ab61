package fleet_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// docs/fleet.md shows the code of the next function.

// begin
func transportInFleet() (*transport.Transport, *fleet.Fleet, error) {
	f, err := fleet.New(fleet.Config{
		Redis:  &redis.UniversalOptions{Addrs: []string{"redis.internal:6379"}},
		Key:    []byte(os.Getenv("FLEET_KEY")), // random, as of openssl rand -hex 32; the same in all processes
		Logger: slog.Default(),                 // a log line when Redis is lost, and when it is back
	})
	if err != nil {
		return nil, nil, err
	}
	t, err := transport.New(transport.Config{
		Fleet: f,
		Rule:  policy.Rule{ShareRetryAfter: policy.On, CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}, // waits and outages hold up all processes
		Hosts: map[string]policy.Rule{"api.example.com": {RateLimit: policy.RateLimit{PerSecond: 100}}},           // of all processes together
	})
	return t, f, err // call f.Close at the end of the process
}

// end

func TestDocsShowCodeThatCompiles(t *testing.T) {
	_ = transportInFleet // compiled, and not called, because it would look up the name of a host
	source := testkit.Must(os.ReadFile("docs_test.go"))(t)
	code := between(t, string(source), "// begin\n", "\n// end\n")
	text := testkit.Must(os.ReadFile("../docs/fleet.md"))(t)
	require.Contains(t, string(text), "```go\n"+code+"```\n")
}

// between returns the text between the first of two marks and the next of the other.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, text, ok := strings.Cut(text, from)
	require.True(t, ok)
	text, _, ok = strings.Cut(text, to)
	require.True(t, ok)
	return text
}
