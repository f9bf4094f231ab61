// Many requests that fail at the same time.

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// lastingOutage counts the attempts to a server that responds with 503 to everything.
func lastingOutage(s scale, libs []library) (*table, error) {
	rows, err := each(libs, func(l *library) ([]string, error) {
		base := &outage{}
		client := l.newClient(terms{base: base, delay: shortDelay})
		requests := 0
		var all sync.WaitGroup
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for start := time.Now(); time.Since(start) < s.outage; <-tick.C {
			for range s.perTick {
				requests++
				all.Go(func() {
					o := exchange{deadline: time.Second}.ask(context.Background(), client, anyURL)
					if resp := l.carriedBy(o.err); resp != nil {
						resp.Body.Close()
					}
				})
			}
		}
		all.Wait()
		return []string{fmt.Sprintf("%.2f", float64(base.sent.Load())/float64(requests))}, nil
	})
	t := &table{heads: []string{"client", "attempts per request"}}
	t.addRows(libs, rows)
	t.note = fmt.Sprintf("About %d requests per second for %s, each with a deadline of 1 s. "+
		"A figure below 1 means that requests were refused without a send, because the gate is closed.", s.perTick*100, units(s.outage))
	return t, err
}

// canceledWaits cancels many requests that wait for their next try.
func canceledWaits(s scale, libs []library) (*table, error) {
	rows := make([][]string, len(libs))
	for _, i := range rand.Perm(len(libs)) {
		if libs[i].name == bare.name {
			continue // it does not wait
		}
		rows[i] = canceledBy(&libs[i], s)
	}
	t := &table{heads: []string{"client", "KiB for each request that waits",
		"ms from the cancel until the last has returned", "errors that are context.Canceled", "goroutines left"}}
	t.addRows(libs, rows)
	t.note = fmt.Sprintf("%s requests get a 503 and wait %s for their next try, or for their turn. "+
		"All are cancelled at the same time.", whole(float64(s.waits)), units(s.wait))
	return t, nil
}

func canceledBy(l *library, s scale) []string {
	base := &outage{hold: make(chan struct{})}
	client := l.newClient(terms{base: base, delay: s.wait, unbounded: true})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before, goroutines := memory(), runtime.NumGoroutine()
	var (
		all, begun     sync.WaitGroup
		canceled, last atomic.Int64 // last is when a request returned, in ns after start
	)
	begun.Add(s.waits)
	start := time.Now()
	for range s.waits {
		all.Go(func() {
			begun.Done()
			o := exchange{}.ask(ctx, client, anyURL)
			if errors.Is(o.err, context.Canceled) {
				canceled.Add(1)
			}
			storeMax(&last, int64(time.Since(start)))
		})
	}
	// All are sent, or wait for their turn, before the first has its response. So they
	// wait for their next try at the same time, however slow the machine is.
	begun.Wait()
	quiet(10 * s.wait)
	close(base.hold)
	quiet(s.wait / 2)
	waiting := float64(max(0, memory()-before)) / float64(s.waits) / 1024
	at := int64(time.Since(start))
	cancel()
	all.Wait()
	took := max(0, last.Load()-at)
	quiet(time.Second) // idle goroutines have ended by then
	left := max(0, runtime.NumGoroutine()-goroutines)
	return []string{
		fmt.Sprintf("%.1f", waiting), fmt.Sprintf("%.1f", float64(took)/1e6),
		whole(float64(canceled.Load())), fmt.Sprint(left),
	}
}

// quiet waits until all other goroutines wait for something, but not longer than
// most.
func quiet(most time.Duration) {
	busy := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"}}
	start := time.Now()
	for calm := 0; calm < 3 && time.Since(start) < most; time.Sleep(10 * time.Millisecond) {
		metrics.Read(busy)
		calm++
		if busy[0].Value.Uint64()+busy[1].Value.Uint64() > 1 { // this one runs
			calm = 0
		}
	}
}

// storeMax stores v in to if v is greater.
func storeMax(to *atomic.Int64, v int64) {
	for old := to.Load(); v > old && !to.CompareAndSwap(old, v); {
		old = to.Load()
	}
}

// memory returns the bytes in use for objects and stacks.
func memory() int64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() + sample[1].Value.Uint64())
}
