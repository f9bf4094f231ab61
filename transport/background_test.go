package transport_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// atHalfCapacity sends 50 requests per second to a server that takes 100, each for 100 ms,
// beside so many loops of background requests. It returns how long each request took, and how
// many background requests were served.
func atHalfCapacity(t *testing.T, rule policy.Rule, loops int) (took []time.Duration, behind int) {
	const trip = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	tr := over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
		if err := pause(req, trip); err != nil {
			return nil, err
		}
		return newResponse(req, 200, http.NoBody), nil
	}))
	var mu sync.Mutex
	var others, users sync.WaitGroup
	for range loops {
		others.Go(func() {
			for ctx.Err() == nil {
				if _, err := get(t, tr, transport.Background(ctx)); err == nil {
					mu.Lock()
					behind++
					mu.Unlock()
				}
			}
		})
	}
	for range 1500 {
		time.Sleep(20 * time.Millisecond)
		users.Go(func() {
			begin := time.Now()
			resp, err := get(t, tr, ctx)
			if assert.NoError(t, err) && assert.Equal(t, 200, resp.StatusCode) {
				mu.Lock()
				took = append(took, time.Since(begin))
				mu.Unlock()
			}
		})
	}
	users.Wait()
	cancel()
	others.Wait()
	slices.Sort(took)
	return took, behind
}

// At half of the capacity other requests lose nothing to a crowd of background requests, wait
// for two round trips longer at most, and the crowd uses the rest.
func TestBackgroundAtHalfCapacity(t *testing.T) {
	rate := policy.Rate{PerSecond: 100, Burst: 10}
	for name, rule := range map[string]policy.Rule{
		"gate":          {Gate: policy.Gate{Start: 10, Max: 10}},
		"rate":          {Rate: rate},
		"gate and rate": {Gate: policy.Gate{Start: 10, Max: 10}, Rate: rate},
	} {
		inBubble(t, name, func(t *testing.T) {
			alone, _ := atHalfCapacity(t, rule, 0)
			took, behind := atHalfCapacity(t, rule, 1500)
			t.Logf("alone: median %v, longest %v; with the crowd: median %v, longest %v, and %d of it were served",
				alone[750], alone[1499], took[750], took[1499], behind)
			require.Len(t, took, 1500)
			assert.LessOrEqual(t, took[1499], alone[1499]+200*time.Millisecond)
			assert.Greater(t, behind, 1200, "of about 1500 that there is room for")
		})
	}
}

// If the others alone are too many, a background request that has waited for 10 s has every
// second turn.
func TestBackgroundProgresses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		tr := over(t, transport.Config{Rule: policy.Rule{Gate: policy.Gate{Start: 1, Max: 1}}}, rt(func(req *http.Request) (*http.Response, error) {
			if err := pause(req, 100*time.Millisecond); err != nil {
				return nil, err
			}
			return newResponse(req, 200, http.NoBody), nil
		}))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for ctx.Err() == nil {
					_, _ = get(t, tr, ctx)
				}
			})
		}
		var served [5]time.Duration
		begin := time.Now()
		for i := range served {
			time.Sleep(time.Millisecond)
			all.Go(func() {
				_, err := get(t, tr, transport.Background(ctx))
				assert.NoError(t, err)
				served[i] = time.Since(begin)
			})
		}
		all.Wait()
		for i, at := range served {
			due := 10*time.Second + time.Duration(i)*200*time.Millisecond
			assert.True(t, due <= at && at <= due+400*time.Millisecond, "number %d is served after %v", i, at)
		}
	})
}

// In each queue a background request comes after a request that came later.
func TestBackgroundComesLast(t *testing.T) {
	held := []answer{status(429, "Retry-After: 1")}
	used := []answer{status(200, "RateLimit-Limit: 1", "RateLimit-Remaining: 0", "RateLimit-Reset: 1")}
	for name, test := range map[string]struct {
		rule  policy.Rule
		first []answer
	}{
		"cooldown":      {policy.Rule{Attempts: 1}, held},
		"pacing":        {policy.Rule{Pacing: policy.On}, used},
		"rate":          {policy.Rule{Rate: policy.Rate{PerSecond: 1, Burst: 1}}, nil},
		"gate":          {policy.Rule{Gate: policy.Gate{Start: 1, Max: 1}}, nil},
		"gate and rate": {policy.Rule{Gate: policy.Gate{Start: 9}, Rate: policy.Rate{PerSecond: 1, Burst: 1}}, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			play := script(test.first...)
			var mu sync.Mutex
			var order []string
			tr := over(t, transport.Config{Rule: test.rule}, rt(func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				order = append(order, cmp.Or(req.Header.Get("Name"), "first"))
				n := len(order)
				mu.Unlock()
				if n <= len(test.first) {
					return play.RoundTrip(req)
				}
				if err := pause(req, 10*time.Millisecond); err != nil {
					return nil, err
				}
				return newResponse(req, 200, http.NoBody), nil
			}))
			var all sync.WaitGroup
			send := func(ctx context.Context, name string) {
				all.Go(func() {
					req := headed(t, "GET", "http://h.test/", "Name: "+name).WithContext(ctx)
					_, err := tr.RoundTrip(req)
					assert.NoError(t, err)
				})
				time.Sleep(time.Millisecond)
			}
			send(t.Context(), "first")
			send(transport.Background(t.Context()), "background 1")
			send(transport.Background(t.Context()), "background 2")
			send(t.Context(), "second")
			send(t.Context(), "third")
			all.Wait()
			require.Len(t, order, 5)
			assert.Equal(t, "first", order[0])
			assert.ElementsMatch(t, []string{"second", "third"}, order[1:3], "they may go at the same instant")
		})
	}
}

