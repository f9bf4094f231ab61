// Plans, which choose the steps.

package faults

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
)

// A Plan chooses the step for a request. It must be safe for concurrent use, and
// must not change the request or read its body.
//
// A Plan can call other plans, for instance so that only requests to one host meet
// faults:
//
//	func(req *http.Request) faults.Step {
//		if req.URL.Host == "search.internal" {
//			return random(req)
//		}
//		return faults.Pass()
//	}
type Plan func(*http.Request) Step

// Script returns a Plan that plays the steps in the order in which requests arrive.
// The last step is played for all later requests, so a Script with one step plays it
// for every request. A Script without steps lets all requests pass.
func Script(steps ...Step) Plan {
	steps = append([]Step(nil), steps...)
	if len(steps) == 0 {
		steps = []Step{Pass()}
	}
	var next atomic.Int64
	return func(*http.Request) Step {
		i := next.Add(1) - 1
		return steps[min(i, int64(len(steps)-1))]
	}
}

// A Chance is a step and the share of the requests that meet it, from 0 to 1.
type Chance struct {
	Rate float64 // the share, such as 0.01 for one request in a hundred
	Step Step    // what happens to these requests
}

// Random returns a Plan that draws a step for each request. A request meets at most
// one of the steps. It passes if it meets none. The step of the nth request depends
// only on seed, on n and on the chances, so a run can be repeated. Random panics if
// a rate is negative or not a number, or if the rates are more than 1 together.
func Random(seed uint64, chances ...Chance) Plan {
	chances = append([]Chance(nil), chances...)
	sum := 0.0
	for _, c := range chances {
		if !(c.Rate >= 0) {
			panic(fmt.Sprintf("faults: the rate %v is not a share from 0 to 1", c.Rate))
		}
		sum += c.Rate
	}
	if sum > 1+1e-9 { // the sum of ten times 0.1 may be a little more
		panic(fmt.Sprintf("faults: the rates are %v together, which is more than 1", sum))
	}
	var next atomic.Uint64
	return func(*http.Request) Step {
		u := rand.New(rand.NewPCG(seed, next.Add(1))).Float64()
		for _, c := range chances {
			if u -= c.Rate; u < 0 {
				return c.Step
			}
		}
		return Pass()
	}
}
