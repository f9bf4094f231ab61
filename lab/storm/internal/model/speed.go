package model

import (
	"time"

	"github.com/aplomb-go/aplomb/policy"
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
	if r.Budget == (policy.Budget{}) {
		r.Budget = policy.Defaults().Budget
	}
	if r.Budget.PerSecond > 0 {
		r.Budget.PerSecond *= speed
		r.Budget.Window = scale(r.Budget.Window, speed)
	}
	return r
}

type faster struct {
	b     policy.Backoff
	speed float64
}

func (f faster) Delay(n int, prev time.Duration) time.Duration {
	return scale(f.b.Delay(n, scale(prev, 1/f.speed)), f.speed)
}
