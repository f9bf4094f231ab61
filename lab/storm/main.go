// Storm shows how the retries of 1000 clients affect a server that hung for a
// while. The server's responses take exponentially longer the more requests are in
// progress. The server is frozen, requests pile up in its sockets, and then it is
// resumed.
//
//	go run .                                      the experiment, on this machine, in 110 s
//	go run . -processes 50 -watched 40s -runs 5   the same with many processes and fleets
//	go run . -h                                   all flags
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
//	server.go        a server
//	process_unix.go  this program as another process, how to stop it, and its limits
//	internal/model   the model of the server, and the strategies
//	internal/record  the events of a run, and its figures
//	internal/report  tables and pictures
//	literature       experiments that others have published, and this one, in virtual time
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
	"strings"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
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
		*err = serve(stdin, stdout)
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
	runs       int
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
	if o.out != "" {
		if err := writable(o.out); err != nil {
			return fmt.Errorf("-out: %w", err)
		}
	}
	runs, err := experiment(ctx, o, stderr)
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
	// The program may run in another directory than its caller, as by go -C. An absolute path is
	// right for both.
	path, err := filepath.Abs(files[0])
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
	for _, st := range o.strategies {
		if st.Shared && sc.Processes == 0 {
			text += " Coordinated clients share a Transport."
			break
		}
	}
	if o.runs > 1 {
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
	flags.DurationVar(&sc.Steady, "steady", sc.Steady, "time before the server is frozen")
	flags.DurationVar(&sc.Frozen, "frozen", sc.Frozen, "time for which it is frozen")
	flags.DurationVar(&sc.Watched, "watched", sc.Watched, "time for which it is watched afterwards")
	flags.IntVar(&sc.Processes, "processes", 0, "spread the clients over `N` processes, and compare what the\nprocesses share; 0: each client is a process")
	flags.IntVar(&o.runs, "runs", 1, "run `N` times; the figures are the medians")
	flags.BoolVar(&o.details, "details", false, "print all figures, and the clients' rules")
	flags.StringVar(&o.out, "out", "storm-report", "write the picture into this `directory`; empty: the table\nonly")
	usual, fleets := keys(model.Strategies(0)), keys(model.Fleets(0))
	chosen := flags.String("strategies", "", "which strategies, a `list` of "+usual+" (default),\nor with -processes of "+fleets+" (default)")
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
	case o.runs < 1:
		return o, fmt.Errorf("-runs %d: must be 1 or more", o.runs)
	}
	if sc.Processes > 0 {
		usual = fleets
	}
	if *chosen == "" {
		*chosen = usual
	}
	for _, name := range strings.Split(*chosen, ",") {
		st, ok := model.Find(sc.Timeout, strings.TrimSpace(name), sc.Processes > 0)
		switch {
		case !ok:
			return o, fmt.Errorf("-strategies: %q is none of %s", name, usual)
		case st.FromThink && sc.Processes > 0:
			return o, fmt.Errorf("-strategies: %q needs a Transport for each client, and with -processes each process has one", name)
		}
		o.strategies = append(o.strategies, st)
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
