package mailbox

import (
	"sync"
	"testing"
	"testing/synctest"
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
			heard = append(heard, n)
			if n == 10 {
				b.Put(nil, 1000) // within a call
			}
		}
		for i := range 100 {
			b.Put(hear, 2*i, 2*i+1)
		}
		synctest.Wait()
		if len(heard) != 201 {
			t.Fatalf("%d heard", len(heard))
		}
		last := -1
		for _, n := range heard {
			if n != 1000 {
				if n != last+1 {
					t.Fatalf("%d after %d", n, last)
				}
				last = n
			}
		}
		b.Put(hear, 7)
		synctest.Wait()
		if len(heard) != 202 {
			t.Errorf("%d heard", len(heard))
		}
	})
}
