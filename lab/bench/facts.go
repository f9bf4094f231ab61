// The behaviour of the clients when something goes wrong.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// A fact is a row of the table.
type fact struct {
	name    string
	measure func(*library) (string, error)
	alone   bool // measured for one library after the other, because it uses the whole machine
}

var facts = []fact{
	{name: "GET, always 503: attempts", measure: attempts(exchange{
		steps: script(testserver.Status(503)),
	})},
	{name: "POST, always 503: attempts", measure: attempts(exchange{
		method: http.MethodPost, body: "order", steps: script(testserver.Status(503)),
	})},
	{name: "POST, connection always reset: attempts", measure: attempts(exchange{
		method: http.MethodPost, body: "order", steps: script(testserver.ResetBeforeHeaders()),
	})},
	{name: "POST, 202 with Retry-After: 1: attempts", measure: attempts(exchange{
		method: http.MethodPost, body: "order", limit: 4 * time.Second,
		steps: script(testserver.Status(202).Header("Retry-After", "1")),
	})},
	{name: "503 with Retry-After: 1: shortest wait before a resend, of 6 requests", measure: earliestResend},
	{name: "503 with Retry-After: 10000000000: attempts within 2 s", measure: attempts(exchange{
		steps: script(testserver.Status(503).Header("Retry-After", "10000000000")), limit: 2 * time.Second,
	})},
	{name: "503 with Retry-After: 30, deadline of 1 s: result; when; attempts", measure: resultAfter(exchange{
		steps: script(testserver.Status(503).Header("Retry-After", "30")), deadline: time.Second,
	})},
	{name: "503, wait of 0.5 s, cancelled after 0.1 s: result; when; attempts", measure: resultAfter(exchange{
		steps: script(testserver.Status(503)), delay: 500 * time.Millisecond, cancel: 100 * time.Millisecond,
	})},
	{name: "always 503, with a body of 9 bytes: the caller gets", measure: lastResponse},
	{name: "40 GETs, always 503 with 32 KiB: attempts; connections", measure: connections},
	{name: "503 with an endless body: attempts within 3 s", measure: attempts(exchange{
		steps: script(testserver.Endless().Code(503).Drip(16<<10, 2*time.Millisecond)), limit: 3 * time.Second,
	})},
	{name: "503 with a body that stalls: attempts within 3 s", measure: attempts(exchange{
		steps: script(testserver.Status(503).Body(strings.Repeat("x", 2048)).CutAt(1024, testserver.Stall)),
		limit: 3 * time.Second,
	})},
	{name: "200 with 1 MiB and a strong ETag, cut after 256 KiB, server supports Range: bytes read; attempts", measure: cutBody(`"v1"`)},
	{name: "200 with 1 MiB and neither ETag nor Last-Modified, cut after 256 KiB, whole if it is asked for again: bytes read; attempts", measure: cutBody("")},
	{name: "101: does the body implement io.Writer?", measure: upgrade},
	{name: "POST of 64 MiB from a pipe: bytes read before the first is sent; peak growth of the heap (client and server)",
		alone: true, measure: uploadCost(fromPipe)},
	{name: "POST of 64 MiB from a file: the same", alone: true, measure: uploadCost(fromFile)},
}

