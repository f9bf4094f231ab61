package simulate

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aplomb-go/aplomb/internal/soak"
)

// play runs a story in a bubble of its own.
func play(t *testing.T, p *plan, client maker, keep func(int) bool) (r Report) {
	defer func() {
		if e := recover(); e != nil { // the bubble's deadlock, when goroutines are left
			r.Violations = append(r.Violations, Violation{Oracle: Leak, Call: -1, Text: fmt.Sprint(e)})
		}
	}()
	// Virtual time stops while a goroutine waits for a lock or runs on.
	stuck := time.AfterFunc(time.Minute, func() {
		panic(fmt.Sprintf("seed %d: a minute of real time has passed", p.seed))
	})
	defer stuck.Stop()
	synctest.Test(t, func(*testing.T) { r = run(p, client, keep) })
	return r
}

// TestSeeds plays SEEDS stories, beginning with SEED, TIMES times each.
// Repeating a story makes sense because goroutines and the Transport's jitter
// do not depend on the seed.
func TestSeeds(t *testing.T) {
	first, seeds, times := env("SEED", 1), env("SEEDS", soak.Size(50, 1000)), env("TIMES", 1)
	var next, calls, attempts, bad atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= seeds*times {
					return
				}
				r := play(t, newPlan(uint64(first+i/times)), aTransport, nil)
				calls.Add(int64(r.Calls))
				attempts.Add(int64(r.Attempts))
				if len(r.Violations) > 0 && bad.Add(1) <= 5 {
					tellStory(t, r)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d stories of %d seeds, %d of them bad: %d exchanges, %d attempts", seeds*times, seeds, bad.Load(), calls.Load(), attempts.Load())
}

// tellStory prints a bad story with as few callers as possible.
func tellStory(t *testing.T, r Report) {
	r = shrink(t, r)
	t.Errorf("seed %d: %s: %s\n%s\nagain: make simulate SEED=%d TIMES=20", r.Seed, r.Violations[0].Oracle, r.Violations[0].Text, r.Story(), r.Seed)
}

// shrink leaves out callers as long as the same promise is still broken.
func shrink(t *testing.T, r Report) Report {
	out := make(map[int]bool)
	p := newPlan(r.Seed)
	n := len(p.calls)
	for step := (n + 1) / 2; step > 0; step /= 2 {
		for from := 0; from < n; from += step {
			without := func(call int) bool { return !out[call] && (call < from || call >= from+step) }
			again := play(t, newPlan(r.Seed), aTransport, without)
			if len(again.Violations) > 0 && again.Violations[0].Oracle == r.Violations[0].Oracle {
				r = again
				for call := from; call < from+step; call++ {
					out[call] = true
				}
			}
		}
	}
	return r
}

// env returns a number from the environment.
func env(name string, other int) int {
	if n, err := strconv.Atoi(os.Getenv("APLOMB_" + name)); err == nil {
		return n
	}
	return other
}
