package gate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// Processes that cannot reach the host stop a process that has not used the host lately.
// When it uses the host, it gets its turn to probe, after 30 s at the latest, and ends the
// outage. A process that uses the host is never stopped.
func TestFleetOfTheSick(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sick   int
		frozen bool // the sick get no response
		within time.Duration
	}{
		{"a single sick process", 1, false, 0},
		{"two", 2, true, 0},
		{"three that fail at once", 3, false, 3 * sec},
		{"three whose requests are lost", 3, true, 5 * sec},
		{"many that fail at once", soak.Size(8, 20), false, 3 * sec},
		{"many whose requests are lost", soak.Size(8, 20), true, 5 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var longest time.Duration
			stopped, used := 0, 0
			for seed := range soak.Size[uint64](1, 20) {
				r := &fleetRun{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 4)), frozen: tt.frozen, works: true, delay: 2 * ms}
				for i := range tt.sick + 2 {
					r.processes = append(r.processes, &process{run: r, id: int64(i + 1), sick: i > 1})
				}
				rare, busy, works := r.processes[0], r.processes[1], false
				for at := instant.Instant(0); at < instant.At(4*time.Minute); at += 100 * ms {
					r.clock.At(at, func() {
						for _, p := range r.processes[2:] {
							p.start(false)
						}
						if at > instant.At(3*time.Minute) {
							v := busy.start(true)
							require.False(t, works && !v.gone, "seed %d: the busy process is stopped at %v", seed, at)
							works = v.gone
							used++
						}
					})
				}
				r.clock.RunTo(sec)
				rare.start(true)
				for range 3 {
					r.clock.RunTo(r.clock.Now + 50*sec)
					if rare.gate.State().Closed {
						stopped++
					}
					v, begin := rare.start(true), r.clock.Now
					for !v.gone {
						r.clock.RunTo(r.clock.Now + 10*ms)
					}
					longest = max(longest, r.clock.Now.Sub(begin))
				}
				r.clock.RunTo(instant.At(5 * time.Minute))
			}
			t.Logf("stopped in %d cases, for %v at most", stopped, longest)
			if longest > tt.within || stopped == 0 && tt.within > 0 || used == 0 {
				t.Errorf("stopped in %d cases, for %v at most", stopped, longest)
			}
		})
	}
}

// News that nobody should send costs two minutes at most.
func TestFleetTalksNonsense(t *testing.T) {
	var longest time.Duration
	for seed := range soak.Size[uint64](40, 5000) {
		_, took := runFleet(t, seed, true)
		if longest = max(longest, took); took > longestNo+sec {
			t.Fatalf("seed %d: %v until all requests were sent", seed, took)
		}
	}
	t.Log(longest)
}

func FuzzFleet(f *testing.F) {
	f.Add(uint64(1), true)
	f.Add(uint64(1), false)
	f.Fuzz(func(t *testing.T, seed uint64, noisy bool) { runFleet(t, seed, noisy) })
}
