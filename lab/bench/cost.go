// The cost of a library when no network is involved.

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"strings"
)

const anyURL = "http://api.example.com/v1/orders"

func firstGet(s scale, libs []library) (*table, error) {
	return cost(s, libs, &bare, flaky{}, http.MethodGet, target(nil, anyURL))
}

// withBody is firstGet with a response that has a body of so many bytes.
func withBody(bytes int) func(scale, []library) (*table, error) {
	return func(s scale, libs []library) (*table, error) {
		return cost(s, libs, &bare, flaky{body: strings.Repeat("x", bytes)}, http.MethodGet, target(nil, anyURL))
	}
}

func firstPost(s scale, libs []library) (*table, error) {
	return cost(s, libs, &bare, flaky{}, http.MethodPost, target(bytes.Repeat([]byte("x"), 1<<10), anyURL))
}

func twoFailures(s scale, libs []library) (*table, error) {
	return cost(s, libs, &naive, flaky{failures: 2}, http.MethodGet, target(nil, anyURL))
}

// cost times requests over a base transport that responds at once.
// The floor is a client without the library, or with the naive loop in its
// place, that is called in the same way.
func cost(s scale, libs []library, floor *library, base flaky, method string, to targets) (*table, error) {
	caller := func(l *library, s shape) func(int) error {
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

// manyHosts times first tries that go to one host after the other, and counts
// what a client keeps of each host.
func manyHosts(s scale, libs []library) (*table, error) {
	texts := make([]string, s.hosts)
	for i := range texts {
		texts[i] = fmt.Sprintf("http://host-%d.example.com/v1/orders", i)
	}
	to := target(nil, texts...)
	var cs []*contender
	for i := range shapes {
		cs = append(cs, &contender{name: bare.name, call: bare.caller(i, terms{base: &flaky{}}, http.MethodGet, to), floor: int(i)})
	}
	kept := make([]float64, len(libs))
	for i := range libs {
		l := &libs[i]
		before := live()
		c := &contender{name: l.name, call: l.caller(l.shape(), terms{base: &flaky{}}, http.MethodGet, to), floor: int(l.shape())}
		if _, err := c.run(s.hosts); err != nil {
			return nil, err
		}
		kept[i] = max(0, float64(live()-before)/float64(s.hosts))
		cs = append(cs, c)
	}
	if err := timed(cs, s); err != nil {
		return nil, err
	}
	t := &table{heads: []string{"client", "ns", "middle half", "bytes kept for each host"}}
	for i, c := range cs[shapes:] {
		if libs[i].name == bare.name {
			continue
		}
		more := differences(c.times, cs[c.floor].times)
		t.add(c.name, whole(median(more)), middleHalf(more), whole(kept[i]))
	}
	t.note = "The figures are what each client adds to the same call without it."
	return t, nil
}

// live returns the bytes of the heap that are in use.
func live() int64 {
	runtime.GC()
	runtime.GC() // sweeps the objects that the first run found unused
	return heap()
}
