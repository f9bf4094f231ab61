package fleettest

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/transport"
)

// host is the host of the tests.
const host = "http://api.test"

// A Fleet is a transport.Fleet with the method Close of a backend.
type Fleet interface {
	transport.Fleet
	Close() error // takes the member out of the fleet
}

// Run runs the tests that a backend should pass. newFleet returns a function that makes a
// further member of a fleet that is new and empty. It may register a Cleanup that closes the
// members. Four tests run at a time, each with a fleet of its own, so newFleet is called from
// several goroutines. The tests take some seconds. They wait long for expected messages, and
// they do not measure how long it takes, so they also pass on a slow machine.
func Run(t *testing.T, newFleet func(t *testing.T) (newMember func() Fleet)) {
	var group sync.WaitGroup
	defer group.Wait()
	turns := make(chan struct{}, 4) // most of the time the tests wait
	for _, test := range []struct {
		name string
		run  func(t *testing.T, newMember func() Fleet)
	}{
		{"a Fleet has one member", testJoin},
		{"members know how many they are", testMembers},
		{"a scope is the same for all members", testScope},
		{"a hold reaches the others and newcomers", testHold},
		{"a hold becomes longer and not shorter", testHoldLasts},
		{"scopes, statuses and hosts are apart", testApart},
		{"a quota reaches the others with its users", testQuota},
		{"the latest scopes of a host are kept", testScopes},
		{"an outage needs several members", testOutage},
		{"a member that fails alone stops nobody", testLoneFailure},
		{"a success ends an outage", testObjection},
		{"tokens keep the rate", testTokens},
		{"tokens are refused with a time", testNoTokens},
		{"tokens used without the fleet are repaid", testRepay},
		{"a member that leaves gives its tokens back", testLeave},
		{"nonsense does no harm", testNonsense},
		{"many members tell at once", testConcurrent},
	} {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			t.Run(test.name, func(t *testing.T) { test.run(t, newFleet(t)) })
		})
	}
}

func testJoin(t *testing.T, newMember func() Fleet) {
	f := newMember()
	join(t, f)
	if member.BackendOf(f).Join(func(fleetmsg.Message) {}) == nil {
		t.Error("a second Join returns no error")
	}
}

func testMembers(t *testing.T, newMember func() Fleet) {
	all := crew(t, 3, newMember)
	for _, w := range all {
		for _, n := range w.find(func(m fleetmsg.Message) bool { return m.Kind == fleetmsg.Members }) {
			if n.Members < 1 || n.Members > 3 {
				t.Errorf("heard of %d members", n.Members)
			}
		}
	}
	for i := range all {
		checkState(t, all, i)
	}
}

// checkState checks the State of member i.
func checkState(t *testing.T, all []*witness, i int) {
	t.Helper()
	state := func() fleetlink.State {
		s := all[i].link.State()
		for start := time.Now(); !s.Connected || s.Members != len(all) || s.LastHeartbeat.IsZero(); s = all[i].link.State() {
			if time.Since(start) > patience() {
				t.Fatalf("member %d of %d says %+v", i, len(all), s)
			}
			time.Sleep(time.Millisecond)
		}
		return s
	}
	before := state()
	all[i].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Scope: uint64(i), Status: 429, Wait: time.Minute})
	all[(i+1)%len(all)].await("the hold", func(m fleetmsg.Message) bool { return is(fleetmsg.Hold)(m) && m.Scope == uint64(i) })
	if after := state(); after.Commands <= before.Commands || after.Dropped < before.Dropped {
		t.Errorf("member %d says %+v, and %+v after news", i, before, after)
	}
}

func testScope(t *testing.T, newMember func() Fleet) {
	a, b := member.BackendOf(newMember()), member.BackendOf(newMember())
	seen := map[uint64]string{}
	for i := range 100 {
		text := fmt.Sprint("Bearer ", i)
		if a.Scope(text) != b.Scope(text) {
			t.Errorf("members have different numbers for %q", text)
		}
		if other, known := seen[a.Scope(text)]; known {
			t.Errorf("%q and %q have the same number", text, other)
		}
		seen[a.Scope(text)] = text
	}
}

func testHold(t *testing.T, newMember func() Fleet) {
	all := crew(t, 3, newMember)
	told := fleetmsg.Message{Kind: fleetmsg.Hold, Scope: all[0].link.Scope("Bearer abc"), Status: 429, Wait: time.Minute}
	before := time.Now()
	all[0].tell(told)
	for _, w := range all[1:] {
		n := w.await("the others hear of a hold", is(fleetmsg.Hold))
		if n.Wait <= 0 || n.Wait > time.Minute || n.Scope != told.Scope || n.Status != 429 {
			t.Errorf("heard %v, told %v", n, told)
		}
	}
	time.Sleep(50 * time.Millisecond)
	asked := time.Now()
	late := join(t, newMember())
	n := late.await("a newcomer hears of a hold", is(fleetmsg.Hold))
	if left := time.Minute - asked.Sub(before); n.Wait <= 0 || n.Wait > left+10*time.Millisecond && n.Wait > time.Minute-40*time.Millisecond {
		t.Errorf("a newcomer hears of %v, %v are left", n.Wait, left)
	}
	settled(append(all, late)...)
	if own := all[0].find(is(fleetmsg.Hold)); len(own) > 0 {
		t.Errorf("a member hears its own news: %v", own)
	}
}

