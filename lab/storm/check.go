// The checks of the system before the experiment begins.

package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
)

// check raises the limits of the system. It returns an error if a limit is so low that
// the result would be wrong, and says which limits are low otherwise.
func check(o options, progress io.Writer) error {
	return limitsOf(o.scenario).check(o, progress)
}

// limits are the system's.
type limits struct {
	files  func(want uint64) uint64 // raises the limit and returns it
	queue  int                      // how many connections a socket's queue holds; 0: not known
	ports  int                      // how many ports there are for the clients of a server's port; 0: not known
	scen   model.Scenario
	demand demand
}

// A demand is the need of a strategy in the worst case.
type demand struct {
	clientFiles uint64 // of this process, for each strategy
	serverFiles uint64
	waiting     int // connections in the queues of the frozen server
	ports       int // ports that are in use or wait to be used again
}

func limitsOf(sc model.Scenario) limits {
	l := limits{files: raiseFiles, scen: sc, demand: demandOf(sc)}
	var low, high int
	if scan("/proc/sys/net/core/somaxconn", &l.queue) != nil {
		l.queue = 0
	}
	if scan("/proc/sys/net/ipv4/ip_local_port_range", &low, &high) == nil {
		l.ports = high - low + 1
	}
	return l
}

func scan(path string, into ...any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = fmt.Sscan(string(text), into...)
	return err
}

// demandOf counts for the client that retries soonest, 0.1 s after its timeout.
func demandOf(sc model.Scenario) demand {
	every := sc.Timeout + 100*time.Millisecond
	attempts := func(d time.Duration) float64 { return float64(sc.Clients) * float64(d) / float64(every) }
	return demand{
		clientFiles: uint64(sc.Clients) + uint64(sc.Clients)/10,
		serverFiles: uint64(attempts(sc.Frozen + sc.Watched)),
		waiting:     int(attempts(sc.Frozen)),
		ports:       int(attempts(time.Minute)) + sc.Clients, // a closed connection keeps its port for a minute
	}
}

func (l limits) check(o options, progress io.Writer) error {
	note := func(format string, args ...any) { _, _ = fmt.Fprintf(progress, "note: "+format+"\n", args...) }
	d := l.demand
	// Each client needs a connection, and some are being closed while the next is opened.
	const itsOwn = 100
	need := d.clientFiles*uint64(len(o.strategies)) + itsOwn
	if o.scenario.Processes > 0 {
		// The clients are in processes of their own. Each of them has two pipes.
		need = max(d.clientFiles, uint64(2*o.scenario.Processes*len(o.strategies))) + itsOwn
	}
	if have := l.files(need); have < need {
		return fmt.Errorf("%d strategies with %d clients need %d open files, and this process may open %d: raise the limit (ulimit -n %d), or take fewer -clients or -strategies",
			len(o.strategies), o.scenario.Clients, need, have, need)
	}
	if have := l.files(d.serverFiles); have < d.serverFiles {
		note("a server may open %d files. One that never comes back would need up to\n  %d, so its peak is too low.", have, d.serverFiles)
	}
	switch room := doors * l.queue; {
	case l.queue == 0 || room >= d.waiting:
	case room < o.scenario.Clients:
		return fmt.Errorf("the queues of a server hold %d connections, fewer than there are clients: raise the limit (sysctl -w net.core.somaxconn=%d)", room, d.waiting/doors+1)
	default:
		note("the queues of a server hold %d connections, and up to %d may come.\n  The others are not served after the freeze (sysctl net.core.somaxconn).", room, d.waiting)
	}
	if room := doors * l.ports; l.ports > 0 && room < d.ports {
		return fmt.Errorf("the clients of a server need up to %d ports, and there are %d: widen the range (sysctl net.ipv4.ip_local_port_range), or take fewer -clients", d.ports, room)
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
