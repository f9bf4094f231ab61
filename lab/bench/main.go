// Bench compares aplomb with other clients that retry, and prints one Markdown
// table for each question.
//
//	go -C lab/bench run .                  # all questions, 45 s
//	go -C lab/bench run . -only retry      # the questions whose names match
//	go -C lab/bench run . -quick           # a few of everything: does it work?
//
// From the top of the repository, make compare does the first, and adds the table of outages (outages_test.go).
//
// # How it works
//
// Each client is set up as its documentation shows, with its own number of
// tries. Only the delay between tries is made equal and short. Aplomb takes part
// in four settings. The output begins with all set-ups, the versions and the
// machine.
//
// There are two kinds of question:
//
//   - Cost. The base transport is a stub that responds at once, so that the time
//     is the library's. Calls are timed in short batches, in rounds of random
//     order. A figure is the median, over the rounds, of the difference to the
//     floor in the same round. The floor is the same call without the library:
//     the bare stub, or for retries the shortest loop that retries. A client is
//     called in the most direct way that it offers, and its floor is called in
//     the same way (see shape in clients.go). Allocations are counted over the
//     same floor.
//   - Behaviour. Each fact is one request, or a few, that meet a server with a
//     fault. Real requests go over loopback to a server in this process. README.md
//     has these facts.
//
// Time figures are only shown. The tests assert that each client really retries,
// by counting attempts at a server, and that each question is answered for each
// client.
//
// # Files
//
//	main.go      the questions, and how much each of them measures
//	clients.go   the clients that are compared
//	ours.go      the set-ups of aplomb; no other file uses its API
//	peers.go     the set-ups of the other libraries
//	timing.go    measuring time on a machine that does other things as well
//	cost.go      the cost of a library when no network is involved, with servers that need none
//	facts.go     the behaviour of the clients when something goes wrong
//	upload.go    the cost of a large upload
//	exchange.go  one request that meets a faulty server
//	table.go     printing tables, and the machine, the versions and the settings of a run
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"
)

// A question has one table for its answer.
type question struct {
	name    string // for -only
	title   string
	clients func() []library
	ask     func(scale, []library) (*table, error)
}

var questions = []question{
	{"get", "First try of a GET", compared, firstGet},
	{"small", "First try of a GET whose response has 1 KiB", compared, withBody(1 << 10)},
	{"large", "First try of a GET whose response has 256 KiB", compared, withBody(256 << 10)},
	{"post", "First try of a POST with 1 KiB", compared, firstPost},
	{"retry", "A GET with two failures, then success, without waits", compared, twoFailures},
	{"facts", "Behaviour", described, behaviour},
}

// A scale says how much is measured.
type scale struct {
	rounds    int           // of timed calls
	batch     time.Duration // of one call in a round
	allocRuns int
	facts     int // how many, from the first
}

// full is what the tables of README.md have.
var full = scale{rounds: 101, batch: 3 * time.Millisecond, allocRuns: 200, facts: 1000}

// quick shows whether everything works. Its figures mean nothing.
var quick = scale{rounds: 3, batch: 100 * time.Microsecond, allocRuns: 5, facts: 2}

// longest is how long a run may take. A longer run is stuck.
const longest = 10 * time.Minute

func main() {
	small := flag.Bool("quick", false, "measure a little of everything, to see whether it works")
	only := flag.String("only", "", "a regular expression: measure only the questions whose names match\n("+names()+")")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fatal(err)
	}
	s := full
	if *small {
		s = quick
	}
	time.AfterFunc(longest, func() { fatal(fmt.Errorf("not done within %v", longest)) })
	fmt.Println("# Aplomb and other clients that retry")
	fmt.Println()
	describe(os.Stdout, s, compared())
	for _, q := range questions {
		if !pattern.MatchString(q.name) {
			continue
		}
		start := time.Now()
		if err := q.answer(os.Stdout, s); err != nil {
			fatal(err)
		}
		fmt.Fprintf(os.Stderr, "%s: %.1f s\n", q.name, time.Since(start).Seconds())
	}
}

// answer prints the question's title and table.
func (q question) answer(out io.Writer, s scale) error {
	t, err := q.ask(s, q.clients())
	if err != nil {
		return fmt.Errorf("%s: %w", q.name, err)
	}
	fmt.Fprintf(out, "\n## %s\n\n", q.title)
	t.markdown(out)
	return nil
}

func names() string {
	list := ""
	for _, q := range questions {
		list += " " + q.name
	}
	return list[1:]
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
