// Fits runs an example, passes on its output, and checks that a stranger can read it:
// the output begins with a sentence, and fits a terminal of 80 columns.
//
//	fits COMMAND [ARGUMENT…]
//
// The exit status is the command's, or 1 if the output does not pass.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"unicode"
	"unicode/utf8"
)

const columns = 80

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: fits COMMAND [ARGUMENT…]")
		os.Exit(2)
	}
	var output bytes.Buffer
	command := exec.Command(os.Args[1], os.Args[2:]...)
	command.Stdout, command.Stderr = io.MultiWriter(os.Stdout, &output), os.Stderr
	if err := command.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "fits:", err)
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(max(1, exit.ExitCode()))
		}
		os.Exit(1)
	}
	problems := check(output.String())
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, "fits:", problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// check returns the problems of an output.
func check(output string) (problems []string) {
	beginning, _, _ := strings.Cut(output, "\n\n")
	first, _ := utf8.DecodeRuneInString(beginning)
	if !unicode.IsLetter(first) || !strings.ContainsAny(beginning, ".:") {
		problems = append(problems, fmt.Sprintf("does not begin with a sentence: %q", beginning))
	}
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if n := utf8.RuneCountInString(line); n > columns {
			problems = append(problems, fmt.Sprintf("%d columns: %s", n, line))
		}
	}
	return problems
}
