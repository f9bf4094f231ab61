// Package waits is the command aplomb waits. It prints tables of how long each back-off of
// package policy/backoff waits. The command aplomb rules prints its table with this package,
// too.
//
// The files:
//
//	main.go     flags
//	overview.go the waits of all back-offs
//	table.go    the table of a back-off
package waits

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/aplomb-go/aplomb/internal/terminal"
)

const usage = `Usage: aplomb waits [FLAGS]

Prints how long each back-off waits.

Flags:
`

// Run runs the command with its arguments, and returns the exit status. Its errors do not repeat
// the arguments, in which a secret may stand.
func Run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("waits", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	all := flags.Bool("all", false, "print the lowest, mean and highest waits of each back-off as well")
	n := flags.Int("n", 12, "how many `retries` to show, 1 to 100")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(stdout, usage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return 0
	case err != nil:
		err = errors.New("there are no flags but -all and -n, and -n takes a number")
	case flags.NArg() > 0:
		err = errors.New("there are no arguments, only flags; aplomb rules shows the waits for a URL")
	case *n < 1 || *n > 100:
		err = fmt.Errorf("-n %d: must be 1 to 100", *n)
	}
	if err != nil {
		return terminal.Misused(stderr, "aplomb waits", err)
	}
	if err := tables(stdout, *n, *all); err != nil {
		_, _ = fmt.Fprintln(stderr, "aplomb waits:", err)
		return 1
	}
	return 0
}
