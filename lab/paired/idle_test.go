package paired

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
)

// idleWorlds are those in which idle connections are a danger, and the last in which they help. Each has
// 600 requests or more.
var idleWorlds = []struct {
	name string
	make func(*plan, dice.Dice)
}{
	{"a NAT forgets connections after 1 s", func(p *plan, d dice.Dice) {
		h := p.ofHost(d)
		h.dial, h.forgets = 10*ms, time.Second
		for i := range 13 {
			p.together(d, p.first("GET", h), 50, time.Duration(i)*4500*ms, 3*time.Second)
		}
	}},
	{"the server closes connections after 1 s", func(p *plan, d dice.Dice) {
		h := p.ofHost(d)
		h.dial, h.distance, h.keeps = 80*ms, 40*ms, time.Second
		for i := range 12 {
			p.together(d, p.first("POST", h), 50, time.Duration(i)*1121*ms, 0)
		}
	}},
	{"ten workers and two names", func(p *plan, d dice.Dice) {
		h, other := p.ofHost(d), p.ofHost(d)
		h.dial, h.places, h.keeps = 10*ms, 10, 15*time.Second
		other.like, other.ips, other.dial = h, h.ips, h.dial
		r, after := p.first("GET", h), p.ofRoute(other, "POST", "b", 50*ms, 50*ms)
		for i := range 55 {
			p.together(d, r, 10, time.Duration(i)*time.Minute, 5*time.Second)
			p.later(time.Duration(i)*time.Minute+time.Second, after).deadline = 4 * time.Second
		}
	}},
	{"32 callers", func(p *plan, d dice.Dice) {
		h := p.ofHost(d)
		p.closed(d, p.first("GET", h), 32, 30, 100*ms, 0, nil)
	}},
}

// first returns the only route of a host.
func (p *plan) first(method string, h *host) *route {
	if len(p.routes) == 0 {
		p.ofRoute(h, method, "a", 50*ms, 50*ms)
	}
	return p.routes[0]
}

// TestIdleConnections plays these worlds with each number of idle connections for a host. lab/figures.md
// has the table.
func TestIdleConnections(t *testing.T) {
	clients := []kind{bare(0), aplomb("default", policy.Rule{})}
	rows := []int{0}
	if os.Getenv("APLOMB_IDLE") != "" {
		clients = append(clients, aplomb("API", profile.API()), aplomb("Service", profile.Service()))
		rows = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	}
	failed := map[string]int{}
	for _, idle := range rows {
		for n, k := range clients {
			if idle > 0 && n == 0 {
				continue // net/http alone has its own
			}
			k.idle = idle
			var line strings.Builder
			for _, world := range idleWorlds {
				p := &plan{seed: 1, theme: world.name}
				world.make(p, dice.Roll(1))
				r, bad, dials := play(t, p, k, nil, 0, 0), 0, 0
				for _, o := range r.outcomes {
					if !o.good() {
						bad++
					}
				}
				for _, d := range r.dials {
					dials += d
				}
				if failed[k.name+world.name] = bad; idle == 0 && bad > 2*failed["net/http"+world.name] {
					t.Errorf("%s, %s: %d of %d fail, over net/http alone %d", world.name, k.name, bad, len(p.calls), failed["net/http"+world.name])
				}
				fmt.Fprintf(&line, "  %s: %d of %d fail, %d dials;", world.name, bad, len(p.calls), dials)
			}
			t.Logf("%d idle, %s%s", idle, k.name, line.String())
		}
	}
}
