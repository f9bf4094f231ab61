package main

import (
	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/transport"
)

// There is no Redis, and the Transport does without.
func module(c *transport.Config) error {
	f, err := fleet.New(fleet.Config{
		Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}},
		Key:   []byte("a key for this program only"),
	})
	if err == nil {
		c.Fleet = f
	}
	return err
}
