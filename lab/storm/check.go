// The checks of the system before the experiment begins.

package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// check raises the limit of open files to what the strategies need in the worst case. It returns an error if
// the result would be wrong with fewer, and says what else is low. files raises the limit and returns it.
func check(o options, files func(want uint64) uint64, progress io.Writer) error {
	// Each client needs a connection, and some are being closed while the next is opened.
	const itsOwn = 100
	sc, strategies := o.scenario, uint64(len(o.strategies))
	clients := uint64(sc.Clients) + uint64(sc.Clients)/10
	need := clients*strategies + itsOwn
	if sc.Processes > 0 {
		// The clients are in processes of their own. Each of them has two pipes.
		need = max(clients, uint64(2*sc.Processes)*strategies) + itsOwn
	}
	if have := files(need); have < need {
		return fmt.Errorf("%d strategies with %d clients need %d open files, and this process may open %d: raise the limit (ulimit -n %d), or take fewer -clients or -strategies",
			strategies, sc.Clients, need, have, need)
	}
	// The client that retries soonest comes back 0.1 s after its timeout.
	server := uint64(float64(sc.Clients) * float64(sc.Frozen+sc.Watched) / float64(sc.Timeout+100*time.Millisecond))
	if have := files(server); have < server {
		_, _ = fmt.Fprintf(progress, "note: a server may open %d files. One that never comes back would need up to\n  %d, so its peak is too low.\n", have, server)
	}
	return nil
}

// writable makes the directory and checks that files can be written there.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".storm-*")
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Remove(f.Name())
}
