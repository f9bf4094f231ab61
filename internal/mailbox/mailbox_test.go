package mailbox

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Messages are heard one after the other, in their order, and nothing is left running.
func TestBox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Box[int]
		var heard []int
		var mu sync.Mutex
		hear := func(n int) {
			if !mu.TryLock() {
				t.Error("two at a time")
				return
			}
			defer mu.Unlock()
			time.Sleep(time.Second)
			heard = append(heard, n)
			if n == 10 {
				b.Put(nil, 1000) // within a call
			}
		}
		b.Put(hear)
		assert.False(t, b.busy, "for no message")
		for i := range 100 {
			b.Put(hear, 2*i)
			b.Put(hear, 2*i+1)
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, heard, 201, "heard")
		last := -1
		for _, n := range heard {
			if n != 1000 {
				require.Equal(t, last+1, n, "after %d", last)
				last = n
			}
		}
		b.Put(hear, 7)
		synctest.Wait()
		b.Put(hear, 8)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Len(t, heard, 203, "heard")
	})
}
