package profile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/bounds"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
)

// TestKinds checks the figures that the comments name.
func TestKinds(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"API": profile.API(), "Service": profile.Service()} {
		assert.NoError(t, rule.Validate(), name)
		assert.NoError(t, rule.Or(policy.Defaults()).Validate(), name)
	}
	assert.Equal(t, 3*time.Second, profile.Service().MaxElapsedTime)
	waits := bounds.Of(profile.Service().Backoff, 2)
	require.Len(t, waits, 2)
	assert.Equal(t, []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}, []time.Duration{waits[0].Lowest, waits[0].Highest})
	assert.Equal(t, []time.Duration{100 * time.Millisecond, 150 * time.Millisecond}, []time.Duration{waits[1].Lowest, waits[1].Highest})
}

func ExampleAPI() {
	rule := profile.API()
	rule.AttemptTimeout = 2 * time.Minute // this API takes long to respond
	fmt.Println(rule.AttemptTimeout, profile.API().AttemptTimeout)
	// Output: 2m0s 30s
}

func ExampleService() {
	rule := profile.Service()
	fmt.Println("at most", rule.MaxAttempts, "attempts of", rule.AttemptTimeout)
	// Output: at most 3 attempts of 1s
}
