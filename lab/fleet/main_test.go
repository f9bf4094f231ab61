package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/redisserver"
)

func TestMain(m *testing.M) {
	if isWorker() {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestRun: the fleet gets fewer 429s, and none of its workers starves.
func TestRun(t *testing.T) {
	var out strings.Builder
	err := run(&out, 4*time.Second)
	if errors.Is(err, redisserver.ErrMissing) {
		t.Skip(err)
	}
	t.Log(out.String())
	assert.NoError(t, err)
}
