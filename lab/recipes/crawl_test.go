// The crawler meets 10,000 hosts.

package recipes

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/transport"
)

// A web has hosts that respond within 0.1 to 0.5 s. 5 % of them are down, 2 % hang, and 2 % say
// once that their clients should wait for 5 min.
type web struct {
	mu      sync.Mutex
	last    map[string]time.Time
	told    map[string]time.Time // when a host may be asked again
	sent    int
	early   int           // requests that came before that
	nearest time.Duration // between two requests to a host
}

// kindOf returns a number from 0 to 99 for a host.
func kindOf(host string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, host)
	return h.Sum32() % 100
}

func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	kind := kindOf(req.URL.Host)
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}
	w.mu.Lock()
	w.sent++
	now, last := time.Now(), w.last[req.URL.Host]
	if !last.IsZero() {
		w.nearest = min(w.nearest, now.Sub(last))
	}
	w.last[req.URL.Host] = now
	if now.Before(w.told[req.URL.Host]) {
		w.early++
	}
	if kind >= 98 && last.IsZero() {
		w.told[req.URL.Host] = now.Add(5 * time.Minute)
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", "300")
	}
	w.mu.Unlock()
	took := 100*time.Millisecond + time.Duration(kind)*4*time.Millisecond
	switch {
	case kind < 5:
		return nil, syscall.ECONNREFUSED
	case kind < 7:
		took = time.Hour
	}
	select {
	case <-time.After(took):
		return resp, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// A job is a page that is still to be fetched.
type job struct {
	url   string
	tries int
}

// fetch fetches a page, and returns when to try again if that is worthwhile.
func fetch(ctx context.Context, client *http.Client, j job) (ok bool, at time.Time) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url, nil)
	if err != nil {
		return false, at
	}
	resp, err := client.Do(req)
	if err == nil {
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK, time.Now().Add(5 * time.Minute)
	}
	if at = again(err); at.IsZero() {
		at = time.Now().Add(time.Minute)
	}
	return false, at
}

// TestCrawl fetches three pages of each of 10,000 hosts with 500 goroutines, in virtual time.
func TestCrawl(t *testing.T) {
	const hosts, pages, workers, tries = 10_000, 3, 500, 3
	synctest.Test(t, func(t *testing.T) {
		start, w := time.Now(), &web{last: map[string]time.Time{}, told: map[string]time.Time{}, nearest: time.Hour}
		c := crawler(nil)
		c.Base = w
		client := &http.Client{Transport: transport.MustNew(c)}
		queue := make(chan job, hosts*pages)
		want := 0
		for p := range pages {
			for h := range hosts {
				host := fmt.Sprintf("www.host%d.example", h)
				queue <- job{url: fmt.Sprintf("https://%s/%d", host, p)}
				if kindOf(host) >= 7 {
					want++
				}
			}
		}
		var all, open sync.WaitGroup
		var mu sync.Mutex
		fetched := 0
		open.Add(hosts * pages)
		for range workers {
			all.Go(func() {
				for j := range queue {
					ok, at := fetch(t.Context(), client, j)
					if j.tries++; !ok && j.tries < tries {
						time.AfterFunc(time.Until(at), func() { queue <- j })
						continue
					}
					if ok {
						mu.Lock()
						fetched++
						mu.Unlock()
					}
					open.Done()
				}
			})
		}
		open.Wait()
		close(queue)
		all.Wait()
		t.Logf("%v, %d requests, %d pages, %v between two requests to a host", time.Since(start), w.sent, fetched, w.nearest)
		assert.Equal(t, want, fetched, "all pages of the hosts that are well")
		assert.Less(t, time.Since(start), 8*time.Minute)
		assert.GreaterOrEqual(t, w.nearest, time.Second)
		assert.Zero(t, w.early)
	})
}
