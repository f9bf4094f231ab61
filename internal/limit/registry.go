// What all requests of a Transport stand on.

package limit

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/rules"
)

// A Registry has the hosts of a Transport, their rules, its clock and its fleet.
type Registry struct {
	instant.Clock // of the limits
	Hosts         *host.Table[rules.Resolved]
	Rules         atomic.Pointer[rules.Ruleset]
	Fleet         *fleetlink.Link // nil: none
	Size          atomic.Int32    // of the fleet; 0 counts as 1
	asked         atomic.Int64    // when the fleet was asked for tokens first; 0: it was not
	Watched       bool            // somebody is told about the state of the hosts
	Seed          maphash.Seed    // for the hashes of credentials
}

// Prepare makes a registry without rules. evicted is told of hosts that are forgotten.
func (g *Registry) Prepare(evicted func(*host.State[rules.Resolved])) {
	g.Hosts = host.NewTable[rules.Resolved](host.MaxHosts)
	g.Hosts.Now, g.Hosts.Evicted = g.Now, evicted
	g.Clock, g.Seed = instant.NewClock(), maphash.MakeSeed()
}

// HostRule returns the rule for a host. It searches for the rule at the first request
// and at the first request after an Update. Otherwise it costs one atomic load.
func (g *Registry) HostRule(s *host.State[rules.Resolved], set *rules.Ruleset) *rules.Resolved {
	if r := s.Resolved.Load(); r != nil && r.Set == set {
		return r
	}
	r, _ := set.ForHost(s.Key())
	if r.RateLimit {
		// Used tokens of the rate stay used. An Update must not allow another burst.
		m := s.Machines()
		limit := m.Rate(r.Settings.Rate)
		limit.Set(g.Now(), r.Settings.Rate)
		if g.Fleet != nil {
			limit.Share(g.Now(), g.members())
		}
		if gate, _ := m.Made(); gate != nil {
			gate.WakeFirst() // the first request in that queue may wait for the rate
		}
	}
	if g.Fleet != nil && r.ObeysMore(s.Resolved.Load()) {
		// A Fleet may answer at once. So no request goes before it, and that includes one that
		// comes meanwhile and asks as well.
		g.Fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: s.Name()})
	}
	s.Resolved.Store(r)
	return r
}

// answerTime returns how long a request waits for the fleet's answer if it has to go by a time, and
// as long as it likes if the time is 0. A request that waits asks again and again.
func (g *Registry) answerTime(now, by instant.Instant) time.Duration {
	g.asked.CompareAndSwap(0, int64(now))
	asked := instant.Instant(g.asked.Load())
	wait := asked.Add(rate.MetTime).Sub(now)
	if g.Size.Load() == 0 && now >= asked.Add(rate.FirstTime-rate.AnswerTime) {
		wait = 0
	}
	if by != 0 {
		wait = min(wait, by.Sub(now)*3/4)
	}
	return max(wait, rate.AnswerTime)
}

// AskProbe asks the fleet for a permit to probe a host.
func (g *Registry) AskProbe(host string) {
	g.Fleet.Tell(fleetmsg.Message{Kind: fleetmsg.AskProbe, Host: host})
}
