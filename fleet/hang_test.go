//go:build unix

package fleet

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleettest"
	"github.com/aplomb-go/aplomb/transport"
)

func TestRedisThatHangsKeepsTheContract(t *testing.T) {
	fleettest.Hang(t, func(t *testing.T) (func() transport.Fleet, func()) {
		server := ownServer(t)
		c := options(t, server.Addr)
		return func() transport.Fleet {
			f, err := New(c)
			require.NoError(t, err)
			t.Cleanup(f.Close)
			eventually(t, func() bool { return f.FleetState().Connected }, "not connected")
			return f
		}, func() { require.NoError(t, server.Process().Signal(syscall.SIGSTOP)) }
	})
}
