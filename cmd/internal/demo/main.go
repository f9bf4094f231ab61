// Package demo is the command aplomb demo. It shows seven faults. It sends the same
// requests through a plain http.Client and through a client with aplomb's
// transport. It prints the results of both clients and the number of requests that
// arrived at the server.
//
// The table is 79 columns wide. It takes about five seconds and needs only the loopback
// interface. The exit status is 1 if a result is not as promised.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/bounds"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

var errTooLong = errors.New("took longer than 18 s")

const usage = `Usage: aplomb demo

Sends seven requests through a plain client and through a client with aplomb. A
server in this program meets each of them with a fault.

Exit status: 0 all outcomes are as promised, 1 one is not, 2 the command line is
wrong, 130 interrupted
`

// Run runs the command with its arguments, and returns the exit status. The end of ctx ends
// the requests.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(stdout, usage)
		return 0
	case err != nil || f.NArg() > 0:
		_, _ = fmt.Fprintln(stderr, "aplomb demo: there are no flags and no arguments")
		return 2
	}
	return run(ctx, stdout, stderr)
}

// run sends everything at once, because the waits of the default rule are
// seconds. One after the other, they would take three times as long.
func run(ctx context.Context, stdout, stderr io.Writer) int {
	plain := &http.Client{}
	aplomb := &http.Client{Transport: transport.Default()}

	// A request that hangs is ended by a cancellation. A deadline would change
	// the decisions of the transport.
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	guard := time.AfterFunc(18*time.Second, func() { cancel(errTooLong) })
	defer guard.Stop()

	rows := make([]*row, len(faults))
	for i := range faults {
		rows[i] = &row{fault: &faults[i]}
	}
	_, _ = fmt.Fprintf(stdout, "Seven requests meet a fault each: once from a plain http.Client, and once from\n"+
		"one with aplomb. The table shows what each client got, how many requests the\n"+
		"server saw, and how long aplomb took. aplomb makes %s.\n\n", ruleInWords())
	progress := log.New(stdout, "", 0) // safe for concurrent use
	var all sync.WaitGroup
	for _, r := range rows {
		all.Go(func() { r.plain = r.fault.meet(limited, plain, func(transport.AttemptEnd) {}) })
		all.Go(func() {
			r.aplomb = r.fault.meet(limited, aplomb, func(e transport.AttemptEnd) {
				if e.Reason == transport.ReasonRetry {
					progress.Printf("%s: %s", r.fault.name, waiting(e))
				}
			})
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		_, _ = fmt.Fprintln(stderr, "interrupted")
		return 130
	}
	_, _ = fmt.Fprintf(stdout, "\n%s\n\n", strings.Join(table(rows), "\n"))
	wrong := 0
	for _, r := range rows {
		for _, problem := range r.problems() {
			wrong++
			_, _ = fmt.Fprintln(stderr, "NOT AS PROMISED:", problem)
		}
	}
	if wrong > 0 {
		return 1
	}
	_, _ = fmt.Fprintf(stdout, "%s\nThe first request, as transport.Explain tells it:\n\n%s\n", ending, rows[0].aplomb.story)
	return 0
}

const ending = `Sent is how many requests the server got: from the plain client / from aplomb.
Time is aplomb's. The last two rows show the reason why there was no retry: a
POST may have been acted on, and 30 s are more than the request's deadline.
All outcomes are as promised.

Read next: "What is retried" in README.md. examples/README.md has a program for
each way of use, and docs/migrating.md helps to come from another library.
`

// ruleInWords describes the default rule.
func ruleInWords() string {
	rule := policy.Defaults()
	var waits []string
	for _, b := range bounds.Of(rule.Backoff, 3) {
		waits = append(waits, fmt.Sprintf("%v to %v", b.Lowest, b.Highest))
	}
	return fmt.Sprintf("up to %d attempts,\nand waits %s, and so on", rule.MaxAttempts, strings.Join(waits, ", "))
}
