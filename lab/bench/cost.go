// The cost of a library when no network is involved.

package main

import (
	"bytes"
	"fmt"
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
