package simulate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// latePlan returns a plan of a scene in which attempts hang, and nothing else.
func latePlan(seed uint64, http2 bool) *plan {
	p := &plan{seed: seed, traced: true}
	d := roll(seed, ofLate)
	s := newLateScene(d)
	s.add(p, d)
	p.hosts[0].http2 = http2
	p.horizon = s.end + 10*strikeEach
	return p
}

// TestAttemptsThatHang plays the scene. Late hedges go. Without them the check complains, and over
// HTTP/2 also without lanes.
func TestAttemptsThatHang(t *testing.T) {
	off := func(p *plan, c transport.Config) (Client, error) {
		for name, rule := range c.Hosts {
			rule.Hedge.Late = policy.Off
			c.Hosts[name] = rule
		}
		return aTransport(p, c)
	}
	alone := func(p *plan, c transport.Config) (Client, error) {
		c.Lane = nil
		return aTransport(p, c)
	}
	complaints := func(p *plan, client maker) map[Oracle]int {
		n := make(map[Oracle]int)
		for _, v := range play(t, p, client, nil).Violations {
			n[v.Oracle]++
		}
		return n
	}
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			t.Parallel()
			hedges, without, besides := 0, 0, 0
			for seed := range uint64(soak.Size(4, 200)) {
				r := play(t, latePlan(seed, http2), aTransport, nil)
				if len(r.Violations) > 0 {
					t.Fatalf("seed %d: %v\n%s", seed, r.Violations, r.Story())
				}
				hedges += r.Attempts - r.Calls
				without += complaints(latePlan(seed, http2), off)[Another]
				besides += complaints(latePlan(seed, http2), alone)[Beside]
			}
			assert.NotZero(t, hedges)
			assert.NotZero(t, without)
			assert.Equal(t, http2, besides > 0)
		})
	}
}
