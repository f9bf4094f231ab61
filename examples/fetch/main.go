// Fetch shows a downloader. It downloads files and continues the downloads of
// an earlier run.
//
//	go -C examples/fetch run . -h
//
// The files, in the order in which a download meets them:
//
//	main.go      flags, rules, exit statuses
//	target.go    the name and the directory of a file
//	part.go      the partial file of an earlier run, and the final name
//	lock_unix.go one run at a time (lock_other.go: systems without locks)
//	download.go  one download: ask, judge the response, copy, check, finish
//	digest.go    the digests that the server named
//	report.go    reports as plain lines
//	bars.go      reports as bars on a terminal
//	demo.go      the -demo flag: a server that cuts every response
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/rulefile"
	"github.com/aplomb-go/aplomb/transport"
)

// These are the exit statuses. If several apply, the first of interrupted,
// altered and failed counts.
const (
	exitFine        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitAltered     = 3
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

const usage = `Usage: fetch [-o FILE] [-rule FILE] [-per-host N] [-plain] URL...
       fetch -demo

Downloads each URL into a file in the current directory, named like the last
part of the URL's path. A file of that name is replaced once the new one is
whole and checked, never before.

A connection that breaks is taken up again where it broke. Until a download is
whole it is in FILE.part, and FILE.part.json beside it says what it is a part
of. After a failure or Ctrl-C the same command goes on from there, if the server
still has the same file (a strong ETag or Last-Modified tells); if not, it starts
anew. Where the server names a digest (Repr-Digest, sha-256 or sha-512), the
whole file is checked against it, with what came in earlier runs.

Flags:
`

const exits = `
Exit status:
    0  every file is here
    1  a download failed
    2  the command line or the rules are wrong; nothing was sent
    3  a file is not what the server announced, and was thrown away
  130  interrupted
`

// A world is everything that run needs from outside.
type world struct {
	stdout, stderr io.Writer
	terminal       bool                    // stdout is one
	base           http.RoundTripper       // nil: the transport's own
	wrap           func(reporter) reporter // nil: none; for who wants to know, too
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first Ctrl-C ends the downloads in good order. A second Ctrl-C ends
	// the program.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], world{
		stdout:   os.Stdout,
		stderr:   os.Stderr,
		terminal: drawable(os.Stdout),
	}))
}

// drawable reports whether bars can be drawn on f. Some terminals do not tell
// their size, and some do not understand escape sequences.
func drawable(f *os.File) bool {
	width, height, err := term.GetSize(int(f.Fd()))
	return err == nil && width > 0 && height > 0 && os.Getenv("TERM") != "dumb"
}

// options is the command line.
type options struct {
	output  string
	rules   string
	perHost int
	given   bool // -per-host stands on the command line
	plain   bool
	demo    bool
	urls    []string
}

func run(ctx context.Context, args []string, w world) int {
	o, err := parse(args, w)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitFine
	case err != nil:
		fmt.Fprintf(w.stderr, "fetch: %v\nfetch -h explains.\n", err)
		return exitUsage
	case o.demo:
		return demo(ctx, w, o.plain)
	}
	t, err := newTransport(o, w.base)
	if err != nil {
		fmt.Fprintf(w.stderr, "fetch: %v\n", err)
		return exitUsage
	}
	defer t.CloseIdleConnections()
	targets, err := targetsOf(o.urls, o.output)
	if err != nil {
		fmt.Fprintf(w.stderr, "fetch: %v\n", err)
		return exitUsage
	}
	defer closeAll(targets)
	return status(fetchAll(ctx, &http.Client{Transport: t}, targets, newReporter(w, o.plain)))
}

func parse(args []string, w world) (options, error) {
	var o options
	f := flag.NewFlagSet("fetch", flag.ContinueOnError)
	f.SetOutput(io.Discard) // run prints the error itself
	f.StringVar(&o.output, "o", "", "write to `FILE`, or into it if it is a directory; with several URLs it has to be one")
	f.StringVar(&o.rules, "rule", "", "read the rules for retries, waits and limits from `FILE` (JSON, as package policy/rulefile has it)")
	f.IntVar(&o.perHost, "per-host", 2, "at most `N` downloads from one host at a time; 0: as many as there are URLs")
	f.BoolVar(&o.plain, "plain", false, "plain lines on a terminal, too")
	f.BoolVar(&o.demo, "demo", false, "download from a server in this program that cuts everything off, and check the result")
	err := f.Parse(args)
	o.urls = f.Args()
	f.Visit(func(f *flag.Flag) { o.given = o.given || f.Name == "per-host" })
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(w.stdout, usage)
		f.SetOutput(w.stdout)
		f.PrintDefaults()
		fmt.Fprint(w.stdout, exits)
		return o, err
	case err != nil:
		return o, err
	case o.perHost < 0:
		return o, errors.New("-per-host is negative")
	case o.demo && len(o.urls) > 0:
		return o, errors.New("-demo takes no URL")
	case !o.demo && len(o.urls) == 0:
		return o, errors.New("no URL")
	}
	return o, nil
}

// newTransport makes the transport that all downloads share. Limits and budgets
// are then per host, not per download.
func newTransport(o options, base http.RoundTripper) (*transport.Transport, error) {
	var rule policy.Rule
	var hosts map[string]policy.Rule
	if o.rules != "" {
		f, err := os.Open(o.rules)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if rule, hosts, err = rulefile.Load(f, rulefile.Names{}); err != nil {
			return nil, fmt.Errorf("%s: %w", o.rules, err)
		}
	}
	// A download keeps its slot at the gate until the end of the body, so the
	// gate limits the number of downloads. A rate would only limit how fast
	// they begin.
	gate := policy.Gate{Mode: policy.GateWait, Start: o.perHost, Max: o.perHost}
	if o.perHost == 0 {
		gate = policy.Gate{Mode: policy.Off}
	}
	if o.given {
		rule.Gate = gate // the command line wins over the file's rule for all hosts
	}
	rule = rule.Or(policy.Rule{Gate: gate, Stall: policy.Stall{Timeout: 30 * time.Second}})
	return transport.New(transport.Config{Base: base, Rule: rule, Hosts: hosts})
}

// fetchAll downloads everything at once, as far as the gates allow. It returns
// an error for each target, which is nil if the download succeeded.
func fetchAll(ctx context.Context, client *http.Client, targets []*target, r reporter) []error {
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			d := &download{client: client, target: t, tracker: r.track(t.name)}
			errs[i] = d.run(ctx)
		})
	}
	all.Wait()
	r.close()
	return errs
}

func status(errs []error) int {
	code := exitFine
	for _, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, errInterrupted):
			code = exitInterrupted
		case errors.Is(err, errAltered):
			code = max(code, exitAltered)
		default:
			code = max(code, exitFailed)
		}
	}
	return code
}
