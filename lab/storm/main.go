// Storm shows how the retries of 1000 clients affect a server that hung for a
// while. The server's responses take exponentially longer the more requests are in
// progress. The server is frozen, requests pile up in its sockets, and then it is
// resumed.
//
//	go run .                      the experiment, on this machine, in 110 s
//	go run . -sim                 the same in virtual time, in a second
//	go run . -sim -runs 1 -clients 1000000 -think 60s -watched 9m30s
//	go run . -longest -frozen 40s -strategies all
//	go run . -sim -processes 1,10,30,50,100,1000,10000
//	go run . -processes 50 -watched 40s -runs 5
//	go run . -h                   all flags
//
// The files:
//
//	main.go          flags
//	check.go         checks of the system before the start
//	real.go          the real experiment: servers, clients and the clock
//	campaign.go      the clients of one strategy
//	child.go         the processes of clients
//	redis.go         the backend of fleets
//	remote.go        a server process as its starter sees it
//	server.go        a server, and how clients tell it their deadlines
//	process_*.go     how to stop a process, and its limits
//	simulate.go      the experiment in virtual time
//	internal/model   the model of the server, and the strategies
//	internal/sim     the simulation
//	internal/record  the events of a run, and its figures
//	internal/report  tables and pictures
//	literature       experiments that others have published
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
	"github.com/aplomb-go/aplomb/lab/storm/internal/report"
)

