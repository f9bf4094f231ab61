// Outages of a host, and the probes that find out whether it is back.

package fleettest

import (
	"fmt"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
)

func testOutage(t *testing.T, newMember func() Fleet) {
	all := crew(t, 4, newMember)
	for _, w := range all[:3] {
		w.tell(failing)
	}
	for i, w := range all {
		n := w.await(fmt.Sprintf("member %d hears of the outage", i), is(fleetmsg.Down))
		if n.Wait < 5*time.Second || n.Wait > 5*time.Minute {
			t.Errorf("down for %v, failing for 5s", n.Wait)
		}
	}
	late := join(t, newMember())
	late.await("a newcomer hears of the outage", is(fleetmsg.Down))
}

func testLoneFailure(t *testing.T, newMember func() Fleet) {
	all := crew(t, 3, newMember)
	for range 4 {
		all[0].tell(failing)
		time.Sleep(50 * time.Millisecond)
	}
	settled(all...)
	for i, w := range all {
		if found := w.find(is(fleetmsg.Down)); len(found) > 0 {
			t.Errorf("member %d hears of an outage: %v", i, found)
		}
	}
}

func testObjection(t *testing.T, newMember func() Fleet) {
	all := crew(t, 4, newMember)
	all[3].mu.Lock()
	all[3].react = func(m fleetmsg.Message) { // as a Transport does whose requests succeed
		if m.Kind == fleetmsg.Down {
			all[3].link.Tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: m.Host})
		}
	}
	all[3].mu.Unlock()
	settled(all...) // else the answer to a Meet may be late, and say that the host is down
	for _, w := range all[:3] {
		w.tell(failing)
	}
	for i, w := range all[:3] {
		if n := w.await(fmt.Sprintf("member %d hears that the host works", i), is(fleetmsg.Up)); n.Wait < 0 || n.Wait > time.Minute {
			t.Errorf("the members return within %v", n.Wait)
		}
	}
	for _, w := range all[:3] {
		w.tell(failing)
	}
	settled(all...)
	if found := all[3].find(is(fleetmsg.Down)); len(found) != 1 {
		t.Errorf("the member whose requests succeed hears %d times of an outage", len(found))
	}
	if found := all[3].find(is(fleetmsg.Up)); len(found) > 0 {
		t.Errorf("a member hears its own news: %v", found)
	}
	late := join(t, newMember())
	settled(append(all, late)...)
	if found := late.find(is(fleetmsg.Down)); len(found) > 0 {
		t.Errorf("a newcomer hears of an outage that is over: %v", found)
	}
}

func testProbe(t *testing.T, newMember func() Fleet) {
	all := crew(t, 4, newMember)
	for _, w := range all[:3] {
		w.tell(failing)
	}
	ask := fleetmsg.Message{Kind: fleetmsg.AskProbe}
	asked := time.Now() // the permit is lent for a second, or more
	if !all[0].ask(ask, fleetmsg.Probe).Granted {
		t.Fatal("the first member may not probe")
	}
	for i, w := range all[1:] {
		n := w.ask(ask, fleetmsg.Probe)
		if n.Granted && n.at.Sub(asked) < 500*time.Millisecond {
			t.Fatalf("member %d may probe as well", i+1)
		}
		if !n.Granted && n.Wait <= 0 {
			t.Errorf("member %d has to wait for %v", i+1, n.Wait)
		}
	}
	all[0].tell(fleetmsg.Message{Kind: fleetmsg.ProbeFailed})
	untilGranted(t, all[1])
	all[1].tell(fleetmsg.Message{Kind: fleetmsg.Working})
	for i, w := range all {
		if i != 1 {
			w.await(fmt.Sprintf("member %d hears that the host works", i), is(fleetmsg.Up))
		}
	}
}

// untilGranted asks for a permit until the member gets it, and returns when it did.
func untilGranted(t *testing.T, w *witness) time.Time {
	t.Helper()
	for start := time.Now(); time.Since(start) < patience(); {
		n := w.ask(fleetmsg.Message{Kind: fleetmsg.AskProbe}, fleetmsg.Probe)
		if n.Granted {
			return n.at
		}
		time.Sleep(min(max(n.Wait, time.Millisecond), time.Second))
	}
	t.Fatal("nobody may probe any more")
	return time.Time{}
}

func testDeadProber(t *testing.T, newMember func() Fleet) {
	all := crew(t, 3, newMember)
	for _, w := range all {
		w.tell(failing)
	}
	begun := time.Now()
	if !all[0].ask(fleetmsg.Message{Kind: fleetmsg.AskProbe}, fleetmsg.Probe).Granted {
		t.Fatal("the first member may not probe")
	}
	if at := untilGranted(t, all[1]); at.Sub(begun) < 500*time.Millisecond {
		t.Errorf("two members may probe within %v", at.Sub(begun))
	}
}
