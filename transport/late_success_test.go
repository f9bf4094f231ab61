package transport_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
)

// TestLateSuccesses: requests that were sent before an outage may succeed during it, for
// instance because the host finishes them before it goes. They say nothing about the host as
// it is now, and neither open gates nor keep them open.
func TestLateSuccesses(t *testing.T) {
	const members, begin, end = 10, 10 * time.Second, 40 * time.Second
	for name, tt := range map[string]struct {
		fleet, late bool
		most        int
	}{
		"a fleet":                      {true, false, 150},
		"a fleet with late successes":  {true, true, 150},
		"separate":                     {false, false, 710},
		"separate with late successes": {false, true, 710},
	} {
		for _, silent := range []bool{false, true} {
			inBubble(t, name+map[bool]string{true: ", silent"}[silent], func(t *testing.T) {
				var f *memFleet
				if tt.fleet {
					f = newMemFleet(2 * time.Millisecond)
				}
				began := time.Now()
				var arrived atomic.Int32
				rule := policy.Rule{Attempts: 1, Gate: policy.Gate{Start: 100}}
				if silent {
					rule.AttemptTimeout = time.Second
				}
				c := newCrew(t, members, f, rule, func(_ int, req *http.Request) (*http.Response, error) {
					if d := req.Header.Get("Slow"); d != "" {
						until, _ := time.ParseDuration(d)
						time.Sleep(time.Until(began.Add(until)))
						return play(req, faults.Status(200))
					}
					if at := time.Since(began); at >= begin && at < end {
						arrived.Add(1)
						if silent {
							<-req.Context().Done()
							return nil, req.Context().Err()
						}
						return nil, syscall.ECONNREFUSED
					}
					time.Sleep(10 * time.Millisecond)
					return play(req, faults.Status(200))
				})
				var all sync.WaitGroup
				for i := range members {
					all.Go(func() {
						for time.Since(began) < end+20*time.Second {
							c.get(t, i)
							time.Sleep(250 * time.Millisecond)
						}
					})
				}
				if tt.late {
					time.Sleep(begin - time.Second)
					for at := begin; at < end; at += time.Second {
						all.Go(func() {
							i := int(at/time.Second) % members
							_ = closing(c.transports[i].RoundTrip(headed(t, http.MethodGet, "http://h.test/", "Slow: "+(at+500*time.Millisecond).String())))
						})
					}
				}
				all.Wait()
				t.Logf("%d requests arrived in the outage", arrived.Load())
				assert.LessOrEqual(t, int(arrived.Load()), tt.most)
				for i := range members {
					assert.Equal(t, 200, c.get(t, i))
				}
			})
		}
	}
}
