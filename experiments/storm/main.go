// Storm shows how the retries of 1000 clients affect a server that hung for a
// while. The server's responses take exponentially longer the more requests are in
// progress. The server is frozen, requests pile up in its sockets, and then it is
// resumed.
//
//	go run .                      the experiment, on this machine, in 110 s
//	go run . -sim                 the same in virtual time, in a second
//	go run . -sim -runs 1 -clients 1000000 -think 60s -watched 9m30s
//	go run . -longest -frozen 40s -strategies all
//	go run . -h                   all flags
//
// The files:
//
//	main.go          flags
//	real.go          the real experiment: servers, clients and the clock
//	campaign.go      the clients of one strategy
//	remote.go        a server process as its starter sees it
//	server.go        a server
//	process_*.go     how to stop a process, and its limits
//	simulate.go      the experiment in virtual time
//	internal/model   the model of the server, and the strategies
//	internal/sim     the simulation
//	internal/record  the events of a run, and its figures
//	internal/report  tables and pictures
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/experiments/storm/internal/model"
	"github.com/aplomb-go/aplomb/experiments/storm/internal/record"
	"github.com/aplomb-go/aplomb/experiments/storm/internal/report"
)

func main() {
	runtime.LockOSThread() // see endWithParent
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == "server" {
		err = serve(os.Args[2:], os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "\nstorm: stopped")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	scenario   model.Scenario
	strategies []model.Strategy
	speed      float64
	sim        bool
	longest    bool
	seed       uint64
	runs       int
	sized      bool // the server grows with the load
	byHand     bool
	out        string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.longest {
		return longest(ctx, o, stdout)
	}
	var runs []*record.Run
	if o.sim {
		runs, err = simulate(ctx, o, stderr)
	} else {
		runs, err = experiment(ctx, o, stderr)
	}
	if err != nil {
		return err
	}
	if err := report.Table(stdout, runs); err != nil {
		return err
	}
	if o.out == "" {
		return nil
	}
	title := fmt.Sprintf("%d clients, a server frozen for %v", o.scenario.Clients, o.scenario.Frozen)
	if o.scenario.Server.RetryAfter > 0 {
		title += fmt.Sprintf(" that answers 503 over its limit, Retry-After %v", o.scenario.Server.RetryAfter)
	}
	if o.sim {
		title += " (simulated"
		if o.runs > 1 {
			title += fmt.Sprintf("; figures are medians of %d runs", o.runs)
		}
		title += ")"
	}
	files, err := report.Write(o.out, title, runs)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\nwritten: %s\n", strings.Join(files, ", "))
	return err
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{scenario: model.DefaultScenario()}
	sc := &o.scenario
	flags := flag.NewFlagSet("storm", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&sc.Clients, "clients", sc.Clients, "how many clients there are for each strategy")
	flags.DurationVar(&sc.Think, "think", sc.Think, "mean time from an answer to the next request, exponentially distributed")
	flags.DurationVar(&sc.Timeout, "timeout", sc.Timeout, "how long a client waits for the answer to one attempt")
	flags.DurationVar(&sc.Steady, "steady", sc.Steady, "time before the server is frozen")
	flags.DurationVar(&sc.Frozen, "frozen", sc.Frozen, "time for which it is frozen")
	flags.DurationVar(&sc.Watched, "watched", sc.Watched, "time for which it is watched afterwards")
	flags.DurationVar(&sc.Server.Base, "base", sc.Server.Base, "time that the server takes for a request")
	flags.IntVar(&sc.Server.Limit, "limit", sc.Server.Limit, "requests in progress beyond which it takes longer")
	flags.Float64Var(&sc.Server.Factor, "factor", sc.Server.Factor, "how much longer, for every -spread requests more")
	flags.Float64Var(&sc.Server.Spread, "spread", sc.Server.Spread, "see -factor")
	flags.DurationVar(&sc.Server.Tick, "tick", sc.Server.Tick, "how often a request looks whether it is done")
	flags.DurationVar(&sc.Server.RetryAfter, "retry-after", 0, "let the server answer 503 beyond its limit and ask to wait so long; 0: it takes everything")
	flags.Float64Var(&o.speed, "speed", 1, "let time pass so many times as fast; the gate's and the cooldown's own times stay what they are, so those strategies are true at 1 only")
	flags.BoolVar(&o.sim, "sim", false, "simulate in virtual time; -limit and -spread then grow with the load, see -sized")
	flags.BoolVar(&o.sized, "sized", true, "in a simulation, take -limit and -spread for 1000 clients with a mean of 10 s and scale them to the load")
	flags.BoolVar(&o.longest, "longest", false, "simulate ever longer freezes, up to -frozen, and tell the longest from which the server comes back while it is watched")
	flags.Uint64Var(&o.seed, "seed", 1, "for the clients of a simulation")
	flags.IntVar(&o.runs, "runs", 5, "how many simulations, with consecutive seeds, the table's medians are of; the pictures are of the first")
	flags.BoolVar(&o.byHand, "by-hand", howFrozen != "SIGSTOP", "let the server freeze itself (it accepts and answers nobody) instead of stopping its process")
	flags.StringVar(&o.out, "out", "storm-report", "write the report and its pictures into this `directory`; empty: the table only")
	usual, others := keys(model.Strategies(0)), keys(model.Others(0))
	chosen := flags.String("strategies", usual, "which to compare, a `list`; or all; there are also "+others)
	flags.Usage = func() {
		_, _ = fmt.Fprint(stderr, "Storm shows what clients do to a server that comes back, by how they retry.\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: there are no arguments, only flags; see -h", flags.Arg(0))
	case !(o.speed >= 0.1 && o.speed <= 20):
		return o, fmt.Errorf("-speed %v: must be 0.1 to 20; beyond that the clock of this machine would be measured", o.speed)
	case o.sim && o.speed != 1:
		return o, errors.New("-speed: a simulation takes no time that could pass faster")
	case (o.sim || o.longest) && sc.Server.Tick%time.Millisecond != 0 || sc.Server.Tick <= 0:
		return o, fmt.Errorf("-tick %v: must be whole milliseconds", sc.Server.Tick)
	case o.runs < 1:
		return o, fmt.Errorf("-runs %d: must be 1 or more", o.runs)
	case sc.Clients > 10_000_000:
		return o, fmt.Errorf("-clients %d: at most 10 million", sc.Clients)
	}
	all := append(model.Strategies(sc.Timeout), model.Others(sc.Timeout)...)
	if *chosen == "all" {
		*chosen = usual + "," + others
	}
	for _, name := range strings.Split(*chosen, ",") {
		i := slices.IndexFunc(all, func(s model.Strategy) bool { return s.Key == strings.TrimSpace(name) })
		if i < 0 {
			return o, fmt.Errorf("-strategies: %q is none of %s", name, usual+","+others)
		}
		o.strategies = append(o.strategies, all[i])
	}
	if (o.sim || o.longest) && o.sized {
		sc.Server = sc.Server.Sized(sc.Rate() / model.DefaultScenario().Rate())
	}
	return o, sc.Check()
}

func keys(list []model.Strategy) string {
	var all []string
	for _, s := range list {
		all = append(all, s.Key)
	}
	return strings.Join(all, ",")
}