// These are the exit statuses.
const (
	exitFine        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

const usage = `Usage: storm [flags]

Freezes a server for 20 s under 1000 clients, and shows after which time it is
back, by how the clients retry. Each strategy has a server and clients of its
own, and all run at the same time, for 110 s. The report is a table and a
picture.

Flags:
`

const exits = `
Exit status:
    0  the experiment is done
    1  it failed, or this system does not allow it; a message says why
    2  the command line is wrong; nothing was started
  130  interrupted
`

func main() {
	runtime.LockOSThread() // see endWithParent
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if !asChild(os.Args[1:], os.Stdin, os.Stdout, &err) {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	os.Exit(status(err, os.Stderr))
}

// asChild is the main function of a process that this program starts, a server or
// clients. It returns false if this is no such process.
func asChild(args []string, stdin io.Reader, stdout io.Writer, err *error) bool {
	switch {
	case len(args) > 0 && args[0] == "server":
		*err = serve(args[1:], stdin, stdout)
	case len(args) > 0 && args[0] == "clients":
		*err = serveClients(stdin, stdout)
	default:
		return false
	}
	return true
}

// errUsage marks errors of the command line.
var errUsage = errors.New("storm -h explains")

// status reports an error and returns the exit status.
func status(err error, stderr io.Writer) int {
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitFine
	case errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(stderr, "storm: stopped")
		return exitInterrupted
	}
	_, _ = fmt.Fprintln(stderr, "storm:", err)
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

// options are the flags.
type options struct {
	scenario   model.Scenario
	strategies []model.Strategy
	processes  []int // none: each client is a process
	speed      float64
	sim        bool
	longest    bool
	seed       uint64
	runs       int
	sized      bool // the server grows with the load
	byHand     bool
	details    bool
	out        string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w\n%w", err, errUsage)
	}
	if o.longest {
		return longest(ctx, o, stdout)
	}
	if o.out != "" {
		if err := writable(o.out); err != nil {
			return fmt.Errorf("-out: %w", err)
		}
	}
	if len(o.processes) > 1 {
		return sweep(ctx, o, stdout, stderr)
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
	if err := report.Table(stdout, runs, o.details); err != nil {
		return err
	}
	if o.out == "" {
		return nil
	}
	files, err := report.Write(o.out, o.setup(), runs)
	if err != nil {
		return err
	}
	return tell(stdout, files[0])
}

// tell says where the picture is. The program may run in another directory than its caller, as
// by go -C. An absolute path is right for both.
func tell(stdout io.Writer, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\nThe picture: %s\n", path)
	return err
}

// setup describes the scenario in a sentence.
func (o options) setup() string {
	sc := o.scenario
	who := fmt.Sprintf("%d clients", sc.Clients)
	if sc.Processes > 0 {
		who += fmt.Sprintf(" in %d processes", sc.Processes)
	}
	text := fmt.Sprintf("%s send a request every %s each, and wait %s for the response.", who, report.Seconds(sc.Think), report.Seconds(sc.Timeout))
	if sc.Server.RetryAfter > 0 {
		text += fmt.Sprintf(" The server answers 503 over its limit, with Retry-After: %.0f.", sc.Server.RetryAfter.Seconds())
	}
	text += map[model.Drop]string{
		model.DropQueued: " The server drops a request that it takes from its sockets after the client's deadline.",
		model.DropBegun:  " The server drops a request if it has worked on it for as long as the client waits.",
		model.DropBoth:   " The server drops every request whose client's deadline has passed.",
	}[sc.Server.Drop]
	for _, st := range o.strategies {
		if st.Shared && sc.Processes == 0 {
			text += " Coordinated clients share a Transport."
			break
		}
	}
	switch {
	case o.sim && o.runs > 1:
		text += fmt.Sprintf(" Simulated: the figures are medians of %d runs, and the curves are of the first.", o.runs)
	case o.sim:
		text += " Simulated."
	case o.runs > 1:
		text += fmt.Sprintf(" The figures are medians of %d runs, and the curves are of the first.", o.runs)
	}
	return text
}

func parse(args []string, stdout io.Writer) (options, error) {
	o := options{scenario: model.DefaultScenario()}
	sc := &o.scenario
	flags := flag.NewFlagSet("storm", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // status prints the error
	flags.IntVar(&sc.Clients, "clients", sc.Clients, "`N` clients for each strategy")
	flags.DurationVar(&sc.Think, "think", sc.Think, "mean time from a response to the next request, exponential")
	flags.DurationVar(&sc.Timeout, "timeout", sc.Timeout, "how long a client waits for the response to an attempt")
	flags.DurationVar(&sc.Steady, "steady", sc.Steady, "time before the server is frozen")
	flags.DurationVar(&sc.Frozen, "frozen", sc.Frozen, "time for which it is frozen")
	flags.DurationVar(&sc.Watched, "watched", sc.Watched, "time for which it is watched afterwards")
	flags.DurationVar(&sc.Server.Base, "base", sc.Server.Base, "time that the server takes for a request")
	flags.IntVar(&sc.Server.Limit, "limit", sc.Server.Limit, "requests in progress beyond which it takes longer")
	flags.Float64Var(&sc.Server.Factor, "factor", sc.Server.Factor, "how much longer, for every -spread requests more")
	flags.Float64Var(&sc.Server.Spread, "spread", sc.Server.Spread, "see -factor")
	flags.DurationVar(&sc.Server.Tick, "tick", sc.Server.Tick, "how often a request looks whether it is done")
	flags.DurationVar(&sc.Server.RetryAfter, "retry-after", 0, "let the server answer 503 beyond its limit and ask to wait so\nlong; 0: it takes everything")
	flags.StringVar((*string)(&sc.Server.Drop), "drop", "", "which `kind` of expired requests the server drops: queued, begun or\nboth; the clients tell it their deadlines; empty: none")
	flags.Float64Var(&o.speed, "speed", 1, "let time pass `X` times as fast; the gate keeps its own times, so\nthe strategies with a gate are true at 1 only")
	flags.BoolVar(&o.sim, "sim", false, "simulate in virtual time; see -sized")
	flags.BoolVar(&o.sized, "sized", true, "in a simulation, take -limit and -spread for 1000 clients with\n-think 10s, and scale them to the load")
	flags.BoolVar(&o.longest, "longest", false, "simulate longer and longer freezes, up to -frozen, and tell the\nlongest from which the server comes back")
	processes := flags.String("processes", "", "spread the clients over so many processes, and compare what the\nprocesses share; with -sim also a `list`, such as 1,30,50,1000")
	flags.DurationVar(&sc.FleetDelay, "fleet-delay", sc.FleetDelay, "simulated time from a process to the fleet's backend and back")
	flags.Uint64Var(&o.seed, "seed", 1, "for the clients of a simulation")
	flags.IntVar(&o.runs, "runs", 0, "run `N` times; the figures are the medians (default 5 with -sim, 1\nwithout)")
	flags.BoolVar(&o.details, "details", false, "print all figures, and the clients' rules")
	flags.BoolVar(&o.byHand, "by-hand", howFrozen != "SIGSTOP", "let the server freeze itself instead of stopping its process")
	flags.StringVar(&o.out, "out", "storm-report", "write the picture into this `directory`; empty: the table\nonly")
	usual, others := keys(model.Strategies(0)), keys(model.Others(0))
	fleets := keys(model.Fleets(0))
	chosen := flags.String("strategies", "", "which strategies, a `list` of "+usual+" (default),\nwith -processes of "+fleets+" (default); all: also\n"+strings.NewReplacer(",google-base2", ",\ngoogle-base2", ",full,", ",\nfull,").Replace(others))
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(stdout, usage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		_, _ = fmt.Fprint(stdout, exits)
		return o, err
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: there are no arguments, only flags", flags.Arg(0))
	case !(o.speed >= 0.1 && o.speed <= 20):
		return o, fmt.Errorf("-speed %v: must be 0.1 to 20; beyond that the clock of this machine would be measured", o.speed)
	case o.sim && o.speed != 1:
		return o, errors.New("-speed: a simulation takes no time that could pass faster")
	case (o.sim || o.longest) && sc.Server.Tick%time.Millisecond != 0 || sc.Server.Tick <= 0:
		return o, fmt.Errorf("-tick %v: must be whole milliseconds", sc.Server.Tick)
	case o.runs < 0:
		return o, fmt.Errorf("-runs %d: must be 1 or more", o.runs)
	case sc.Clients > 10_000_000:
		return o, fmt.Errorf("-clients %d: at most 10 million", sc.Clients)
	}
	if o.runs == 0 {
		o.runs = map[bool]int{true: 5, false: 1}[o.sim || o.longest]
	}
	if o.processes, err = numbers(*processes); err != nil {
		return o, fmt.Errorf("-processes: %w", err)
	}
	if len(o.processes) > 1 && !o.sim {
		return o, errors.New("-processes: a list needs -sim")
	}
	if len(o.processes) > 0 {
		usual = fleets
		sc.Processes = o.processes[0]
	}
	switch *chosen {
	case "all":
		*chosen = usual + "," + others
	case "":
		*chosen = usual
	}
	for _, name := range strings.Split(*chosen, ",") {
		st, ok := model.Find(sc.Timeout, strings.TrimSpace(name), len(o.processes) > 0)
		switch {
		case !ok:
			return o, fmt.Errorf("-strategies: %q is none of %s", name, usual+","+others)
		case st.FromThink && len(o.processes) > 0 && !o.sim:
			return o, fmt.Errorf("-strategies: %q needs a Transport for each client, and with -processes each process has one", name)
		}
		o.strategies = append(o.strategies, st)
	}
	if len(o.processes) > 1 {
		for _, n := range o.processes {
			if err := o.with(n).scenario.Check(); err != nil {
				return o, err
			}
		}
		return o, nil
	}
	o.scenario = o.scaled()
	return o, o.scenario.Check()
}

// scaled returns the scenario, with a server that is as large as its load needs if that is
// wanted.
func (o options) scaled() model.Scenario {
	sc := o.scenario
	if (o.sim || o.longest) && o.sized {
		sc.Server = sc.Server.Sized(sc.Rate() / model.DefaultScenario().Rate())
	}
	return sc
}

// with returns the options for so many processes, each with a client at least.
func (o options) with(processes int) options {
	o.scenario.Processes = processes
	o.scenario.Clients = max(o.scenario.Clients, processes)
	o.scenario = o.scaled()
	return o
}

// numbers reads a list of numbers, 1 or more each.
func numbers(list string) (all []int, err error) {
	if list == "" {
		return nil, nil
	}
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of processes", text)
		}
		all = append(all, n)
	}
	return all, nil
}

func keys(list []model.Strategy) string {
	var all []string
	for _, s := range list {
		all = append(all, s.Key)
	}
	return strings.Join(all, ",")
}
