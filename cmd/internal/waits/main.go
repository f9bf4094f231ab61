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
)

// Run runs the command with its arguments, and returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	err := run(args, stdout, stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	_, _ = fmt.Fprintln(stderr, "aplomb waits:", err)
	return 1
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("waits", flag.ContinueOnError)
	flags.SetOutput(stderr)
	all := flags.Bool("all", false, "print the lowest, mean and highest waits of each back-off as well")
	n := flags.Int("n", 12, "how many `retries` to show, 1 to 100")
	flags.Usage = func() {
		_, _ = fmt.Fprint(stderr, "Usage: aplomb waits [FLAGS]\n\nPrints how long each back-off waits.\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q: there are no arguments, only flags; see -h", flags.Arg(0))
	case *n < 1 || *n > 100:
		return fmt.Errorf("-n %d: must be 1 to 100", *n)
	}
	return tables(stdout, *n, *all)
}
