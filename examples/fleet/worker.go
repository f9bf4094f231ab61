package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// newClient returns a client that keeps to the quota of the API. With the address of a
// Redis, all workers keep to it together, and share the waits that the API asks for.
// Without an address, each worker believes that the quota is its own. Call stop at the end.
func newClient(redisAddr string) (client *http.Client, stop func(), err error) {
	config := transport.Config{Rule: policy.Rule{Rate: policy.Rate{PerSecond: quota, Burst: 1}}}
	stop = func() {}
	if redisAddr != "" {
		f, err := fleet.New(fleet.Config{
			Redis: &redis.UniversalOptions{Addrs: []string{redisAddr}},
			Key:   []byte("all workers have the same secret"), // from the settings, in a real program
		})
		if err != nil {
			return nil, nil, err
		}
		config.Fleet, stop = f, f.Close
	}
	t, err := transport.New(config)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return &http.Client{Transport: t}, stop, nil
}

// get sends a request. Waiting and retrying are left to the client.
func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("gave up: %s", resp.Status)
	}
	return nil
}
