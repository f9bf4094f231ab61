package main

import (
	aplombotel "github.com/aplomb-go/aplomb/otel"
	"github.com/aplomb-go/aplomb/transport"
)

func module(c *transport.Config) error {
	telemetry, err := aplombotel.New(aplombotel.Config{})
	if err == nil {
		c.Trace = transport.JoinTraces(telemetry.Trace(), c.Trace)
	}
	return err
}