// A background request is no probe of a closed gate before it has waited for 10 s. Another
// request is one at once, and when it opens the gate, the background request goes as well.
func TestBackgroundIsNoProbe(t *testing.T) {
	for _, other := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			down := true
			var probes []string
			tr := over(t, transport.Config{Rule: policy.Rule{Attempts: 1, Gate: policy.Gate{Start: 10}}}, rt(func(req *http.Request) (*http.Response, error) {
				if down {
					return newResponse(req, 500, http.NoBody), nil
				}
				probes = append(probes, req.Header.Get("Name"))
				return newResponse(req, 200, http.NoBody), nil
			}))
			for range 40 {
				mustGet(t, tr)
				time.Sleep(50 * time.Millisecond)
				if stateOf(t, tr).GateClosed {
					break
				}
			}
			require.True(t, stateOf(t, tr).GateClosed)
			time.Sleep(time.Second)
			down = false
			begin := time.Now()
			var background time.Duration
			var all sync.WaitGroup
			all.Go(func() {
				_, err := tr.RoundTrip(headed(t, "GET", "http://h.test/", "Name: background").WithContext(transport.Background(t.Context())))
				assert.NoError(t, err)
				background = time.Since(begin)
			})
			if other {
				time.Sleep(3 * time.Second)
				_, err := tr.RoundTrip(headed(t, "GET", "http://h.test/", "Name: other"))
				assert.NoError(t, err)
			}
			all.Wait()
			if other {
				assert.Equal(t, 3*time.Second, background)
				assert.Equal(t, []string{"other", "background"}, probes)
			} else {
				assert.Equal(t, 10*time.Second, background)
			}
		})
	}
}

// The retries of background requests leave the last third of the budget.
func TestBackgroundBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, transport.Config{Rule: policy.Rule{Attempts: 2, Budget: policy.Budget{Ratio: policy.Off, PerSecond: 0.001, Burst: 9}}},
			rt(func(req *http.Request) (*http.Response, error) { return newResponse(req, 500, http.NoBody), nil }))
		retried := func(ctx context.Context) (n int) {
			for range 20 {
				resp, err := get(t, tr, ctx)
				require.NoError(t, err)
				n += len(transport.HistoryOf(resp).Attempts) - 1
			}
			return n
		}
		assert.Equal(t, 6, retried(transport.Background(t.Context())))
		assert.Equal(t, 3, retried(t.Context()))
	})
}

// A hedge of a background request does not go before waiting requests.
func TestBackgroundHedge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		sent := map[string]int{}
		tr := over(t, transport.Config{Rule: policy.Rule{Gate: policy.Gate{Start: 2, Max: 2}, Hedge: policy.Hedge{After: 50 * time.Millisecond}}},
			rt(func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				sent[req.Header.Get("Name")]++
				mu.Unlock()
				if err := pause(req, 200*time.Millisecond); err != nil {
					return nil, err
				}
				return newResponse(req, 200, http.NoBody), nil
			}))
		together(2, func(i int) {
			_, err := tr.RoundTrip(headed(t, "GET", "http://h.test/", "Name: alone").WithContext(transport.Background(t.Context())))
			assert.NoError(t, err)
		})
		assert.Equal(t, 2, sent["alone"], "no slot is free for a hedge")
		_, err := tr.RoundTrip(headed(t, "GET", "http://h.test/", "Name: hedged").WithContext(transport.Background(t.Context())))
		assert.NoError(t, err)
		assert.Equal(t, 2, sent["hedged"])
		assert.Zero(t, stateOf(t, tr).GateQueue)
	})
}

// A gate at which no request waits opens again, although only background requests come.
func TestBackgroundOpensTheGate(t *testing.T) {
	two := func(*http.Request) int { return 2 }
	for name, rule := range map[string]policy.Rule{"no rate": {}, "a rate": {Rate: policy.Rate{PerSecond: 1000}}, "a cost": {Rate: policy.Rate{PerSecond: 1000}, Cost: two}} {
		for _, shared := range []bool{false, true} {
			inBubble(t, fmt.Sprint(name, ", fleet ", shared), func(t *testing.T) {
				begun := time.Now()
				c := transport.Config{Rule: policy.Rule{Gate: policy.Gate{Mode: policy.GateRefuse}, Attempts: 1}.Or(rule)}
				if shared {
					c.Fleet = newMemFleet(time.Millisecond).member()
				}
				tr := over(t, c, rt(func(req *http.Request) (*http.Response, error) {
					if time.Since(begun) < 5*time.Second {
						return play(req, status(503))
					}
					return play(req, status(200))
				}))
				refused := 0
				for time.Since(begun) < 20*time.Second {
					err := closing(get(t, tr, transport.Background(t.Context())))
					if errors.Is(err, transport.ErrGateFull) {
						refused++
						assert.Less(t, time.Since(begun), 10*time.Second)
					}
					time.Sleep(100 * time.Millisecond)
				}
				assert.NotZero(t, refused)
			})
		}
	}
}

// After an outage that nobody saw the end of, a single background request is a probe.
func TestBackgroundAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		down := true
		tr := over(t, transport.Config{Rule: policy.Rule{Gate: policy.Gate{Mode: policy.GateRefuse}, Attempts: 1}},
			rt(func(req *http.Request) (*http.Response, error) {
				if down {
					time.Sleep(time.Second)
					return play(req, status(503))
				}
				return play(req, status(200))
			}))
		together(10, func(int) { _, _ = get(t, tr, t.Context()) })
		assert.False(t, stateOf(t, tr).GateClosed, "the outage is not complete yet")
		down = false
		time.Sleep(time.Hour)
		_, err := get(t, tr, transport.Background(t.Context()))
		assert.NoError(t, err)
	})
}
