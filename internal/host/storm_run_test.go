package host_test

import (
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/soak"
)

func TestStorm(t *testing.T) {
	var peaks, recovered []int
	for seed := range soak.Size[uint64](3, 9) {
		s := newStorm(seed)
		s.gated = true
		s.run()
		steady := s.steady()
		back := s.recovered(steady)
		t.Logf("seed %d: steady %.0f/s, limit %d; sent while frozen %d, found at the wake %d, peak %d, back after %v, lost %d",
			seed, steady, s.peakLimit, s.sent, s.atWake, s.peak, back, s.lost)
		assert.True(t, back >= 0 && back <= 5*time.Second, "seed %d: back to 95 %% after %v", seed, back)
		assert.LessOrEqual(t, s.peak, 52, "seed %d: peak", seed)
		peaks = append(peaks, s.peak)
		recovered = append(recovered, int(back/time.Millisecond))
		assert.LessOrEqual(t, s.sent, 5900/20, "seed %d: %d attempts while frozen", seed, s.sent)
	}
	sort.Ints(peaks)
	sort.Ints(recovered)
	t.Logf("median peak %d, back after %d ms", peaks[len(peaks)/2], recovered[len(recovered)/2])
	assert.LessOrEqual(t, peaks[len(peaks)/2], 45, "median peak")
}

// For comparison, with fixed delays the same server never recovers, even if it is
// frozen for a shorter time.
func TestStormFixed(t *testing.T) {
	s := newStorm(1)
	s.resume = s.freeze.Add(soak.Size(8*time.Second, 20*time.Second))
	s.end = s.resume.Add(soak.Size(9*time.Second, 10*time.Second))
	s.fixed = true
	s.run()
	t.Logf("sent while frozen %d, peak %d", s.sent, s.peak)
	if back := s.recovered(s.steady()); back >= 0 {
		t.Errorf("back after %v", back)
	}
	assert.GreaterOrEqual(t, s.sent, soak.Size(1400, 5000), "attempts while frozen")
}

// A server that responds with 503 at once instead of freezing.
func TestStormRefusing(t *testing.T) {
	for seed := range soak.Size[uint64](1, 3) {
		s := newStorm(seed)
		s.gated, s.refuses = true, true
		s.run()
		back := s.recovered(s.steady())
		t.Logf("seed %d: sent meanwhile %d, peak %d, back after %v, lost %d", seed, s.sent, s.peak, back, s.lost)
		if s.sent > 250 || s.peak > 45 || back < 0 || back > 5*time.Second {
			t.Errorf("seed %d: sent %d, peak %d, back after %v", seed, s.sent, s.peak, back)
		}
	}
}

// 100 requests per second arrive whether or not the server responds. The server hangs
// for 20 s.
func TestGateAgainstAHang(t *testing.T) {
	for _, timeout := range []time.Duration{0, 2 * time.Second} {
		s := newStorm(1)
		s.clients, s.arrivals, s.gated, s.timeout = 0, 100, true, timeout
		s.run()
		served := func(after time.Duration) int {
			i := sort.Search(len(s.done), func(i int) bool { return instant.At(s.done[i]) >= s.resume.Add(after) })
			j := sort.Search(len(s.done), func(i int) bool { return instant.At(s.done[i]) >= s.resume.Add(after+time.Second) })
			return j - i
		}
		t.Logf("timeout %v: limit %d, found at the wake %d, served in the seconds after it: %d %d %d %d",
			timeout, s.peakLimit, s.atWake, served(0), served(time.Second), served(2*time.Second), served(3*time.Second))
		most := s.peakLimit
		if timeout > 0 {
			// What was given up is in the server's socket still, and one probe
			// per 2.5 s is.
			most += 8
		}
		assert.LessOrEqual(t, s.atWake, most, "timeout %v: the server found %d requests, the limit was %d", timeout, s.atWake, s.peakLimit)
		assert.GreaterOrEqual(t, served(2*time.Second), 100, "timeout %v requests served in the third second", timeout)
	}
}

// If the clients' machine is busy, neither its pauses nor its slow steps make the gate's
// limit grow, because they do not say that the host takes more.
func TestStormOnABusyMachine(t *testing.T) {
	type row struct {
		name              string
		stall, apart, lag time.Duration
		most              int // limit, long after the recovery
	}
	rows := []row{
		{"pauses of 0.25 s", 500 * ms, 3 * sec, 0, 48},
		{"100 ms for each step", 0, 0, 100 * ms, 30},
	}
	rows = soak.Size(rows, append(rows, []row{
		{"at rest", 0, 0, 0, 30},
		{"pauses of 0.1 s", 200 * ms, 2 * sec, 0, 38},
		{"pauses of 0.5 s", sec, 10 * sec, 0, 48},
		{"pauses of 1 s", 2 * sec, 20 * sec, 0, 40},
		{"20 ms for each step", 0, 0, 20 * ms, 30},
		{"pauses and steps", 500 * ms, 3 * sec, 20 * ms, 30},
	}...))
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range soak.Size[uint64](1, 5) {
				s := newStorm(seed)
				s.gated, s.end = true, 160*sec
				s.stall, s.apart, s.lag = tt.stall, tt.apart, tt.lag
				for at := s.resume + 50*sec; at < s.end; at += 20 * ms {
					s.At(at, func() { s.highest = max(s.highest, s.gate.State().Limit) })
				}
				s.run()
				t.Logf("seed %d: limit %d", seed, s.highest)
				assert.LessOrEqual(t, s.highest, tt.most, "seed %d: limit", seed)
			}
		})
	}
}
