package exchange_test

import (
	"math"
	"net/http"
	"net/url"
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
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// A request has the cost that its rule says, from 1 on, and the rule is asked once.
func TestCost(t *testing.T) {
	for own, want := range map[int]int{-1: 1, 0: 1, 1: 1, 7: 7, math.MaxInt: math.MaxInt32} {
		asked := 0
		r := &exchange.Request{Rule: &rules.Resolved{Policy: policy.Rule{Cost: func(*http.Request) int { asked++; return own }}}}
		assert.Equal(t, []int{want, want, 1}, []int{r.Cost(), r.Cost(), asked}, own)
	}
	assert.Equal(t, 1, (&exchange.Request{Rule: new(rules.Resolved)}).Cost(), "without a Cost")
}

// The scope is that of the ThrottleKey, or of the credentials. It is computed once. In a fleet it is that of the fleet.
func TestScope(t *testing.T) {
	keys := 0
	play(t, "", policy.Rule{ThrottleKey: func(*http.Request) string { keys++; return "ab" }}, func(t *testing.T, s *site) {
		r := s.Request(t, 0)
		assert.Equal(t, []any{r.Scope(), 1}, []any{r.Scope(), keys}, "asked once")
		assert.Equal(t, r.Scope(), s.Request(t, 0).Scope())
		assert.NotZero(t, r.Scope())

		plain := func(auth string) uint64 {
			r := exchangetest.New(t, policy.Rule{}).Request(t, 0)
			if auth != "" {
				r.Req.Header.Set("Authorization", auth)
			}
			return r.Scope()
		}
		assert.Zero(t, plain(""))
		assert.NotZero(t, plain("x"), "credentials")

		s.Join()
		assert.EqualValues(t, len("scope\x00ab"), s.Request(t, 0).Scope(), "that of the fleet")
		s.Update(t, policy.Rule{})
		r = s.Request(t, 0)
		r.Req.Header.Set("Authorization", "x")
		assert.EqualValues(t, len("authorization\x00x"), r.Scope(), "credentials")
	})
}

// What is sent, and what classifiers see of it.
func TestOutcomeOf(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		r := s.Request(t, 0)
		r.Req.Header.Set("Expect", "100-continue")
		resp := exchangetest.Answer(417)
		o := r.OutcomeOf(resp, http.ErrAbortHandler)
		assert.Same(t, r.Req, o.Request)
		assert.Same(t, resp, o.Response)
		assert.Equal(t, http.ErrAbortHandler, o.Err)

		linked := s.Request(t, time.Hour)
		linked.Req, linked.Linked = r.Req, true
		assert.Same(t, linked.Ctx, linked.OutcomeOf(nil, nil).Request.Context())

		r.DropExpect()
		assert.Empty(t, r.OutcomeOf(nil, nil).Request.Header)
		assert.Same(t, r.Ctx, r.OutcomeOf(nil, nil).Request.Context())
		assert.Len(t, r.Req.Header, 1, "the caller's request is not changed")
	})
}

// The names of hosts have no userinfo.
func TestNames(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		r := s.Request(t, 0)
		assert.Equal(t, exchangetest.Name, r.HostName())
		assert.Equal(t, exchangetest.Name, exchange.SafeName(r.State))
		odd := s.Registry.Hosts.Acquire(&url.URL{Scheme: "http", Host: "u@h.test"})
		assert.Equal(t, "http://xxxxx@h.test", exchange.SafeName(odd))
		assert.Equal(t, "http://xxxxx@h.test", (&exchange.Request{State: odd}).HostName())
		assert.Equal(t, exchangetest.Name, (&exchange.Request{Req: r.Req}).HostName(), "without a state")
	})
}

// The end of the context or the closing of Request.Cancel ends every wait.
func TestObeyCancel(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		r, ctx := s.Request(t, 0), t.Context()
		r.ObeyCancel()()
		assert.False(t, r.Linked)
		assert.Same(t, ctx, r.Ctx, "without a Cancel")
		start, ready := time.Now(), make(chan struct{}, 1)
		assert.NoError(t, r.Sleep(time.Second, ready))
		assert.Equal(t, time.Second, time.Since(start))
		ready <- struct{}{}
		assert.NoError(t, r.Sleep(time.Hour, ready))
		assert.Equal(t, time.Second, time.Since(start), "it is woken")

		canceled := make(chan struct{})
		//lint:ignore SA1019 old callers still set Request.Cancel
		r.Req.Cancel = canceled
		stop := r.ObeyCancel()
		defer stop()
		assert.True(t, r.Linked)
		time.AfterFunc(time.Second, func() { close(canceled) })
		assert.ErrorIs(t, r.Sleep(time.Hour, nil), attempt.ErrRequestCanceled)
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}

