package limit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/exchange/exchangetest"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/policy"
)

// A site is a host whose rule turns limits on.
type site struct{ *exchangetest.Site }

func newSite(t *testing.T, rule policy.Rule) *site {
	t.Helper()
	return &site{exchangetest.New(t, rule)}
}

// play runs a test in virtual time with a site. With a name it is a subtest.
func play(t *testing.T, name string, rule policy.Rule, test func(*testing.T, *site)) {
	t.Helper()
	exchangetest.Play(t, name, rule, func(t *testing.T, s *exchangetest.Site) { test(t, &site{s}) })
}

// ends notes the response to a request.
func (s *site) ends(t *testing.T, code int, v classify.Class, header ...string) {
	t.Helper()
	s.Ends(t, new(Permit), code, v, header...)
}

// acquire asks for an attempt that has not waited yet, and that may always go. As in transport, the observer is told before what
// the fleet said.
func acquire(p *Permit, r *exchange.Request) *exchange.Rejection {
	if !r.State.Quiet() {
		r.Review()
	}
	return p.Acquire(r, new(attempt.Queued), 0)
}

var (
	answer, change = exchangetest.Answer, exchangetest.Change

	holding = policy.Rule{ShareRetryAfter: policy.On}
	rated   = policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.25, Burst: 1}}
	limited = policy.Rule{Concurrency: policy.Concurrency{Max: 1}}
	paced   = policy.Rule{QuotaPacing: policy.On}
	costly  = policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1, Burst: 3}, Cost: func(*http.Request) int { return 2 }}
)

