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
)

// A broken is a Fleet with a deliberate defect. A nil func breaks nothing.
type broken struct {
	member *fleettest.Member
	join   func(f *broken, hear func(fleetmsg.Message)) error
	tell   func(f *broken, m fleetmsg.Message)
	heard  func(f *broken, m fleetmsg.Message) (fleetmsg.Message, bool) // false: it is lost
	scope  func(text string) uint64
	state  func(fleetlink.State) fleetlink.State
	close  func()
	hear   func(fleetmsg.Message)
}

func (f *broken) Link() fleetlink.Fleet { return fleettest.Link(f).Link() }

func (f *broken) Join(hear func(fleetmsg.Message)) error {
	f.hear = hear
	err := f.member.Join(func(m fleetmsg.Message) {
		if f.heard != nil {
			var ok bool
			if m, ok = f.heard(f, m); !ok {
				return
			}
		}
		hear(m)
	})
	if f.join != nil {
		return f.join(f, hear)
	}
	return err
}

func (f *broken) Tell(m fleetmsg.Message) {
	if f.tell == nil {
		f.member.Tell(m)
		return
	}
	f.tell(f, m)
}

func (f *broken) Scope(text string) uint64 {
	if f.scope == nil {
		return f.member.Scope(text)
	}
	return f.scope(text)
}

func (f *broken) State() fleetlink.State {
	s := f.member.State()
	if f.state != nil {
		return f.state(s)
	}
	return s
}

func (f *broken) Close() error {
	if f.close != nil {
		f.close()
	}
	return f.member.Close()
}

// loses returns a Fleet that does not hear of what matches.
func loses(match func(fleetmsg.Message) bool) broken {
	return broken{tell: func(f *broken, m fleetmsg.Message) {
		if !match(m) {
			f.member.Tell(m)
		}
	}}
}

// says returns a Fleet that changes what is heard.
func says(change func(*fleetmsg.Message)) broken {
	return broken{heard: func(_ *broken, m fleetmsg.Message) (fleetmsg.Message, bool) {
		change(&m)
		return m, true
	}}
}

