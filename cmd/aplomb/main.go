// Aplomb is a tool for HTTP over networks and servers that fail now and then. It explains how the
// library of the same name retries.
//
//	go install github.com/aplomb-go/aplomb/cmd/aplomb@latest
//	aplomb -h
//
// Each command is a package of cmd/internal with its name.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/aplomb-go/aplomb/cmd/internal/demo"
	"github.com/aplomb-go/aplomb/cmd/internal/rules"
	"github.com/aplomb-go/aplomb/cmd/internal/waits"
	"github.com/aplomb-go/aplomb/internal/terminal"
)

const usage = `Usage: aplomb COMMAND [ARGUMENT]...

Commands:
  rules   explain the rule of a URL, check a file of rules, or judge a response
  waits   show how long each back-off waits
  demo    show seven faults, met by a plain client and by a client with aplomb

aplomb COMMAND -h explains a command, and aplomb version tells the version.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends a command in good order. A second signal ends the program.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs a command and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("aplomb", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(stdout, usage)
		return 0
	case err == nil && f.NArg() == 0:
		err = errors.New("no command")
	}
	if err != nil {
		return terminal.Misused(stderr, "aplomb", err)
	}
	name, args := f.Arg(0), f.Args()[1:]
	switch name {
	case "rules":
		return rules.Run(ctx, args, os.Stdin, stdout, stderr)
	case "waits":
		return waits.Run(args, stdout, stderr)
	case "demo":
		return demo.Run(ctx, args, stdout, stderr)
	case "help":
		return run(ctx, append(args, "-h"), stdout, stderr)
	case "version":
		if len(args) > 0 {
			return terminal.Misused(stderr, "aplomb", errors.New("version takes no arguments"))
		}
		_, _ = fmt.Fprint(stdout, version())
		return 0
	}
	return terminal.Misused(stderr, "aplomb", fmt.Errorf("there is no command %s", name))
}

// version returns the version of the module from which the program was built, and that of Go.
func version() string {
	module := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		module = info.Main.Version
	}
	return fmt.Sprintf("aplomb %s %s\n", module, runtime.Version())
}
