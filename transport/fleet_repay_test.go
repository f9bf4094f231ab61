// What the members of a fleet give back, and a fleet that is back.

package transport_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A lossyMember is a member whose questions get no answer while it is cut off.
type lossyMember struct {
	*fleettest.Member
	cut atomic.Bool
}

func (m *lossyMember) Tell(msg fleetmsg.Message) {
	if !m.cut.Load() {
		m.Member.Tell(msg)
	}
}

// sendAll makes a Transport send as much as its rate allows, until the context ends.
func sendAll(ctx context.Context, tr *transport.Transport, group *sync.WaitGroup, streams int) {
	for range streams {
		group.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://h.test/", nil)
				if err != nil {
					return
				}
				if _, err := tr.RoundTrip(req); err != nil {
					time.Sleep(10 * time.Millisecond) // its turn would come after the deadline
				}
			}
		})
	}
}

// A fleet does not answer any more, and after a while its members return one after the other.
// Meanwhile each has sent its part of the rate, and repays what was more than the rate.
func TestInterruptionsKeepTheRate(t *testing.T) {
	const members, perSecond, window = 20, 100, 20 * time.Second
	for _, lasts := range []time.Duration{1200 * time.Millisecond, 300 * time.Millisecond} {
		inBubble(t, lasts.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 42))
			fleet := fleettest.NewMemory()
			var all []*lossyMember
			var sent atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			for range members {
				m := &lossyMember{Member: fleet.Member()}
				all = append(all, m)
				tr, err := transport.New(transport.Config{Fleet: fleettest.Link(m), Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond, Burst: 1}},
					Base: rt(func(req *http.Request) (*http.Response, error) {
						sent.Add(1)
						return play(req, status(200))
					})})
				require.NoError(t, err)
				sendAll(ctx, tr, &group, 10)
			}
			time.Sleep(2 * time.Second)
			before := sent.Load()
			for range 7 {
				for _, m := range all {
					m.cut.Store(true)
					time.AfterFunc(lasts+time.Duration(rng.Int64N(int64(1250*time.Millisecond))), func() { m.cut.Store(false) })
				}
				time.Sleep(window / 7)
			}
			n := float64(sent.Load() - before)
			cancel()
			group.Wait()
			due := perSecond * window.Seconds()
			t.Logf("%.0f of %.0f sent, %.3f", n, due, n/due)
			assert.LessOrEqual(t, n, 1.05*due+1)
			assert.GreaterOrEqual(t, n, 0.9*due)
		})
	}
}

// Members come and go. Those that leave in good order give back the tokens that they have not
// used.
func TestMembersThatLeaveKeepNoTokens(t *testing.T) {
	const members, perSecond, life, window = 200, 100, 2500 * time.Millisecond, 20 * time.Second
	for name, killed := range map[string]bool{"closed": false, "killed": true} {
		if killed && soak.Size(true, false) {
			continue
		}
		inBubble(t, name, func(t *testing.T) {
			fleet := fleettest.NewMemory()
			var sent atomic.Int64
			var group sync.WaitGroup
			begun := time.Now()
			live := func(d time.Duration) {
				m := fleet.Member()
				tr, err := transport.New(transport.Config{Fleet: fleettest.Link(m), Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond, Burst: 1}},
					Base: rt(func(req *http.Request) (*http.Response, error) {
						sent.Add(1)
						return play(req, status(200))
					})})
				if !assert.NoError(t, err) {
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				var streams sync.WaitGroup
				sendAll(ctx, tr, &streams, 3)
				streams.Wait()
				if !killed {
					assert.NoError(t, m.Close())
				}
			}
			for i := range members {
				group.Go(func() {
					live(life * time.Duration(1+i) / members)
					for time.Since(begun) < 2*time.Second+window {
						live(life)
					}
				})
			}
			time.Sleep(2 * time.Second)
			before := sent.Load()
			time.Sleep(window)
			n, due := float64(sent.Load()-before), perSecond*window.Seconds()
			group.Wait()
			t.Logf("%.0f of %.0f sent, %.3f", n, due, n/due)
			assert.LessOrEqual(t, n, 1.02*due+1)
			if !killed {
				assert.GreaterOrEqual(t, n, 0.95*due)
			}
		})
	}
}

func (f *memFleet) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// A member whose part of the rate is too small for the deadlines of its requests asks the
// fleet again, so that it notices when the fleet is back.
func TestFleetIsBack(t *testing.T) {
	for _, limiter := range []policy.Concurrency{{}, {Max: 100}} {
		inBubble(t, fmt.Sprint("limiter ", limiter.Max), func(t *testing.T) {
			f := newMemFleet(2 * time.Millisecond)
			c := newCrew(t, 100, f, policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1, Burst: 5}, Concurrency: limiter}, func(_ int, req *http.Request) (*http.Response, error) { return play(req, status(200)) })
			f.setAway(true)
			assert.Equal(t, 200, c.get(t, 0)) // its part
			try := func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return closing(get(t, c.transports[0], ctx)) == nil
			}
			for range 5 {
				assert.False(t, try(), "the next token of its part comes after 100 s")
				time.Sleep(time.Second)
			}
			f.setAway(false)
			try()
			time.Sleep(time.Second)
			assert.True(t, try(), "the fleet has tokens")
		})
	}
}
