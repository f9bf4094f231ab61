package fleettest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/internal/member"
)

// A broken is a Fleet with a deliberate defect.
type broken struct {
	*member.Backend
	tell  func(fleetmsg.Message) // to the fleet, without the defect
	hear  func(fleetmsg.Message) // of the member that has joined
	close func() error
}

func (f *broken) Close() error { return f.close() }

func newBroken(m *fleettest.Member, breaks func(*broken)) *broken {
	f := &broken{Backend: fleettest.Link(m), tell: m.Tell, close: m.Close}
	breaks(f)
	join := f.Join
	f.Join = func(hear func(fleetmsg.Message)) error {
		f.hear = hear
		return join(hear)
	}
	return f
}

// tells makes a Fleet tell in another way.
func tells(tell func(f *broken, m fleetmsg.Message)) func(*broken) {
	return func(f *broken) { f.Tell = func(m fleetmsg.Message) { tell(f, m) } }
}

// loses makes a Fleet lose what matches before it is told.
func loses(match func(fleetmsg.Message) bool) func(*broken) {
	return tells(func(f *broken, m fleetmsg.Message) {
		if !match(m) {
			f.tell(m)
		}
	})
}

// hears makes a Fleet pass on in another way what is heard.
func hears(pass func(m fleetmsg.Message, hear func(fleetmsg.Message))) func(*broken) {
	return func(f *broken) {
		join := f.Join
		f.Join = func(hear func(fleetmsg.Message)) error {
			return join(func(m fleetmsg.Message) { pass(m, hear) })
		}
	}
}

// says makes a Fleet change what is heard.
func says(change func(*fleetmsg.Message)) func(*broken) {
	return hears(func(m fleetmsg.Message, hear func(fleetmsg.Message)) {
		change(&m)
		hear(m)
	})
}

// states makes a Fleet change its state.
func states(change func(*fleetlink.State)) func(*broken) {
	return func(f *broken) {
		state := f.State
		f.State = func() fleetlink.State {
			s := state()
			change(&s)
			return s
		}
	}
}

// bites are the defects, each with the name of the test that finds it.
var bites = []struct {
	name, finds string
	breaks      func(*broken)
}{
	{"any number may join", "a_Fleet_has_one_member", func(f *broken) {
		join := f.Join
		f.Join = func(hear func(fleetmsg.Message)) error { _ = join(hear); return nil }
	}},
	{"nobody hears how many there are", "members_know_how_many_they_are", says(func(m *fleetmsg.Message) { m.Members = 1 })},
	{"a Fleet never says that it is connected", "members_know_how_many_they_are", states(func(s *fleetlink.State) { s.Connected = false })},
	{"a Fleet counts no commands", "members_know_how_many_they_are", states(func(s *fleetlink.State) { s.Commands = 0 })},
	{"each member has scopes of its own", "a_scope_is_the_same_for_all_members", func(f *broken) { f.Scope = func(string) uint64 { return rand.Uint64() } }},
	{"all texts are one scope", "a_scope_is_the_same_for_all_members", func(f *broken) { f.Scope = func(string) uint64 { return 1 } }},
	{"holds are lost", "a_hold_reaches_the_others_and_newcomers", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Hold })},
	{"a newcomer hears nothing", "a_hold_reaches_the_others_and_newcomers", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Meet })},
	{"a member hears its own news", "a_hold_reaches_the_others_and_newcomers", tells(func(f *broken, m fleetmsg.Message) {
		f.tell(m)
		if m.Kind == fleetmsg.Hold {
			go f.hear(m)
		}
	})},
	{"holds become longer on the way", "a_hold_reaches_the_others_and_newcomers", says(func(m *fleetmsg.Message) { m.Wait += time.Minute })},
	{"no hold becomes longer", "a_hold_becomes_longer_and_not_shorter", tells(func(f *broken, m fleetmsg.Message) {
		if m.Kind == fleetmsg.Hold {
			m.Wait = min(m.Wait, time.Minute)
		}
		f.tell(m)
	})},
	{"all scopes are one", "scopes,_statuses_and_hosts_are_apart", says(func(m *fleetmsg.Message) { m.Scope = 1 })},
	{"nobody counts the users of a quota", "a_quota_reaches_the_others_with_its_users", says(func(m *fleetmsg.Message) {
		if m.Kind == fleetmsg.Quota {
			m.Members = 1
		}
	})},
	{"all units are one", "a_quota_reaches_the_others_with_its_users", tells(func(f *broken, m fleetmsg.Message) {
		if m.Kind == fleetmsg.Quota && m.Unit == "" {
			defer f.tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: m.Host, Scope: m.Scope, Amount: 5000, Limit: 9000, Wait: time.Hour})
		}
		f.tell(m)
	})},
	{"units are lost", "a_quota_reaches_the_others_with_its_users", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Quota && m.Unit != "" })},
	{"only 64 scopes have quotas", "the_latest_scopes_of_a_host_are_kept", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Quota && m.Scope > 64 })},
	{"nobody counts the scopes that went", "the_latest_scopes_of_a_host_are_kept", states(func(s *fleetlink.State) { s.Dropped = 0 })},
	{"there is no outage", "an_outage_needs_several_members", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Failing })},
	{"a failure of one is an outage", "a_member_that_fails_alone_stops_nobody", tells(func(f *broken, m fleetmsg.Message) {
		f.tell(m)
		if m.Kind == fleetmsg.Failing {
			go f.hear(fleetmsg.Message{Kind: fleetmsg.Down, Host: m.Host, Wait: m.Wait})
		}
	})},
	{"a success ends nothing", "a_success_ends_an_outage", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Working })},
	{"there are tokens for all", "tokens_keep_the_rate", says(func(m *fleetmsg.Message) {
		if m.Kind == fleetmsg.Tokens {
			m.Amount = 20
		}
	})},
	{"a question is answered within Tell", "tokens_keep_the_rate", tells(func(f *broken, m fleetmsg.Message) {
		if m.Kind == fleetmsg.AskTokens {
			f.hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: m.Host, Amount: 1, Every: 20 * time.Millisecond})
			return
		}
		f.tell(m)
	})},
	{"all tokens count requests", "tokens_are_refused_with_a_time", says(func(m *fleetmsg.Message) {
		if m.Kind == fleetmsg.Tokens {
			m.Unit = ""
		}
	})},
	{"the burst is endless", "tokens_are_refused_with_a_time", tells(func(f *broken, m fleetmsg.Message) {
		m.Burst = 1e6
		f.tell(m)
	})},
	{"nobody repays", "tokens_used_without_the_fleet_are_repaid", tells(func(f *broken, m fleetmsg.Message) {
		m.Spent = 0
		f.tell(m)
	})},
	{"members keep their tokens", "a_member_that_leaves_gives_its_tokens_back", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Unused })},
	{"nonsense is passed on", "nonsense_does_no_harm", tells(func(f *broken, m fleetmsg.Message) {
		f.tell(m)
		if m.Kind == fleetmsg.Quota {
			go f.hear(m)
		}
	})},
	{"a request waits each time", "nobody_waits_for_a_backend_that_hangs", tells(func(f *broken, m fleetmsg.Message) {
		time.Sleep(5 * time.Millisecond)
		f.tell(m)
	})},
	{"a request waits for an answer", "no_request_fails_if_a_backend_hangs", tells(func(f *broken, m fleetmsg.Message) {
		time.Sleep(5 * time.Second)
	})},
	{"Close waits", "a_backend_that_hangs_can_be_closed", func(f *broken) { f.close = func() error { time.Sleep(5 * time.Second); return nil } }},
	{"the members wait for each other", "many_members_tell_at_once", hears(func(m fleetmsg.Message, hear func(fleetmsg.Message)) {
		if !strings.Contains(m.Host, "settled") {
			hear(m)
		}
	})},
}

