package transport_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A quotaServer allows so much per window. Every response names the rest of the quota. Beyond the quota it responds with 429.
type quotaServer struct {
	*origin
	limit         int
	window        time.Duration
	cost          func(*http.Request) int
	before, after time.Duration // until it looks at the quota, and from then on until the response arrives
	header        func(left, limit int, reset time.Duration) []string

	mu          sync.Mutex
	used        map[int]int // by window
	ok, refused int
}

func newQuotaServer(limit int, window time.Duration, header func(left, limit int, reset time.Duration) []string) *quotaServer {
	q := &quotaServer{origin: script(), limit: limit, window: window, header: header, used: map[int]int{}, after: 10 * time.Millisecond}
	q.cost = func(*http.Request) int { return 1 }
	q.serve = q.answer
	return q
}

func (q *quotaServer) answer(req *http.Request) (*http.Response, error) {
	time.Sleep(q.before)
	q.mu.Lock()
	at := time.Since(q.start)
	n, code := int(at/q.window), 200
	if cost := q.cost(req); q.used[n]+cost > q.limit {
		code = 429
		q.refused++
	} else {
		q.used[n] += cost
		q.ok++
	}
	header := q.header(q.limit-q.used[n], q.limit, time.Duration(n+1)*q.window-at)
	q.mu.Unlock()
	time.Sleep(q.after)
	return play(req, status(code, header...))
}

// seconds rounds up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

func xRateLimit(left, limit int, reset time.Duration) []string {
	return []string{fmt.Sprintf("X-RateLimit-Limit: %d", limit), fmt.Sprintf("X-RateLimit-Remaining: %d", left), fmt.Sprintf("X-RateLimit-Reset: %d", seconds(reset))}
}

func rateLimit(left, limit int, reset time.Duration) []string {
	return []string{fmt.Sprintf(`RateLimit-Policy: "default";q=%d;w=10`, limit), fmt.Sprintf(`RateLimit: "default";r=%d;t=%d`, left, seconds(reset))}
}

// tokenLimit are OpenAI's fields. A response arrives 80 ms later.
func tokenLimit(left, limit int, reset time.Duration) []string {
	return []string{
		fmt.Sprintf("X-Ratelimit-Limit-Tokens: %d", limit),
		fmt.Sprintf("X-Ratelimit-Remaining-Tokens: %d", left),
		fmt.Sprintf("X-Ratelimit-Reset-Tokens: %v", max(reset-80*time.Millisecond, 0)),
		"X-Ratelimit-Limit-Requests: 30000", "X-Ratelimit-Remaining-Requests: 29999", "X-Ratelimit-Reset-Requests: 2ms",
	}
}

// TestPacing: with pacing the quota is never exceeded. Without pacing it is exceeded.
func TestPacing(t *testing.T) {
	for name, header := range map[string]func(int, int, time.Duration) []string{"X-RateLimit": xRateLimit, "RateLimit": rateLimit} {
		for _, workers := range []int{1, 5} {
			t.Run(fmt.Sprintf("%s with %d workers", name, workers), func(t *testing.T) {
				run := func(t *testing.T, pacing policy.Switch, hedge time.Duration) (q *quotaServer, took time.Duration) {
					bubble(t, func(t *testing.T) {
						q = newQuotaServer(20, 10*time.Second, header)
						tr := mustNew(t, transport.Config{Base: q, Rule: policy.Rule{QuotaPacing: pacing, Hedge: policy.Hedge{Delay: hedge}}})
						together(workers, func(int) {
							for range 100 / workers {
								responds(t, tr, http.MethodPost, "http://h.test/")
							}
						})
						took = time.Since(q.start)
					})
					return q, took
				}
				q, took := run(t, policy.On, 0)
				t.Logf("paced: %d of %d refused, in %v; per window %v", q.refused, q.attempts(), took, q.used)
				assert.Zero(t, q.refused)
				q.sent(t, 100)
				// The last fifth of the quota is spread over the rest of the window.
				assert.LessOrEqual(t, took, 50*time.Second)
				// In the first window the requests that were sent before the first
				// response are not known.
				assert.Equal(t, 3, q.between(11*time.Second, 20*time.Second), "the rest of the second window's quota is spread")

				q, took = run(t, 0, 0)
				t.Logf("not paced: %d of %d refused, in %v", q.refused, q.attempts(), took)
				assert.NotZero(t, q.refused)
			})
		}
	}
}

