// Package get is the command aplomb get, a downloader. It downloads files and continues the
// downloads of an earlier run.
//
// The files, in the order in which a download meets them:
//
//	main.go      the rules for the transport, exit statuses
//	flags.go     the command line
//	trust.go     certificates, and errors of TLS in plain words
//	target.go    the name and the directory of a file
//	part.go      the partial file of an earlier run, and the final name
//	owner_unix.go the files of others (owner_other.go: systems without owners)
//	download.go  one download: ask, judge the response, copy, check, finish
//	mirrors.go   a file that several URLs serve
//	output.go    how the bytes of a response get into the part, or to stdout
//	restart.go   a download that is cut and cannot be resumed
//	limit.go     the limit of bytes per second
//	digest.go    the digests that the server named
//	report.go    reports as plain lines
//	bars.go      reports as bars on a terminal
//	frame.go     the text of the bars for a width
//	screen_windows.go escape sequences (screen_other.go: nothing to do)
//	demo.go      the -demo flag: a server that cuts every response
package get

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/aplomb-go/aplomb/internal/terminal"
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

// A world is everything that run needs from outside.
type world struct {
	stdout, stderr io.Writer
	screen         func(io.Writer) (width, height int) // zero if the writer is no terminal
	base           http.RoundTripper                   // the default if nil
	wrap           func(reporter) reporter             // observes the reporter, if not nil
}

// Run runs the command with its arguments, and returns the exit status. The end of ctx ends
// the downloads in good order.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return run(ctx, args, world{stdout: stdout, stderr: stderr, screen: screenOf})
}

// screenOf returns the size of the terminal behind w if bars can be drawn there.
// Some terminals do not tell their size, and some do not understand escape
// sequences.
func screenOf(w io.Writer) (width, height int) {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || !takesEscapes(f) {
		return 0, 0
	}
	return width, height
}

// isScreen reports whether bars can be drawn on a writer.
func (w world) isScreen(out io.Writer) bool {
	if w.screen == nil {
		return false
	}
	width, height := w.screen(out)
	return width > 0 && height > 0
}

// complain prints an error. Its arguments may hold a secret.
func (w world) complain(err error) { fmt.Fprintln(w.stderr, "aplomb get: "+terminal.Error(err)) }

func run(ctx context.Context, args []string, w world) int {
	o, err := parse(args, w)
	switch {
	case err != nil:
		return terminal.Misused(w.stderr, "aplomb get", err)
	case o.demo:
		return demo(ctx, w, o.plain)
	}
	t, err := newTransport(o, w.base)
	if err != nil {
		w.complain(err)
		return exitUsage
	}
	defer t.CloseIdleConnections()
	targets, err := targetsOf(o.files(), o.output, o.digest, w.stdout)
	if err != nil {
		w.complain(err)
		return exitUsage
	}
	defer closeAll(targets)
	r := newReporter(w, o.plain, targets[0].out != nil)
	return status(fetchAll(ctx, t, newThrottle(o.limit), targets, r, o.verbose))
}

// newTransport makes the transport that all downloads share. Limits and budgets
// are then per host, not per download.
func newTransport(o options, base http.RoundTripper) (*transport.Transport, error) {
	rule, hosts, err := loadRules(o.rules)
	if err != nil {
		return nil, err
	}
	if o.caFile != "" {
		if base, err = trusting(o.caFile); err != nil {
			return nil, fmt.Errorf("-cacert: %w", err)
		}
	}
	// The command line takes precedence over the file's rule for all hosts. Flags
	// that are not given are zero and inherit.
	given := policy.Rule{
		Attempts: o.attempts,
		Rate:     policy.Rate{PerSecond: o.rate},
		Stall:    policy.Stall{Timeout: o.stall},
	}
	if o.perHost > 0 {
		given.Gate = atATime(o.perHost)
	}
	given.Resume.Again = policy.Off // this program starts over by itself, and says so
	rule = given.Or(rule).Or(policy.Rule{Gate: atATime(2), Stall: policy.Stall{Timeout: 30 * time.Second}})
	return transport.New(transport.Config{Base: base, Rule: rule, Hosts: hosts})
}

// atATime limits the downloads from a host. A download keeps its slot at the gate
// until the end of the body. A rate would only limit how fast downloads begin.
func atATime(n int) policy.Gate {
	return policy.Gate{Mode: policy.GateWait, Start: n, Max: n}
}

func loadRules(name string) (rule policy.Rule, hosts map[string]policy.Rule, err error) {
	if name == "" {
		return rule, nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return rule, nil, err
	}
	defer f.Close()
	if rule, hosts, err = rulefile.Load(f, rulefile.Names{}); err != nil {
		return rule, nil, fmt.Errorf("%s: %w", name, err)
	}
	return rule, hosts, nil
}

// fetchAll downloads everything at once, as far as the gates allow. It returns
// an error for each target, which is nil if the download succeeded.
func fetchAll(ctx context.Context, t *transport.Transport, limit *throttle, targets []*target, r reporter, verbose bool) []error {
	client := &http.Client{Transport: t, CheckRedirect: redirected}
	errs := make([]error, len(targets))
	trackers := make([]tracker, len(targets))
	for i, target := range targets {
		trackers[i] = r.track(terminal.Printable(target.shown()))
	}
	var all sync.WaitGroup
	for i, target := range targets {
		all.Go(func() {
			d := &download{client: client, rules: t, throttle: limit, target: target, tracker: trackers[i], verbose: verbose}
			errs[i] = d.run(ctx)
		})
	}
	all.Wait()
	r.close()
	return errs
}

// redirected bounds the number of redirects, as http.Client does by itself. No request
// gets a Referer, because the query of a signed URL is a secret.
func redirected(req *http.Request, before []*http.Request) error {
	if len(before) >= 10 {
		return errors.New("the server redirects again and again")
	}
	req.Header.Del("Referer")
	return nil
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
