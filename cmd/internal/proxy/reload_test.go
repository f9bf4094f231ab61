package proxy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	loadClients  = 64
	loadReloads  = 100
	loadBetween  = 8  // requests between two reloads, at least
	loadFailures = 50 // each of so many GETs fails at the upstream
)

// goodRules returns rules that differ from reload to reload. All of them let a
// failed GET be retried.
func goodRules(i int) string {
	gates := []string{`"off"`, `{"mode": "wait", "start": 32, "max": 64}`}
	return fmt.Sprintf(`{"rule": {"attempts": %d, "budget": "off", "backoff": {"type": "constant", "delay": "1ms"}, "gate": %s}}`, 4+i%5, gates[i%2])
}

func TestNoRequestIsLostDuringReloads(t *testing.T) {
	var served, gets atomic.Int64
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.Method == http.MethodGet && gets.Add(1)%loadFailures == 0 || err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		served.Add(1)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
	})
	path := rulesFile(t, goodRules(0))
	p := start(t, "-to", to.URL, "-rules", path, "-poll", "0")

	var sent, failed atomic.Int64
	stop, progress := make(chan struct{}), make(chan struct{}, loadClients)
	var clients sync.WaitGroup
	c := client(t)
	for i := range loadClients {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				sent.Add(1)
				if err := exchange(c, p.url, i, n); err != nil {
					failed.Add(1)
					t.Error(err)
				}
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	reload(t, p, path, func() {
		for range loadBetween {
			<-progress
		}
	})
	close(stop)
	clients.Wait()
	assert.Zero(t, failed.Load())
	assert.Equal(t, sent.Load(), served.Load(), "the upstream served other requests than were sent")
	assert.GreaterOrEqual(t, sent.Load(), int64(loadReloads*loadBetween))
}

// reload makes all reloads, and checks after each that the proxy has judged it.
func reload(t *testing.T, p *running, path string, between func()) {
	t.Helper()
	breaks := []func() error{
		func() error { return nil },
		func() error { return os.Mkdir(path, 0o700) },
		func() error { return os.WriteFile(path, nil, 0o600) },
		func() error { return os.WriteFile(path, []byte(goodRules(1)[:40]), 0o600) },
		func() error { return os.WriteFile(path, []byte(`{"rule": {"attempts": "many"}}`), 0o600) },
	}
	for i := range loadReloads / 2 {
		between()
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, breaks[i%len(breaks)]())
		p.hangup <- os.Interrupt // the channel counts, not the signal
		p.log.wait("the old rules stay in force", i+1)
		between()
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, os.WriteFile(path, []byte(goodRules(i+1)), 0o600))
		p.hangup <- os.Interrupt // the channel counts, not the signal
		p.log.wait("new rules are in force", i+1)
	}
	_, metrics := get(t, p.debug+"/metrics")
	assert.Contains(t, metrics, fmt.Sprintf("proxy_rules_reloads_total{result=\"taken\"} %d\n", loadReloads/2+1))
	assert.Contains(t, metrics, fmt.Sprintf("proxy_rules_reloads_total{result=\"refused\"} %d\n", loadReloads/2))
}

// exchange sends one request, of which it knows the response.
func exchange(c *http.Client, url string, i, n int) error {
	method, body := http.MethodGet, ""
	if n%2 == 1 {
		method, body = http.MethodPost, strings.Repeat(fmt.Sprint(i, n), 100)
	}
	path := fmt.Sprintf("/%d/%d", i, n)
	req, err := http.NewRequest(method, url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if want := method + " " + path + " " + body; err == nil && string(got) != want {
		err = fmt.Errorf("status %d, body %q instead of %q", resp.StatusCode, got, want)
	}
	return err
}

// The file is polled. A change comes into force without a signal.
func TestReloadOnChange(t *testing.T) {
	var n atomic.Int64
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	path := rulesFile(t, demoRules)
	p := start(t, "-to", to.URL, "-rules", path, "-poll", "1ms")
	get(t, p.url)
	assert.EqualValues(t, 4, n.Swap(0))
	require.NoError(t, replace(path, offRules))
	p.log.wait("new rules are in force", 1)
	get(t, p.url)
	assert.EqualValues(t, 1, n.Swap(0))
	require.NoError(t, os.Remove(path))
	p.log.wait("the old rules stay in force", 1)
	get(t, p.url)
	assert.EqualValues(t, 1, n.Swap(0))
	require.NoError(t, replace(path, demoRules))
	p.log.wait("new rules are in force", 2)
	get(t, p.url)
	assert.EqualValues(t, 4, n.Load())
	assert.Equal(t, 1, p.log.count("the old rules stay in force"))
}
