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

	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// experiment runs the experiment so many times. The figures of the first run are the
// medians.
func experiment(ctx context.Context, o options, progress io.Writer) ([]*record.Run, error) {
	if err := check(o, raiseFiles, progress); err != nil {
		return nil, err
	}
	var first []*record.Run
	for i := range o.runs {
		if o.runs > 1 {
			_, _ = fmt.Fprintf(progress, "run %d of %d\n", i+1, o.runs)
		}
		runs, err := once(ctx, o, progress)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = runs
			continue
		}
		for i, r := range runs {
			first[i].Others = append(first[i].Others, r.Figures())
		}
	}
	return first, nil
}

// once runs the experiment.
func once(ctx context.Context, o options, progress io.Writer) ([]*record.Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	backend, err := startRedis(o)
	if err != nil {
		return nil, err
	}
	defer backend.stop()
	var campaigns []*campaign
	var servers []*remote
	var listening sync.WaitGroup
	defer func() {
		for _, c := range campaigns {
			for _, child := range c.children {
				child.kill()
			}
		}
		for _, s := range servers {
			s.kill()
		}
		listening.Wait()
	}()
	for _, st := range o.strategies {
		s, err := startServer(ctx)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
		c := newCampaign(o.scenario, st)
		c.addrs, c.run.Files = s.addrs, s.files
		campaigns = append(campaigns, c)
		if err := c.reach(ctx); err != nil {
			return nil, fmt.Errorf("the server of %q cannot be reached: %w", st.Name, err)
		}
		if o.scenario.Processes > 0 {
			if err := c.startChildren(ctx, backend.addr); err != nil {
				return nil, fmt.Errorf("starting the processes of %q: %w", st.Name, err)
			}
		}
	}
	for _, c := range campaigns {
		for _, child := range c.children {
			switch err := child.ready(); {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case err != nil:
				return nil, fmt.Errorf("a process of %q: %w", c.strategy.Name, err)
			}
		}
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
	_, _ = fmt.Fprintln(progress, "Requests that succeed, per second:")
	for _, stage := range []struct {
		until time.Duration
		name  string
		then  os.Signal // nil: it is over
	}{
		{o.scenario.Stop(), "the servers are well", freeze},
		{o.scenario.Resume(), "the servers are frozen", resume},
		{o.scenario.End(), "the servers run again", nil},
	} {
		if err := pass(ctx, stage.until, stage.name, o, campaigns, failed, progress); err != nil {
			return err
		}
		for _, s := range servers {
			if stage.then == nil {
				continue
			}
			if err := s.cmd.Process.Signal(stage.then); err != nil {
				return fmt.Errorf("after %v: %w", stage.until, err)
			}
		}
	}
	return nil
}

// pass lets time pass and shows the progress.
func pass(ctx context.Context, until time.Duration, stage string, o options, campaigns []*campaign, failed <-chan error, progress io.Writer) error {
	tick := time.NewTicker(shown)
	defer tick.Stop()
	timer := time.NewTimer(until - campaigns[0].now())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case <-timer.C:
			return nil
		case <-tick.C:
			show(progress, campaigns, stage)
		}
	}
}

// shown is the time between two lines of the progress.
const shown = 5 * time.Second

// show writes a line of the progress.
func show(progress io.Writer, campaigns []*campaign, stage string) {
	now := campaigns[0].now()
	text := fmt.Sprintf("%3.0f of %.0f s, %s:", now.Seconds(), campaigns[0].scenario.End().Seconds(), stage)
	for _, c := range campaigns {
		good := 0
		c.note(func(r *record.Run, now time.Duration) {
			for at := max(now-shown, 0); at < now; at += record.Step {
				good += r.At(at).Good
			}
		})
		text += fmt.Sprintf(" %s %.0f", c.strategy.Key, float64(good)/min(shown, now).Seconds())
	}
	_, _ = fmt.Fprintln(progress, text)
}
