// Outages of a host.

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
