// Random rules. Each is valid, and few are sensible.

package simulate

import (
	"context"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// newRule draws a rule. A nested rule has no settings with which the outer
// Transport would end an attempt of the inner one and start again.
func newRule(d dice.Dice, nested bool) policy.Rule {
	if d.Chance(15) {
		return policy.Rule{}
	}
	r := policy.Rule{
		MaxAttempts:   dice.One(d, 0, 0, 0, 1, 1, 2, 3, 4, 9),
		Backoff:       newBackoff(d),
		MaxRetryAfter: dice.One(d, 0, 0, 0, 500*time.Millisecond, 5*time.Second, 2*time.Minute, -1),

		RetryBudget:     newBudget(d),
		ShareRetryAfter: dice.One[policy.Switch](d, 0, policy.On, policy.Off),
		ReplayBuffer:    dice.One[int64](d, 0, 0, 0, -1, 100, 10<<10),
		Resume:          dice.One[policy.Switch](d, 0, 0, 0, policy.On, policy.Off),
		MaxRefetch:      dice.One[int64](d, 0, 0, 0, -1, 1<<10),
	}
	if d.Chance(30) {
		r.MaxElapsedTime = d.Between(20*time.Millisecond, time.Minute)
	}
	if d.Chance(20) {
		r.ReplayBuffer = 64 << 10
	}
	drawLimits(d, &r)
	drawHooks(d, &r)
	if !nested {
		drawTimers(d, &r)
	}
	return r
}

func newBackoff(d dice.Dice) backoff.Backoff {
	switch d.IntN(7) {
	case 0:
		return backoff.Constant(0)
	case 1:
		return backoff.Constant(d.Between(time.Millisecond, 10*time.Second))
	case 2:
		return backoff.Exponential{Base: d.Between(time.Millisecond, time.Second), Max: 20 * time.Second, Jitter: backoff.JitterFull}
	case 3:
		return backoff.Exponential{Base: d.Between(time.Millisecond, time.Second), Max: 20 * time.Second, Jitter: backoff.JitterDecorrelated}
	case 4:
		return stopping(d.IntN(4))
	}
	return nil
}

// stopping is a back-off that stops after this number of retries.
type stopping int

func (s stopping) Delay(n int, _ time.Duration) time.Duration {
	if n >= int(s) {
		return -1
	}
	return 10 * time.Millisecond
}

func newBudget(d dice.Dice) policy.RetryBudget {
	switch d.IntN(5) {
	case 0:
		return policy.RetryBudget{Enabled: policy.Off}
	case 1:
		return policy.RetryBudget{Ratio: 0.1, MinPerSecond: 0.2}
	case 2:
		return policy.RetryBudget{Ratio: -1, MinPerSecond: 0.5}
	}
	return policy.RetryBudget{}
}

func drawLimits(d dice.Dice, r *policy.Rule) {
	if d.Chance(20) {
		r.RateLimit.PerSecond = float64(d.Between(1, 200))
		r.RateLimit.Burst = d.IntN(5)
	}
	if d.Chance(30) {
		r.QuotaPacing = policy.On
	}
	if d.Chance(35) {
		r.Concurrency = policy.Concurrency{FailFast: dice.One[policy.Switch](d, 0, 0, policy.On), Max: 1 + d.IntN(15)}
	}
	if d.Chance(25) {
		r.CircuitBreaker = policy.CircuitBreaker{Enabled: policy.On, FailFast: dice.One[policy.Switch](d, 0, 0, policy.On)}
	}
}

func drawTimers(d dice.Dice, r *policy.Rule) {
	if d.Chance(35) {
		r.AttemptTimeout = d.Between(10*time.Millisecond, 20*time.Second)
	}
	if d.Chance(25) {
		r.StallTimeout = d.Between(50*time.Millisecond, 20*time.Second)
	}
	if d.Chance(30) {
		r.Hedge.Delay = d.Between(time.Millisecond, 2*time.Second)
		if d.Chance(30) {
			r.Hedge.Percentile = dice.One(d, 50.0, 90, 98)
		}
	}
}

// drawHooks draws the functions of a rule. Each of them calls the caller's
// hook, which may panic.
func drawHooks(d dice.Dice, r *policy.Rule) {
	if d.Chance(30) {
		inner := dice.One(d, classify.Refusals, classify.Signals, classify.First(classify.Signals, classify.Refusals),
			classify.OnBody(classify.Ambiguous, "queue capacity"), classify.OnError(classify.Ambiguous, classify.ErrorOther))
		r.Classify = func(o classify.Outcome) classify.Class {
			callOf(o.Request.Context()).hook("classify")
			return inner(o)
		}
	}
	if d.Chance(20) {
		r.RetryAfter = func(o classify.Outcome) (time.Duration, bool) {
			callOf(o.Request.Context()).hook("hint")
			return classify.RetryAfter(o)
		}
	}
	if d.Chance(20) {
		r.Idempotent = func(req *http.Request) bool {
			callOf(req.Context()).hook("idempotent")
			return classify.Idempotent(req)
		}
	}
	if d.Chance(20) {
		r.ThrottleKey = func(req *http.Request) string {
			callOf(req.Context()).hook("scope")
			return req.URL.Path
		}
	}
}

type callKey struct{}

// callOf returns the call to which a context belongs.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}
