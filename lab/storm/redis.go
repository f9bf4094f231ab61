// The backend of fleets.

package main

import (
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/internal/redisserver"
	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
)

// A backend is a Redis of this experiment, or nothing.
type backend struct {
	server *redisserver.Server
	addr   string
}

// startRedis starts a Redis if a strategy has a fleet.
func startRedis(o options) (*backend, error) {
	if !slices.ContainsFunc(o.strategies, func(s model.Strategy) bool { return s.Fleet != model.Fleet{} }) {
		return &backend{}, nil
	}
	s, err := redisserver.Start("--maxclients", "10000")
	if err != nil {
		return nil, fmt.Errorf("a fleet needs Redis: %w", err)
	}
	return &backend{s, s.Addr}, nil
}

func (b *backend) stop() {
	if b.server != nil {
		b.server.Stop()
	}
}

// A partOf is a Fleet that shares only some of what members tell each other.
type partOf struct {
	fleet  *member.Backend
	shares model.Fleet
}

// Link connects a Transport.
func (p *partOf) Link() fleetlink.Fleet {
	return (&member.Backend{Join: p.join, Tell: p.tell, Scope: p.fleet.Scope, State: p.fleet.State}).Link()
}

func (p *partOf) join(hear func(fleetmsg.Message)) error {
	return p.fleet.Join(func(m fleetmsg.Message) {
		if m.Kind == fleetmsg.Up && !p.shares.Spread {
			m.Wait = 0 // all members return at once
		}
		if p.passes(m.Kind) {
			hear(m)
		}
	})
}

func (p *partOf) tell(m fleetmsg.Message) {
	if p.passes(m.Kind) {
		p.fleet.Tell(m)
	}
}

func (p *partOf) passes(k fleetmsg.Kind) bool {
	switch k {
	case fleetmsg.Meet:
		return true
	case fleetmsg.Hold, fleetmsg.Quota, fleetmsg.AskTokens, fleetmsg.Tokens: // no strategy shares them
		return false
	}
	return p.shares.Probe
}

// join makes a member of a fleet. Each strategy has a fleet of its own.
func join(addr, strategy string) (*fleet.Fleet, error) {
	return fleet.New(fleet.Config{
		Redis:  &redis.UniversalOptions{Addrs: []string{addr}},
		Key:    []byte("the key of the experiment"),
		Prefix: "storm-" + strategy,
	})
}