// What makes an attempt wait, and which waits are refused. The first request takes what there is.
func TestAcquire(t *testing.T) {
	hold := func(t *testing.T, s *site) { s.ends(t, 429, classify.Ambiguous, "Retry-After: 4") }
	take := func(t *testing.T, s *site) {
		r, p, f := s.Request(t, 0), new(Permit), new(attempt.Attempt)
		require.Nil(t, acquire(p, r))
		p.Start(f)
		time.AfterFunc(4*time.Second, f.Slot.Release)
	}
	quota := func(t *testing.T, s *site) {
		s.ends(t, 200, classify.Final, `Ratelimit: "d";r=0;t=4`, `Ratelimit-Policy: "d";q=100;w=60`)
	}
	later := func(what func(*testing.T, *site)) func(*testing.T, *site) {
		return func(t *testing.T, s *site) { take(t, s); time.AfterFunc(3*time.Second, func() { what(t, s) }) }
	}
	foreign := func(t *testing.T, s *site) {
		s.Join()
		s.Request(t, 0)
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: exchangetest.Name, Status: 429, Wait: 4 * time.Second})
	}
	both, refusing := limited, limited
	both.RateLimit, refusing.Concurrency.FailFast = policy.RateLimit{PerSecond: 0.5, Burst: 1}, policy.On
	wide := refusing
	wide.Concurrency.Max = 2
	for name, row := range map[string]struct {
		rule             policy.Rule
		before           func(*testing.T, *site)
		deadline, latest time.Duration
		why              exchange.Why
		limit            string // empty: it goes
		wait             time.Duration
		queued           string // where it has waited
	}{
		"nothing":                 {policy.Rule{}, take, 0, 0, 0, "", 0, ""},
		"another hold":            {policy.Rule{}, hold, 0, 0, 0, "", 0, ""},
		"hold":                    {holding, hold, 0, 0, 0, "", 4 * time.Second, "throttle"},
		"hold and deadline":       {holding, hold, 3 * time.Second, 0, exchange.WhyLate, LimitThrottle, 0, ""},
		"hold of a retry":         {holding, hold, 0, 3 * time.Second, exchange.WhyOverdue, LimitThrottle, 0, ""},
		"hold beyond the bound":   {holding.Or(policy.Rule{MaxRetryAfter: 2 * time.Second}), hold, 0, 0, 0, "", 2 * time.Second, "throttle"},
		"hold of the fleet":       {holding, foreign, 0, 0, 0, "", 4 * time.Second, "throttle"},
		"that, and a limiter":     {holding.Or(limited), foreign, 0, 0, 0, "", 4 * time.Second, "throttle"},
		"that, and a deadline":    {holding, foreign, 3 * time.Second, 0, 0, "", 2250 * time.Millisecond, "throttle"},
		"that, of a retry":        {holding, foreign, 0, 3 * time.Second, 0, "", 2250 * time.Millisecond, "throttle"},
		"rate":                    {rated, take, 0, 0, 0, "", 4 * time.Second, "rate"},
		"rate and deadline":       {rated, take, 3 * time.Second, 0, exchange.WhyLate, LimitRate, 0, ""},
		"rate of a retry":         {rated, take, 0, 3 * time.Second, exchange.WhyOverdue, LimitRate, 0, ""},
		"rate of costs":           {costly, take, 0, 0, 0, "", time.Second, "rate"},
		"limiter":                 {limited, take, 0, 0, 0, "", 4 * time.Second, "limiter"},
		"limiter and deadline":    {limited, take, 3 * time.Second, 0, 0, LimitConcurrency, 3 * time.Second, "limiter"},
		"limiter after its time":  {limited, take, 0, -time.Second, exchange.WhyOverdue, LimitConcurrency, 0, ""},
		"limiter that refuses":    {refusing, take, 0, 0, exchange.WhyFull, LimitConcurrency, 0, ""},
		"full, and a rate":        {refusing.Or(rated), take, 0, 0, exchange.WhyFull, LimitConcurrency, 0, ""},
		"not full, but a rate":    {wide.Or(rated), take, 0, 0, 0, "", 4 * time.Second, "rate"},
		"not full, but a hold":    {wide.Or(holding), hold, 0, 0, 0, "", 4 * time.Second, "throttle"},
		"limiter and rate":        {both, take, 0, 0, 0, "", 4 * time.Second, "limiter rate"},
		"limiter, rate, deadline": {limited.Or(rated), take, 3 * time.Second, 0, exchange.WhyLate, LimitRate, 0, ""},
		"hold at the limiter":     {holding.Or(limited), later(hold), 0, 0, 0, "", 7 * time.Second, "throttle limiter"},
		"quota at the limiter":    {paced.Or(limited), later(quota), 0, 0, 0, "", 7 * time.Second, "pacing limiter"},
		"quota":                   {paced, quota, 0, 0, 0, "", 4 * time.Second, "pacing"},
		"quota and deadline":      {paced, quota, 3 * time.Second, 0, exchange.WhyLate, LimitPacing, 0, ""},
		"hold at the quota":       {paced.Or(holding).Or(limited), func(t *testing.T, s *site) { quota(t, s); time.AfterFunc(3*time.Second, func() { hold(t, s) }) }, 0, 0, 0, "", 7 * time.Second, "throttle pacing"},
		"quota without a limit":   {holding, quota, 0, 0, 0, "", 0, ""},
	} {
		play(t, name, row.rule, func(t *testing.T, s *site) {
			row.before(t, s)
			r, p, start := s.Request(t, row.deadline), new(Permit), time.Now()
			var waited attempt.Queued
			at := new(Permit)
			assert.Equal(t, row.wait == 0 && row.limit == "", at.TryAcquire(r, s.Registry.Now()), "at once")
			at.Cancel()
			var latest instant.Instant
			if row.latest != 0 {
				latest = s.Registry.Now().Add(row.latest)
			}
			if row.wait > 0 { // one comes before and leaves
				left := s.Request(t, 0)
				ctx, cancel := context.WithCancel(left.Ctx)
				left.Ctx = ctx
				go acquire(new(Permit), left)
				synctest.Wait()
				cancel()
				synctest.Wait()
			}
			no := p.Acquire(r, &waited, latest)
			took := time.Since(start)
			assert.GreaterOrEqual(t, took, row.wait)
			assert.LessOrEqual(t, took, row.wait+time.Second, "with the jitter of a hold")
			if row.limit != "" {
				require.NotNil(t, no)
				assert.Equal(t, []any{row.why, row.limit, no.Why == exchange.WhyGone}, []any{no.Why, no.Limit, no.Err != nil})
				if (no.Why == exchange.WhyLate || no.Why == exchange.WhyOverdue) && row.latest >= 0 {
					assert.WithinRange(t, no.Until, start.Add(4*time.Second), start.Add(8*time.Second))
					held := s.Registry.TimeOf(r.State.Machines().Limits().Throttle.State(r.Scope()).Open)
					assert.Equal(t, row.limit == LimitThrottle, no.Until.Equal(held), "a hold with its jitter")
				}
			} else {
				assert.Nil(t, no)
			}
			var queued []string
			for _, q := range []struct {
				name string
				d    time.Duration
			}{{"throttle", waited.Throttle}, {"pacing", waited.Pacing}, {"limiter", waited.Concurrency}, {"rate", waited.Rate}} {
				if q.d > 0 {
					queued = append(queued, q.name)
				}
			}
			full := no != nil && no.Why == exchange.WhyFull || waited.Concurrency > time.Second
			late := no != nil && no.Limit == LimitRate || waited.Rate > time.Second
			over := waited.Throttle > 0 && no == nil && s.Registry.Fleet == nil // told before there is a slot
			for text, want := range map[string]bool{change(news.Crowded, false, 0, false): full, change(news.RateLimited, false, 0, false): late, change(news.Held, true, 0, false): over} {
				assert.Equal(t, want, slices.Contains(s.Told, text), text)
			}
			assert.Equal(t, row.queued, strings.Join(queued, " "))
			assert.Equal(t, no == nil && r.Rule.Concurrency, p.slot.Limiter != nil, "it has a slot")
			p.Cancel()
			p.Cancel()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			again := new(Permit)
			assert.Nil(t, acquire(again, s.Request(t, 0)), "what it held is free again")
			again.Cancel()
		})
	}
}