func testHoldLasts(t *testing.T, newMember func() Fleet) {
	all := crew(t, 2, newMember)
	for i, wait := range []time.Duration{time.Minute, time.Second, time.Hour} {
		all[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Status: 503, Wait: wait})
		all[1].await("the hold", func(m fleetmsg.Message) bool {
			return is(fleetmsg.Hold)(m) && m.Wait > []time.Duration{0, 0, time.Minute}[i]
		})
		time.Sleep(120 * time.Millisecond) // a Fleet may send news of a hold ten times per second
	}
	for range 3 {
		all[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Status: 503, Wait: time.Second})
		time.Sleep(120 * time.Millisecond)
	}
	settled(all...)
	late := join(t, newMember())
	if n := late.await("a newcomer hears of the hold", is(fleetmsg.Hold)); n.Wait <= 30*time.Minute || n.Wait > time.Hour {
		t.Errorf("the hold of an hour has become one of %v", n.Wait)
	}
}

func testApart(t *testing.T, newMember func() Fleet) {
	all := crew(t, 2, newMember)
	other := "http://other.test"
	all[1].tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: other})
	told := []fleetmsg.Message{
		{Kind: fleetmsg.Hold, Host: host, Scope: 1, Status: 429, Wait: time.Minute},
		{Kind: fleetmsg.Hold, Host: host, Scope: 2, Status: 429, Wait: time.Hour},
		{Kind: fleetmsg.Hold, Host: host, Scope: 2, Status: 503, Wait: time.Minute},
		{Kind: fleetmsg.Hold, Host: other, Scope: 2, Status: 429, Wait: time.Minute},
	}
	for _, m := range told {
		all[0].tell(m)
	}
	for _, m := range told {
		n := all[1].await(m.String(), func(h fleetmsg.Message) bool {
			return h.Kind == m.Kind && h.Host == m.Host && h.Scope == m.Scope && h.Status == m.Status
		})
		if n.Wait > m.Wait || n.Wait < m.Wait/2 {
			t.Errorf("heard %v, told %v", n, m)
		}
	}
	if n := len(all[1].find(func(m fleetmsg.Message) bool { return m.Scope == 3 })); n > 0 {
		t.Errorf("heard %d times of a hold that nobody told", n)
	}
}

func testQuota(t *testing.T, newMember func() Fleet) {
	all := crew(t, 3, newMember)
	told := fleetmsg.Message{Kind: fleetmsg.Quota, Scope: 7, Amount: 40, Limit: 100, Wait: time.Minute}
	for i, w := range all {
		told.Amount--
		w.tell(fleetmsg.Message{Kind: fleetmsg.Quota, Scope: 7, Unit: "input tokens", Amount: 5000, Limit: 9000, Wait: time.Hour})
		w.tell(told)
		all[(i+1)%3].await("the quota", func(m fleetmsg.Message) bool {
			return is(fleetmsg.Quota)(m) && m.Unit == "" && m.Amount == told.Amount && m.Limit == 100 && m.Scope == 7 && m.Wait > 0 && m.Wait <= time.Minute
		})
		time.Sleep(120 * time.Millisecond) // a Fleet may send news of a quota ten times per second
	}
	for _, i := range []int{0, 2} { // also the member that told of it last
		all[i].await("a member hears that three use the quota", func(m fleetmsg.Message) bool {
			return is(fleetmsg.Quota)(m) && m.Unit == "" && m.Members == 3
		})
	}
	// More reports of the same members do not count them twice.
	told.Amount = 20
	all[0].tell(told)
	all[1].await("the quota of a member that was counted before", func(m fleetmsg.Message) bool {
		return is(fleetmsg.Quota)(m) && m.Amount == 20 && m.Members == 3
	})
	late := join(t, newMember())
	late.await("a newcomer hears of the quota", func(m fleetmsg.Message) bool {
		return is(fleetmsg.Quota)(m) && m.Unit == "" && m.Amount == 20 && m.Members == 3
	})
	late.await("a newcomer hears of the quota in another unit", func(m fleetmsg.Message) bool {
		return is(fleetmsg.Quota)(m) && m.Unit == "input tokens" && m.Scope == 7 && m.Amount == 5000 && m.Limit == 9000
	})
}

// maxScopes is how many scopes of a host a Fleet keeps, with holds and with quotas each.
const maxScopes = 256

