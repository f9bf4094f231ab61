package gate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// A process that is killed while it holds the permit to probe delays the return by little:
// the fleet lends the permit for a second only. In each storm a process that has a probe
// under way is killed when the host thaws, in virtual time.
func TestKilledProber(t *testing.T) {
	for seed := range soak.Size[uint64](4, 10) {
		const begin, thaw = 5 * sec, 25 * sec
		r := &fleetRun{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 5)), works: true, frozen: true, delay: 2 * ms}
		for i := range 4 + r.rng.IntN(20) {
			p := &process{run: r, id: int64(i + 1)}
			r.processes = append(r.processes, p)
			for at := instant.Instant(r.rng.Int64N(int64(100 * ms))); at < 60*sec; at += 100 * ms {
				r.clock.At(at, func() {
					if !p.dead {
						p.start(at%sec < 100*ms)
					}
				})
			}
		}
		r.clock.At(begin, func() { r.works = false })
		killed, back := time.Duration(0), time.Duration(0)
		r.clock.At(thaw, func() {})
		for r.clock.Now < 50*sec && back == 0 {
			r.clock.RunTo(r.clock.Now + ms)
			if killed == 0 && r.clock.Now >= thaw {
				for _, p := range r.processes {
					if g := &p.gate; g.outage.closed && g.slots.inFlight > 0 && g.fleet.permit == lent {
						p.dead, killed, r.works = true, r.clock.Now.Since(), true
						break
					}
				}
			}
			for _, p := range r.processes {
				if killed > 0 && !p.dead && p.gate.pulse.last > instant.At(killed) {
					back = r.clock.Now.Since()
				}
			}
		}
		require.True(t, killed != 0 && back != 0, "seed %d: killed at %v, back at %v", seed, killed, back)
		t.Logf("seed %d: %d processes, back after %v", seed, len(r.processes), back-killed)
		assert.True(t, back-killed <= 2*sec, "seed %d: back after %v", seed, back-killed)
	}
}
