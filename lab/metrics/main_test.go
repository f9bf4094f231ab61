package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRun: the page counts as many attempts as the server gets.
func TestRun(t *testing.T) {
	assert.NoError(t, run())
}
