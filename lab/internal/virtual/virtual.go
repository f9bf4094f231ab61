// Package virtual has what those share that play stories in virtual time.
package virtual

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Number returns a number from the environment of make, such as SEEDS.
func Number(name string, other int) int {
	if n, err := strconv.Atoi(os.Getenv("APLOMB_" + name)); err == nil {
		return n
	}
	return other
}

// Each plays n stories, as many at a time as there are processors.
func Each(n int, play func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				play(i)
			}
		})
	}
	all.Wait()
}

// Pause waits for d, or until the context ends. Without a wait it does not look at the context.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