// A rule is sought for the first request, and after an Update. The tokens of a rate stay used, those who wait ask again, and the
// fleet hears of the rule.
func TestHostRule(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		r := s.Request(t, 0)
		assert.Same(t, r.Rule, s.Request(t, 0).Rule)
		assert.Same(t, r.Rule, r.State.Resolved.Load())
		assert.Nil(t, r.State.MachinesMade(), "nothing is limited")

		s.Update(t, policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.1, Burst: 1}})
		r = s.Request(t, 0)
		limit, limiter := r.State.Machines().Rate(r.Rule.Settings.Rate), r.State.Machines().Limits().Concurrency()
		assert.True(t, limit.Take(s.Registry.Now(), 1, false))
		w := queue.NewWaiter()
		limiter.Enter(s.Registry.Now(), nil, w, concurrency.Config{Max: concurrency.NoMax, Rate: limit})
		s.Update(t, policy.Rule{RateLimit: policy.RateLimit{PerSecond: 100, Burst: 1}})
		s.Request(t, 0)
		assert.Len(t, w.Ready, 1, "it asks again")
		limiter.Leave(w)
		assert.False(t, limit.Take(s.Registry.Now(), 1, false), "its token stays used")
		time.Sleep(10 * time.Millisecond)
		assert.True(t, limit.Take(s.Registry.Now(), 1, false), "the new rate")

		s.Update(t, limited)
		leave := waits(t, s, 1)
		defer leave()
		r = s.Request(t, 0)
		w = queue.NewWaiter()
		limiter.Enter(s.Registry.Now(), new(concurrency.Slot), w, r.Rule.Settings.Concurrency)
		s.Update(t, policy.Rule{})
		s.Request(t, 0)
		assert.Len(t, w.Ready, 1, "it asks again")

		s.Join()
		s.Update(t, policy.Rule{ShareRetryAfter: policy.On})
		other := s.Registry.Hosts.Acquire(&url.URL{Scheme: "http", Host: "other.test"})
		s.Registry.HostRule(other, s.Registry.Rules.Load())
		require.Len(t, s.Sent, 1, "the fleet is asked what it knows")
		assert.Equal(t, "http://other.test", s.Sent[0].Host)
	})
}

// How long an outcome asks to wait. The rule is only asked about a 429, a 503, and what is retried.
func TestRetryAfter(t *testing.T) {
	const again, refused, final = classify.Ambiguous, classify.Refused, classify.Final
	tired := &exchange.ProxyAnswer{Resp: exchangetest.Answer(503, "Retry-After: 4")}
	assert.Equal(t, http.StatusText(http.StatusServiceUnavailable), tired.Error())
	for name, row := range map[string]struct {
		o     attempt.Outcome
		after string
		want  time.Duration
		asked bool
	}{
		"success":                     {attempt.Outcome{Resp: exchangetest.Answer(200), Class: final}, "4", 0, false},
		"400":                         {attempt.Outcome{Resp: exchangetest.Answer(400), Class: again}, "4", 4 * time.Second, true},
		"503 at once":                 {attempt.Outcome{Resp: exchangetest.Answer(503), Class: again}, "0", 0, true},
		"429":                         {attempt.Outcome{Resp: exchangetest.Answer(429), Class: again}, "4", 4 * time.Second, true},
		"final 429":                   {attempt.Outcome{Resp: exchangetest.Answer(429), Class: final}, "4", 4 * time.Second, true},
		"503":                         {attempt.Outcome{Resp: exchangetest.Answer(503), Class: refused}, "4", 4 * time.Second, true},
		"503 and a body that broke":   {attempt.Outcome{Resp: exchangetest.Answer(503), Class: again, BodyBroke: true}, "4", 4 * time.Second, true},
		"503 without a wait":          {attempt.Outcome{Resp: exchangetest.Answer(503), Class: again}, "", 0, true},
		"500":                         {attempt.Outcome{Resp: exchangetest.Answer(500), Class: again}, "4", 4 * time.Second, true},
		"final 500":                   {attempt.Outcome{Resp: exchangetest.Answer(500), Class: final}, "4", 0, false},
		"500 and a body that broke":   {attempt.Outcome{Resp: exchangetest.Answer(500), Class: again, BodyBroke: true}, "4", 0, false},
		"403":                         {attempt.Outcome{Resp: exchangetest.Answer(403), Class: again}, "4", 4 * time.Second, true},
		"final 403":                   {attempt.Outcome{Resp: exchangetest.Answer(403), Class: final}, "4", 0, false},
		"409":                         {attempt.Outcome{Resp: exchangetest.Answer(409), Class: again}, "4", 4 * time.Second, true},
		"425":                         {attempt.Outcome{Resp: exchangetest.Answer(425), Class: refused}, "4", 4 * time.Second, true},
		"an error":                    {attempt.Outcome{Class: again, Err: syscall.ECONNRESET}, "", 0, true},
		"a proxy that is tired":       {attempt.Outcome{Class: refused, Err: tired}, "", 4 * time.Second, true},
		"a proxy, and nobody retries": {attempt.Outcome{Class: final, Err: tired}, "", 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := false
			s := exchangetest.New(t, policy.Rule{RetryAfter: func(o classify.Outcome) (time.Duration, bool) {
				asked = true
				assert.NotNil(t, o.Request, name)
				assert.True(t, (o.Response == nil) != (o.Err == nil), name)
				return classify.RetryAfter(o)
			}})
			if row.after != "" {
				row.o.Resp.Header.Set("Retry-After", row.after)
			}
			row.o.Kind = attempt.First
			told, _ := s.Done(s.Request(t, 0), nil, &row.o)
			assert.Equal(t, []any{row.want, row.asked}, []any{told, asked}, name)
		})
	}
	for told, want := range map[time.Duration]time.Duration{-time.Second: 0, time.Second: time.Second} {
		play(t, "", policy.Rule{RetryAfter: func(classify.Outcome) (time.Duration, bool) { return told, true }}, func(t *testing.T, s *site) {
			assert.Equal(t, want, s.Ends(t, nil, 503, again), told)
		})
	}
	for code, want := range map[int]bool{0: false, 200: false, 428: false, 429: true, 500: false, 503: true} {
		assert.Equal(t, want, exchange.TellsToWait(code), code)
	}
}
