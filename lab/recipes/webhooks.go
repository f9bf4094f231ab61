package recipes

import (
	"bytes"
	"context"
	"errors"
	"io"
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
			MaxAttempts:    3,                                                              // a queue of your own tries again later
			CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}, // nothing waits for a host that is down
		},
	}
}

// A report says how the deliveries to a host went.
type report struct {
	delivered int
	failed    map[string]error // by URL
}

// deliver sends an event to all URLs, and reports by host. 500 hosts at a time get a request each.
func deliver(ctx context.Context, client *http.Client, urls []*url.URL, id string, event []byte) map[string]*report {
	own := *client // a redirect may turn the POST into a GET, and lead anywhere
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	byHost := map[string][]*url.URL{}
	for _, to := range urls {
		byHost[to.Host] = append(byHost[to.Host], to)
	}
	hosts, free := map[string]*report{}, make(chan struct{}, 500)
	var all sync.WaitGroup
	for host, its := range byHost {
		r := &report{failed: map[string]error{}}
		hosts[host] = r
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, 3*time.Minute) // for the whole host
			defer cancel()
			for _, to := range its {
				if err := notify(ctx, &own, to.String(), id, event); err != nil {
					r.failed[to.String()] = err
				} else {
					r.delivered++
				}
			}
		})
	}
	all.Wait()
	return hosts
}

func notify(ctx context.Context, client *http.Client, to, id string, event []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(event))
	if err != nil {
		return err
	}
	req.Header.Set("Webhook-Id", id) // the same in each attempt
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	if resp.StatusCode >= 300 {
		return errors.New(transport.Explain(resp, nil)) // each attempt, and why there was no other
	}
	return err
}
