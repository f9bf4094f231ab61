package fleet

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
)

// One host with many credentials takes no place of other hosts, and none of the gate's news.
func TestManyCredentials(t *testing.T) {
	const credentials, hosts = 4500, 20
	lines := &logLines{}
	c := options(t, sharedServer(t).Addr)
	c.Logger = lines.logger()
	fleets, members := started(t, 4, c)
	m := members[3]
	breaks := func() (n uint64) {
		for _, f := range fleets {
			n += f.store.link.breaks()
		}
		return n
	}
	// until tells news and waits for what follows from it. On a busy machine Redis may be lost
	// for a moment. Then news is dropped, and all of it is told again.
	var all []func()
	broken := breaks()
	until := func(what string, tell func(), ok func() bool) {
		t.Helper()
		all = append(all, tell)
		tell()
		eventually(t, func() bool {
			if n := breaks(); n != broken && fleets[0].FleetState().Connected && fleets[3].FleetState().Connected {
				broken = n
				for _, tell := range all {
					tell()
				}
			}
			return ok()
		}, "%s", what)
	}
	wait := time.Hour
	until("nothing was dropped", func() {
		for i := range uint64(credentials) {
			fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Scope: 1 + i, Amount: 1, Limit: 10, Wait: wait})
			fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: 1 + i, Status: 429, Wait: wait})
		}
		for i := range hosts {
			fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: name(i), Status: 429, Wait: wait})
			fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: name(i), Amount: 1, Limit: 10, Wait: wait})
		}
		wait *= 2 // a hold that all know is not told again
	}, func() bool { return fleets[0].FleetState().Dropped > 0 })
	until("Failing was dropped", func() {
		for _, f := range fleets[:3] {
			f.Tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: 10, Wait: 5 * time.Second})
		}
	}, func() bool { return get(m, func() int { return len(m.downs) }) > 0 })
	until("no probe", func() { fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.AskProbe, Host: host}) },
		func() bool { return get(members[0], func() bool { return len(members[0].probes) > 0 }) })
	until("Working was dropped", func() {
		fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.ProbeFailed, Host: host})
		fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: host})
	}, func() bool { return get(m, func() int { return len(m.ups) }) > 0 })
	of := func(prefix string) (holds, quotas int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		heard := map[topic]bool{} // each may be heard twice
		for _, h := range m.holds {
			heard[topic{kind: fleetmsg.Hold, host: h.Host, scope: h.Scope}] = true
		}
		for _, q := range m.quotas {
			heard[topic{kind: fleetmsg.Quota, host: q.Host, scope: q.Scope}] = true
		}
		for of := range heard {
			switch {
			case !strings.HasPrefix(of.host, prefix):
			case of.kind == fleetmsg.Hold:
				holds++
			default:
				quotas++
			}
		}
		return holds, quotas
	}
	until("holds are missing", func() {}, func() bool {
		fleets[0].news.mu.Lock()
		_, busy := fleets[0].news.out.next()
		fleets[0].news.mu.Unlock()
		if busy {
			return false
		}
		every, _ := of("https://")
		same, quotas := of(host)
		return every-same == hosts && same >= maxScope && quotas >= maxScope
	})
	same, quotas := of(host)
	t.Logf("of %d credentials %d holds and %d quotas arrived, %d dropped", credentials, same, quotas, fleets[0].FleetState().Dropped)
	require.NotZero(t, lines.count("too many"), "%v", lines)
	require.LessOrEqual(t, lines.count("too many"), 2, "%v", lines) // one per minute
	require.Positive(t, fleets[0].FleetState().Dropped)
}

// A question for which there is no room shows in the log, once per minute.
func TestTooManyQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &logLines{}
		f := &Fleet{store: store{journal: journal{logger: lines.logger()}}} // nobody receives
		for range 3 {
			f.Tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: "http://h", Amount: 1, PerSecond: 1, Burst: 1})
		}
		time.Sleep(time.Minute)
		f.Tell(fleetmsg.Message{Kind: fleetmsg.AskProbe, Host: "http://h"})
		synctest.Wait()
		require.Regexp(t, `(?s)too many.* dropped=1 last="ask for tokens" .*too many.* dropped=3 last="ask for a probe"`, lines.String())
		require.EqualValues(t, 4, f.store.dropped.Load(), "messages dropped")
	})
}