// TestBroken runs the contract over a broken fleet, in a process of its own.
func TestBroken(t *testing.T) {
	name := os.Getenv("APLOMB_BITE")
	if name == "" {
		t.Skip("TestContractBites runs it")
	}
	for _, b := range bites {
		if b.name == name {
			newFleet := func(*testing.T) func() fleettest.Fleet {
				memory := fleettest.NewMemory()
				return func() fleettest.Fleet { return newBroken(memory.Member(), b.breaks) }
			}
			fleettest.Run(t, newFleet)
			fleettest.Hang(t, func(t *testing.T) (func() fleettest.Fleet, func()) { return newFleet(t), func() {} })
		}
	}
}

// Each defect is found by its test.
func TestContractBites(t *testing.T) {
	var group sync.WaitGroup
	defer group.Wait()
	turns := make(chan struct{}, 8) // most of the time the processes wait
	for _, b := range bites {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			t.Run(b.name, func(t *testing.T) {
				cmd := exec.Command(os.Args[0], "-test.run", "^TestBroken$/^"+b.finds+"$", "-test.v", "-test.timeout", "1m")
				cmd.Env = append(os.Environ(), "APLOMB_BITE="+b.name, "APLOMB_PATIENCE=1s", "GORACE=atexit_sleep_ms=0")
				out, err := cmd.CombinedOutput()
				assert.Error(t, err)
				assert.Contains(t, string(out), "--- FAIL: TestBroken/"+b.finds)
			})
		})
	}
}

func newMemory(*testing.T) func() fleettest.Fleet {
	f := fleettest.NewMemory()
	return func() fleettest.Fleet { return f.Member() }
}

func TestMemoryKeepsTheContract(t *testing.T) { fleettest.Run(t, newMemory) }

// Nothing in a Memory hangs.
func TestMemoryDoesNotHang(t *testing.T) {
	fleettest.Hang(t, func(t *testing.T) (func() fleettest.Fleet, func()) { return newMemory(t), func() {} })
}

// A Memory that is full keeps the latest hosts.
func TestMemoryForgetsTheOldestHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleettest.NewMemory()
		a, b := f.Member(), f.Member()
		require.NoError(t, a.Join(func(fleetmsg.Message) {}))
		heard := 0
		require.NoError(t, b.Join(func(m fleetmsg.Message) {
			if m.Kind == fleetmsg.Hold {
				heard++
			}
		}))
		name := func(i int) string { return fmt.Sprintf("http://h%d.test", i) }
		for i := range 4096 + 100 {
			time.Sleep(time.Millisecond)
			a.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: name(i), Status: 429, Wait: time.Hour})
		}
		synctest.Wait()
		for _, i := range []int{100, 4095, 4195, 0} { // a host that nobody knows takes a place, so it comes last
			heard = 0
			b.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: name(i)})
			assert.Equal(t, min(i, 1), heard, "host %d", i)
		}
	})
}

// A member that is closed counts no longer, and hears nothing.
func TestMemoryClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleettest.NewMemory()
		sizes, heard := 0, 0
		a, b := f.Member(), f.Member()
		require.NoError(t, a.Join(func(m fleetmsg.Message) { sizes = m.Members }))
		require.NoError(t, b.Join(func(m fleetmsg.Message) { heard++ }))
		synctest.Wait()
		assert.Equal(t, 2, sizes, "sizes told")
		require.NoError(t, b.Close())
		before := heard
		b.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 429, Wait: time.Minute})
		a.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 429, Wait: time.Minute})
		synctest.Wait()
		assert.Equal(t, 1, sizes, "sizes told")
		assert.Equal(t, before, heard)
	})
}
