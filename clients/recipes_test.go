package clients

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v82"

	faulty "github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func newStripe(client *http.Client, key string) *stripe.Client {
	return stripe.NewClient(key, stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        client,
		MaxNetworkRetries: stripe.Int64(0), // 2 by default
	})))
}

// docs/recipes.md shows newStripe. Its client sends a charge as often as aplomb does, always
// with the same key.
func TestRecipe(t *testing.T) {
	source, err := os.ReadFile("recipes_test.go")
	require.NoError(t, err)
	document, err := os.ReadFile("../docs/recipes.md")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(source), "\nfunc newStripe")
	code, _, _ = strings.Cut(code, "\n}\n")
	assert.True(t, strings.Contains(string(document), "\nfunc newStripe"+code), "the document has another newStripe")

	synctest.Test(t, func(t *testing.T) {
		keys := map[string]int{}
		base := faulty.New(nil, func(req *http.Request) faulty.Step {
			keys[req.Header.Get("Idempotency-Key")]++
			return faulty.ConnReset()
		})
		client := &http.Client{Transport: transport.MustNew(transport.Config{Base: base, Rule: profile.Stripe()})}
		_, err := newStripe(client, "key").V1PaymentIntents.Create(t.Context(), &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(100)})
		assert.Error(t, err)
		require.Len(t, keys, 1)
		for key, sent := range keys {
			assert.NotEmpty(t, key)
			testkit.Count(t, 6, sent, "request sent")
		}
	})
}
