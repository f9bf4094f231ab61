package simulate

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/transport"
)

// onePlan returns a plan of a scene with one bad connection, and nothing else.
func onePlan(seed uint64, f fate, http2 bool) *plan {
	p := &plan{seed: seed}
	d := dice.Roll(seed, ofStrike)
	s := newOneScene(d)
	s.add(p, d)
	p.hosts[0].http2, p.hosts[0].wires.fate = http2, f
	p.horizon = s.end + 10*strikeEach
	return p
}

// TestOneBadConnection plays the scene with each fate. Without lanes the check complains, unless
// closing the idle connections helps, as it does against a dead one. Over HTTP/1 an attempt that is given up closes its connection, so that lanes matter only
// if the server answers. make test plays little of it, because the race detector makes it
// slow, and make simulate plays it whole.
func TestOneBadConnection(t *testing.T) {
	alone := func(p *plan, c transport.Config) (Client, error) {
		c.Lane = nil
		return aTransport(p, c)
	}
	whole := soak.Size(0, 1) == 1 || os.Getenv("APLOMB_SEEDS") != ""
	for f := dies; f < fates; f++ {
		for _, http2 := range []bool{false, true} {
			if !whole && (!http2 || f == drags) {
				continue
			}
			t.Run(fmt.Sprintf("%v, HTTP/2 %v", f, http2), func(t *testing.T) {
				complaints := 0
				for seed := range uint64(soak.Size(2, 200)) {
					if r := play(t, onePlan(seed, f, http2), aTransport, nil); len(r.Violations) > 0 {
						t.Errorf("seed %d: %v\n%s", seed, r.Violations, r.Story())
						return
					}
					if !whole {
						return
					}
					for _, v := range play(t, onePlan(seed, f, http2), alone, nil).Violations {
						if v.Oracle == Another {
							complaints++
						}
					}
				}
				if http2 && f != dies || f == sick || f == strays {
					assert.NotZero(t, complaints)
				}
			})
		}
	}
}
