package main

import (
	"strings"

	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/policy/rulefile"
	"github.com/aplomb-go/aplomb/transport"
)

func module(c *transport.Config) (err error) {
	_, c.Hosts, err = rulefile.Load(strings.NewReader(`{"hosts": {"api.github.com": {"profile": "github"}}}`), rulefile.Names{})
	if err == nil {
		c.Hosts["api.stripe.com"] = profile.Stripe()
	}
	return err
}
