// Schedule shows how long each back-off of package policy waits, as tables and
// pictures.
//
//	go run .            tables only
//	go run . -dir out   tables, and pictures as SVG (light and dark) and PNG in out
//
// The files:
//
//	main.go    flags
//	curves.go  the back-offs
//	table.go   their waits as text
//	picture.go their waits as pictures
//	canvas.go  pictures as files
//	axis.go    axes of time
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if err == flag.ErrHelp {
			return
		}
		fmt.Fprintln(os.Stderr, "schedule:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("schedule", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "write the pictures, SVG and PNG, into this `directory`; it is made where it is missing")
	n := flags.Int("n", 12, "how many `retries` to show, 1 to 100")
	flags.Usage = func() {
		_, _ = fmt.Fprint(stderr, "Schedule prints the waits of every back-off, and draws them with -dir.\n\n")
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
	if err := tables(stdout, *n); err != nil {
		return err
	}
	if *dir == "" {
		return nil
	}
	return pictures(*dir, *n, stdout)
}