// bites are the defects, each with the name of the test that finds it.
var bites = []struct {
	name, finds string
	fleet       broken
}{
	{"any number may join", "a_Fleet_has_one_member", broken{join: func(*broken, func(fleetmsg.Message)) error { return nil }}},
	{"nobody hears how many there are", "members_know_how_many_they_are", says(func(m *fleetmsg.Message) { m.Members = 1 })},
	{"a Fleet never says that it is connected", "members_know_how_many_they_are", broken{state: func(s fleetlink.State) fleetlink.State { s.Connected = false; return s }}},
	{"a Fleet counts no commands", "members_know_how_many_they_are", broken{state: func(s fleetlink.State) fleetlink.State { s.Commands = 0; return s }}},
	{"each member has scopes of its own", "a_scope_is_the_same_for_all_members", broken{scope: func(string) uint64 { return rand.Uint64() }}},
	{"all texts are one scope", "a_scope_is_the_same_for_all_members", broken{scope: func(string) uint64 { return 1 }}},
	{"holds are lost", "a_hold_reaches_the_others_and_newcomers", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Hold })},
	{"a newcomer hears nothing", "a_hold_reaches_the_others_and_newcomers", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Meet })},
	{"a member hears its own news", "a_hold_reaches_the_others_and_newcomers", broken{tell: func(f *broken, m fleetmsg.Message) {
		f.member.Tell(m)
		if m.Kind == fleetmsg.Hold {
			go f.hear(m)
		}
	}}},
	{"holds become longer on the way", "a_hold_reaches_the_others_and_newcomers", says(func(m *fleetmsg.Message) { m.Wait += time.Minute })},
	{"no hold becomes longer", "a_hold_becomes_longer_and_not_shorter", broken{tell: func(f *broken, m fleetmsg.Message) {
		if m.Kind == fleetmsg.Hold {
			m.Wait = min(m.Wait, time.Minute)
		}
		f.member.Tell(m)
	}}},
	{"all scopes are one", "scopes,_statuses_and_hosts_are_apart", says(func(m *fleetmsg.Message) { m.Scope = 1 })},
	{"nobody counts the users of a quota", "a_quota_reaches_the_others_with_its_users", says(func(m *fleetmsg.Message) {
		if m.Kind == fleetmsg.Quota {
			m.Members = 1
		}
	})},
	{"all units are one", "a_quota_reaches_the_others_with_its_users", broken{tell: func(f *broken, m fleetmsg.Message) {
		if m.Kind == fleetmsg.Quota && m.Unit == "" {
			defer f.member.Tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: m.Host, Scope: m.Scope, Amount: 5000, Limit: 9000, Wait: time.Hour})
		}
		f.member.Tell(m)
	}}},
	{"units are lost", "a_quota_reaches_the_others_with_its_users", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Quota && m.Unit != "" })},
	{"only 64 scopes have quotas", "the_latest_scopes_of_a_host_are_kept", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Quota && m.Scope > 64 })},
	{"nobody counts the scopes that went", "the_latest_scopes_of_a_host_are_kept", broken{state: func(s fleetlink.State) fleetlink.State { s.Dropped = 0; return s }}},
	{"there is no outage", "an_outage_needs_several_members", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Failing })},
	{"a failure of one is an outage", "a_member_that_fails_alone_stops_nobody", broken{tell: func(f *broken, m fleetmsg.Message) {
		f.member.Tell(m)
		if m.Kind == fleetmsg.Failing {
			go f.hear(fleetmsg.Message{Kind: fleetmsg.Down, Host: m.Host, Wait: m.Wait})
		}
	}}},
	{"a success ends nothing", "a_success_ends_an_outage", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Working })},
	{"there are tokens for all", "tokens_keep_the_rate", says(func(m *fleetmsg.Message) {
		if m.Kind == fleetmsg.Tokens {
			m.Amount = 20
		}
	})},
	{"a question is answered within Tell", "tokens_keep_the_rate", broken{tell: func(f *broken, m fleetmsg.Message) {
		if m.Kind == fleetmsg.AskTokens {
			f.hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: m.Host, Amount: 1, Every: 20 * time.Millisecond})
			return
		}
		f.member.Tell(m)
	}}},
	{"all tokens count requests", "tokens_are_refused_with_a_time", says(func(m *fleetmsg.Message) {
		if m.Kind == fleetmsg.Tokens {
			m.Unit = ""
		}
	})},
	{"the burst is endless", "tokens_are_refused_with_a_time", broken{tell: func(f *broken, m fleetmsg.Message) {
		m.Burst = 1e6
		f.member.Tell(m)
	}}},
	{"nobody repays", "tokens_used_without_the_fleet_are_repaid", broken{tell: func(f *broken, m fleetmsg.Message) {
		m.Spent = 0
		f.member.Tell(m)
	}}},
	{"members keep their tokens", "a_member_that_leaves_gives_its_tokens_back", loses(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Unused })},
	{"nonsense is passed on", "nonsense_does_no_harm", broken{tell: func(f *broken, m fleetmsg.Message) {
		f.member.Tell(m)
		if m.Kind == fleetmsg.Quota {
			go f.hear(m)
		}
	}}},
	{"a request waits each time", "nobody_waits_for_a_backend_that_hangs", broken{tell: func(f *broken, m fleetmsg.Message) {
		time.Sleep(5 * time.Millisecond)
		f.member.Tell(m)
	}}},
	{"a request waits for an answer", "no_request_fails_if_a_backend_hangs", broken{tell: func(f *broken, m fleetmsg.Message) {
		time.Sleep(5 * time.Second)
	}}},
	{"Close waits", "a_backend_that_hangs_can_be_closed", broken{close: func() { time.Sleep(5 * time.Second) }}},
	{"the members wait for each other", "many_members_tell_at_once", broken{heard: func(f *broken, m fleetmsg.Message) (fleetmsg.Message, bool) {
		return m, !strings.Contains(m.Host, "settled")
	}}},
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
				return func() fleettest.Fleet {
					f := b.fleet
					f.member = memory.Member()
					return &f
				}
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
