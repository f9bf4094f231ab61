package policy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLimitsAreChecked(t *testing.T) {
	for _, row := range []struct {
		rule Rule
		want string
	}{
		{Rule{Budget: Budget{Ratio: math.NaN()}}, "Budget.Ratio: NaN is not a number of retries"},
		{Rule{Budget: Budget{PerSecond: math.Inf(1)}}, "Budget.PerSecond: +Inf is not a number of retries"},
		{Rule{Budget: Budget{Burst: 2e6}}, "Budget.Burst: 2e+06 is more than a million retries"},
		{Rule{Budget: Budget{Burst: -1}}, "Budget.Burst: -1 is negative; turn the parts off by Ratio and PerSecond"},
		{Rule{Budget: Budget{Window: -1}}, "Budget.Window: -1ns is negative"},
		{Rule{Cooldown: 3}, "Cooldown: Switch(3) is none of on and off"},
		{Rule{Pacing: 3}, "Pacing: Switch(3) is none of on and off"},
		{Rule{RateMode: 3}, "RateMode: RateMode(3) is none of fixed and adaptive"},
		{Rule{Gate: Gate{Mode: 4}}, "Gate.Mode: GateMode(4) is none of off, wait and refuse"},
		{Rule{Gate: Gate{Start: -1}}, "Gate.Start: -1 is negative; GateOff turns the gate off"},
		{Rule{Gate: Gate{Max: -1}}, "Gate.Max: -1 is negative; GateOff turns the gate off"},
		{Rule{Gate: Gate{Start: 6, Max: 5}}, "Gate.Start: 6 is more than Max (5)"},
		{Rule{Hedge: Hedge{Percentile: 100}}, "Hedge.Percentile: 100 is not above 0 and at most 99.9"},
		{Rule{Hedge: Hedge{Percentile: math.NaN()}}, "Hedge.Percentile: NaN is not above 0 and at most 99.9"},
	} {
		assert.EqualError(t, row.rule.Validate(), row.want)
	}
	for _, good := range []Rule{
		{Budget: NoBudget()}, {Hedge: NoHedge()}, {Hedge: Hedge{Percentile: 98}}, {Hedge: Hedge{After: time.Second}},
		{Gate: Gate{Mode: GateWait}}, {Gate: Gate{Start: 5, Max: 5}}, {Cooldown: Off, Pacing: On, RateMode: RateAdaptive},
	} {
		assert.NoError(t, good.Validate(), good)
	}
}

func TestWhatIsOn(t *testing.T) {
	for gate, on := range map[Gate]bool{{}: false, {Mode: GateOff}: false, {Mode: GateOff, Start: 3}: false, {Start: 3}: true, {Mode: GateRefuse}: true} {
		assert.Equal(t, on, gate.Enabled(), "%+v", gate)
	}
	for hedge, on := range map[Hedge]bool{{}: false, NoHedge(): false, {After: 1}: true, {Percentile: 98}: true} {
		assert.Equal(t, on, hedge.Enabled(), "%+v", hedge)
	}
}

func TestModesAsText(t *testing.T) {
	for _, mode := range []interface {
		fmt.Stringer
		MarshalText() ([]byte, error)
	}{Inherit, Off, On, RateInherit, RateFixed, RateAdaptive, gateInherit, GateOff, GateWait, GateRefuse} {
		text, err := mode.MarshalText()
		assert.NoError(t, err)
		assert.Equal(t, mode.String(), string(text))
	}
	var s Switch
	assert.NoError(t, s.UnmarshalText([]byte("on")))
	assert.Equal(t, On, s)
	var r RateMode
	assert.NoError(t, r.UnmarshalText([]byte("adaptive")))
	assert.Equal(t, RateAdaptive, r)
	g := GateWait
	assert.Error(t, g.UnmarshalText([]byte("shut")))
	assert.Equal(t, GateWait, g)
	_, err := Switch(9).MarshalText()
	assert.EqualError(t, err, "policy: Switch(9) is none of off and on")
}
