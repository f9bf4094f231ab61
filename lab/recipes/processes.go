package recipes

import (
	"log/slog"
	"time"

	"github.com/aplomb-go/aplomb/fleet/dir"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func worker(path string, log *slog.Logger) (c transport.Config, closeFleet func(), err error) {
	f, err := dir.New(dir.Config{Path: path, Logger: log})
	if err != nil {
		return transport.Config{}, nil, err
	}
	rule := policy.API()
	rule.AttemptTimeout = 10 * time.Second
	rule.Gate = policy.Gate{Max: 20}                 // all learn that the host is down
	rule.Pacing = policy.On                          // all know what is left of a quota
	rule.Rate = policy.Rate{PerSecond: 10, Burst: 2} // of all together
	return transport.Config{
		Logger: log,
		Fleet:  f,
		Hosts:  map[string]policy.Rule{"api.example.com": rule},
	}, f.Close, nil
}
