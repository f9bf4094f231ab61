// What the log of each recipe says.

package recipes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/transport"
)

// A journal is a handler of the log that notes the lines.
type journal struct {
	least slog.Level
	start time.Time
	mu    sync.Mutex
	text  strings.Builder
}

func (j *journal) Enabled(_ context.Context, l slog.Level) bool { return l >= j.least }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler           { return j }
func (j *journal) WithGroup(string) slog.Handler                { return j }

// Handle leaves out the lines of requests that failed or wait, for which the document has no room.
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "request failed" || r.Message == "request waits" {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(&j.text, "%4d s %-5v %s", int(r.Time.Sub(j.start).Seconds()), r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "method", "url", "kind", "class", "since":
			return true
		}
		text := a.Value.String()
		switch {
		case a.Value.Kind() == slog.KindTime:
			text = a.Value.Time().UTC().Format(time.TimeOnly)
		case strings.Contains(text, " "):
			text = strconv.Quote(text)
		}
		fmt.Fprintf(&j.text, " %s=%s", a.Key, text)
		return true
	})
	j.text.WriteByte('\n')
	return nil
}

// A server plays steps in the order of arrival, for each host that it has. Then it responds
// with 200.
type server map[string][]faults.Step

func (s server) transport() http.RoundTripper {
	plans := map[string]faults.Plan{}
	for host, steps := range s {
		plans[host] = faults.Script(append(steps, faults.Status(200))...)
	}
	return faults.New(nil, func(req *http.Request) faults.Step { return plans[req.URL.Host](req) })
}

// A call is a request that is sent some time after the call before it.
type call struct {
	after  time.Duration
	method string
	url    string
	client int  // which of the clients sends it
	beside bool // the next call does not wait for it
}

func post(url string) call { return call{method: http.MethodPost, url: url} }
func get(url string) call  { return call{method: http.MethodGet, url: url} }

func (c call) at(after time.Duration) call { c.after = after; return c }

func (c call) by(client int) call { c.client = client; return c }
func (c call) besides() call      { c.beside = true; return c }

const (
	model  = "https://llm.example.com/v1/responses"
	issues = "https://api.github.com/repos/golang/go/issues"
	pods   = "https://10.0.0.1/api/v1/pods"
	charge = "https://api.stripe.com/v1/charges"
	quotes = "http://orders.internal/quote"
	dead   = "https://dead.example.net/"
	page   = "https://www.example.org/"
	jobs   = "https://api.example.com/jobs"
)

var down = faults.ConnRefused()

// A situation is what a recipe meets.
type situation struct {
	name    string
	debug   bool // the log has a line for each attempt
	clients func(t *testing.T, log *slog.Logger, base http.RoundTripper) []http.RoundTripper
	server  server
	calls   []call
}

// of returns the client of a recipe that is a Config.
func of(recipe func(*slog.Logger) transport.Config) func(*testing.T, *slog.Logger, http.RoundTripper) []http.RoundTripper {
	return func(_ *testing.T, log *slog.Logger, base http.RoundTripper) []http.RoundTripper {
		c := recipe(log)
		c.Base = base
		c.NewPool = func(string) http.RoundTripper { return base } // as many as an http.Transport has
		return []http.RoundTripper{transport.MustNew(c)}
	}
}

// workers returns two processes. Their fleet is in memory, where time is virtual.
func workers(t *testing.T, log *slog.Logger, base http.RoundTripper) (all []http.RoundTripper) {
	memory := fleettest.NewMemory()
	for range 2 {
		f := memory.Member()
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		c := worker(f, log)
		c.Base = base
		all = append(all, transport.MustNew(c))
	}
	return all
}

