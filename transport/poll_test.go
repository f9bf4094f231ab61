// Callers that ask a dead host again and again.

package transport_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A crowd counts what callers do to a host that answers each request with a 503 after
// 20 ms.
type crowd struct {
	tr       *transport.Transport
	delays   bool // holds a failure back when the budget is used up, as some clients do
	sends    atomic.Int64
	calls    atomic.Int64
	withheld atomic.Int64 // the calls that the budget ended
	running  atomic.Int64
}

func newCrowd(t *testing.T, rule policy.Rule) *crowd {
	c := new(crowd)
	c.tr = over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
		c.sends.Add(1)
		time.Sleep(20 * time.Millisecond)
		return play(req, faults.Status(503))
	}))
	return c
}

func (c *crowd) call(t *testing.T) {
	c.running.Add(1)
	defer c.running.Add(-1)
	resp, err := get(t, c.tr, t.Context())
	c.calls.Add(1)
	if err == nil {
		_ = resp.Body.Close()
		if transport.HistoryOf(resp).Reason == transport.ReasonBudget {
			c.withheld.Add(1)
			if c.delays {
				time.Sleep(time.Second + rand.N(time.Second))
			}
		}
	}
}

// TestPollersOfADeadHost has the figures of lab/figures.md about callers that ask again as
// soon as a call has failed. The budget rests, because no retry helps. So each call is a single
// request, as that of a plain client. A gate makes the pollers wait.
func TestPollersOfADeadHost(t *testing.T) {
	const span = 2 * time.Minute
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		delays   bool
		pollers  int
		most     float64 // requests per second
		withheld bool
	}{
		{"default", policy.Rule{}, false, 1, 0.25, false},
		{"default", policy.Rule{}, false, 10, 500, true},
		{"default", policy.Rule{}, false, 100, 5000, true},
		{"failures held back", policy.Rule{}, true, 100, 100, true},
		{"no budget", policy.Rule{Budget: policy.Budget{Burst: policy.Off}}, false, 100, 25, false},
		{"gate", policy.Rule{Gate: policy.Gate{Max: 50}}, false, 100, 4, true},
	} {
		bubble(t, func(t *testing.T) {
			c := newCrowd(t, row.rule)
			c.delays = row.delays
			end := time.Now().Add(span)
			var wg sync.WaitGroup
			for range row.pollers {
				wg.Go(func() {
					for time.Now().Before(end) {
						c.call(t)
					}
				})
			}
			time.Sleep(span)
			perSecond := float64(c.sends.Load()) / span.Seconds()
			t.Logf("%s, %d pollers: %.1f requests/s, the budget ended %d of %d calls", row.name, row.pollers, perSecond, c.withheld.Load(), c.calls.Load())
			assert.LessOrEqual(t, perSecond, row.most, row.name)
			assert.Equal(t, row.withheld, c.withheld.Load() > 0, row.name)
			wg.Wait()
		})
	}
}

// TestArrivalsAtADeadHost has the figures about a host that gets 200 calls per second,
// however the calls end. To hold a failure back would not lower the load, and more calls
// would be under way.
func TestArrivalsAtADeadHost(t *testing.T) {
	const span, rate = 30 * time.Second, 200
	underWay := map[bool]float64{}
	for _, delays := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			c := newCrowd(t, policy.Rule{})
			c.delays = delays
			var wg sync.WaitGroup
			for range int(span.Seconds() * rate) {
				wg.Go(func() { c.call(t) })
				time.Sleep(time.Second / rate)
				underWay[delays] += float64(c.running.Load()) / span.Seconds() / rate
			}
			t.Logf("failures held back %v: %.0f requests/s, %.0f calls under way", delays, float64(c.sends.Load())/span.Seconds(), underWay[delays])
			assert.InDelta(t, 1.05*rate, float64(c.sends.Load())/span.Seconds(), 0.05*rate)
			wg.Wait()
		})
	}
	assert.Greater(t, underWay[true], 1.5*underWay[false])
}
