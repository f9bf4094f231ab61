package main

import (
	aplombotel "github.com/aplomb-go/aplomb/otel"
	"github.com/aplomb-go/aplomb/transport"
)

func module(c *transport.Config) error {
	telemetry, err := aplombotel.New(aplombotel.Config{})
	if err == nil {
		c.Traces = append(c.Traces, telemetry.Trace())
	}
	return err
}