var situations = []situation{
	{"llm", false, of(llm), server{"llm.example.com": {
		faults.Status(200).Header("x-ratelimit-limit-tokens", "90000").Header("x-ratelimit-remaining-tokens", "9000").Header("x-ratelimit-reset-tokens", "30s"),
		faults.Status(429).Header("Retry-After", "20"),
		faults.Status(200),
		faults.Status(200).Header("Content-Type", "text/event-stream").Body("event").StallAt(1),
		faults.Status(503).Header("Retry-After", "30"),
	}}, []call{post(model), post(model), post(model).at(time.Minute)}},
	{"github", false, of(github), server{"api.github.com": {
		faults.Status(200).Header("x-ratelimit-limit", "5000").Header("x-ratelimit-remaining", "900").Header("x-ratelimit-reset", "946687200"),
		faults.Status(403).Header("Retry-After", "60"),
		faults.Status(200),
		faults.Status(403).Header("x-ratelimit-remaining", "0").Header("x-ratelimit-reset", "946687200"),
	}}, []call{get(issues), post(issues), get(issues), get(issues)}},
	{"kubernetes", true, func(_ *testing.T, log *slog.Logger, base http.RoundTripper) []http.RoundTripper {
		return []http.RoundTripper{kube(log)(base)}
	}, server{"10.0.0.1": {faults.Status(429).Header("Retry-After", "1"), faults.Status(200), down, down, faults.Status(200), faults.Hang()}},
		[]call{post(pods), get(pods).at(time.Minute), get(pods).at(time.Minute)}},
	{"payments", true, of(payments), server{"api.stripe.com": {
		faults.ConnReset(), faults.Status(409), faults.Status(200), faults.Hang(), faults.Hang(), faults.Hang(),
	}}, []call{post(charge), post(charge)}},
	{"internal", true, of(internal), server{"orders.internal": {
		faults.Hang(), faults.Status(200), faults.ConnReset(), faults.Status(503), faults.Status(200),
	}}, []call{post(quotes), post(quotes)}},
	{"crawler", false, of(crawler), server{
		"www.example.org":  {faults.Status(429).Header("Retry-After", "300")},
		"dead.example.net": slices.Repeat([]faults.Step{down}, 20),
	}, append(slices.Repeat([]call{get(dead)}, 6), get(page), get(page), get(page).at(5*time.Minute))},
	{"processes", false, workers, server{"api.example.com": {
		faults.Status(200), faults.Status(200), faults.Status(429).Header("Retry-After", "5"),
	}}, []call{get(jobs), get(jobs).by(1), get(jobs).besides(), get(jobs).by(1).at(time.Second)}},
}

// lines plays a situation and returns what the log says.
func lines(t *testing.T, s situation) string {
	log := new(journal)
	if s.debug {
		log.least = slog.LevelDebug
	}
	synctest.Test(t, func(t *testing.T) {
		log.start = time.Now()
		clients := s.clients(t, slog.New(log), s.server.transport())
		var all sync.WaitGroup
		for _, c := range s.calls {
			time.Sleep(c.after)
			done := make(chan struct{})
			all.Go(func() {
				defer close(done)
				send(t, clients[c.client], c)
			})
			if !c.beside {
				<-done
			}
		}
		all.Wait()
		time.Sleep(5 * time.Minute)
	})
	return log.text.String()
}

// send sends a request and reads its response.
func send(t *testing.T, rt http.RoundTripper, c call) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader("{}"))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer key")
	if resp, err := rt.RoundTrip(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// A fleet without its secret is a mistake.
func TestFleetNeedsItsKey(t *testing.T) {
	t.Setenv("FLEET_KEY", "")
	_, err := newFleet(nil)
	assert.ErrorContains(t, err, "Key has 0 bytes")
}

// A request that a long wait refuses says when to ask again.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := of(crawler)(t, nil, server{"www.example.org": {faults.Status(429).Header("Retry-After", "300")}}.transport())[0]
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
		require.NoError(t, err)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		_, err = tr.RoundTrip(req)
		assert.InDelta(t, 300, time.Until(again(err)).Seconds(), 1)
	})
}
