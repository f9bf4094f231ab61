package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// made returns a run with a healthy rate of 100 per second that is back so long
// after the resume.
func made(back time.Duration) *Run {
	r := NewRun(60 * time.Second)
	r.Stop, r.Resume, r.Rate, r.ServerLimit = 10*time.Second, 20*time.Second, 100, 30
	for i := range r.Samples {
		at := time.Duration(i) * Step
		r.Samples[i].Busy = 10
		if at < r.Stop || at >= r.Resume+back {
			for range 10 {
				r.Success(at, at+10*time.Millisecond)
			}
		}
	}
	return r
}

func TestFigures(t *testing.T) {
	for _, back := range []time.Duration{0, 3 * time.Second, 30 * time.Second} {
		f := made(back).Figures()
		// A window of 2 s that lacks a tenth of a second still has 95 %.
		assert.InDelta(t, back-Step/2, f.Recovered, float64(Step/2), "back")
		assert.Equal(t, 10*time.Millisecond, f.P50, "p50")
	}
	f := made(36 * time.Second).Figures()
	assert.True(t, f.Recovered < 0 && f.P50 == 0, "back after %v, too late to say so", f.Recovered)
}

func TestDip(t *testing.T) {
	r := made(0)
	for i := int(24 * time.Second / Step); i < int(25*time.Second/Step); i++ {
		r.Samples[i].Good = 0
	}
	assert.GreaterOrEqual(t, r.Figures().Recovered, 4*time.Second, "back, although it fails once more")
}

func TestPeak(t *testing.T) {
	r := made(0)
	for at, busy := range map[int]int{200: 90, 201: 80, 202: -1, 203: 20} {
		r.Samples[at].Busy = busy
	}
	assert.Equal(t, 90, r.Figures().Peak, "peak")
}

func TestMedian(t *testing.T) {
	r := made(3 * time.Second)
	assert.Equal(t, r.Median(), r.Figures(), "of one run")
	r.Others = []Figures{made(0).Figures(), made(36 * time.Second).Figures()}
	assert.Equal(t, r.Figures().Recovered, r.Median().Recovered, "back after")
	r.Others = append(r.Others, r.Others[1], r.Others[1])
	assert.Negative(t, r.Median().Recovered, "back, although most are not")
}

// The parts of a run that several processes saw make up the whole run.
func TestParts(t *testing.T) {
	whole, joined := made(3*time.Second), NewRun(60*time.Second)
	joined.Stop, joined.Resume, joined.Rate, joined.ServerLimit = whole.Stop, whole.Resume, whole.Rate, whole.ServerLimit
	source := made(3 * time.Second)
	for i := range source.Samples {
		source.Samples[i].Busy = -1 // a process does not see the server
		joined.Samples[i].Busy = whole.Samples[i].Busy
	}
	for _, r := range []*Run{whole, source} {
		r.Send(15 * time.Second)
		r.Open = 2
		r.At(20 * time.Second).Ops = 7
		r.At(20 * time.Second).Begun = 7
	}
	joined.Add(source.Take())
	again := source.Take()
	assert.Zero(t, len(again.Steps)+len(again.Latency)+int(again.Sent+again.Open), "taken twice: %+v", again)
	a, b := whole.Figures(), joined.Figures()
	assert.True(t, a == b && a.OpsStorm > 0 && a.SentLate == 1, "%+v, want %+v", b, a)
	joined.Add(Part{Steps: []int{200}, Samples: []Sample{{Busy: -1, Ops: 1}}})
	assert.EqualValues(t, 8, joined.At(20*time.Second).Ops)
	assert.EqualValues(t, 10, joined.At(20*time.Second).Busy)
}
