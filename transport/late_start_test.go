package transport_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// No retry starts later than MaxElapsed after the first attempt, although the GetBody of the
// caller takes the time that the decision had left.
func TestNoRetryStartsAfterMaxElapsed(t *testing.T) {
	for takes, attempts := range map[time.Duration]int{49 * time.Millisecond: 2, 51 * time.Millisecond: 1} {
		inBubble(t, takes.String(), func(t *testing.T) {
			base := script(faults.Fail(errRefused))
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			req.Body = oneShot("text")
			req.GetBody = func() (io.ReadCloser, error) {
				time.Sleep(takes)
				return oneShot("text"), nil
			}
			rule := policy.Rule{MaxElapsed: 100 * time.Millisecond, Attempts: 2, Backoff: backoff.Constant(50 * time.Millisecond)}
			_, err := over(t, transport.Config{Rule: rule}, base).RoundTrip(req)
			if e := errorAs[*transport.Error](t, err); attempts == 1 {
				assert.Equal(t, transport.ReasonMaxElapsed, e.Reason)
			}
			assert.Equal(t, attempts, base.attempts())
		})
	}
}

// The same holds if the retry waits for the connections of a silent lane to be closed.
func TestNoRetryOverAStaleLaneStartsAfterMaxElapsed(t *testing.T) {
	for most, attempts := range map[time.Duration]int{52 * time.Millisecond: 2, 50500 * time.Microsecond: 1} {
		inBubble(t, most.String(), func(t *testing.T) {
			var start time.Time
			base := rt(func(req *http.Request) (*http.Response, error) {
				if start.IsZero() {
					start = time.Now()
				} else {
					assert.LessOrEqual(t, time.Since(start), most)
				}
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			rule := policy.Rule{MaxElapsed: most, Attempts: 2, AttemptTimeout: 50 * time.Millisecond, Backoff: backoff.Constant(0)}
			none := func(string) http.RoundTripper { return nil }
			_, err := over(t, transport.Config{Rule: rule, Lane: none}, base).RoundTrip(getRequest(t, "http://h.test/"))
			assert.Len(t, errorAs[*transport.Error](t, err).Attempts, attempts)
		})
	}
}
