// Bench lets aplomb and other retrying clients meet the same faults and prints
// what was counted, as a table.
//
//	go -C bench run .         # about 20 seconds, over the loopback interface
//	go -C bench run . -md     # the same in Markdown
//	go -C bench test -run '^$' -bench . -benchmem
//
// Each library is set up as its documentation shows, with its own number of
// tries; only the delays are made short and equal. The table says how.
//
// The files:
//
//	libraries.go  who is compared, and how is each set up?
//	facts.go      what is measured?
//	exchange.go   what becomes of one request?
//	upload.go     what does a large upload that cannot be rewound cost?
//	table.go      how is it printed?
package main

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"time"
)

// longest is how long a run may take: something is wrong with it then.
const longest = 90 * time.Second

func main() {
	markdown := flag.Bool("md", false, "print Markdown")
	flag.Parse()
	time.AfterFunc(longest, func() {
		fmt.Fprintln(os.Stderr, "not done within", longest)
		os.Exit(1)
	})
	t, err := measure(facts, libraries)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *markdown {
		t.markdown(os.Stdout)
	} else {
		t.text(os.Stdout)
	}
}

// measure fills the table, fact by fact. The libraries are measured at the same
// time, since most of it is waiting, unless a fact wants the machine to itself.
func measure(facts []fact, libs []library) (*table, error) {
	t := newTable(libs)
	for _, f := range facts {
		cells, errs := make([]string, len(libs)), make([]error, len(libs))
		var all sync.WaitGroup
		for i := range libs {
			all.Go(func() { cells[i], errs[i] = f.measure(&libs[i]) })
			if f.alone {
				all.Wait()
			}
		}
		all.Wait()
		for i, err := range errs {
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", f.name, libs[i].name, err)
			}
		}
		t.add(f.name, cells)
	}
	return t, nil
}
