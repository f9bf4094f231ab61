package simulate

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/lab/internal/virtual"
)

// play runs a story in a bubble of its own.
func play(t *testing.T, p *plan, client maker, keep func(int) bool) (r Report) {
	defer func() {
		if e := recover(); e != nil { // the bubble's deadlock, when goroutines are left
			r.Violations = append(r.Violations, Violation{Oracle: Leak, Call: -1, Text: fmt.Sprint(e)})
		}
	}()
	// Virtual time stops while a goroutine waits for a lock or runs on.
	stuck := time.AfterFunc(5*time.Minute, func() {
		panic(fmt.Sprintf("seed %d: five minutes of real time have passed", p.seed))
	})
	defer stuck.Stop()
	synctest.Test(t, func(*testing.T) { r = run(p, client, keep) })
	return r
}

// TestSeeds plays SEEDS stories, beginning with SEED, TIMES times each.
// Repeating a story makes sense because goroutines and the Transport's jitter
// do not depend on the seed.
func TestSeeds(t *testing.T) {
	first, seeds, times := virtual.Number("SEED", 1), virtual.Number("SEEDS", soak.Size(50, 1000)), virtual.Number("TIMES", 1)
	only := os.Getenv("APLOMB_ONLY")
	var played, calls, attempts, bad atomic.Int64
	var found kinds
	virtual.Each(seeds*times, func(i int) {
		p := newPlan(uint64(first + i/times))
		if only == "fleets" && p.fleet == nil {
			return
		}
		played.Add(1)
		r := play(t, p, aTransport, nil)
		calls.Add(int64(r.Calls))
		attempts.Add(int64(r.Attempts))
		if len(r.Violations) > 0 {
			bad.Add(1)
			if found.add(r) {
				tellStory(t, r)
			}
		}
	})
	t.Log(found.String())
	t.Logf("%d stories of %d seeds, %d of them bad: %d exchanges, %d attempts", played.Load(), seeds, bad.Load(), calls.Load(), attempts.Load())
}

// Kinds are the kinds of bad stories. A single defect can spoil hundreds of stories, and
// must not hide the others.
type kinds struct {
	mu    sync.Mutex // guards seeds
	seeds map[string][]uint64
}

// add notes a bad story. It reports whether the story is the first of its kind.
func (k *kinds) add(r Report) bool {
	kind := r.Violations[0].kind()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seeds == nil {
		k.seeds = make(map[string][]uint64)
	}
	known := k.seeds[kind]
	if !slices.Contains(known, r.Seed) {
		k.seeds[kind] = append(known, r.Seed)
	}
	return known == nil
}

// String lists the kinds, each with its seeds.
func (k *kinds) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d kinds of bad stories", len(k.seeds))
	for _, kind := range slices.Sorted(maps.Keys(k.seeds)) {
		seeds := k.seeds[kind]
		fmt.Fprintf(&b, "\n%d seeds: %s: %v", len(seeds), kind, seeds[:min(len(seeds), 20)])
	}
	return b.String()
}

var numbers = regexp.MustCompile(`[0-9][0-9.a-zµ]*`)

// kind returns what the violation has in common with others of the same cause. That is
// its oracle and its text, up to the first colon or the end of the line, without numbers.
func (v Violation) kind() string {
	text, _, _ := strings.Cut(v.Text, "\n")
	text, _, _ = strings.Cut(text, ":")
	return string(v.Oracle) + ": " + numbers.ReplaceAllString(text, "#")
}

// TestKinds checks that stories of the same kind are counted together, and others apart.
func TestKinds(t *testing.T) {
	var found kinds
	bad := func(seed uint64, o Oracle, text string) bool {
		return found.add(Report{Seed: seed, Violations: []Violation{{Oracle: o, Text: text}}})
	}
	assert.True(t, bad(1, Early, "attempt 3 came 1.5s after a response that asked for 7s"))
	assert.False(t, bad(2, Early, "attempt 12 came 20m3s after a response that asked for 1h0m0s"))
	assert.True(t, bad(2, Outcome, "the body ends with an error from nowhere: EOF"))
	assert.False(t, bad(3, Outcome, "the body ends with an error from nowhere: status 204"))
	assert.True(t, bad(3, Outcome, "an error from nowhere: EOF"))
	assert.Contains(t, found.String(), "3 kinds")
	assert.Contains(t, found.String(), "2 seeds: not earlier than told: attempt # came # after a response that asked for #: [1 2]")
}

// tellStory prints a bad story with as few callers as possible.
func tellStory(t *testing.T, r Report) {
	r = shrink(t, r)
	t.Errorf("seed %d: %s: %s\n%s\nagain: make simulate SEED=%d TIMES=20", r.Seed, r.Violations[0].Oracle, r.Violations[0].Text, r.Story(), r.Seed)
}

// shrink leaves out callers as long as the story is bad in the same way.
func shrink(t *testing.T, r Report) Report {
	out := make(map[int]bool)
	p := newPlan(r.Seed)
	n := len(p.calls)
	for step := (n + 1) / 2; step > 0; step /= 2 {
		for from := 0; from < n; from += step {
			without := func(call int) bool { return !out[call] && (call < from || call >= from+step) }
			again := play(t, newPlan(r.Seed), aTransport, without)
			if len(again.Violations) > 0 && again.Violations[0].kind() == r.Violations[0].kind() {
				r = again
				for call := from; call < from+step; call++ {
					out[call] = true
				}
			}
		}
	}
	return r
}
