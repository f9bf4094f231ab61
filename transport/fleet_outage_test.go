package transport_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/policy"
)

// A frozen server gets few probes of a fleet in all. When the first of them succeeds, all members come back, and no request is
// lost.
func TestFleetOutage(t *testing.T) {
	const members, clients = 40, 10
	const freeze, wake, end = 5 * time.Second, 25 * time.Second, 45 * time.Second
	for name, breaker := range map[string]policy.Switch{"retries wait": policy.Off, "all wait": policy.On} {
		run := func(t *testing.T, f *memFleet) (sent, served, lost int) {
			rule := policy.Rule{AttemptTimeout: 2 * time.Second, CircuitBreaker: policy.CircuitBreaker{Enabled: breaker}}
			begun := time.Now()
			c := newCrew(t, members, f, rule, func(_ int, req *http.Request) (*http.Response, error) {
				if at := time.Since(begun); at >= freeze && at < wake {
					<-req.Context().Done()
					return nil, context.Cause(req.Context())
				}
				time.Sleep(100 * time.Millisecond)
				return play(req, status(200))
			})
			var all sync.WaitGroup
			var mu sync.Mutex
			for i := range members {
				for range clients {
					all.Go(func() {
						for time.Since(begun) < end {
							time.Sleep(time.Duration(rand.ExpFloat64() * float64(4*time.Second)))
							code := c.get(t, i)
							mu.Lock()
							if code != 200 {
								lost++
							}
							if at := time.Since(begun); at > wake+5*time.Second && at < end {
								served++
							}
							mu.Unlock()
						}
					})
				}
			}
			time.Sleep(freeze)
			before := c.count(0)
			time.Sleep(wake - freeze)
			sent = c.count(0) - before
			all.Wait()
			return sent, served, lost
		}
		inBubble(t, name, func(t *testing.T) {
			f := newMemFleet(20 * time.Millisecond)
			sent, served, lost := run(t, f)
			alone, _, lostAlone := run(t, nil)
			t.Logf("sent to the frozen server: %d in a fleet, %d alone; served from 5 to 20 s after it: %d; lost: %d and %d; %d messages", sent, alone, served, lost, lostAlone, f.count())
			assert.Less(t, sent, alone)
			assert.Greater(t, served, 1000, "about 100 per second")
			assert.Zero(t, lost)
		})
	}
}

// Members that cannot reach a host for reasons of their own do not hold up a member that can. It may send all the time, or now
// and then.
func TestFleetSickMembers(t *testing.T) {
	const sick = 4
	for name, row := range map[string]struct {
		rule policy.Rule
		busy bool // there is a member whose requests succeed all the time
	}{
		"beside a busy member":  {policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}, true},
		"alone":                 {policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}, false},
		"alone, fails fast":     {policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}}, false},
		"alone, without limits": {policy.Rule{}, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			c := newCrew(t, sick+2, newMemFleet(10*time.Millisecond), row.rule, func(i int, req *http.Request) (*http.Response, error) {
				if time.Sleep(5 * time.Millisecond); i < sick {
					return nil, errors.New("read: connection reset by peer")
				}
				return play(req, status(200))
			})
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			var all sync.WaitGroup
			keeps := func(i int, pause time.Duration) {
				all.Go(func() {
					for ctx.Err() == nil {
						begun := time.Now()
						code := c.get(t, i)
						if i >= sick {
							assert.Equal(t, 200, code)
							assert.LessOrEqual(t, time.Since(begun), 30*time.Millisecond, "member %d", i)
						}
						time.Sleep(pause)
					}
				})
			}
			for i := range 10 * sick {
				keeps(i%sick, 100*time.Millisecond)
			}
			if row.busy {
				keeps(sick, 20*time.Millisecond)
			}
			time.Sleep(7 * time.Second)
			keeps(sick+1, 7*time.Second)
			all.Wait()
		})
	}
}

// A fleet that is wrong again and again says that a host is down. No request of a member waits or fails because of it, and the
// fleet hears that the host works.
func TestFalseOutage(t *testing.T) {
	for name, fails := range map[string]policy.Switch{"waits": policy.Off, "fails fast": policy.On} {
		inBubble(t, name, func(t *testing.T) {
			rule := policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: fails}}
			tr, _ := aMember(t, rule, status(200), fleetmsg.Message{Kind: fleetmsg.Down}, 60)
			for range 65 {
				time.Sleep(time.Second)
				begun := time.Now()
				assert.NoError(t, closing(get(t, tr, t.Context())))
				assert.Zero(t, time.Since(begun))
			}
		})
	}
}

// A fleet says that a host is down, and then goes away. A member finds out by itself that the host is back.
func TestOutageOfAFleetThatIsAway(t *testing.T) {
	for name, fails := range map[string]policy.Switch{"waits": policy.Off, "fails fast": policy.On} {
		inBubble(t, name, func(t *testing.T) {
			f := newMemFleet(time.Millisecond)
			begun := time.Now()
			rule := policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: fails}}
			c := newCrew(t, 1, f, rule, func(_ int, req *http.Request) (*http.Response, error) {
				if time.Since(begun) < 20*time.Second {
					return play(req, status(503))
				}
				return play(req, status(200))
			})
			hear := f.members[0].hear
			hear(fleetmsg.Message{Kind: fleetmsg.Members, Members: 10_000})
			var all sync.WaitGroup
			var back atomic.Int64
			for i := range 20 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 50 * time.Millisecond)
					for time.Since(begun) < time.Minute && back.Load() == 0 {
						hear(fleetmsg.Message{Kind: fleetmsg.Down, Host: "http://h.test", Wait: time.Since(begun)})
						if c.get(t, 0) == 200 {
							back.CompareAndSwap(0, int64(time.Since(begun)))
						}
						time.Sleep(time.Second)
					}
				})
			}
			all.Wait()
			assert.Positive(t, back.Load())
			assert.Less(t, time.Duration(back.Load()), 41*time.Second, "two gaps of 20 s, and a little")
			assert.False(t, stateOf(t, c.transports[0]).CircuitOpen)
			assert.Less(t, c.count(0), 40, "probes")
		})
	}
}
