// The connections and the rate of traffic over loopback.

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/internal/testserver"
)

// connectionsUsed sends requests one after the other, each of which is answered
// 503 twice.
func connectionsUsed(s scale, libs []library) (*table, error) {
	t := &table{heads: []string{"client",
		"short 503: attempts", "connections", "503 with 32 KiB: attempts", "connections"}}
	rows, err := each(libs, func(l *library) ([]string, error) {
		var row []string
		for _, size := range []int{100, 32 << 10} {
			attempts, conns, err := connectionsOf(l, s.requests, size)
			if err != nil {
				return nil, err
			}
			row = append(row, fmt.Sprint(attempts), fmt.Sprint(conns))
		}
		return row, nil
	})
	t.addRows(libs, rows)
	return t, err
}

func connectionsOf(l *library, requests, size int) (attempts, conns int, err error) {
	refuse := testserver.Status(503).Body(strings.Repeat("x", size))
	srv, err := testserver.New(testserver.Config{Handler: func(r *testserver.Received) testserver.Step {
		if r.N%3 != 0 {
			return refuse
		}
		return testserver.OK("done")
	}})
	if err != nil {
		return 0, 0, err
	}
	defer srv.Close()
	client := l.newClient(terms{base: srv.Transport(), delay: time.Millisecond, unbounded: true})
	for range requests {
		o := exchange{}.ask(context.Background(), client, srv.URL)
		if resp := l.carriedBy(o.err); resp != nil {
			resp.Body.Close()
		}
	}
	return srv.Arrivals(), srv.Conns(), nil
}

// each measures all libraries at the same time. It suits questions of which the
// answer is a count.
func each(libs []library, measure func(*library) ([]string, error)) ([][]string, error) {
	rows, errs := make([][]string, len(libs)), make([]error, len(libs))
	var all sync.WaitGroup
	for i := range libs {
		all.Go(func() { rows[i], errs[i] = measure(&libs[i]) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", libs[i].name, err)
		}
	}
	return rows, nil
}

// throughput compares small requests and one large response over kept connections.
func throughput(s scale, libs []library) (*table, error) {
	small, chunk := []byte(strings.Repeat("x", 1<<10)), make([]byte, 64<<10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/small" {
			_, _ = w.Write(small)
			return
		}
		for left := s.download; left > 0; left -= int64(len(chunk)) {
			if _, err := w.Write(chunk[:min(left, int64(len(chunk)))]); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	clients := make([]doer, len(libs))
	for i := range libs {
		base := &http.Transport{MaxIdleConnsPerHost: workers}
		defer base.CloseIdleConnections()
		clients[i] = libs[i].newClient(terms{base: base, delay: shortDelay})
	}
	gets, used, downloads := make([][]float64, len(libs)), make([][]float64, len(libs)), make([][]float64, len(libs))
	for range s.transfers {
		for _, i := range rand.Perm(len(libs)) {
			before := testkit.CPU()
			took, err := together(s.gets, func() error { return fetch(clients[i], srv.URL+"/small", int64(len(small))) })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", libs[i].name, err)
			}
			used[i] = append(used[i], float64((testkit.CPU()-before).Microseconds())/float64(s.gets))
			gets[i] = append(gets[i], float64(s.gets)/took.Seconds())
			start := time.Now()
			if err := fetch(clients[i], srv.URL+"/large", s.download); err != nil {
				return nil, fmt.Errorf("%s: %w", libs[i].name, err)
			}
			downloads[i] = append(downloads[i], mebi(s.download)/time.Since(start).Seconds())
		}
	}
	t := &table{heads: []string{"client", "GETs of 1 KiB per second", "of bare", "CPU of a GET, µs", "download, MiB/s", "of bare"}}
	for i := range libs { // the first is bare
		t.add(libs[i].name,
			whole(median(gets[i])), fmt.Sprintf("%.2f", median(ratios(gets[i], gets[0]))), fmt.Sprintf("%.1f", median(used[i])),
			whole(median(downloads[i])), fmt.Sprintf("%.2f", median(ratios(downloads[i], downloads[0]))))
	}
	t.note = fmt.Sprintf("%d GETs at a time; downloads of %.0f MiB, one at a time; client and server share the machine, and the process.", workers, mebi(s.download))
	return t, nil
}

// workers is how many requests are on their way at a time.
const workers = 8

// together makes n calls by several workers and returns how long they took.
func together(n int, call func() error) (time.Duration, error) {
	var (
		left   atomic.Int64
		all    sync.WaitGroup
		failed = make(chan error, workers)
	)
	left.Store(int64(n))
	start := time.Now()
	for range workers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	close(failed)
	return took, <-failed
}

// fetch reads a response of the given size.
func fetch(client doer, url string, size int64) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// Read in pieces, like a user of the body would: nothing is hidden by a
	// ReadFrom or WriteTo.
	var n int64
	n, err = io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body})
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes of %d", n, size)
	}
	return err
}

// cutBodies reads responses that are cut on the way.
func cutBodies(_ scale, libs []library) (*table, error) {
	const size, part = 8 << 20, 1 << 20
	whole := testserver.Content(testserver.Pattern(size), `"v1"`)
	cut := whole.CutAt(part, testserver.Close)
	plain := testserver.OK(string(bytes.Repeat([]byte("x"), size)))
	cases := []exchange{
		{steps: script(cut, whole)},
		{steps: script(cut, cut, cut, cut, cut, cut, cut, whole)},
		{steps: script(plain.CutAt(part, testserver.Close), plain)},
	}
	rows, err := each(libs, func(l *library) ([]string, error) {
		var row []string
		for _, e := range cases {
			o, err := e.run(l)
			if err != nil {
				return nil, err
			}
			row = append(row, o.delivery())
		}
		return row, nil
	})
	t := &table{heads: []string{"client", "strong ETag, cut once", "strong ETag, cut seven times", "no ETag, cut once"}}
	t.addRows(libs, rows)
	t.note = "Each cell has the bytes that the caller read, and the attempts. A client that reads responses into memory can " +
		"begin again from the first byte. That costs the memory, and the bytes that came already are sent once more."
	return t, err
}
