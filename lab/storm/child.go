// The clients in processes of their own. Such a process is this program, started again.
// It reads its orders from stdin, and writes its part of the record to stdout, both as
// JSON.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// An order tells a process of clients its task.
type order struct {
	Scenario model.Scenario // with the clients of this process
	Strategy string         // its key
	Addrs    []string       // of the server
	Redis    string         // the address of the backend; empty: no fleet
}

// A start is the second order. It is the time at which the experiment began. All
// processes are on the same machine, so they have the same clock.
type start struct{ Began time.Time }

// A child is a process of clients as its starter sees it.
type child struct {
	process
	to   *json.Encoder
	from *json.Decoder
}

// startChildren starts the processes of the clients.
func (c *campaign) startChildren(ctx context.Context, redis string) error {
	n := c.strategy.Processes(c.scenario)
	if c.strategy.Fleet == (model.Fleet{}) {
		redis = ""
	}
	for i := range n {
		o := order{Scenario: c.scenario, Strategy: c.strategy.Key, Addrs: c.addrs, Redis: redis}
		o.Scenario.Clients = (c.scenario.Clients + n - 1 - i) / n
		started, err := startSelf(ctx, "clients", "GOMAXPROCS=2")
		if err != nil {
			return err
		}
		p := &child{started, json.NewEncoder(started.stdin), json.NewDecoder(started.stdout)}
		c.children = append(c.children, p)
		if err := p.to.Encode(o); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until the process is ready to begin.
func (p *child) ready() error {
	var part record.Part
	return p.from.Decode(&part)
}

// playChildren lets the processes begin, adds their reports to the record, and ends them
// when the context ends.
func (c *campaign) playChildren(ctx context.Context) error {
	failed := make(chan error, 2*len(c.children))
	var reading sync.WaitGroup
	for _, p := range c.children {
		if err := p.to.Encode(start{c.began}); err != nil {
			failed <- err
		}
		reading.Go(func() {
			for {
				var part record.Part
				err := p.from.Decode(&part)
				if err != nil {
					failed <- err
					return
				}
				c.note(func(r *record.Run, _ time.Duration) { r.Add(part) })
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("a process of %q has ended: %w", c.strategy.Name, err)
	}
	for _, p := range c.children {
		_ = p.stdin.Close() // it ends when its stdin ends
	}
	reading.Wait()
	return err
}

// serveClients is the main function of a process of clients. It ends when stdin ends, and
// so whenever the program that started it ends.
func serveClients(stdin io.Reader, stdout io.Writer) error {
	from, to := json.NewDecoder(stdin), json.NewEncoder(stdout)
	var o order
	if err := from.Decode(&o); err != nil {
		return err
	}
	c, fleet, err := clientsOf(o)
	if err != nil {
		return err
	}
	if fleet != nil {
		defer fleet.Close()
	}
	if err := to.Encode(record.Part{}); err != nil { // ready
		return err
	}
	var s start
	if err := from.Decode(&s); err != nil {
		return nil // the experiment was stopped before it began
	}
	c.began = s.Began
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	played := make(chan error, 1)
	go func() { played <- c.play(ctx) }()
	report := func() error {
		var part record.Part
		c.note(func(r *record.Run, now time.Duration) {
			if fleet != nil {
				commands := int(fleet.Link().State().Commands)
				r.At(now).Ops += commands - c.ops
				c.ops = commands
			}
			part = r.Take()
		})
		return to.Encode(part)
	}
	tick := time.NewTicker(record.Step)
	defer tick.Stop()
	for {
		select {
		case err := <-played:
			return errors.Join(err, report())
		case <-tick.C:
			if err := report(); err != nil {
				return err
			}
		}
	}
}

// clientsOf makes the clients of a process, and its fleet. The fleet is nil if there is
// none.
func clientsOf(o order) (*campaign, *fleet.Fleet, error) {
	st, ok := model.Find(o.Scenario.Timeout, o.Strategy, true)
	if !ok {
		return nil, nil, fmt.Errorf("there is no strategy %q", o.Strategy)
	}
	shares := st.Fleet
	st.Shared = true // within this process
	c := newCampaign(o.Scenario, st)
	c.addrs = o.Addrs
	if o.Redis == "" {
		return c, nil, nil
	}
	f, err := join(o.Redis, st.Key)
	if err == nil {
		c.fleet = &partOf{fleet: member.BackendOf(f), shares: shares}
	}
	return c, f, err
}