func testScopes(t *testing.T, newMember func() Fleet) {
	const more = 44
	all := crew(t, 2, newMember)
	for i := range uint64(maxScopes + more) {
		all[0].tell(fleetmsg.Message{Kind: fleetmsg.Quota, Scope: 1 + i, Amount: 5, Limit: 100, Wait: time.Hour})
		all[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Scope: 1 + i, Status: 429, Wait: time.Hour})
		if i%20 == 19 { // a Fleet may drop news that comes faster than it can send
			all[1].await("the hold of a scope", func(m fleetmsg.Message) bool { return is(fleetmsg.Hold)(m) && m.Scope == 1+i })
		}
	}
	late := join(t, newMember())
	for start := time.Now(); ; {
		late.mu.Lock()
		late.heard = nil
		late.mu.Unlock()
		// News that was told late may have taken the place of the last scope.
		all[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Scope: maxScopes + more, Status: 429, Wait: time.Hour})
		all[0].tell(fleetmsg.Message{Kind: fleetmsg.Quota, Scope: maxScopes + more, Amount: 5, Limit: 100, Wait: time.Hour})
		late.tell(fleetmsg.Message{Kind: fleetmsg.Meet})
		time.Sleep(150 * time.Millisecond) // a Fleet may answer ten times per second
		holds, quotas := scopesOf(late.find(is(fleetmsg.Hold))), scopesOf(late.find(is(fleetmsg.Quota)))
		if len(holds) == maxScopes && len(quotas) == maxScopes && holds[maxScopes+more] && quotas[maxScopes+more] {
			break
		}
		if time.Since(start) > patience() {
			t.Fatalf("of %d scopes a newcomer hears of %d holds and %d quotas, of the last: %v, %v",
				maxScopes+more, len(holds), len(quotas), holds[maxScopes+more], quotas[maxScopes+more])
		}
	}
	for start := time.Now(); all[0].link.State().Dropped < 2*more; time.Sleep(time.Millisecond) {
		if time.Since(start) > patience() {
			t.Fatalf("%d scopes made room for others, and %d are counted as dropped", 2*more, all[0].link.State().Dropped)
		}
	}
}

// scopesOf returns the scopes that were heard of.
func scopesOf(heard []note) map[uint64]bool {
	scopes := map[uint64]bool{}
	for _, n := range heard {
		scopes[n.Scope] = true
	}
	return scopes
}

// failing is a report that three members make.
var failing = fleetmsg.Message{Kind: fleetmsg.Failing, Failures: 10, Wait: 5 * time.Second}

func testLeave(t *testing.T, newMember func() Fleet) {
	all := crew(t, 2, newMember)
	ask := slowly
	ask.Amount = 20
	n := all[0].ask(ask, fleetmsg.Tokens)
	unused := ask
	unused.Kind, unused.Host, unused.Amount = fleetmsg.Unused, host, n.Amount
	all[0].mu.Lock()
	all[0].react = func(m fleetmsg.Message) {
		if m.Kind == fleetmsg.Leave {
			all[0].link.Tell(unused)
		}
	}
	all[0].mu.Unlock()
	if err := all[0].fleet.Close(); err != nil {
		t.Error(err)
	}
	given := 0.0
	for range 4 {
		given += atOnce(all[1].ask(slowly, fleetmsg.Tokens))
	}
	if given < n.Amount-1 {
		t.Errorf("a member gives %v tokens back, and another gets %v", n.Amount, given)
	}
}

func testNonsense(t *testing.T, newMember func() Fleet) {
	all := crew(t, 2, newMember)
	for kind := range fleetmsg.Kind(255) {
		for _, name := range []string{"", host, "http://", "a b", "\x00", strings.Repeat("x", 10_000)} {
			for _, d := range []time.Duration{math.MinInt64, -1, 0, math.MaxInt64} {
				for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 1e300} {
					if kind == fleetmsg.Hold && d > 0 || kind == fleetmsg.Failing {
						continue // they make sense
					}
					all[0].link.Tell(fleetmsg.Message{
						Kind: kind, Host: name, Scope: 1, Status: -1, Unit: name, Wait: d, First: d, Every: d,
						Members: -1, Failures: -1, Amount: x, Limit: x, PerSecond: x, Burst: x, Spent: x,
					})
				}
			}
		}
	}
	settled(all...)
	for _, w := range all {
		for _, n := range w.find(func(m fleetmsg.Message) bool { return true }) {
			if bad := math.IsNaN(n.Amount + n.Limit); bad || n.Kind == fleetmsg.Quota && (n.Wait <= 0 || n.Amount < 0) {
				t.Errorf("heard %v", n.Message)
			}
		}
	}
}

func testConcurrent(t *testing.T, newMember func() Fleet) {
	all := crew(t, 4, newMember)
	var group sync.WaitGroup
	for i, w := range all {
		for j := range 4 {
			group.Go(func() {
				for n := range 25 {
					m := fleetmsg.Message{Host: fmt.Sprintf("http://h%d.test", n%5), Scope: uint64(i), Wait: time.Minute}
					switch (n + j) % 5 {
					case 0:
						m.Kind, m.Status = fleetmsg.Hold, 429
					case 1:
						m.Kind, m.Amount = fleetmsg.Quota, float64(n)
					case 2:
						m.Kind, m.Failures = fleetmsg.Failing, n+1
					case 3:
						m.Kind, m.PerSecond, m.Burst, m.Amount = fleetmsg.AskTokens, 10, 1, 1
					case 4:
						m.Kind = fleetmsg.Working
					}
					w.tell(m)
				}
			})
		}
	}
	group.Wait()
	settled(all...)
}
