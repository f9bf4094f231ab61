// Which rule suits a common kind of service?

package profile

import (
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// API returns a rule for JSON APIs over the internet. An attempt whose response
// headers do not arrive within 30 s is given up and retried. A 429, and a 503
// that names a wait, mean that the server did not act, so a POST is retried after
// them ([classify.Refusals]). Request bodies of up to 16 MiB are kept for a
// retry, because many SDKs hide that theirs can be read again.
//
// The other fields are zero and inherit. Lay a rule over it with policy.Rule{…}.Or(profile.API()).
func API() policy.Rule {
	return policy.Rule{
		AttemptTimeout: 30 * time.Second,
		Classify:       classify.Refusals,
		ReplayBuffer:   16 << 20,
	}
}

// Service returns a rule for calls between services of one data centre, while a
// caller waits. It has at most three attempts of 1 s each, with waits of 50 to
// 100 ms and 100 to 150 ms between them, or up to 450 ms after a timeout. No retry
// starts later than 3 s after the first attempt.
//
// The other fields are zero and inherit. Lay a rule over it with policy.Rule{…}.Or(profile.Service()).
func Service() policy.Rule {
	return policy.Rule{
		MaxAttempts:    3,
		Backoff:        backoff.Exponential{Base: 50 * time.Millisecond, Max: time.Second},
		AttemptTimeout: time.Second,
		MaxElapsedTime: 3 * time.Second,
	}
}
