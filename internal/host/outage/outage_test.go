package outage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const sec = time.Second

func TestFiveFailuresInARow(t *testing.T) {
	var o Outage
	for range failRun - 1 {
		o.Failed(instant.At(sec), false)
	}
	o.Succeeded(0)
	for range failRun - 1 {
		o.Failed(instant.At(sec), false)
		assert.False(t, o.Down())
		assert.True(t, o.Try(instant.At(sec), true, false))
	}
	o.Failed(instant.At(sec), false)
	assert.True(t, o.Down())
	o.Succeeded(0)
	assert.False(t, o.Down())
}

func TestOneTryPerSecond(t *testing.T) {
	var o Outage
	o.Failed(instant.At(10*sec), true)
	assert.True(t, o.Down(), "the host has said so")
	tries := 0
	for at := 10 * sec; at < 20*sec; at += 10 * time.Millisecond {
		if o.Try(instant.At(at), true, false) {
			tries++
			o.Failed(instant.At(at), false) // which puts off nothing
		}
	}
	assert.Equal(t, 9, tries)
}

func TestOthersTryIfNobodyElseDoes(t *testing.T) {
	var o Outage
	o.Failed(instant.At(10*sec), true)
	tries := func(from, to time.Duration, again, waits bool) (n int) {
		for at := from; at < to; at += 100 * time.Millisecond {
			if o.Try(instant.At(at), again, waits) {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 0, tries(10*sec, 40*sec, false, false))
	assert.Equal(t, 4, tries(40*sec, 160*sec, false, false), "one in 30 s")
	assert.Equal(t, 0, tries(160*sec, 161*sec, true, true), "a wait lasts, but requests that may try come")
	assert.Equal(t, 0, tries(161*sec, 190*sec, false, false))
	assert.Equal(t, 10, tries(190*sec, 200*sec, true, false))
	assert.Equal(t, 0, tries(200*sec, 229*sec, false, false))
	assert.True(t, o.Spares(instant.At(229*sec), instant.At(0), false))
	assert.True(t, o.Spares(instant.At(239*sec), instant.At(210*sec), false), "the gate closed later")
	assert.False(t, o.Spares(instant.At(240*sec), instant.At(210*sec), false))
	assert.True(t, o.Spares(instant.At(241*sec), instant.At(210*sec), false))
	assert.False(t, o.Spares(instant.At(241*sec), instant.At(210*sec), true))
}

func TestDeadlinesThatTheHostCouldKeep(t *testing.T) {
	down := func(successes []time.Duration, took time.Duration) bool {
		var o Outage
		for _, d := range successes {
			o.Succeeded(d)
		}
		for range failRun {
			o.Expired(instant.At(sec), took)
		}
		return o.Down()
	}
	assert.True(t, down(nil, time.Millisecond), "nobody knows what it needs")
	usual := []time.Duration{30 * time.Millisecond, 30 * time.Millisecond, 2 * sec}
	assert.False(t, down(usual, 3*time.Millisecond))
	assert.True(t, down(usual, 32*time.Millisecond))
	assert.True(t, down(usual, sec))
}
