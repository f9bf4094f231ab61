// The experiment in virtual time.

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
	"github.com/aplomb-go/aplomb/lab/storm/internal/report"
	"github.com/aplomb-go/aplomb/lab/storm/internal/sim"
)

// simulate runs the strategies. As many run at a time as there are processors, but
// two at most, because each needs up to a gigabyte with a million clients.
func simulate(ctx context.Context, o options, progress io.Writer) ([]*record.Run, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runs := make([]*record.Run, len(o.strategies))
	places := make(chan struct{}, min(2, runtime.GOMAXPROCS(0)))
	var all sync.WaitGroup
	var mu sync.Mutex // guards progress
	for i, st := range o.strategies {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			began := time.Now()
			r, err := repeated(ctx, o.scenario, st, o.seed, o.runs)
			if err != nil {
				cancel(err)
				return
			}
			runs[i] = r
			mu.Lock()
			defer mu.Unlock()
			_, _ = fmt.Fprintf(progress, "%-32s %d × %.0f s simulated in %v\n",
				st.Name, o.runs, o.scenario.End().Seconds(), time.Since(began).Round(time.Millisecond))
		})
	}
	all.Wait()
	return runs, context.Cause(ctx)
}

// repeated returns the run with this seed. The run also has the figures of the runs
// with the seeds after it.
func repeated(ctx context.Context, sc model.Scenario, st model.Strategy, seed uint64, times int) (*record.Run, error) {
	r, err := sim.Run(ctx, sc, st, seed)
	for i := 1; i < times && err == nil; i++ {
		var other *record.Run
		if other, err = sim.Run(ctx, sc, st, seed+uint64(i)); err == nil {
			r.Others = append(r.Others, other.Figures())
		}
	}
	return r, err
}

// sweep simulates one number of processes after the other.
func sweep(ctx context.Context, o options, stdout, progress io.Writer) error {
	var points []report.Point
	for _, n := range o.processes {
		o := o.with(n)
		_, _ = fmt.Fprintf(progress, "%d processes with %d clients\n", n, o.scenario.Clients)
		runs, err := simulate(ctx, o, io.Discard)
		if err != nil {
			return err
		}
		points = append(points, report.Point{Processes: n, Clients: o.scenario.Clients, Runs: runs})
	}
	if err := report.Sweep(stdout, points, o.details); err != nil || o.out == "" {
		return err
	}
	files, err := report.WriteSweep(o.out, points)
	if err != nil {
		return err
	}
	return tell(stdout, files[0])
}

// longest prints, for each strategy, the longest freeze from which the server
// recovers while it is watched, in the median. The search ends at the first freeze
// from which the server does not recover.
func longest(ctx context.Context, o options, out io.Writer) error {
	const step = 500 * time.Millisecond
	for _, st := range o.strategies {
		var best time.Duration
		var at record.Figures
		sc := o.scenario
		for sc.Frozen = 2 * time.Second; sc.Frozen <= o.scenario.Frozen; sc.Frozen += step {
			r, err := repeated(ctx, sc, st, o.seed, o.runs)
			if err != nil {
				return err
			}
			f := r.Median()
			if f.Recovered < 0 {
				break
			}
			best, at = sc.Frozen, f
		}
		if _, err := fmt.Fprintf(out, "%-28s survives %5.1f s (with %d sends meanwhile, and back after %.1f s)\n",
			st.Name, best.Seconds(), at.SentFrozen, at.Recovered.Seconds()); err != nil {
			return err
		}
	}
	return nil
}
