// The real experiment: each strategy has a server and clients, and all of them run
// at the same time by the same clock.

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/experiments/storm/internal/record"
)

// backlog is the least number of connections that must fit into the queue of a
// frozen server.
const backlog = 1024

func experiment(ctx context.Context, o options, progress io.Writer) ([]*record.Run, error) {
	prepare(o, progress)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var campaigns []*campaign
	var servers []*remote
	var listening sync.WaitGroup
	defer func() {
		for _, s := range servers {
			s.stop()
		}
		listening.Wait()
	}()
	every := time.Duration(float64(record.Step) / o.speed)
	for _, st := range o.strategies {
		s, err := startServer(ctx, o.scenario.Server.Slowed(o.speed), every, o.byHand)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
		c := newCampaign(o.scenario, st, o.speed)
		c.addrs = s.addrs
		campaigns = append(campaigns, c)
		_, _ = fmt.Fprintf(progress, "%-26s %s\n", st.Name, st.Describe())
	}
	began := time.Now()
	for i, c := range campaigns {
		c.began = began
		listening.Go(func() {
			servers[i].listen(c.heard)
		})
	}
	if err := play(ctx, o, campaigns, servers, progress); err != nil {
		return nil, err
	}
	runs := make([]*record.Run, len(campaigns))
	for i, c := range campaigns {
		runs[i] = c.run
	}
	return runs, nil
}

// play starts the clients, and freezes and resumes the servers in time.
func play(ctx context.Context, o options, campaigns []*campaign, servers []*remote, progress io.Writer) error {
	life, end := context.WithCancel(ctx)
	defer end()
	var clients sync.WaitGroup
	failed := make(chan error, len(campaigns))
	for _, c := range campaigns {
		clients.Go(func() {
			if err := c.play(life); err != nil {
				failed <- err
			}
		})
	}
	defer clients.Wait()
	defer end()
	for _, stage := range []struct {
		until time.Duration
		name  string
		then  func(*remote) error
	}{
		{o.scenario.Stop(), "steady", (*remote).freeze},
		{o.scenario.Resume(), "frozen", (*remote).resume},
		{o.scenario.End(), "watched", nil},
	} {
		if err := pass(ctx, stage.until, stage.name, o, campaigns, failed, progress); err != nil {
			return err
		}
		for _, s := range servers {
			if stage.then == nil {
				continue
			}
			if err := stage.then(s); err != nil {
				return fmt.Errorf("after %v: %w", stage.until, err)
			}
		}
	}
	return nil
}

// pass lets time pass and shows the progress.
func pass(ctx context.Context, until time.Duration, name string, o options, campaigns []*campaign, failed <-chan error, progress io.Writer) error {
	alive := terminal(progress)
	every := 5 * time.Second
	if alive {
		every = 500 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	clock := campaigns[0]
	timer := time.NewTimer(time.Duration(float64(until-clock.now()) / o.speed))
	defer timer.Stop()
	before, at := goods(campaigns), clock.now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case <-timer.C:
			return nil
		case <-tick.C:
		}
		now := clock.now()
		line := fmt.Sprintf("%3.0f of %.0f s, %s, good/s:", now.Seconds(), o.scenario.End().Seconds(), name)
		good := goods(campaigns)
		for i, c := range campaigns {
			line += fmt.Sprintf(" %s %.0f", c.strategy.Key, float64(good[i]-before[i])/(now-at).Seconds())
		}
		before, at = good, now
		if alive {
			_, _ = fmt.Fprintf(progress, "\r%-100s", line)
			if until-now < 500*time.Millisecond {
				_, _ = fmt.Fprintln(progress)
			}
			continue
		}
		_, _ = fmt.Fprintln(progress, line)
	}
}

func goods(campaigns []*campaign) []int64 {
	n := make([]int64, len(campaigns))
	for i, c := range campaigns {
		n[i] = c.good.Load()
	}
	return n
}

// terminal reports whether w is a terminal, which can write over a line.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// prepare raises the limits of the system, and says which limits are too low.
func prepare(o options, progress io.Writer) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(progress, "note: "+format+"\n", args...) }
	// Each client needs a connection. As many connections may be closing.
	need := uint64(2*o.scenario.Clients*len(o.strategies) + 100)
	if have := raiseFiles(need); have < need {
		say("this process may open %d files and could need %d: clients may fail to connect (ulimit -n)", have, need)
	}
	// A server that never recovers keeps every connection that it ever got.
	worst := uint64(float64(o.scenario.Clients) * float64(o.scenario.Frozen+o.scenario.Watched) / float64(o.scenario.Timeout+100*time.Millisecond))
	if have := raiseFiles(worst); have < worst {
		say("a server may open %d files; one that never recovers would need up to %d: beyond, connections stay in its queue, and its peak is too low", have, worst)
	}
	if have, ok := queue(); ok && have < backlog {
		say("a server's queue holds %d connections, %d are wanted: what does not fit is not served after the freeze (sysctl net.core.somaxconn)", have, backlog)
	}
	if o.speed > 2 {
		for _, st := range o.strategies {
			if st.Shared {
				say("at -speed %v the gate of %q is %v times too slow: its own times are not scaled", o.speed, st.Name, o.speed)
			}
		}
	}
	say("all servers are frozen by %s", map[bool]string{false: howFrozen, true: "their own hand"}[o.byHand])
}

// queue returns how many connections a listening socket may hold before they are
// accepted. ok is false if the system does not tell.
func queue() (n int, ok bool) {
	text, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return 0, false
	}
	_, err = fmt.Sscan(string(text), &n)
	return n, err == nil
}