// A hold that is over makes nobody wait for another limit again.
func TestAcquireAfterAHold(t *testing.T) {
	play(t, "", holding.Or(rated), func(t *testing.T, s *site) {
		require.Nil(t, acquire(new(Permit), s.Request(t, 0)))
		r, start := s.Request(t, 0), time.Now()
		r.State.Machines().Limits().Throttle.Hold(s.Registry.Now(), r.Scope(), time.Second, throttle.Config{Jitter: -1}, 0)
		var waited attempt.Queued
		require.Nil(t, new(Permit).Acquire(r, &waited, 0))
		assert.Equal(t, 4*time.Second, time.Since(start))
		assert.Equal(t, attempt.Queued{Throttle: time.Second, Rate: 3 * time.Second}, waited)
		assert.Equal(t, time.Second, r.Held)

		s = newSite(t, holding)
		s.ends(t, 429, classify.Final, "Retry-After: 30")
		r, start = s.Request(t, 10*time.Second), time.Now()
		r.Held = 59 * time.Second // of the minute that a request waits
		require.Nil(t, acquire(new(Permit), r))
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// The rule is asked for the cost before the request waits, if a limit counts costs.
func TestCostIsKnownFirst(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		want int
	}{"rate": {rated, 1}, "quota": {paced, 1}, "limiter": {limited, 0}} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			s := newSite(t, holding.Or(row.rule).Or(policy.Rule{Cost: func(*http.Request) int { asked++; return 1 }}))
			s.ends(t, 429, classify.Ambiguous, "Retry-After: 4")
			no := acquire(new(Permit), s.Request(t, time.Second))
			require.NotNil(t, no)
			assert.Equal(t, []any{LimitThrottle, row.want}, []any{no.Limit, asked}, name)
		})
	}
}

// A request takes its cost of the rate and of a quota that does not count requests. An attempt that does not wait takes nothing
// before those that do.
func TestCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cost int
		rule := costly
		rule.Cost = func(*http.Request) int { return cost }
		s := newSite(t, rule)
		try := func(n int) bool {
			cost = n
			return new(Permit).TryAcquire(s.Request(t, 0), s.Registry.Now())
		}
		assert.True(t, try(2))
		assert.False(t, try(2), "1 of 3 is left")
		cost = 2
		waits := s.Request(t, 0)
		go acquire(new(Permit), waits)
		synctest.Wait()
		assert.False(t, try(1), "another waits")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.False(t, try(1))
		time.Sleep(time.Second)
		assert.True(t, try(1))

		rule = paced
		rule.Cost = costly.Cost
		s = newSite(t, rule)
		s.ends(t, 200, classify.Final, `Ratelimit: "d";r=3;t=30`, `Ratelimit-Policy: "d";q=100;w=60;qu="tokens"`)
		start := time.Now()
		for range 2 {
			assert.Nil(t, acquire(new(Permit), s.Request(t, 0)))
		}
		assert.GreaterOrEqual(t, time.Since(start), 15*time.Second, "there are 3, and each takes 2")
	})
}