// TestPacingCountsRetriesAndHedges: retries and hedges use up the quota, too.
func TestPacingCountsRetriesAndHedges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := newQuotaServer(20, 10*time.Second, xRateLimit)
		tr := mustNew(t, transport.Config{Base: q, Rule: policy.Rule{
			QuotaPacing: policy.On, Hedge: policy.Hedge{Delay: 2 * time.Millisecond}, Backoff: backoff.Constant(time.Millisecond),
		}})
		for range 100 {
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		}
		time.Sleep(time.Second) // for the losers, which ignore their context
		synctest.Wait()
		t.Logf("%d attempts, %d refused, per window %v, in %v", q.attempts(), q.refused, q.used, time.Since(q.start))
		assert.Greater(t, q.attempts(), 110)
		assert.Zero(t, q.refused)
	})
}

func headerCost(req *http.Request) int {
	n, _ := strconv.Atoi(req.Header.Get("Cost"))
	return n
}

// offer lets 8 workers offer three times the quota of a server, in costs of 1 to 100, for 20
// windows.
func offer(t *testing.T, rule policy.Rule) *quotaServer {
	s := newQuotaServer(3000, 3*time.Second, tokenLimit)
	s.cost, s.before, s.after = headerCost, 20*time.Millisecond, 80*time.Millisecond
	tr := over(t, transport.Config{Rule: rule}, s)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 7))
			for time.Since(s.start) < 20*s.window {
				cost := 1 + rng.IntN(100)
				resp, err := tr.RoundTrip(headed(t, "GET", "http://h.test/", "Cost: "+strconv.Itoa(cost)))
				if assert.NoError(t, err) {
					_ = resp.Body.Close()
				}
				time.Sleep(time.Duration(rng.IntN(67)) * time.Millisecond) // 7.5 requests per second and worker
			}
		})
	}
	all.Wait()
	return s
}

// With a Cost hardly a request is refused, and each window is used. Without it the client
// learns of the costs too late.
func TestQuotaInTokens(t *testing.T) {
	share := func(t *testing.T, cost func(*http.Request) int) float64 {
		s := offer(t, policy.Rule{QuotaPacing: policy.On, Cost: cost, MaxAttempts: 3})
		refused := float64(s.refused) / float64(s.refused+s.ok)
		least := s.limit
		for n := range 20 {
			least = min(least, s.used[n])
		}
		t.Logf("%d served, %d refused (%.1f %%), least use of a window %.1f %%", s.ok, s.refused, 100*refused, 100*float64(least)/float64(s.limit))
		if cost != nil {
			assert.GreaterOrEqual(t, least, s.limit*95/100)
		}
		return refused
	}
	bubble(t, func(t *testing.T) { assert.LessOrEqual(t, share(t, headerCost), 0.01) })
	bubble(t, func(t *testing.T) { assert.Greater(t, share(t, nil), 0.10) })
	require.False(t, t.Failed())
}

