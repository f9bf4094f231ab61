package redisserver

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStart(t *testing.T) {
	s, err := Start()
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer s.Stop()
	require.True(t, answers(s.Addr))
	s.Kill()
	require.False(t, answers(s.Addr))
	require.NoError(t, s.Restart())
	require.True(t, answers(s.Addr))
	s.Stop()
	require.False(t, answers(s.Addr))
	require.NoDirExists(t, s.dir)

	_, err = Start("--no-such-setting", "1")
	require.ErrorContains(t, err, "redis-server ended")
}
