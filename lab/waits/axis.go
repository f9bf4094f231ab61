// Axes of time: ticks at the steps of a clock, labelled with units.

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
)

// clockSteps are the distances between ticks on a linear axis.
var clockSteps = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// clockMarks are the ticks of a logarithmic axis.
var clockMarks = []time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second,
	10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 10 * time.Hour, 100 * time.Hour,
}

// A linearTime and a logTime mark an axis whose numbers are seconds.
type (
	linearTime struct{}
	logTime    struct{}
)

func (linearTime) Ticks(low, high float64) []plot.Tick {
	step := clockSteps[len(clockSteps)-1]
	for _, s := range clockSteps {
		if (high-low)/s.Seconds() <= 6 {
			step = s
			break
		}
	}
	var ticks []plot.Tick
	for i := math.Ceil(low / step.Seconds()); i*step.Seconds() <= high*1.0001; i++ {
		at := i * step.Seconds()
		ticks = append(ticks, plot.Tick{Value: at, Label: clock(at)})
	}
	return ticks
}

func (logTime) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for _, m := range clockMarks {
		if at := m.Seconds(); at >= low*0.999 && at <= high*1.001 {
			ticks = append(ticks, plot.Tick{Value: at, Label: clock(at)})
		}
	}
	return ticks
}

// clock writes a number of seconds in the unit that suits it.
func clock(seconds float64) string {
	switch {
	case seconds == 0:
		return "0"
	case seconds < 1:
		return trim(seconds*1000) + " ms"
	case seconds < 60:
		return trim(seconds) + " s"
	case seconds < 3600:
		return trim(seconds/60) + " min"
	}
	return trim(seconds/3600) + " h"
}

func trim(x float64) string {
	s := strconv.FormatFloat(x, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// A count marks an axis of retries.
type count struct{}

func (count) Ticks(low, high float64) []plot.Tick {
	step := 1.0
	for (high-low)/step > 12 {
		step = map[float64]float64{1: 2, 2: 5, 5: 10, 10: 20}[step]
	}
	var ticks []plot.Tick
	for at := 0.0; at <= high; at += step {
		if at >= math.Max(low, 1) {
			ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprint(at)})
		}
	}
	return ticks
}
