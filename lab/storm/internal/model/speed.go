package model

import (
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// Faster returns the rule with its times divided by speed. The times of the gate
// are constants of the transport and stay the same.
func Faster(r policy.Rule, speed float64) policy.Rule {
	if speed == 1 {
		return r
	}
	b := r.Backoff
	if b == nil {
		b = policy.Defaults().Backoff
	}
	r.Backoff = faster{b, speed}
	r.AttemptTimeout = scale(r.AttemptTimeout, speed)
	if r.RetryBudget == (policy.RetryBudget{}) {
		r.RetryBudget = policy.Defaults().RetryBudget
	}
	if r.RetryBudget.MinPerSecond > 0 {
		if r.RetryBudget.Burst == 0 {
			r.RetryBudget.Burst = max(10*r.RetryBudget.MinPerSecond, 1)
		}
		r.RetryBudget.MinPerSecond *= speed
	}
	return r
}

type faster struct {
	b     backoff.Backoff
	speed float64
}

func (f faster) Delay(n int, prev time.Duration) time.Duration {
	return scale(f.b.Delay(n, scale(prev, 1/f.speed)), f.speed)
}
