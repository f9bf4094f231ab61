package fleettest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
)

func newMemory(*testing.T) func() fleettest.Fleet {
	f := fleettest.NewMemory()
	return func() fleettest.Fleet { return f.Member() }
}

func TestMemoryKeepsTheContract(t *testing.T) { fleettest.Run(t, newMemory) }

// Nothing in a Memory hangs.
func TestMemoryDoesNotHang(t *testing.T) {
	fleettest.Hang(t, func(t *testing.T) (func() fleettest.Fleet, func()) { return newMemory(t), func() {} })
}

// A Memory that is full keeps the latest hosts.
func TestMemoryForgetsTheOldestHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleettest.NewMemory()
		a, b := f.Member(), f.Member()
		require.NoError(t, a.Join(func(fleetmsg.Message) {}))
		heard := 0
		require.NoError(t, b.Join(func(m fleetmsg.Message) {
			if m.Kind == fleetmsg.Hold {
				heard++
			}
		}))
		name := func(i int) string { return fmt.Sprintf("http://h%d.test", i) }
		for i := range 4096 + 100 {
			time.Sleep(time.Millisecond)
			a.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: name(i), Status: 429, Wait: time.Hour})
		}
		synctest.Wait()
		for _, i := range []int{100, 4095, 4195, 0} { // a host that nobody knows takes a place, so it comes last
			heard = 0
			b.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: name(i)})
			assert.Equal(t, min(i, 1), heard, "host %d", i)
		}
	})
}

// A member that is closed counts no longer, and hears nothing.
func TestMemoryClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleettest.NewMemory()
		sizes, heard := 0, 0
		a, b := f.Member(), f.Member()
		require.NoError(t, a.Join(func(m fleetmsg.Message) { sizes = m.Members }))
		require.NoError(t, b.Join(func(m fleetmsg.Message) { heard++ }))
		synctest.Wait()
		assert.Equal(t, 2, sizes, "sizes told")
		require.NoError(t, b.Close())
		before := heard
		b.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 429, Wait: time.Minute})
		a.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 429, Wait: time.Minute})
		synctest.Wait()
		assert.Equal(t, 1, sizes, "sizes told")
		assert.Equal(t, before, heard)
	})
}
