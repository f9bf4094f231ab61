// Requests that are slow, and get no other beside them.

package transport_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// Nobody has asked for hedges, so a slow request is sent once, however quick the host is otherwise.
// Whatever the server would answer to a second request beside it, the caller gets the response to the
// first.
func TestSlowRequestIsSentOnce(t *testing.T) {
	rules := map[string]policy.Rule{"default": {}, "API": policy.API(), "Service": policy.Service()}
	seconds := map[string]answer{
		"200": status(200), "404": status(404), "409": status(409), "429": status(429, "Retry-After: 30"), "503": status(503),
		"a reset": faults.Fail(syscall.ECONNRESET), "nothing": faults.Hang(),
		"a body that is cut": faults.Status(200).Body("second").CutAt(3), "a body that stalls": faults.Status(200).Body("second").StallAt(3),
	}
	for name, rule := range rules {
		slow := 29 * time.Second
		if rule.AttemptTimeout > 0 {
			slow = rule.AttemptTimeout - time.Millisecond
		}
		for answers, second := range seconds {
			inBubble(t, name+", a second is answered with "+answers, func(t *testing.T) {
				var sent atomic.Int32
				tr := over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
					switch {
					case req.URL.Path == "/":
						return play(req, status(200).Delay(5*time.Millisecond))
					case sent.Add(1) == 1:
						return play(req, faults.Status(200).Body("first").Delay(slow))
					}
					return play(req, second)
				}))
				quick := func() { assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/")) }
				for range 300 {
					quick()
				}
				var beside sync.WaitGroup
				defer beside.Wait()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				beside.Go(func() {
					for ctx.Err() == nil {
						quick()
						time.Sleep(50 * time.Millisecond)
					}
				})
				start := time.Now()
				resp, err := fetch(t, tr, t.Context(), "http://h.test/report")
				if assert.NoError(t, err) {
					assert.Equal(t, 200, resp.StatusCode)
					assert.Equal(t, "first", mustRead(t, resp))
				}
				assert.Equal(t, slow, time.Since(start))
				assert.EqualValues(t, 1, sent.Load(), "sent")
			})
		}
	}
}
