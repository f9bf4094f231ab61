// The cost of a library when no network is involved. The base transports respond at once, so the
// time of a call is the library's time.

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const anyURL = "http://api.example.com/v1/orders"

func firstGet(s scale, libs []library) (*table, error) {
	return cost(s, libs, &bare, flaky{}, http.MethodGet, target{url: anyURL})
}

// withBody is firstGet with a response that has a body of so many bytes.
func withBody(bytes int) func(scale, []library) (*table, error) {
	return func(s scale, libs []library) (*table, error) {
		return cost(s, libs, &bare, flaky{body: strings.Repeat("x", bytes)}, http.MethodGet, target{url: anyURL})
	}
}

func firstPost(s scale, libs []library) (*table, error) {
	return cost(s, libs, &bare, flaky{}, http.MethodPost, target{anyURL, bytes.Repeat([]byte("x"), 1<<10)})
}

func twoFailures(s scale, libs []library) (*table, error) {
	return cost(s, libs, &naive, flaky{failures: 2}, http.MethodGet, target{url: anyURL})
}

// cost times requests over a base transport that responds at once.
// The floor is a client without the library, or with the naive loop in its
// place, that is called in the same way.
func cost(s scale, libs []library, floor *library, base flaky, method string, to target) (*table, error) {
	caller := func(l *library, s shape) func() error {
		own := base
		return l.caller(s, terms{base: &own, unbounded: true}, method, to)
	}
	var cs []*contender
	for i := range shapes {
		cs = append(cs, &contender{name: floor.name + ", " + i.String(), call: caller(floor, i), floor: int(i)})
	}
	for i := range libs {
		l := &libs[i]
		if l.name == floor.name || l.name == bare.name {
			continue
		}
		cs = append(cs, &contender{name: l.name, call: caller(l, l.shape()), floor: int(l.shape())})
	}
	if err := timed(cs, s); err != nil {
		return nil, err
	}
	t := &table{heads: []string{"client", "ns", "middle half", "CPU, ns", "allocations", "called by"}}
	for _, c := range cs[shapes:] {
		f := cs[c.floor]
		more := differences(c.times, f.times)
		t.add(c.name, whole(median(more)), middleHalf(more), whole(median(differences(c.used, f.used))), whole(c.alloc-f.alloc), shape(c.floor).String())
	}
	t.note = "The figures are what each client adds to the floor. " + floorNote(floor, cs[:shapes])
	return t, nil
}

// floorNote says which floor was subtracted.
func floorNote(floor *library, cs []*contender) string {
	var parts []string
	for i, c := range cs {
		parts = append(parts, fmt.Sprintf("%v (%s ns, allocations: %s)", shape(i), whole(median(c.times)), whole(c.alloc)))
	}
	return fmt.Sprintf("The floor is %s, called in the same way: %s.", floor.name, strings.Join(parts, ", "))
}

// fields are the header of each response. Nobody writes to them.
var fields = http.Header{
	"Content-Type": {"text/plain"},
	"Date":         {"Tue, 06 Jan 2026 10:00:00 GMT"},
	"Server":       {"bench"},
}

const apology = "please try again later"

// respond makes a response. Each call makes a new one, because some libraries
// change its Body.
func respond(req *http.Request, code int) *http.Response {
	resp := &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: fields, Body: http.NoBody, Request: req,
	}
	if code != http.StatusOK {
		resp.Body = io.NopCloser(strings.NewReader(apology))
		resp.ContentLength = int64(len(apology))
	}
	return resp
}

// consume reads and closes a request's body, as a transport does.
func consume(req *http.Request) error {
	if req.Body == nil {
		return nil
	}
	defer req.Body.Close()
	_, err := io.Copy(io.Discard, req.Body)
	return err
}

// A flaky base responds failures times with 503, then once with 200, and so on.
// It is for requests that come one after the other.
type flaky struct {
	failures int
	body     string // of a success
	sent     int
}

func (f *flaky) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := consume(req); err != nil {
		return nil, err
	}
	f.sent++
	if f.sent%(f.failures+1) != 0 {
		return respond(req, http.StatusServiceUnavailable), nil
	}
	resp := respond(req, http.StatusOK)
	if f.body != "" {
		resp.Body = io.NopCloser(struct{ io.Reader }{strings.NewReader(f.body)}) // nobody sees that it is in memory
		resp.ContentLength = int64(len(f.body))
	}
	return resp, nil
}
