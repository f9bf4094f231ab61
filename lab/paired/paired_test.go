package paired

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/virtual"
)

// net/http's client logs some faults.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	m.Run()
}

// A cause is what violations have in common.
type cause struct {
	clause int
	theme  string
	what   string
}

// A case is a cause with its violations.
type found struct {
	first string // the description of the first
	seed  uint64
	kinds map[string]int
	seeds []uint64
	again int // how many replays of the first show it
}

// TestNeverWorse plays SEEDS pairs of stories, beginning with SEED.
func TestNeverWorse(t *testing.T) {
	if os.Getenv("APLOMB_SEEDS") == "" {
		t.Skip("make never-worse plays the stories")
	}
	first, seeds, only := virtual.Number("SEED", 1), virtual.Number("SEEDS", 1), os.Getenv("APLOMB_ONLY")
	presets := presets()
	var played, requests, plays atomic.Int64
	var mu sync.Mutex // guards the following
	causes := map[cause]*found{}
	tallies := map[string]*[clauses]tally{}
	themes := map[string]time.Duration{}
	begin := time.Now()
	virtual.Each(seeds, func(i int) {
		p := newPlan(uint64(first + i))
		if only != "" && only != p.theme {
			return
		}
		at := time.Now()
		s := tell(t, p, p.kinds(presets))
		played.Add(1)
		requests.Add(int64(s.requests))
		plays.Add(int64(s.plays))
		if s.requests > mostRequests {
			t.Errorf("seed %d: %d requests", p.seed, s.requests)
		}
		mu.Lock()
		themes[p.theme] += time.Since(at)
		for _, j := range s.judged {
			sum := tallies[j.kind.name]
			if sum == nil {
				sum = new([clauses]tally)
				tallies[j.kind.name] = sum
			}
			for c := range j.tallies {
				sum[c].judged += j.tallies[c].judged
				sum[c].healed += j.tallies[c].healed
				sum[c].excused += j.tallies[c].excused
			}
		}
		for _, v := range s.luck {
			t.Logf("chance, not counted: seed %d, %s, %s, clause %d: %s: %s; again in %d of %d replays", p.seed, p.theme, v.kind, v.clause, v.what, v.text, v.again, replays)
		}
		for _, v := range s.violations() {
			key := cause{v.clause, p.theme, v.what}
			f := causes[key]
			if f == nil {
				f = &found{first: s.describe(v), seed: p.seed, kinds: map[string]int{}, again: v.again}
				causes[key] = f
			}
			if f.kinds[v.kind]++; !slices.Contains(f.seeds, p.seed) {
				f.seeds = append(f.seeds, p.seed)
			}
		}
		mu.Unlock()
	})
	order := slices.SortedFunc(maps.Keys(causes), func(a, b cause) int {
		return cmp.Or(cmp.Compare(a.clause, b.clause), cmp.Compare(a.theme, b.theme), cmp.Compare(a.what, b.what))
	})
	for _, c := range order {
		f := causes[c]
		t.Errorf("%s\n  again in %d of %d replays\n  again: make never-worse SEED=%d", f.first, f.again, replays, f.seed)
	}
	for _, c := range order {
		f := causes[c]
		t.Logf("clause %d, %s: %s: %d seeds, %v; again in %d of %d: %v", c.clause, c.theme, c.what, len(f.seeds), f.kinds, f.again, replays, f.seeds[:min(len(f.seeds), 8)])
	}
	var total [clauses]tally
	for _, k := range slices.Sorted(maps.Keys(tallies)) {
		line := ""
		for c := asGood; c < clauses; c++ {
			x := tallies[k][c]
			line += fmt.Sprintf("  %d: %d judged, %d healed, %d excused;", c, x.judged, x.healed, x.excused)
			total[c].judged += x.judged
			total[c].excused += x.excused
		}
		t.Log(k + line)
	}
	for c := asGood; c < clauses && seeds >= 100; c++ {
		if x := total[c]; x.excused*50 > x.judged+x.excused || x.judged == 0 {
			t.Errorf("clause %d: %d judged, %d excused", c, x.judged, x.excused)
		}
	}
	t.Logf("%d stories with %d plays and %d requests, %d kinds of violations, %v each; by theme: %v", played.Load(), plays.Load(), requests.Load(), len(causes), time.Since(begin)/time.Duration(max(played.Load(), 1)), themes)
}
