package transport_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// moody returns a server that refuses a share of all requests at random,
// whatever else is asked of it.
func moody(seed uint64, share float64, takes time.Duration, code int) *origin {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 19))
	return script(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		refuse, more := rng.Float64() < share, time.Duration(rng.Int64N(int64(takes/2)))
		mu.Unlock()
		if err := pause(req, takes+more); err != nil {
			return nil, err
		}
		if refuse {
			return play(req, status(code, "Retry-After: 1", "Date: "))
		}
		return play(req, status(200))
	})
}

// workers starts n workers that send GETs, each of them in sequence. It returns how long
// all of them took.
func workers(t *testing.T, base http.RoundTripper, rule policy.Rule, n, each int) time.Duration {
	rule.Attempts = 20
	tr := mustNew(t, transport.Config{Base: base, Rule: rule})
	start := time.Now()
	together(n, func(int) {
		for range each {
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		}
	})
	return time.Since(start)
}

// TestScatteredRefusals: a server refuses at random, and not because a quota is used up.
// The shared cooldown does not make its callers much slower.
func TestScatteredRefusals(t *testing.T) {
	const seeds = 25 // the ratios of a few seeds scatter too much
	quickly := policy.Rule{Backoff: backoff.Constant(time.Millisecond), Budget: policy.Budget{Burst: policy.Off}}
	for i, row := range []struct {
		share   float64
		n, each int
		takes   time.Duration
		rule    policy.Rule
		most    float64 // times as long
	}{
		{0.15, 4, 12, 20 * time.Millisecond, quickly, 1.3},
		{0.15, 4, 50, 10 * time.Millisecond, quickly, 1.3},
		{0.15, 4, 25, 100 * time.Millisecond, quickly, 1.3},
		{0.15, 4, 25, 20 * time.Millisecond, policy.Rule{}, 1.3},
		{0.15, 2, 25, 20 * time.Millisecond, quickly, 1.3},
		{0.15, 8, 25, 20 * time.Millisecond, quickly, 1.3},
		{0.05, 4, 50, 20 * time.Millisecond, quickly, 1.3},
		{0.25, 4, 25, 20 * time.Millisecond, quickly, 1.4},
		{0.15, 16, 25, 20 * time.Millisecond, quickly, 1.3},
	} {
		both := []int{429, 503}
		for _, code := range soak.Size(both[i%2:][:1], both) {
			name := fmt.Sprintf("%d for %v of %d×%d, %v each", code, row.share, row.n, row.each, row.takes)
			if row.rule.Backoff == nil {
				name += ", default rule"
			}
			t.Run(name, func(t *testing.T) {
				var took [2]time.Duration
				for seed := range uint64(seeds) {
					for i, mode := range []policy.Switch{policy.Off, policy.On} {
						bubble(t, func(t *testing.T) {
							rule := row.rule
							rule.Cooldown = mode
							took[i] += workers(t, moody(seed, row.share, row.takes, code), rule, row.n, row.each)
						})
					}
				}
				ratio := took[1].Seconds() / took[0].Seconds()
				t.Logf("without the cooldown %.1f s, with it %.1f s: %.2f times", took[0].Seconds()/seeds, took[1].Seconds()/seeds, ratio)
				assert.LessOrEqual(t, ratio, row.most)
			})
		}
	}
}

// A quota is a server that allows a number of requests per window. Its refusals name the
// whole seconds to the end of the window.
type quota struct {
	*origin
	mu    sync.Mutex
	told  []time.Duration // when the first refusal of a window was given
	ends  []time.Duration // and when that window ended
	count int             // refusals
}

func newQuota(limit int, window, takes time.Duration) *quota {
	q := &quota{}
	used, number := 0, time.Duration(-1)
	q.origin = script(func(req *http.Request) (*http.Response, error) {
		q.mu.Lock()
		now := time.Since(q.start)
		if now/window != number {
			number, used = now/window, 0
		}
		used++
		refused, end := used > limit, (number+1)*window
		q.mu.Unlock()
		if !refused { // takes longer, so that successes arrive after the first refusal
			return play(req, status(200).Delay(takes+time.Duration(rand.Int64N(int64(3*takes)))))
		}
		if err := pause(req, takes); err != nil {
			return nil, err
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.count++; len(q.ends) == 0 || q.ends[len(q.ends)-1] != end {
			q.told, q.ends = append(q.told, time.Since(q.start)), append(q.ends, end)
		}
		return play(req, status(429, "Retry-After: "+strconv.Itoa(int((end-now+time.Second-1)/time.Second)), "Date: "))
	})
	return q
}

// TestQuotaUsedUp: when a quota really is used up, at most two requests are sent
// between the first refusal and the window's end.
func TestQuotaReallyUsedUp(t *testing.T) {
	for _, row := range []struct {
		n, each, limit int
		window         time.Duration
	}{
		{4, 100, 50, 5 * time.Second},
		{16, 25, 50, 5 * time.Second},
		{50, 12, 50, 5 * time.Second},
		{4, 100, 30, 20 * time.Second},
		{8, 50, 20, 2 * time.Second},
	} {
		for _, mode := range []policy.Switch{policy.Off, policy.On} {
			inBubble(t, fmt.Sprintf("%d workers, %d per %v, cooldown %v", row.n, row.limit, row.window, mode), func(t *testing.T) {
				server := newQuota(row.limit, row.window, 10*time.Millisecond)
				took := workers(t, server, policy.Rule{Cooldown: mode, Backoff: backoff.Constant(time.Millisecond), Budget: policy.Budget{Burst: policy.Off}}, row.n, row.each)
				require.NotEmpty(t, server.told)
				worst := 0
				for i, from := range server.told {
					worst = max(worst, server.between(from+1, server.ends[i]))
				}
				t.Logf("%d holds, at most %d attempts during one; %d refusals in all, %.1f s", len(server.told), worst, server.count, took.Seconds())
				if mode == policy.On {
					assert.LessOrEqual(t, worst, 2)
				}
			})
		}
	}
}