// The trays of an outbox are bounded, and so is the part of a host. If there is no room, the
// oldest item that only remembers makes some.
func TestOutboxMakesRoomByAge(t *testing.T) {
	o := newOutbox()
	now := time.Unix(0, 0)
	tell := func(k fleetmsg.Kind, host string, scope uint64) bool {
		it := o.find(topic{kind: k, host: host, scope: scope}, now)
		if it == nil {
			return false
		}
		o.push(it, now)
		for _, it := range o.take(now, 1) {
			o.done(it, now, minGap)
		}
		return true
	}
	for i := range uint64(2 * maxItems) {
		require.True(t, tell(fleetmsg.Hold, name(int(i)), i), "an older hold of another host has to make room")
	}
	require.Len(t, o.trays[holdTray].items, maxItems)
	require.Nil(t, o.get(topic{kind: fleetmsg.Hold, host: name(0), scope: 0}))
	require.NotNil(t, o.get(topic{kind: fleetmsg.Hold, host: name(2*maxItems - 1), scope: 2*maxItems - 1}))
	told := 0
	for i := range uint64(2 * maxScope) {
		if tell(fleetmsg.Hold, host, i) {
			told++
		}
	}
	require.Equal(t, maxScope, told, "the gaps of a host's scopes bound its news")
	now = now.Add(minGap)
	for i := range uint64(maxScope) {
		require.True(t, tell(fleetmsg.Hold, host, 1<<20+i))
	}
	require.False(t, tell(fleetmsg.Hold, host, 1<<30))
	require.Equal(t, maxScope, o.trays[holdTray].hosts[host].count)

	// News that is not sent yet, or that counts members, makes no room.
	for i := range maxItems {
		it := o.find(topic{kind: fleetmsg.Quota, host: name(i)}, now)
		if i%2 == 0 {
			o.push(it, now)
		} else {
			it.counted = now.Add(ledger.MaxPeriod)
		}
	}
	require.Nil(t, o.find(topic{kind: fleetmsg.Quota, host: host}, now))
	now = now.Add(ledger.MaxPeriod)
	require.NotNil(t, o.find(topic{kind: fleetmsg.Quota, host: host}, now))
	for i := range maxItems {
		o.push(o.find(topic{kind: fleetmsg.Failing, host: fmt.Sprint(i)}, now), now)
	}
	require.Nil(t, o.find(topic{kind: fleetmsg.Working, host: host}, now))

	// The trays take turns.
	o.push(o.find(topic{kind: fleetmsg.Meet, host: host}, now), now)
	o.push(o.find(topic{kind: fleetmsg.Hold, host: host, scope: 5 + 1<<20}, now), now)
	kinds := map[fleetmsg.Kind]int{}
	for _, it := range o.take(now, 10) {
		kinds[it.kind]++
	}
	require.Equal(t, map[fleetmsg.Kind]int{fleetmsg.Meet: 1, fleetmsg.Hold: 1, fleetmsg.Failing: 4, fleetmsg.Quota: 4}, kinds)
	require.Equal(t, maxItems/2-4+maxItems-4, o.drop())
	_, ok := o.next()
	require.False(t, ok)
	require.NotNil(t, o.find(topic{kind: fleetmsg.Working, host: host}, now))
}

// Messages about hosts that a member does not use leave nothing behind. Holds of others are
// remembered for a while, however long they are.
func TestWhatOthersSayIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := start(t, unreachable(t, handler(func() {})))
		defer f.Close()
		f.store.link.mu.Lock()
		clear(f.store.link.lostNodes) // as if Redis were there
		f.store.link.mu.Unlock()
		f.news.met.set(host, struct{}{})
		forged := func(host string, scope int) {
			f.receiveMessage(fmt.Sprintf("1 h 1 ab %x 429 %d %s", scope, ledger.MaxWait.Microseconds(), host))
			f.receiveMessage(fmt.Sprintf("1 d 1 ab 9 %s", host))
		}
		forged(host, 0)
		for i := range 2 * maxItems {
			forged(name(i), i)
			f.receiveMessage(fmt.Sprintf("1 h 1 ab %x 429 0 %s", i, name(i)))
		}
		require.Len(t, f.news.out.trays[holdTray].items, 1)
		_, down := f.news.down.get(host)
		require.True(t, down, "messages about other hosts have pushed it out")
		require.Len(t, f.news.down.at, 1)
		for i := range 2 * maxItems {
			forged(host, i)
		}
		require.LessOrEqual(t, len(f.news.out.trays[holdTray].items), maxScope)
		forged(host, 0)
		sends := func() bool {
			f.store.link.mu.Lock()
			clear(f.store.link.lostNodes)
			f.store.link.mu.Unlock()
			before := f.FleetState().Commands
			f.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Hour})
			synctest.Wait()
			return f.FleetState().Commands > before
		}
		require.False(t, sends(), "all know it")
		time.Sleep(remember)
		require.True(t, sends(), "it is remembered for longer")
	})
}
