// The backend of fleets.

package main

import (
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/redisserver"
	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/transport"
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

// A partOf is a Fleet that shares only some of what members tell each other. It answers for
// the rest by itself.
type partOf struct {
	transport.Fleet
	shares model.Fleet
	hear   func(fleetmsg.Message)
}

func (p *partOf) Join(hear func(fleetmsg.Message)) error {
	p.hear = hear
	return p.Fleet.Join(func(m fleetmsg.Message) {
		if p.passes(m.Kind) {
			hear(m)
		}
	})
}

func (p *partOf) Tell(m fleetmsg.Message) {
	switch {
	case p.passes(m.Kind):
		p.Fleet.Tell(m)
	case m.Kind == fleetmsg.AskProbe:
		go p.hear(fleetmsg.Message{Kind: fleetmsg.Probe, Host: m.Host, Granted: true})
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
func join(addr, strategy string, shares model.Fleet) (*fleet.Fleet, error) {
	c := fleet.Config{
		Redis:  &redis.UniversalOptions{Addrs: []string{addr}},
		Key:    []byte("the key of the experiment"),
		Prefix: "storm-" + strategy,
	}
	if !shares.Spread {
		c.Return = -1
	}
	return fleet.New(c)
}
