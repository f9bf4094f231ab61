// Waits draws how long each back-off of package policy/backoff waits, on a linear and on a
// logarithmic scale. It writes SVG for light and dark paper, and PNG. The command aplomb
// waits prints the same waits as text.
//
//	go -C lab run ./waits -out ../bin/waits
//
// Beside this file schedule-light.svg is waits-all-light.svg, and schedule-article-light.svg is
// waits-article-light.svg.
//
// The files:
//
//	main.go    flags
//	picture.go the waits as pictures
//	canvas.go  pictures as files
//	axis.go    axes of time
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/aplomb-go/aplomb/internal/curves"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	_, _ = fmt.Fprintln(os.Stderr, "waits:", err)
	os.Exit(1)
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("waits", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("out", "", "write the pictures into this `directory`, which is made if it is missing")
	n := flags.Int("n", 12, "how many `retries` to show, 1 to 100")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q: there are no arguments, only flags; see -h", flags.Arg(0))
	case *dir == "":
		return errors.New("-out DIRECTORY says where to write the pictures")
	case *n < 1 || *n > 100:
		return fmt.Errorf("-n %d: must be 1 to 100", *n)
	}
	if err := pictures(*dir, curves.All(), *n); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "pictures written to %s\n", *dir)
	return err
}
