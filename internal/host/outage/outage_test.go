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
	o.Succeeded()
	for range failRun - 1 {
		o.Failed(instant.At(sec), false)
		assert.False(t, o.Down())
		assert.True(t, o.Try(instant.At(sec)))
	}
	o.Failed(instant.At(sec), false)
	assert.True(t, o.Down())
	o.Succeeded()
	assert.False(t, o.Down())
}

func TestOneTryPerSecond(t *testing.T) {
	var o Outage
	o.Failed(instant.At(10*sec), true)
	assert.True(t, o.Down(), "the host has said so")
	tries := 0
	for at := 10 * sec; at < 20*sec; at += 10 * time.Millisecond {
		if o.Try(instant.At(at)) {
			tries++
			o.Failed(instant.At(at), false) // which puts off nothing
		}
	}
	assert.Equal(t, 9, tries)
}
