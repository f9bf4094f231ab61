// Package rules is the command aplomb rules. It checks and explains JSON files of rules for
// retrying HTTP requests.
//
// The files:
//
//	main.go     flags and exit statuses
//	explain.go  the rule of a URL, the source of each value, and the waits
//	against.go  one request, and how its outcome is judged
//	print.go    texts that fit a terminal
package rules

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/internal/rulejson"
	"github.com/aplomb-go/aplomb/internal/terminal"
	"github.com/aplomb-go/aplomb/transport"
)

// These are the exit statuses.
const (
	exitFine   = 0
	exitFaults = 1
	exitUsage  = 2
)

const usage = `Usage: aplomb rules [-json] [-deadline D] [-method M] FILE URL
       aplomb rules [-json] FILE
       aplomb rules [-json] [-deadline D] [-method M] [-header 'NAME: VALUE']...
                    -against URL [FILE]

The first form explains the rule for a request to a URL: it prints each value,
where the value comes from, and the waits that the rule leads to. For example:

    aplomb rules -deadline 30s rules.json https://api.example.com/v1/orders

The second form checks a file of rules and reports all its faults.
The third form sends one request and says how its outcome is judged: what the
server did, how long it asked to wait, and whether there would be a retry.
Without a file it applies the default rule. FILE is - for the standard input.

Flags:
`

const exits = `
Exit status:
    0  the file has no fault
    1  the file has faults, or it cannot be read
    2  the command line is wrong
`

// A world is everything that run needs from outside.
type world struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	base           http.RoundTripper // nil: a real one
}

// Run runs the command with its arguments, and returns the exit status. The end of ctx ends
// a request.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(ctx, args, world{stdin: stdin, stdout: stdout, stderr: stderr})
}

// options is the command line.
type options struct {
	json     bool
	deadline time.Duration
	method   string
	header   http.Header
	against  bool
	file     string   // "": none
	url      *url.URL // nil: none
}

func parse(args []string, w world) (options, error) {
	o := options{header: http.Header{}}
	f := flag.NewFlagSet("rules", flag.ContinueOnError)
	f.SetOutput(io.Discard) // run prints the error itself
	// The errors of package flag repeat the value, in which a secret may stand.
	var bad error
	f.BoolFunc("json", "print JSON", func(text string) (err error) {
		if o.json, err = strconv.ParseBool(text); err != nil {
			bad = cmp.Or(bad, errors.New("-json takes no value"))
		}
		return nil
	})
	f.Func("deadline", "how long the caller waits in all, such as `30s`; 0: for ever", func(text string) (err error) {
		if o.deadline, err = time.ParseDuration(text); err != nil {
			bad = cmp.Or(bad, errors.New("-deadline is not a duration; write it like 30s"))
		}
		return nil
	})
	f.StringVar(&o.method, "method", http.MethodGet, "the method of the request")
	f.Func("header", "a header field for -against, as `'NAME: VALUE'`; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			bad = cmp.Or(bad, errors.New("-header is not of the form 'NAME: VALUE'"))
		}
		o.header.Add(name, strings.TrimSpace(value))
		return nil
	})
	against := f.String("against", "", "send one request to `URL`, and judge its outcome")
	err := f.Parse(args)
	rest := f.Args()
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(w.stdout, usage)
		f.SetOutput(w.stdout)
		f.PrintDefaults()
		_, _ = fmt.Fprint(w.stdout, exits)
		return o, err
	case err != nil:
		return o, err
	case bad != nil:
		return o, bad
	case o.deadline < 0:
		return o, errors.New("-deadline is negative")
	case *against == "" && len(rest) == 0:
		return o, errors.New("no FILE")
	case *against != "" && len(rest) > 1, len(rest) > 2:
		return o, errors.New("too many arguments; flags come before FILE")
	}
	err = o.take(*against, rest)
	return o, err
}

