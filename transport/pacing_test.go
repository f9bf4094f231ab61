package transport_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A quotaServer allows a number of requests per window. Every response names the rest of
// the quota. Beyond the quota it responds with 429.
type quotaServer struct {
	*origin
	limit  int
	window time.Duration

	mu      sync.Mutex
	used    map[int]int // by window
	refused int
}

func newQuotaServer(limit int, window time.Duration, header func(left, limit, reset int) []string) *quotaServer {
	q := &quotaServer{limit: limit, window: window, used: map[int]int{}}
	q.origin = script()
	q.serve = func(req *http.Request) (*http.Response, error) {
		q.mu.Lock()
		at := time.Since(q.start)
		n := int(at / window)
		code := 200
		if q.used[n] >= limit {
			code = 429
			q.refused++
		} else {
			q.used[n]++
		}
		left := limit - q.used[n]
		reset := time.Duration(n+1)*window - at
		q.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		return play(req, status(code, header(left, limit, int((reset+time.Second-1)/time.Second))...))
	}
	return q
}

func xRateLimit(left, limit, reset int) []string {
	return []string{fmt.Sprintf("X-RateLimit-Limit: %d", limit), fmt.Sprintf("X-RateLimit-Remaining: %d", left), fmt.Sprintf("X-RateLimit-Reset: %d", reset)}
}

func rateLimit(left, limit, reset int) []string {
	return []string{fmt.Sprintf(`RateLimit-Policy: "default";q=%d;w=10`, limit), fmt.Sprintf(`RateLimit: "default";r=%d;t=%d`, left, reset)}
}

// TestPacing: with pacing the quota is never exceeded. Without pacing it is exceeded.
func TestPacing(t *testing.T) {
	for name, header := range map[string]func(int, int, int) []string{"X-RateLimit": xRateLimit, "RateLimit": rateLimit} {
		for _, workers := range []int{1, 5} {
			t.Run(fmt.Sprintf("%s with %d workers", name, workers), func(t *testing.T) {
				run := func(t *testing.T, pacing policy.Switch, hedge time.Duration) (q *quotaServer, took time.Duration) {
					bubble(t, func(t *testing.T) {
						q = newQuotaServer(20, 10*time.Second, header)
						tr := mustNew(t, transport.Config{Base: q, Rule: policy.Rule{Pacing: pacing, Hedge: policy.Hedge{After: hedge}}})
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
				assert.Equal(t, 100, q.attempts())
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
			Pacing: policy.On, Hedge: policy.Hedge{After: 2 * time.Millisecond}, Backoff: backoff.Constant(time.Millisecond),
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

// TestPacingDoesNotBelieveEverything: a window that ends in a day stops a host
// for no longer than RetryAfter.Max.
func TestPacingDoesNotBelieveEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(status(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Limit: 10", "X-RateLimit-Reset: 86400"))
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Pacing: policy.On}})
		for range 3 {
			responds(t, tr, http.MethodGet, "http://h.test/")
		}
		assert.Equal(t, []time.Duration{0, time.Minute, 2 * time.Minute}, server.arrivals())
	})
}

// TestPacingIsPerScope: each token has a quota of its own.
func TestPacingIsPerScope(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(status(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Limit: 10", "X-RateLimit-Reset: 30"))
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Pacing: policy.On}})
		for _, token := range []string{"a", "b", "a"} {
			responds(t, tr, http.MethodGet, "http://h.test/", "Authorization: Bearer "+token)
		}
		assert.Equal(t, []time.Duration{0, 0, 30 * time.Second}, server.arrivals())
	})
}

// TestOneWrongQuota: a wrong quota slows a host down until the next response, and no
// longer.
func TestOneWrongQuota(t *testing.T) {
	for name, wrong := range map[string][]string{
		"none left for a day":  {"X-RateLimit-Remaining: 0", "X-RateLimit-Limit: 5000", "X-RateLimit-Reset: 86400"},
		"one left for an hour": {"RateLimit: \"a\";r=1;t=3600", "RateLimit-Policy: \"a\";q=5000"},
	} {
		for _, n := range []int{1, 5} {
			for _, hedge := range []time.Duration{0, 50 * time.Millisecond} {
				inBubble(t, fmt.Sprintf("%s, %d workers, hedge %v", name, n, hedge), func(t *testing.T) {
					var mu sync.Mutex
					attempts := 0
					server := script(func(req *http.Request) (*http.Response, error) {
						mu.Lock()
						attempts++
						mine := attempts
						mu.Unlock()
						if err := pause(req, time.Duration(20+mine%7*20)*time.Millisecond); err != nil {
							return nil, err
						}
						if mine == 20 {
							return play(req, status(200, wrong...))
						}
						return play(req, status(200, fmt.Sprintf("X-RateLimit-Remaining: %d", 5000-mine), "X-RateLimit-Limit: 5000", "X-RateLimit-Reset: 3600"))
					})
					rule := policy.Rule{Pacing: policy.On}
					if hedge > 0 {
						rule.Hedge = policy.Hedge{After: hedge}
					}
					tr := mustNew(t, transport.Config{Base: server, Rule: rule})
					together(n, func(int) {
						for range 500 / n {
							assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
						}
					})
					took := time.Since(server.start)
					t.Logf("%v for 500 requests", took)
					assert.Less(t, took, 2*time.Minute+time.Duration(500/n)*200*time.Millisecond)
				})
			}
		}
	}
}
