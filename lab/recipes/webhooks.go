package recipes

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func webhooks(log *slog.Logger) transport.Config {
	return transport.Config{
		Logger: log,
		Rule: policy.Rule{
			Idempotent:     func(*http.Request) bool { return true }, // a receiver knows an event by its Webhook-Id
			ConnectTimeout: 5 * time.Second,
			AttemptTimeout: 10 * time.Second,
			MaxElapsed:     time.Minute,
			Gate:           policy.Gate{Mode: policy.GateRefuse, Max: 20}, // a receiver that is down costs no time
		},
	}
}

// A report says how the deliveries to a host went.
type report struct {
	delivered int
	failed    map[string]error // by path
	again     time.Time        // not before this time, if it is known
}

// deliver sends an event to all URLs, 500 at a time, and reports by host.
func deliver(ctx context.Context, client *http.Client, urls []*url.URL, id string, event []byte) map[string]*report {
	hosts, free := map[string]*report{}, make(chan struct{}, 500)
	var mu sync.Mutex // guards hosts
	var all sync.WaitGroup
	for _, to := range urls {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			err := notify(ctx, client, to, id, event)
			mu.Lock()
			defer mu.Unlock()
			r := hosts[to.Host]
			if r == nil {
				r = &report{failed: map[string]error{}}
				hosts[to.Host] = r
			}
			if err == nil {
				r.delivered++
				return
			}
			r.failed[to.Path], r.again = err, again(err) // as for the crawler
		})
	}
	all.Wait()
	return hosts
}

func notify(ctx context.Context, client *http.Client, to *url.URL, id string, event []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(event))
	if err != nil {
		return err
	}
	req.Header.Set("Webhook-Id", id) // the same in each attempt
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s (%v)", resp.Status, transport.HistoryOf(resp).Reason)
	}
	return nil
}
