// Package proxy is the command aplomb proxy, a reverse proxy. A program in any language that
// sends its requests through it gains the retries and the limits of a Transport.
//
// The files, in the order in which a request meets them:
//
//	main.go       flags, exit statuses
//	serve.go      the listeners, and an orderly end
//	route.go      which upstream gets a request
//	proxy.go      a request and its response
//	fields.go     the fields of a request that a client may not set
//	client.go     a client that is slow, and the trailer of its request
//	failure.go    the response to a request that failed
//	rules.go      rules from a file, reloaded when it changes
//	stats.go      counts of attempts and responses
//	metrics.go    the counts in the text form of Prometheus
//	debug.go      the page of package debug, and its notes
//	demo.go       the -demo flag: an upstream with faults, and rules that change
package proxy

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-cleanhttp"

	"github.com/aplomb-go/aplomb/debug"
	"github.com/aplomb-go/aplomb/internal/terminal"
	"github.com/aplomb-go/aplomb/transport"
)

// These are the exit statuses.
const (
	exitFine   = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `Usage: aplomb proxy -to [PREFIX=]URL [-to ...] [-rules FILE] [-listen ADDR]
                    [-no-upgrade PREFIX ...] [-debug ADDR]
       aplomb proxy -demo

Forwards each request to an upstream. A request that fails is retried if that is
safe. The load on each upstream is limited as the rules say.

  -to https://api.example.com             all requests go there
  -to /pay/=https://pay.example.com/v1/   /pay/x goes to /v1/x there
  If several prefixes fit a path, the longest counts.

The rules are read again when their file changes, and on SIGHUP. Requests under
way keep their rules. If the file is wrong or missing, the old rules stay in
force, and the log says why.

http://ADDR/debug shows the state of each host, and http://ADDR/metrics has it for
Prometheus. ADDR is the address of -debug. Leave it on an address that only people
you trust can reach. Only requests for localhost, for an IP address, for the name in
ADDR, or for a -debug-host are answered, because any web page can make its own name
lead to this machine.

SIGINT and SIGTERM end the proxy when the requests under way are done.

Flags:
`

const exits = `
Exit status:
    0  the proxy was told to end, and all requests were done
    1  an address is in use, or requests had to be cut off at the end
    2  the command line or the rules are wrong
`

// A world is everything that run needs from outside.
type world struct {
	stdout, stderr io.Writer
	base           http.RoundTripper         // nil: newBase
	hangup         <-chan os.Signal          // asks for the rules to be read again
	ready          func(proxy, debug string) // nil: nobody asks for the addresses
}

// complain prints an error, in which an argument with a secret may stand.
func (w world) complain(err error) { fmt.Fprintln(w.stderr, "aplomb proxy: "+terminal.Error(err)) }

// Run runs the command with its arguments, and returns the exit status. The end of ctx ends
// the proxy in good order.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	hangup := make(chan os.Signal, 1)
	// Windows sends SIGHUP when the console is closed. The rules are then read once more
	// before the end.
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	return run(ctx, args, world{stdout: stdout, stderr: stderr, hangup: hangup})
}

// options is the command line.
type options struct {
	routes  routes
	rules   string
	poll    time.Duration
	listen  string
	debug   string
	grace   time.Duration
	client  time.Duration // for a piece of a body
	names   []string      // of the debug address
	trusted bool
	level   slog.Level
	demo    bool
}

func run(ctx context.Context, args []string, w world) int {
	o, err := parse(args, w)
	switch {
	case err != nil:
		return terminal.Misused(w.stderr, "aplomb proxy", err)
	case o.demo:
		return demo(ctx, w)
	}
	log := slog.New(slog.NewTextHandler(w.stderr, &slog.HandlerOptions{Level: o.level}))
	base := w.base
	if base == nil {
		base = newBase()
	}
	s := newStats()
	d := debug.New()
	t, err := transport.New(transport.Config{Base: base, Logger: log, Trace: transport.JoinTraces(s.trace(), d.Trace())})
	if err != nil {
		w.complain(err)
		return exitFailed
	}
	defer t.CloseIdleConnections()
	watching, stop := context.WithCancel(context.Background()) // also while requests under way end
	defer stop()
	r, err := newRules(watching, o.rules, o.poll, t.Update, log)
	if err != nil {
		w.complain(err)
		return exitUsage
	}
	return serve(ctx, o, w, newProxy(o, t, s, d, log), r)
}

func parse(args []string, w world) (options, error) {
	var o options
	f := flag.NewFlagSet("proxy", flag.ContinueOnError)
	f.SetOutput(io.Discard) // run prints the error itself
	var badRoute error      // the error of package flag would repeat the URL, in which a secret may stand
	f.Func("to", "forward requests whose path begins with PREFIX (default /) to the upstream `[PREFIX=]URL`; may be given several times", func(value string) error {
		badRoute = cmp.Or(badRoute, o.routes.add(value))
		return nil
	})
	var plain []string // prefixes
	f.Func("no-upgrade", "let no upgrade, such as WebSocket, pass by the route of `PREFIX`; may be given several times", func(prefix string) error {
		plain = append(plain, prefix)
		return nil
	})
	f.StringVar(&o.rules, "rules", "", "read the rules for retries, waits and limits from `FILE` (JSON, as package policy/rulefile has it)")
	f.DurationVar(&o.poll, "poll", time.Second, "how often to look whether the rules have changed; 0: only on SIGHUP")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "accept requests at `ADDR`")
	f.StringVar(&o.debug, "debug", "127.0.0.1:8081", "show the state of the hosts at `ADDR`; off: do not")
	f.Func("debug-host", "also show the pages to requests for the host `NAME`; may be given several times", func(name string) error {
		o.names = append(o.names, name)
		return nil
	})
	f.DurationVar(&o.client, "client", time.Minute, "how long a client may take for each piece of its request's body, and half of how long to read a piece of the response; 0: for ever")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "how long requests under way may take at the end")
	f.BoolVar(&o.trusted, "trust", false, "keep the X-Forwarded headers and their kin of requests, because they come from another proxy")
	f.TextVar(&o.level, "log", slog.LevelInfo, "the least `LEVEL` that is logged: debug, info, warn or error")
	f.BoolVar(&o.demo, "demo", false, "forward requests to an upstream in this program that has faults, change the rules, and check the result")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(w.stdout, usage)
		f.SetOutput(w.stdout)
		f.PrintDefaults()
		fmt.Fprint(w.stdout, exits)
		return o, err
	case err != nil:
		return o, err
	case badRoute != nil:
		return o, fmt.Errorf("-to: %w", badRoute)
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.poll < 0:
		return o, errors.New("-poll is negative")
	case o.grace < 0:
		return o, errors.New("-grace is negative")
	case o.client < 0:
		return o, errors.New("-client is negative")
	case o.demo && len(args) > 1:
		return o, errors.New("-demo takes no other flag")
	case !o.demo && len(o.routes) == 0:
		return o, errors.New("no upstream: -to is missing")
	}
	for _, prefix := range plain {
		if err := o.routes.keepPlain(prefix); err != nil {
			return o, fmt.Errorf("-no-upgrade: %w", err)
		}
	}
	return o, nil
}

// newBase returns the transport that sends the attempts.
func newBase() *http.Transport {
	base := cleanhttp.DefaultPooledTransport()
	base.MaxIdleConns = 1024
	base.MaxIdleConnsPerHost = 256
	// The client decides about compression. If net/http asked for it and undid it,
	// the length of a response would be lost. A cut response could then not be
	// continued.
	base.DisableCompression = true
	return base
}
