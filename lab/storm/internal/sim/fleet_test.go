package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
)

// arm returns a strategy of many processes.
func arm(t *testing.T, key string) model.Strategy {
	t.Helper()
	for _, st := range model.Fleets(model.DefaultScenario().Timeout) {
		if st.Key == key {
			return st
		}
	}
	t.Fatalf("no arm %q", key)
	return model.Strategy{}
}

// A thousand processes that hear from each other after 100 ms bring the server back within
// 5 s, and do not overload it. If they share nothing, it never comes back.
// If they all return at once, it has to take a heap of requests.
func TestFleet(t *testing.T) {
	sc := model.DefaultScenario()
	for _, sc.Processes = range soak.Size([]int{1000}, []int{50, 100, 1000}) {
		alone := storm(t, sc, arm(t, "alone"), few)
		probe, fleet := storm(t, sc, arm(t, "probe"), few), storm(t, sc, arm(t, "fleet"), few)
		switch {
		case alone.back != never:
			t.Errorf("%d processes: back after %v", sc.Processes, said(alone.back))
		case fleet.back > 5*time.Second || fleet.peak > 10*sc.Server.Limit || fleet.attempts > alone.attempts/5:
			t.Errorf("%d processes in a fleet: back after %v, peak %d, %d attempts while frozen", sc.Processes, said(fleet.back), fleet.peak, fleet.attempts)
		case sc.Processes == 1000 && probe.peak < 2*fleet.peak:
			t.Errorf("%d processes: peak %d without a spread return, and %d with it", sc.Processes, probe.peak, fleet.peak)
		}
	}
}

// In peace the processes of a fleet tell each other nothing.
func TestFleetInPeace(t *testing.T) {
	sc := model.DefaultScenario()
	sc.Processes = 100
	r, err := Run(t.Context(), sc, arm(t, "fleet"), 1)
	require.NoError(t, err)
	if f := r.Figures(); f.OpsPeace != 0 || f.OpsStorm == 0 {
		t.Errorf("%v operations per request in peace, %v in the storm", f.OpsPeace, f.OpsStorm)
	}
}

// The fleet may be slow. A process waits for it for 250 ms at most.
func TestFleetDelay(t *testing.T) {
	for _, delay := range soak.Size([]time.Duration{2 * time.Millisecond}, []time.Duration{0, 2 * time.Millisecond, 200 * time.Millisecond}) {
		sc := model.DefaultScenario()
		sc.Processes, sc.FleetDelay = 1000, delay
		if m := storm(t, sc, arm(t, "fleet"), few); m.back > 5*time.Second || m.peak > 10*sc.Server.Limit {
			t.Errorf("delay %v: back after %v, peak %d", delay, said(m.back), m.peak)
		}
	}
}
