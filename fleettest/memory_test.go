package fleettest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/fleettest"
	"github.com/aplomb-go/aplomb/transport"
)

func newMemory(*testing.T) func() transport.Fleet {
	f := fleettest.NewMemory()
	return func() transport.Fleet { return f.Member() }
}

func TestMemoryKeepsTheContract(t *testing.T) { fleettest.Run(t, newMemory) }

// A member that is closed counts no longer, and hears nothing.
func TestMemoryClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleettest.NewMemory()
		sizes, heard := 0, 0
		a, b := f.Member(), f.Member()
		require.NoError(t, a.Join(func(m fleetmsg.Message) { sizes = m.Members }))
		require.NoError(t, b.Join(func(m fleetmsg.Message) { heard++ }))
		synctest.Wait()
		assert.Equal(t, 2, sizes)
		b.Close()
		before := heard
		b.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 429, Wait: time.Minute})
		a.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 429, Wait: time.Minute})
		synctest.Wait()
		assert.Equal(t, 1, sizes)
		assert.Equal(t, before, heard)
	})
}
