package exchange_test

import (
	"math"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	synctest.Test(t, func(t *testing.T) {
		keys := 0
		s := exchangetest.New(t, policy.Rule{ThrottleKey: func(*http.Request) string { keys++; return "ab" }})
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
	synctest.Test(t, func(t *testing.T) {
		s := exchangetest.New(t, policy.Rule{})
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
	synctest.Test(t, func(t *testing.T) {
		s := exchangetest.New(t, policy.Rule{})
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
	synctest.Test(t, func(t *testing.T) {
		s := exchangetest.New(t, policy.Rule{})
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
	synctest.Test(t, func(t *testing.T) {
		s := exchangetest.New(t, policy.Rule{})
		r := s.Request(t, 0)
		assert.Same(t, r.Rule, s.Request(t, 0).Rule)
		assert.Same(t, r.Rule, r.State.Resolved.Load())
		assert.Nil(t, r.State.MachinesMade(), "nothing is limited")

		s.Update(t, policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.1, Burst: 1}})
		r = s.Request(t, 0)
		_, limit := r.State.Machines().Made()
		require.NotNil(t, limit)
		assert.True(t, limit.Take(s.Registry.Now(), 1))
		w := queue.NewWaiter()
		limit.Enter(s.Registry.Now(), w)
		s.Update(t, policy.Rule{RateLimit: policy.RateLimit{PerSecond: 100, Burst: 1}})
		s.Request(t, 0)
		assert.Len(t, w.Ready, 1, "it asks again")
		limit.Leave(w)
		assert.False(t, limit.Take(s.Registry.Now(), 1), "its token stays used")
		time.Sleep(10 * time.Millisecond)
		assert.True(t, limit.Take(s.Registry.Now(), 1), "the new rate")

		s.Update(t, limited)
		leave := waits(t, s, 1)
		defer leave()
		r = s.Request(t, 0)
		limiter, _ := r.State.Machines().Made()
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