// take takes the file and the URL. Both are arguments if there is no -against.
func (o *options) take(against string, rest []string) (err error) {
	target := against
	o.against = target != ""
	if len(rest) > 0 {
		o.file = rest[0]
	}
	if len(rest) > 1 {
		target = rest[1]
	}
	if target != "" {
		o.url, err = parseURL(target)
	}
	return err
}

// parseURL reads the URL of the command line. The scheme is not guessed, because the
// rule of a host may depend on its port, and a request over http would not be secret.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the URL cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New(terminal.URL(text) + " is not a URL; write it like https://api.example.com/")
	}
	return u, nil
}

func run(ctx context.Context, args []string, w world) int {
	o, err := parse(args, w)
	if err != nil {
		return terminal.Misused(w.stderr, "aplomb rules", err)
	}
	file, err := await(ctx, func() (*rulejson.File, error) { return load(o.file, w) })
	if err != nil {
		printFaults(o, w, err)
		return exitFaults
	}
	var p printer
	wrong := exitFaults
	switch {
	case o.url == nil:
		p = newSummary(o.file, file)
	case o.against:
		p, err = against(ctx, o, file, w.base)
		wrong = exitUsage
	default:
		p, err = explain(o, file)
	}
	if err != nil {
		complain(w, err)
		return wrong
	}
	print(o, w, p)
	return exitFine
}

// await returns what f does, or the error of the context if that ends first. Nothing else ends the open of a
// named pipe that nobody writes to, or a Read of the standard input.
func await[T any](ctx context.Context, f func() (T, error)) (v T, err error) {
	done := make(chan struct{})
	var got T
	var failed error
	go func() {
		defer close(done)
		got, failed = f()
	}()
	select {
	case <-done:
		return got, failed
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

// load reads and checks a file as a program would. transport.New finds the faults
// of patterns, and of rules that are only wrong together.
func load(name string, w world) (*rulejson.File, error) {
	if name == "" {
		return rulejson.Parse(strings.NewReader("{}"), rulejson.Names{})
	}
	in := w.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	file, err := rulejson.Parse(in, rulejson.Names{})
	if err != nil {
		return nil, err
	}
	if _, err := newTransport(file, transport.Config{}); err != nil {
		return nil, file.Locate(err)
	}
	return file, nil
}

// newTransport returns a Transport with the rules of a file.
func newTransport(file *rulejson.File, c transport.Config) (*transport.Transport, error) {
	c.Rule, c.Hosts = file.Rules()
	return transport.New(c)
}

// A printer prints itself as plain text. Its fields are the JSON.
type printer interface{ print(io.Writer) }

func print(o options, w world, p printer) {
	if !o.json {
		p.print(w.stdout)
		return
	}
	printJSON(w.stdout, p)
}

// A fault is a fault of the file.
type fault struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitzero"`
	Column int    `json:"column,omitzero"`
	Path   string `json:"path,omitzero"`
	Reason string `json:"reason"`
}

// printFaults prints each fault on a line that editors understand. As JSON they go to
// the standard output.
func printFaults(o options, w world, err error) {
	list := struct {
		Faults []fault `json:"faults"`
	}{faultsOf(o.file, err)}
	if o.json {
		printJSON(w.stdout, list)
		return
	}
	for _, f := range list.Faults {
		place := ""
		if f.Line > 0 {
			place = fmt.Sprintf("%s:%d:%d: ", f.File, f.Line, f.Column)
		}
		if f.Path != "" {
			place += f.Path + ": "
		}
		line(w.stderr, place+f.Reason)
	}
}

func faultsOf(file string, err error) []fault {
	all, ok := errors.AsType[rulejson.Errors](err)
	if !ok {
		// A URL in the place of FILE is in the error of the open.
		return []fault{{File: transport.SafeError(errors.New(file), nil), Reason: "aplomb rules: " + transport.SafeError(err, nil)}}
	}
	var list []fault
	for _, f := range all {
		list = append(list, fault{file, f.Line, f.Column, f.Key, f.Err.Error()})
	}
	return list
}
