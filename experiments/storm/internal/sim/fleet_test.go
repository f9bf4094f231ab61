package sim

import (
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/experiments/storm/internal/model"
)

func TestTry(t *testing.T) {
	for _, p := range []int{10, 30, 50, 100, 1000} {
		sc := model.DefaultScenario()
		sc.Processes = p
		for _, st := range model.Fleets(sc.Timeout)[2:4] {
			st.Name = st.Key
			t.Log(p)
			storm(t, sc, st, 5)
		}
	}
	_ = time.Second
}

func TestTrace(t *testing.T) {
	sc := model.DefaultScenario()
	sc.Processes = 1000
	r, _ := Run(t.Context(), sc, model.Fleets(sc.Timeout)[3], 1)
	for at := 90; at < 320; at += 10 {
		n, ops, busy, good := 0, 0, 0, 0
		for _, s := range r.Samples[at : at+10] {
			n += s.Sends
			ops += s.Ops
			busy = max(busy, s.Busy)
			good += s.Good
		}
		t.Log(at/10, "sends", n, "ops", ops, "busy", busy, "good", good)
	}
}

func TestTrace2(t *testing.T) {
	sc := model.DefaultScenario()
	sc.Processes = 1000
	w := newWorld(sc, model.Fleets(sc.Timeout)[3], 1)
	for w.ms = 0; w.ms < 30000; w.ms++ {
		w.now = time.Duration(w.ms) * time.Millisecond
		if w.ms == 10000 {
			w.server.frozen = true
		}
		w.step()
		if w.ms%1000 == 0 {
			closed, granted := 0, 0
			for p := range w.hosts {
				if w.hosts[p].gate.State().Closed {
					closed++
				}
			}
			states := map[state]int{}
			for _, c := range w.clients {
				states[c.state]++
			}
			t.Log(w.ms, "closed", closed, granted, states, w.fleet.ledger.IsDown(w.now))
		}
	}
}