// behaviour fills the table of facts. The libraries are measured at the same
// time, because most of it is waiting.
func behaviour(s scale, libs []library) (*table, error) {
	t := &table{heads: []string{""}}
	versions := dependencies()
	for i := range libs {
		t.heads = append(t.heads, strings.TrimSpace(libs[i].name+" "+libs[i].version(versions)))
	}
	for _, f := range facts[:min(s.facts, len(facts))] {
		cells, err := f.of(libs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		t.add(append([]string{f.name}, cells...)...)
	}
	t.note = fmt.Sprintf("The delay between tries is %v if the server asks for no wait; HTTP/1.1 over loopback.", shortDelay)
	return t, nil
}

// of returns the fact's cells.
func (f *fact) of(libs []library) ([]string, error) {
	cells, errs := make([]string, len(libs)), make([]error, len(libs))
	var all sync.WaitGroup
	for i := range libs {
		all.Go(func() { cells[i], errs[i] = f.measure(&libs[i]) })
		if f.alone {
			all.Wait()
		}
	}
	all.Wait()
	return cells, errors.Join(errs...)
}

func script(steps ...testserver.Step) []testserver.Step { return steps }

// attempts counts the requests that arrived.
func attempts(e exchange) func(*library) (string, error) {
	return func(l *library) (string, error) {
		o, err := e.run(l)
		return fmt.Sprint(o.attempts), err
	}
}

// resultAfter describes the caller's result and when it came.
func resultAfter(e exchange) func(*library) (string, error) {
	return func(l *library) (string, error) {
		o, err := e.run(l)
		if !o.responded {
			return "no response within 5 s", err
		}
		return fmt.Sprintf("%s; %.2f s; %d", o.result(), o.took.Seconds(), o.attempts), err
	}
}

// earliestResend is the shortest time between the first and the second send of
// six requests, each with a client and a server of its own.
func earliestResend(l *library) (string, error) {
	e := exchange{
		steps: script(testserver.Status(503).Header("Retry-After", "1"), testserver.OK("")),
		limit: 4 * time.Second,
	}
	var (
		mu       sync.Mutex // guards failed and earliest
		failed   error
		earliest = time.Duration(math.MaxInt64)
		all      sync.WaitGroup
	)
	for range 6 {
		all.Go(func() {
			o, err := e.run(l)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			if len(o.log) > 1 {
				earliest = min(earliest, o.log[1].Time.Sub(o.log[0].Time))
			}
		})
	}
	all.Wait()
	if earliest == math.MaxInt64 {
		return "none", failed
	}
	return fmt.Sprintf("%d ms", earliest.Milliseconds()), failed
}

// lastResponse describes how much of the last response the caller gets.
func lastResponse(l *library) (string, error) {
	const page = "try later"
	o, err := exchange{steps: script(testserver.Status(503).Body(page))}.run(l)
	if err != nil || !o.responded {
		return o.result(), err
	}
	if o.err == nil {
		return fmt.Sprintf("%s, %d bytes", o.result(), o.read), nil
	}
	resp := l.carriedBy(o.err)
	if resp == nil {
		return o.result(), nil
	}
	defer resp.Body.Close()
	n, _ := io.Copy(io.Discard, io.LimitReader(resp.Body, readMost))
	return fmt.Sprintf("error with a %d, %d bytes", resp.StatusCode, n), nil
}

// connections sends 40 requests, one after the other, through one client. Each
// response that the caller gets is read to its end and closed.
func connections(l *library) (string, error) {
	srv, err := testserver.New(testserver.Config{}, testserver.Status(503).Body(strings.Repeat("x", 32<<10)))
	if err != nil {
		return "", err
	}
	defer srv.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := l.newClient(terms{base: srv.Transport(), delay: shortDelay})
	for range 40 {
		o := exchange{}.ask(ctx, client, srv.URL)
		if resp := l.carriedBy(o.err); resp != nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, readMost))
			resp.Body.Close()
		}
	}
	return fmt.Sprintf("%d; %d", srv.Arrivals(), srv.Conns()), ctx.Err()
}

// cutBody describes how much of a cut body the caller can read, and how it ends.
func cutBody(etag string) func(*library) (string, error) {
	return func(l *library) (string, error) {
		whole := testserver.Content(testserver.Pattern(1<<20), etag)
		o, err := exchange{steps: script(whole.CutAt(256<<10, testserver.Close), whole)}.run(l)
		return o.delivery(), err
	}
}

// upgrade tells whether the caller can write to a switched connection.
func upgrade(l *library) (string, error) {
	o, err := exchange{
		header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}},
		steps:  script(testserver.SwitchProtocols("echo")),
	}.run(l)
	if err != nil || o.err != nil || !o.responded {
		return o.result(), err
	}
	if _, ok := o.resp.Body.(io.Writer); ok {
		return "yes", nil
	}
	return "no", nil
}

// uploadCost describes what an upload costs in memory.
func uploadCost(from kind) func(*library) (string, error) {
	return func(l *library) (string, error) {
		u, err := upload(l, 64<<20, from)
		return fmt.Sprintf("%d; %.1f MiB", u.before, mebi(u.peak)), err
	}
}
