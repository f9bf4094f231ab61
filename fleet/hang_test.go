//go:build unix

package fleet

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleettest"
)

func TestRedisThatHangsKeepsTheContract(t *testing.T) {
	fleettest.Hang(t, func(t *testing.T) (func() fleettest.Fleet, func()) {
		server := ownServer(t)
		c := options(t, server.Addr)
		return func() fleettest.Fleet {
			f := fresh(t, c)
			eventually(t, func() bool { return f.state().Connected }, "not connected")
			return f
		}, func() { require.NoError(t, server.Process().Signal(syscall.SIGSTOP)) }
	})
}