// Members of a fleet share a rate of costs, also if a request needs tokens of more than one
// answer.
func TestFleetRateOfCosts(t *testing.T) {
	for name, limiter := range map[string]policy.Concurrency{"rate": {}, "rate and limiter": {Max: 100}} {
		inBubble(t, name, func(t *testing.T) {
			f := newMemFleet(2 * time.Millisecond)
			var mu sync.Mutex
			total := 0
			var members []*transport.Transport
			for range 5 {
				members = append(members, over(t, transport.Config{Fleet: fleettest.Link(f.member()), Rule: policy.Rule{Cost: headerCost, Concurrency: limiter, RateLimit: policy.RateLimit{PerSecond: 100, Burst: 100}}},
					rt(func(req *http.Request) (*http.Response, error) {
						mu.Lock()
						total += headerCost(req)
						mu.Unlock()
						return newResponse(req, 200, http.NoBody), nil
					})))
			}
			ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
			defer stop()
			var all sync.WaitGroup
			for i, tr := range members {
				for range 3 {
					all.Go(func() {
						rng := rand.New(rand.NewPCG(uint64(i), 8))
						for ctx.Err() == nil {
							req := headed(t, "GET", "http://h.test/", "Cost: "+strconv.Itoa(1+rng.IntN(100)))
							if _, err := tr.RoundTrip(req.WithContext(ctx)); err != nil {
								return // its turn would come after the end
							}
						}
					})
				}
			}
			time.Sleep(5 * time.Second)
			mu.Lock()
			before := total
			mu.Unlock()
			all.Wait()
			t.Logf("%d in 5 s, then %d in 55 s", before, total-before)
			assert.LessOrEqual(t, total-before, 5500+200)
			assert.GreaterOrEqual(t, total-before, 5500-500)
			assert.LessOrEqual(t, before, 700)
		})
	}
}

// Cost is called once per request, also with retries, hedges and waits, and not without a
// limit that needs it.
func TestCostIsAskedOnce(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		want int
	}{
		"rate":     {policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1, Burst: 1}}, 1},
		"pacing":   {policy.Rule{QuotaPacing: policy.On}, 1},
		"hedge":    {policy.Rule{QuotaPacing: policy.On, Hedge: policy.Hedge{Delay: time.Millisecond}}, 1},
		"limiter":  {policy.Rule{Concurrency: policy.Concurrency{Max: 1}}, 0},
		"no limit": {policy.Rule{}, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			asked := 0
			row.rule.Cost = func(*http.Request) int { asked++; return 3 }
			play := script(status(503), status(503), status(200))
			tr := over(t, transport.Config{Rule: row.rule}, rt(func(req *http.Request) (*http.Response, error) {
				if err := pause(req, 10*time.Millisecond); err != nil {
					return nil, err
				}
				return play.RoundTrip(req)
			}))
			resp := mustGet(t, tr)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, row.want, asked)
		})
	}
}

// If Cost panics, the body of the request is closed, nothing is held, and the next request
// goes.
func TestCostPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		panics := true
		tr := over(t, transport.Config{Rule: policy.Rule{
			Cost: func(*http.Request) int {
				if panics {
					panic("cost")
				}
				return 1
			},
			RateLimit: policy.RateLimit{PerSecond: 1, Burst: 1}, Concurrency: policy.Concurrency{Max: 1}, QuotaPacing: policy.On,
		}}, script(status(200)))
		body := oneShot("text")
		req := newRequest(t, "POST", "http://h.test/", nil)
		req.Body = body
		assert.PanicsWithValue(t, "cost", func() { _, _ = tr.RoundTrip(req) })
		count(t, 1, body.closed(), "body closed")
		idle(t, tr)
		panics = false
		begin := time.Now()
		resp := mustGet(t, tr)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, begin, time.Now(), "the token is still there")
	})
}

// A reconnect costs what the request costs, without another question.
func TestCostIsAskedOnceForABody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		body := text(100 << 10)
		base := cutter(body, 60<<10, 10<<10)
		rule := policy.Rule{Cost: func(*http.Request) int { asked++; return 10 }, RateLimit: policy.RateLimit{PerSecond: 10, Burst: 10}}
		tr := over(t, transport.Config{Rule: rule}, base)
		from := time.Now()
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test/", nil))
		assert.Equal(t, body, mustRead(t, resp))
		base.sent(t, 3)
		count(t, 1, asked, "Cost called")
		assert.GreaterOrEqual(t, time.Since(from), 2*time.Second, "each reconnect costs as much")
	})
}
