// A campaign is the clients of one strategy against a server of their own.

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A campaign is the part of one strategy in the experiment.
type campaign struct {
	scenario model.Scenario
	strategy model.Strategy
	addrs    []string // the addresses of the server; any of them will do
	began    time.Time
	bases    []*http.Transport
	fleet    transport.Fleet // nil: none
	children []*child        // the processes of the clients; none: they are in this process

	mu  sync.Mutex // guards run
	run *record.Run
	ops int // operations of the backend that were noted
}

// newCampaign makes the record.
func newCampaign(sc model.Scenario, st model.Strategy) *campaign {
	r := record.NewRun(sc.End())
	r.Name, r.Words = st.Name, st.Words
	r.Aplomb, r.Coordinated = st.Aplomb(), st.Coordinated()
	r.Stop, r.Resume = sc.Stop(), sc.Resume()
	r.Rate, r.ServerLimit = sc.Rate(), sc.Server.Limit
	return &campaign{scenario: sc, strategy: st, run: r}
}

// now returns the time since the beginning.
func (c *campaign) now() time.Duration { return time.Since(c.began) }

// note changes the record under the lock.
func (c *campaign) note(f func(r *record.Run, now time.Duration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.run, c.now())
}

// heard notes a report of the server: the most requests in progress since the last one.
func (c *campaign) heard(most int) {
	c.note(func(r *record.Run, now time.Duration) { r.Busy(now, most) })
}

// play runs all clients until the context ends.
func (c *campaign) play(ctx context.Context) error {
	if c.children != nil {
		return c.playChildren(ctx)
	}
	var all sync.WaitGroup
	shared, err := c.transport(nil)
	if err != nil {
		return err
	}
	for range c.scenario.Clients {
		p := &person{campaign: c, transport: shared}
		if !c.strategy.Shared {
			if p.transport, err = c.transport(p); err != nil {
				return err
			}
		}
		all.Go(func() { p.live(ctx) })
	}
	all.Wait()
	for _, base := range c.bases {
		base.CloseIdleConnections()
	}
	return nil
}

// transport makes a Transport that has its own pool of connections.
func (c *campaign) transport(p *person) (*transport.Transport, error) {
	idle := 1
	if c.strategy.Shared {
		idle = c.scenario.Clients
	}
	base := &http.Transport{
		MaxIdleConnsPerHost: idle,
		DisableCompression:  true,
		DialContext:         c.dial,
		ReadBufferSize:      1 << 10, WriteBufferSize: 1 << 10,
	}
	c.bases = append(c.bases, base)
	rule := c.strategy.Rule
	if c.strategy.FromThink && p != nil {
		rule.Backoff = fromThink{rule.Backoff, &p.thought}
	}
	return transport.New(transport.Config{Base: counted{base, c}, Rule: rule, Fleet: c.fleet})
}

// server is the name of the server, which dial connects to.
var server = url.URL{Scheme: "http", Host: "server", Path: "/"}

// dial connects to one of the server's ports.
func (c *campaign) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	return d.DialContext(ctx, network, c.addrs[rand.IntN(len(c.addrs))])
}

// reach connects to each of the server's ports once.
func (c *campaign) reach(ctx context.Context) error {
	for _, addr := range c.addrs {
		d := net.Dialer{Timeout: 5 * time.Second}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
	return nil
}

// counted notes every attempt.
type counted struct {
	base http.RoundTripper
	c    *campaign
}

func (t counted) RoundTrip(req *http.Request) (*http.Response, error) {
	t.c.note((*record.Run).Send)
	return t.base.RoundTrip(req)
}

// fromThink begins a request's back-off with the time that was thought before.
type fromThink struct {
	b       backoff.Backoff
	thought *atomic.Int64
}

func (f fromThink) Delay(n int, prev time.Duration) time.Duration {
	if n == 0 {
		prev = time.Duration(f.thought.Load())
	}
	return f.b.Delay(n, prev)
}

// A person thinks, sends a request, waits for the answer, and thinks again.
type person struct {
	*campaign
	transport *transport.Transport
	thought   atomic.Int64
}

func (p *person) live(ctx context.Context) {
	for {
		think := time.Duration(rand.ExpFloat64() * float64(p.scenario.Think))
		p.thought.Store(int64(think))
		timer := time.NewTimer(think)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		began := p.now()
		p.note(func(r *record.Run, now time.Duration) { r.At(now).Begun++ })
		err := p.ask(ctx)
		if ctx.Err() != nil {
			p.note(func(r *record.Run, _ time.Duration) { r.Open++ })
			return
		}
		p.note(func(r *record.Run, now time.Duration) {
			if err != nil {
				r.At(now).Lost++
				return
			}
			r.Success(began, now)
		})
	}
}

// ask sends one request through the Transport.
func (p *person) ask(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.String(), nil)
	if err != nil {
		return err
	}
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err2 := resp.Body.Close(); err == nil {
		err = err2
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("answered %s", resp.Status)
	}
	return err
}
