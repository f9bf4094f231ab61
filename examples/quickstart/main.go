// Quickstart sends the same requests through a plain http.Client and through
// one with aplomb's transport, to a server that fails in seven ways, and shows
// what each of them gets and what arrived at the server.
//
//	go run ./examples/quickstart
//
// It takes about five seconds and needs nothing but the loopback interface. Its
// exit status is 1 if an outcome is not the promised one.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

var errTooLong = errors.New("took longer than 18 s")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	// The first Ctrl-C ends the requests, a second one the program.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx))
}

// run sends everything at once: the waits are the default rule's, in seconds,
// and one after the other they would take three times as long.
func run(ctx context.Context) int {
	plain := &http.Client{}
	aplomb := &http.Client{Transport: transport.Default()}

	// A hang is an outcome that nobody promised. It is ended without a deadline,
	// since the transport looks at that and would decide otherwise.
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	guard := time.AfterFunc(18*time.Second, func() { cancel(errTooLong) })
	defer guard.Stop()

	rows := make([]*row, len(faults))
	for i := range faults {
		rows[i] = &row{fault: &faults[i]}
	}
	screen := newScreen(os.Stdout, rows)
	screen.printf("Seven faults, each met by a plain client and by one with aplomb.\n%s\n\n", ruleInWords())

	var all sync.WaitGroup
	for _, r := range rows {
		all.Go(func() {
			got := r.fault.meet(limited, plain, func(transport.Event) {})
			screen.update(func() { r.plain = &got })
		})
		all.Go(func() {
			got := r.fault.meet(limited, aplomb, func(e transport.Event) { screen.event(r, e) })
			screen.update(func() { r.aplomb = &got })
		})
	}
	stopDrawing := screen.start()
	all.Wait()
	stopDrawing()

	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "interrupted")
		return 130
	}
	wrong := 0
	for _, r := range rows {
		for _, problem := range r.problems() {
			wrong++
			fmt.Fprintln(os.Stderr, "NOT AS PROMISED:", problem)
		}
	}
	if wrong > 0 {
		return 1
	}
	screen.printf("Arrivals are requests that the server saw: plain client / aplomb. Time is aplomb's.\n" +
		"All outcomes are as promised.\n")
	return 0
}

// ruleInWords says what the default rule is, by asking it.
func ruleInWords() string {
	rule := policy.Defaults()
	var waits []string
	for _, b := range backoff.Bounds(rule.Backoff, 3) {
		waits = append(waits, fmt.Sprintf("%v to %v", b.Lowest, b.Highest))
	}
	return fmt.Sprintf("The rule is the default: up to %d attempts, waits of %s, and so on.",
		rule.Attempts, strings.Join(waits, ", "))
}
