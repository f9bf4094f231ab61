package policy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/policy/backoff"
)

func TestLimitsAreChecked(t *testing.T) {
	for _, row := range []struct {
		rule Rule
		want string
	}{
		{Rule{Budget: Budget{Ratio: math.NaN()}}, "Budget.Ratio: NaN is not a number of retries"},
		{Rule{Budget: Budget{PerSecond: math.Inf(1)}}, "Budget.PerSecond: +Inf is not a number of retries"},
		{Rule{Budget: Budget{Burst: 2e6}}, "Budget.Burst: 2e+06 is more than a million retries"},
		{Rule{Budget: Budget{Ratio: Off, PerSecond: Off}}, "Budget: would earn no retries at all; Burst: policy.Off turns the budget off, Attempts: policy.Off the retries"},
		{Rule{Budget: Budget{Window: -1}}, "Budget.Window: -1ns is negative"},
		{Rule{Cooldown: 3}, "Cooldown: Switch(3) is none of off and on"},
		{Rule{Pacing: 3}, "Pacing: Switch(3) is none of off and on"},
		{Rule{Gate: Gate{Mode: 4}}, "Gate.Mode: GateMode(4) is none of off, wait and refuse"},
		{Rule{Gate: Gate{Start: -1}}, "Gate.Start: -1 is negative; Mode: policy.Off turns the gate off"},
		{Rule{Gate: Gate{Max: -1}}, "Gate.Max: -1 is negative; Mode: policy.Off turns the gate off"},
		{Rule{Gate: Gate{Start: 6, Max: 5}}, "Gate.Start: 6 is more than Max (5)"},
		{Rule{Hedge: Hedge{Percentile: 100}}, "Hedge.Percentile: 100 is not above 1 and at most 99.9"},
		{Rule{Hedge: Hedge{Percentile: math.NaN()}}, "Hedge.Percentile: NaN is not above 1 and at most 99.9"},

		// Values that can only be mistakes.
		{Rule{Hedge: Hedge{Percentile: 0.98}}, "Hedge.Percentile: 0.98 is a share; did you mean 98?"},
		{Rule{Hedge: Hedge{Percentile: 0.999}}, "Hedge.Percentile: 0.999 is a share; did you mean 99.9?"},
		{Rule{Hedge: Hedge{Percentile: 0.07}}, "Hedge.Percentile: 0.07 is a share; did you mean 7?"},
		{Rule{Hedge: Hedge{Percentile: 1}}, "Hedge.Percentile: 1 would hedge nearly every request; did you mean 99?"},
		{Rule{Hedge: Hedge{After: 50}}, "Hedge.After: 50ns is less than a microsecond; did you mean 50s (50 * time.Second)?"},
		{Rule{Budget: Budget{Ratio: 20}}, "Budget.Ratio: 20 is more than one retry for each request; did you mean 0.2, which is 20 %? Burst: policy.Off turns the budget off"},
		{Rule{Budget: Budget{Ratio: 1.01}}, "Budget.Ratio: 1.01 is more than one retry for each request; did you mean 0.0101, which is 1.01 %? Burst: policy.Off turns the budget off"},
		{Rule{Budget: Budget{Ratio: 1000}}, "Budget.Ratio: 1000 is more than one retry for each request; Burst: policy.Off turns the budget off"},
		{Rule{Budget: Budget{Window: 10}}, "Budget.Window: 10ns is less than a microsecond; did you mean 10s (10 * time.Second)?"},
		{Rule{AttemptTimeout: 5}, "AttemptTimeout: 5ns is less than a microsecond; did you mean 5s (5 * time.Second)?"},
		{Rule{AttemptTimeout: 500}, "AttemptTimeout: 500ns is less than a microsecond; did you mean 500ms (500 * time.Millisecond)?"},
		{Rule{Stall: Stall{Timeout: 30}}, "Stall.Timeout: 30ns is less than a microsecond; did you mean 30s (30 * time.Second)?"},
		{Rule{MaxElapsed: 999}, "MaxElapsed: 999ns is less than a microsecond; did you mean 999ms (999 * time.Millisecond)?"},
		{Rule{RetryAfter: RetryAfter{Max: 60}}, "RetryAfter.Max: 60ns is less than a microsecond; did you mean 1m0s (60 * time.Second)?"},
		{Rule{AttemptTimeout: 5 * time.Second * time.Second}, "AttemptTimeout: 1388888h53m20s is more than ten years; was it multiplied by its unit twice?"},
		{Rule{Backoff: backoff.Constant(5)}, "Backoff: 5ns is less than a microsecond; did you mean 5s (5 * time.Second)?"},
		{Rule{Backoff: backoff.Exponential{Base: 2, Max: 32 * time.Second}}, "Backoff.Base: 2ns is less than a microsecond; did you mean 2s (2 * time.Second)?"},
		{Rule{Backoff: backoff.Normal{MinDelay: 200}}, "Backoff.MinDelay: 200ns is less than a microsecond; did you mean 200ms (200 * time.Millisecond)?"},
	} {
		assert.EqualError(t, row.rule.Validate(), row.want)
	}
	for _, good := range []Rule{
		{Budget: Budget{Burst: Off}}, {Hedge: Hedge{After: Off}}, {Hedge: Hedge{Percentile: 98}}, {Hedge: Hedge{After: time.Second}},
		{Gate: Gate{Mode: GateWait}}, {Gate: Gate{Start: 5, Max: 5}}, {Cooldown: Off, Pacing: On},
		{Budget: Budget{Ratio: 1}}, {Hedge: Hedge{Percentile: 1.5}}, {Hedge: Hedge{Percentile: 99.9}},
		{AttemptTimeout: time.Microsecond, Stall: Stall{Timeout: -1}, MaxElapsed: math.MaxInt64, RetryAfter: RetryAfter{Max: math.MaxInt64}},
		{Backoff: backoff.Constant(0)}, {Backoff: backoff.Constant(time.Microsecond)}, {Backoff: backoff.Constant(time.Nanosecond)},
	} {
		assert.NoError(t, good.Validate(), good)
	}
}

func TestWhatIsOn(t *testing.T) {
	for gate, on := range map[Gate]bool{{}: false, {Mode: Off}: false, {Mode: Off, Start: 3}: false, {Start: 3}: true, {Mode: GateRefuse}: true} {
		assert.Equal(t, on, gate.Enabled(), "%+v", gate)
	}
	for hedge, on := range map[Hedge]bool{{}: false, Hedge{After: Off}: false, {After: 1}: true, {Percentile: 98}: true} {
		assert.Equal(t, on, hedge.Enabled(), "%+v", hedge)
	}
}

func TestModesAsText(t *testing.T) {
	for _, mode := range []interface {
		fmt.Stringer
		MarshalText() ([]byte, error)
	}{Switch(0), Switch(Off), On, GateMode(0), GateMode(Off), GateWait, GateRefuse} {
		text, err := mode.MarshalText()
		assert.NoError(t, err)
		assert.Equal(t, mode.String(), string(text))
	}
	var s Switch
	assert.NoError(t, s.UnmarshalText([]byte("on")))
	assert.Equal(t, On, s)
	g := GateWait
	assert.Error(t, g.UnmarshalText([]byte("shut")))
	assert.Equal(t, GateWait, g)
	_, err := Switch(9).MarshalText()
	assert.EqualError(t, err, "policy: Switch(9) is none of off and on")
}
