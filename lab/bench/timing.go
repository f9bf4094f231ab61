// Measuring time on a machine that does other things as well.
//
// All calls are timed in turn, in short batches. A round is one batch of each
// call, in random order. The figure of a call is the median, over all rounds,
// of the difference between its time and the time of its floor in the same
// round. If the machine becomes slower for a while, both become slower. A
// disturbed batch is only one of many.

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/internal/testkit"
)

// A contender is a call that is timed against the others.
type contender struct {
	name  string
	call  func() error
	floor int // index of the contender whose cost is subtracted; its own for a floor

	batch int // calls in a round
	times []float64
	used  []float64 // nanoseconds of a processor, by this whole process
	alloc float64
}

// run makes n calls and returns the nanoseconds of one.
func (c *contender) run(n int) (float64, error) {
	start := time.Now()
	for range n {
		if err := c.call(); err != nil {
			return 0, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return float64(time.Since(start)) / float64(n), nil
}

// calibrate sets batch to about as many calls as fit into d.
func (c *contender) calibrate(d time.Duration) error {
	for c.batch = 1; ; c.batch *= 2 {
		per, err := c.run(c.batch)
		if took := per * float64(c.batch); err != nil || took >= float64(d)/2 {
			return err
		}
	}
}

// count counts the allocations of a call.
func (c *contender) count(runs int) (err error) {
	c.alloc = testing.AllocsPerRun(runs, func() {
		if _, failed := c.run(1); failed != nil {
			err = failed
		}
	})
	return err
}

// timed calls all contenders in rounds.
func timed(cs []*contender, s scale) error {
	for _, c := range cs {
		if err := c.calibrate(s.batch); err != nil {
			return err
		}
		if err := c.count(s.allocRuns); err != nil {
			return err
		}
	}
	for range s.rounds {
		for _, i := range rand.Perm(len(cs)) {
			before := testkit.CPU()
			per, err := cs[i].run(cs[i].batch)
			if err != nil {
				return err
			}
			cs[i].times = append(cs[i].times, per)
			cs[i].used = append(cs[i].used, float64(testkit.CPU()-before)/float64(cs[i].batch))
		}
	}
	return nil
}

// differences returns how much longer than of[i] each times[i] is.
func differences(times, of []float64) []float64 {
	d := make([]float64, len(times))
	for i := range times {
		d[i] = times[i] - of[i]
	}
	return d
}

// quartiles returns the bounds of the lower quarter, the half and the upper
// quarter of the values, of which there is at least one.
func quartiles(values []float64) (low, median, high float64) {
	v := slices.Sorted(slices.Values(values))
	at := func(share float64) float64 {
		pos := share * float64(len(v)-1)
		below := int(pos)
		above := min(below+1, len(v)-1)
		return v[below] + (pos-float64(below))*(v[above]-v[below])
	}
	return at(0.25), at(0.5), at(0.75)
}

func median(values []float64) float64 {
	_, m, _ := quartiles(values)
	return m
}

// whole writes a number without decimals, in groups of three digits.
func whole(f float64) string {
	text := fmt.Sprintf("%.0f", math.Abs(f))
	var groups []string
	for len(text) > 3 {
		groups = append([]string{text[len(text)-3:]}, groups...)
		text = text[:len(text)-3]
	}
	text = strings.Join(append([]string{text}, groups...), ",")
	if math.Round(f) < 0 {
		return "−" + text
	}
	return text
}

// middleHalf writes the range of the middle half of the values.
func middleHalf(values []float64) string {
	low, _, high := quartiles(values)
	return whole(low) + " to " + whole(high)
}