// A forecast tells of the limit that takes longest.
func TestForecast(t *testing.T) {
	play(t, "", holding.Or(rated), func(t *testing.T, s *site) {
		forecast := func() []any {
			turn, limit := new(Permit).Forecast(s.Request(t, 0), time.Now())
			return []any{turn, limit}
		}
		assert.Equal(t, []any{time.Duration(0), LimitRate}, forecast())
		assert.True(t, new(Permit).TryAcquire(s.Request(t, 0), s.Registry.Now()))
		assert.Equal(t, []any{4 * time.Second, LimitRate}, forecast())
		s.ends(t, 429, classify.Ambiguous, "Retry-After: 4")
		assert.Equal(t, []any{4 * time.Second, LimitRate}, forecast())
		s.ends(t, 429, classify.Ambiguous, "Retry-After: 5")
		assert.Equal(t, []any{5 * time.Second, LimitThrottle}, forecast())
		s.Update(t, policy.Rule{})
		assert.Equal(t, []any{time.Duration(0), ""}, forecast())
	})
}

// What the outcome of an attempt tells the limits.
func TestDone(t *testing.T) {
	const again, refused, final = classify.Ambiguous, classify.Refused, classify.Final
	for name, row := range map[string]struct {
		code    int
		verdict classify.Class
		wait    string
		err     error
		held    bool
	}{
		"success":               {code: 200, verdict: final, wait: "4"},
		"400":                   {400, again, "4", nil, true},
		"503 at once":           {code: 503, verdict: again, wait: "0"},
		"429":                   {429, again, "4", nil, true},
		"final 429":             {429, final, "4", nil, true},
		"503":                   {503, refused, "4", nil, true},
		"503 without a wait":    {code: 503, verdict: again},
		"500":                   {500, again, "4", nil, false},
		"403":                   {403, again, "4", nil, true},
		"final 403":             {code: 403, verdict: final, wait: "4"},
		"409":                   {409, again, "4", nil, false},
		"425":                   {425, refused, "4", nil, false},
		"an error":              {verdict: again, err: syscall.ECONNRESET},
		"a proxy that is tired": {verdict: refused, err: &exchange.ProxyAnswer{Resp: answer(503, "Retry-After: 4")}},
	} {
		for _, peeks := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				rule := holding
				if peeks {
					rule.Classify = classify.Refusals
				}
				s := newSite(t, rule)
				s.Join()
				r, p, o := s.Request(t, 0), new(Permit), attempt.Outcome{Kind: attempt.First, Class: row.verdict, Err: row.err}
				s.Sent = nil
				if row.code > 0 {
					o.Resp = answer(row.code, "Retry-After: "+row.wait)
				}
				p.Headers(r, &o)
				early := r.State.Quiet()
				assert.Equal(t, !early, r.State.Machines().LimitsMade() != nil, name)
				assert.Equal(t, peeks && row.held && exchange.TellsToWait(row.code), !early, name)
				_, u := s.Done(r, p, &o)
				assert.Equal(t, row.held, r.State.Machines().LimitsMade() != nil, "%s: others need no limits", name)
				assert.True(t, 0 <= u && u < 1)
				assert.Equal(t, row.held, len(s.Sent) == 1, "%s: the fleet was told %d holds", name, len(s.Sent))
				until := r.State.Machines().Limits().Throttle.State(r.Scope()).Open
				assert.Equal(t, row.held, until > 0, name)
				if row.held {
					assert.Equal(t, change(news.Held, false, row.code, false), s.Told[0], name)
					turn, limit := p.Forecast(s.Request(t, 0), time.Now())
					assert.Equal(t, []any{4 * time.Second, LimitThrottle}, []any{turn, limit})
					r.Held = 59 * time.Second // of the minute that a request waits
					turn, _ = p.Forecast(r, time.Now())
					assert.Equal(t, time.Second, turn)
					time.Sleep(16 * time.Second)
					synctest.Wait()
					s.ends(t, 200, classify.Final)
					assert.Equal(t, change(news.Held, true, 0, false), s.Told[len(s.Told)-1], name)
				}
			})
		}
	}
}

// removed plays that an Update removes the rate for which requests wait. All of them go when the next request begins.
func removed(t *testing.T, s *site) {
	s.Registry.Fleet = nil
	rule := s.Request(t, 0).Rule.Policy
	began := time.Now()
	var all sync.WaitGroup
	for range 3 {
		r, p := s.Request(t, 0), new(Permit)
		all.Go(func() {
			assert.Nil(t, acquire(p, r))
			p.Cancel()
		})
	}
	time.Sleep(time.Second)
	rule.RateLimit = policy.RateLimit{}
	s.Update(t, rule)
	r, p := s.Request(t, 0), new(Permit)
	assert.Nil(t, acquire(p, r))
	p.Cancel()
	all.Wait()
	assert.Equal(t, time.Second, time.Since(began))
}

// What is told of the limits while they hold requests, and what the fleet is told.
func TestTold(t *testing.T) {
	in := func(t *testing.T, name string, rule policy.Rule, test func(*testing.T, *site)) {
		play(t, name, rule, func(t *testing.T, s *site) {
			s.Join()
			test(t, s)
		})
	}
	in(t, "waits that nobody shares", policy.Rule{Classify: classify.Refusals, QuotaPacing: policy.On}, func(t *testing.T, s *site) {
		s.ends(t, 429, classify.Ambiguous, "Retry-After: 4")
		assert.Empty(t, s.Told)
		assert.True(t, new(Permit).TryAcquire(s.Request(t, 0), s.Registry.Now()))
	})
	in(t, "a wait that is none", policy.Rule{ShareRetryAfter: policy.On, RetryAfter: func(classify.Outcome) (time.Duration, bool) { return time.Hour, false }}, func(t *testing.T, s *site) {
		s.ends(t, 429, classify.Ambiguous)
		assert.Empty(t, s.Told)
	})
	quota := func(r, q int) string { return fmt.Sprintf(`"%d";r=%d;t=30`, q, r) }
	in(t, "quota", paced, func(t *testing.T, s *site) {
		s.ends(t, 200, classify.Final, "Ratelimit-Remaining: 1", "Ratelimit-Limit: 100", "Ratelimit-Reset: 0")
		assert.Empty(t, s.Told, "the window is over")
		left := func(n []int) {
			s.ends(t, 200, classify.Final, "Ratelimit: "+quota(n[0], 100)+", "+quota(n[1], 10), `Ratelimit-Policy: "100";q=100;w=60, "10";q=10;w=60;qu="tokens"`)
		}
		for _, row := range []struct {
			left    []int // of 100, and of 10
			message float64
			room    int
			lasts   bool
		}{{[]int{51, 10}, 0, 0, false}, {[]int{50, 10}, 50, 0, false}, {[]int{15, 1}, 15, 1, true}, {[]int{5, 1}, 5, 5, true}, {[]int{90, 9}, 0, 0, false}} {
			s.Sent = nil
			left(row.left)
			c, lasts := s.Request(t, 0).State.Machines().News().Lasts(news.Key{Condition: news.LowQuota})
			assert.Equal(t, []any{row.lasts, row.room}, []any{lasts, c.Room}, row)
			var amounts []float64
			for _, m := range s.Sent {
				if m.Kind == fleetmsg.Quota && m.Limit == 100 {
					assert.Equal(t, 30*time.Second, m.Wait)
					amounts = append(amounts, m.Amount)
				}
			}
			if row.message > 0 {
				assert.Equal(t, []float64{row.message}, amounts, row)
			} else {
				assert.Empty(t, amounts, row)
			}
		}
		assert.Equal(t, []string{change(news.LowQuota, false, 200, false), change(news.LowQuota, true, 0, false)}, s.Told)
		more := func(p *Permit, header ...string) bool {
			return p.HasMore(s.Request(t, 0), &attempt.Outcome{Resp: answer(200, header...)})
		}
		assert.True(t, more(new(Permit), "Ratelimit: "+quota(5, 100)) && more(&Permit{refused: new(attempt.Slot)}) && !more(new(Permit)))
		left([]int{90, 0})
		s.ends(t, 200, classify.Final, `Ratelimit: "100";r=90;t=30, "10";r=0;t=0`, `Ratelimit-Policy: "100";q=100;w=60, "10";q=10;w=60;qu="tokens"`)
		assert.Len(t, s.Told, 4, "the window of the other is over")
		s.Told = s.Told[:2]
		left([]int{5, 1})
		s.ends(t, 200, classify.Final, "Ratelimit-Remaining: 90", "Ratelimit-Limit: 100", "Ratelimit-Reset: 0")
		assert.Len(t, s.Told, 3, "the window is over")
		left([]int{0, 0})
		s.Update(t, policy.Rule{})
		assert.True(t, new(Permit).TryAcquire(s.Request(t, 0), s.Registry.Now()), "an Update turned the pacing off")
		assert.False(t, more(new(Permit), "Ratelimit: "+quota(5, 100)))
		s.ends(t, 200, classify.Final)
		assert.Equal(t, []string{change(news.LowQuota, false, 200, false), change(news.LowQuota, true, 0, false)}, s.Told[2:], "an Update turned the pacing off")
	})
	for _, known := range []bool{false, true} {
		in(t, fmt.Sprint("wait in the body, known ", known), policy.Rule{ShareRetryAfter: policy.On, Classify: classify.Refusals, RetryAfter: func(o classify.Outcome) (time.Duration, bool) {
			if o.Response.Body == http.NoBody {
				return 4 * time.Second, true
			}
			return 8 * time.Second, true
		}}, func(t *testing.T, s *site) {
			r, p, o := s.Request(t, 0), new(Permit), attempt.Outcome{Kind: attempt.First, Class: classify.Ambiguous, Resp: answer(503)}
			s.Sent = nil
			o.Resp.Body = io.NopCloser(strings.NewReader("8 s"))
			end := s.Registry.Now().Add(8 * time.Second)
			if known {
				o.DoneAt = s.Registry.Now()
				time.Sleep(time.Second)
			}
			hold := s.Registry.Now().Add(4 * time.Second)
			p.Headers(r, &o)
			assert.Equal(t, hold, s.Last.Until)
			time.Sleep(time.Second)
			p.Headers(r, &o) // again
			_, u := s.Done(r, p, &o)
			assert.Equal(t, p.heard.u, u, "the jitter of the hold")
			assert.Equal(t, end, r.State.Machines().Limits().Throttle.State(r.Scope()).Named, "since the headers")
			assert.Len(t, s.Sent, 2, "that of the headers, and that of the body")
		})
	}
	in(t, "hold", holding, func(t *testing.T, s *site) {
		s.ends(t, 503, classify.Ambiguous, "Retry-After: 4")
		assert.Equal(t, s.Registry.Now().Add(4*time.Second), s.Last.Until, "without jitter")
		assert.Equal(t, []fleetmsg.Message{{Kind: fleetmsg.Meet, Host: exchangetest.Name}, {Kind: fleetmsg.Hold, Host: exchangetest.Name, Status: 503, Wait: 4 * time.Second}}, s.Sent)
		s.ends(t, 503, classify.Ambiguous, "Retry-After: 8")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		s.ends(t, 200, classify.Final)
		assert.Len(t, s.Told, 1, "it is held still")
	})
	for name, begins := range map[string]func(s *site){
		"ramp": func(s *site) { s.ends(t, 503, classify.Ambiguous, "Retry-After: 4") },
		"ramp of the fleet": func(s *site) {
			s.Hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: exchangetest.Name, Status: 503, Wait: 4 * time.Second})
		},
	} {
		in(t, name, holding, func(t *testing.T, s *site) {
			r := s.Request(t, 0)
			begins(s)
			var went atomic.Int32
			for range 7 {
				go func() { acquire(new(Permit), s.Request(t, 0)); went.Add(1) }()
			}
			if synctest.Wait(); s.Last.Fleet {
				time.Sleep(s.Last.Until.Sub(s.Registry.Now()))
			} else {
				time.Sleep(r.State.Machines().Limits().Throttle.State(0).Open.Sub(s.Registry.Now()))
			}
			for _, row := range []struct {
				o    attempt.Outcome
				want int32
			}{{attempt.Outcome{Err: syscall.ECONNRESET, Class: classify.Ambiguous}, 1}, {attempt.Outcome{Err: syscall.ECONNRESET}, 1},
				{attempt.Outcome{Resp: answer(500), Class: classify.Ambiguous}, 1}, {attempt.Outcome{Resp: answer(429), Class: classify.Final}, 1},
				{attempt.Outcome{Resp: answer(404), Class: classify.Final}, 3}, {attempt.Outcome{Resp: answer(500), Class: classify.Ambiguous, BodyBroke: true}, 5}} {
				row.o.SentAt = s.Registry.Now()
				synctest.Wait()
				s.Done(r, new(Permit), &row.o)
				synctest.Wait()
				assert.Equal(t, row.want, went.Load(), "requests that went after %d %v", row.o.Status(), row.o.Err)
			}
		})
	}
	in(t, "hold of the fleet", holding, func(t *testing.T, s *site) {
		s.Request(t, 0)
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: exchangetest.Name, Status: 429, Wait: 4 * time.Second})
		assert.Empty(t, s.Told)
		assert.Nil(t, acquire(new(Permit), s.Request(t, 0)))
		assert.Equal(t, change(news.Held, false, 429, true), s.Told[0], "by the next request")
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: exchangetest.Name, Status: 429, Wait: 4 * time.Second})
		gone := s.Request(t, 0)
		ctx, cancel := context.WithCancel(gone.Ctx)
		gone.Ctx = ctx
		time.AfterFunc(time.Second, cancel)
		no := acquire(new(Permit), gone)
		require.NotNil(t, no)
		assert.ErrorIs(t, no.Err, context.Canceled)
		assert.Equal(t, LimitThrottle, no.Limit)
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: exchangetest.Name, Status: 500, Scope: 2})
		s.Request(t, 0).Review()
		assert.NotContains(t, fmt.Sprint(s.Told), "500", "it holds nothing")
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: exchangetest.Name, Status: 429, Wait: 4 * time.Second})
		s.Update(t, policy.Rule{})
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: exchangetest.Name, Scope: 1, Wait: 4 * time.Second})
		r := s.Request(t, 0)
		assert.True(t, new(Permit).TryAcquire(r, s.Registry.Now()), "an Update turned holds off")
	})
	in(t, "slot", limited, func(t *testing.T, s *site) {
		r, p, f := s.Request(t, 0), new(Permit), new(attempt.Attempt)
		require.Nil(t, acquire(p, r))
		p.Start(f)
		p.Landed(f)
		assert.True(t, p.HasMore(r, &attempt.Outcome{Resp: answer(200)}))
		o := attempt.Outcome{Kind: attempt.First, Resp: answer(503), Class: classify.Ambiguous}
		s.Done(r, p, &o)
		assert.True(t, p.TryAcquire(r, s.Registry.Now()), "Done frees the slot")
		(&Permit{refused: &p.slot}).Cancel()
		assert.True(t, new(Permit).TryAcquire(r, s.Registry.Now()), "so does Cancel")
	})
	in(t, "a share of a quota, and then a slot", paced.Or(limited), func(t *testing.T, s *site) {
		r, p, start := s.Request(t, 0), new(Permit), time.Now()
		require.Nil(t, acquire(p, r))
		s.ends(t, 200, classify.Final, `Ratelimit: "d";r=3;t=40`, `Ratelimit-Policy: "d";q=100;w=60`) // one in 10 s
		time.AfterFunc(4*time.Second, func() { p.Cancel() })
		require.Nil(t, acquire(new(Permit), s.Request(t, 0)))
		assert.Equal(t, 4*time.Second, time.Since(start), "it takes one share")
	})
	in(t, "little time", limited, func(t *testing.T, s *site) {
		for range 2 {
			p := new(Permit)
			require.Nil(t, acquire(p, s.Request(t, 1005*time.Millisecond)), "however long a response takes")
			time.AfterFunc(time.Second, p.slot.Release)
		}
		assert.Empty(t, s.Told, "a second is not long")
	})
	in(t, "a token that comes soon", rated, func(t *testing.T, s *site) {
		s.Registry.Fleet = nil
		for _, deadline := range []time.Duration{0, 0, 2 * time.Millisecond} {
			var waited attempt.Queued
			no := new(Permit).Acquire(s.Request(t, deadline), &waited, 0)
			assert.Equal(t, deadline > 0, no != nil)
			if no != nil {
				assert.Equal(t, []any{exchange.WhyLate, LimitRate}, []any{no.Why, no.Limit})
			} else {
				assert.Less(t, waited.Rate, 6*time.Millisecond)
			}
			time.Sleep(3995 * time.Millisecond)
		}
	})
	in(t, "a new rate", limited.Or(rated), func(t *testing.T, s *site) {
		s.Registry.Fleet = nil
		p, start := new(Permit), time.Now()
		require.Nil(t, acquire(p, s.Request(t, 0)))
		p.Cancel()
		r, went := s.Request(t, 0), make(chan *exchange.Rejection)
		go func() { went <- acquire(p, r) }()
		time.Sleep(time.Second)
		s.Update(t, limited.Or(policy.Rule{RateLimit: policy.RateLimit{PerSecond: 100}}))
		s.Request(t, 0)
		assert.Nil(t, <-went)
		p.Cancel()
		var waited attempt.Queued
		assert.Nil(t, new(Permit).Acquire(s.Request(t, 0), &waited, 0))
		assert.Equal(t, attempt.Queued{Rate: 10 * time.Millisecond}, waited)
		assert.Equal(t, 1017500*time.Microsecond, time.Since(start), "seven quarters of a token at the new rate")
	})
	in(t, "a rate that is turned on", limited, func(t *testing.T, s *site) {
		first, r, went := new(Permit), s.Request(t, 0), make(chan *exchange.Rejection)
		require.Nil(t, acquire(first, s.Request(t, 0)))
		go func() { went <- acquire(new(Permit), r) }()
		synctest.Wait()
		s.Update(t, limited.Or(rated))
		start := time.Now()
		newest := s.Request(t, 0)
		newest.State.Machines().Rate(newest.Rule.Settings.Rate).Take(s.Registry.Now(), 1, false)
		first.Cancel()
		assert.Nil(t, <-went)
		assert.Equal(t, start, time.Now(), "a request that began before needs no token")
	})
	in(t, "tokens at the limiter", limited.Or(rated), func(t *testing.T, s *site) {
		var went atomic.Int32
		assert.False(t, new(Permit).TryAcquire(s.Request(t, 0), s.Registry.Now()))
		assert.Len(t, s.Sent, 1, "an attempt that does not wait asks for no tokens")
		go func() { acquire(new(Permit), s.Request(t, 0)); went.Add(1) }()
		time.Sleep(time.Millisecond)
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: exchangetest.Name, Wait: 50 * time.Millisecond})
		time.Sleep(64 * time.Millisecond)
		synctest.Wait()
		assert.Zero(t, went.Load(), "permits")
		assert.Equal(t, []any{3, fleetmsg.AskTokens}, []any{len(s.Sent), s.Sent[2].Kind}, "it asks again, although it waits in the queue of the limiter")
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: exchangetest.Name, Amount: 1, Wait: time.Minute})
		synctest.Wait()
		assert.EqualValues(t, 1, went.Load(), "permits")
	})
	in(t, "tokens of another unit", policy.Rule{Cost: func(*http.Request) int { return 0 }}.Or(rated), func(t *testing.T, s *site) {
		r, went := s.Request(t, 0), false
		s.Sent = nil
		assert.False(t, new(Permit).TryAcquire(r, s.Registry.Now()))
		assert.Empty(t, s.Sent, "an attempt that does not wait asks for no tokens")
		go func() { went = acquire(new(Permit), r) == nil }()
		synctest.Wait()
		require.Len(t, s.Sent, 1, "messages")
		assert.Equal(t, fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: exchangetest.Name, Unit: "cost", PerSecond: 0.25, Burst: 1, Amount: 1}, s.Sent[0])
		for _, unit := range []string{"", "cost"} {
			assert.False(t, went)
			s.Hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: exchangetest.Name, Amount: 1, Unit: unit, Wait: time.Minute})
			synctest.Wait()
		}
		assert.True(t, went, "with tokens of its own unit")
		assert.Len(t, s.Sent, 1, "messages")
	})
	in(t, "tokens that a refused request needs", rated, func(t *testing.T, s *site) {
		require.Nil(t, acquire(new(Permit), s.Request(t, 0)))
		for range 2 {
			time.Sleep(300 * time.Millisecond)
			assert.NotNil(t, acquire(new(Permit), s.Request(t, time.Second)))
		}
		last := s.Sent[len(s.Sent)-1]
		assert.Equal(t, []any{fleetmsg.AskTokens, 1.0}, []any{last.Kind, last.Amount})
	})
	in(t, "a rate that is removed", limited.Or(rated), removed)
	in(t, "a rate that is removed, without a limiter", rated, removed)
}
