package host

import (
	"fmt"
	"hash/maphash"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
)

type testTable = Table[int]

// newTable returns a table at whose time every hold counts as running.
func newTable(max int) *testTable {
	return NewTable(max, func() instant.Instant { return 0 }, func(*State[int]) {})
}

// Len returns the number of hosts in the table.
func (t *Table[R]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ring)
}

func urlOf(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

func touch(t *testTable, name string) { t.Acquire(urlOf("http://" + name)).Release() }

// peek returns the state of a URL's host, or nil.
func peek[R any](t *Table[R], u string) *State[R] {
	k := KeyOf(urlOf(u))
	return t.find(k, maphash.String(t.seed, k.Host))
}

func TestTableFindsOneStatePerHost(t *testing.T) {
	table := newTable(MaxHosts)
	first := table.Acquire(urlOf("http://example.com/a"))
	for _, same := range []string{"http://EXAMPLE.com/b", "http://example.com:80", "http://example.com.:80/c"} {
		assert.Same(t, first, table.Acquire(urlOf(same)), same)
	}
	for _, other := range []string{"https://example.com", "http://example.com:8080", "http://www.example.com", "ftp://example.com"} {
		assert.NotSame(t, first, table.Acquire(urlOf(other)), other)
	}
	assert.Equal(t, 4, first.InFlight(), "requests in flight")
	assert.EqualValues(t, 4, first.Requests(), "requests counted")
	first.ReleaseCount()
	assert.EqualValues(t, 3, first.Requests(), "requests after one was refused")
	first.Count()
	assert.EqualValues(t, 4, first.Requests(), "requests after it went after all")
	assert.Equal(t, 4, first.InFlight(), "requests in flight")
	first.Release()
	assert.Equal(t, 3, first.InFlight(), "requests in flight")
	assert.Equal(t, 5, table.Len(), "hosts in the table")
	assert.Nil(t, peek(table, "http://unknown"))
	assert.Same(t, first, peek(table, "http://example.com"))
	n := 0
	table.All(func(*State[int]) { n++ })
	assert.Equal(t, 5, n)
}

func TestTableIsBounded(t *testing.T) {
	table := newTable(100)
	for i := range 10_000 {
		touch(table, fmt.Sprintf("host-%d", i))
	}
	assert.Equal(t, 100, table.Len(), "hosts in the table")
	n := 0
	for i := range *table.buckets.Load() {
		for s := (*table.buckets.Load())[i].first.Load(); s != nil; s = s.next.Load() {
			n++
		}
	}
	assert.Equal(t, 100, n, "evicted hosts are out of the chains")
	assert.Nil(t, table.last.Load(), "it was evicted")

	table = newTable(3)
	for i, name := range []string{"a", "a", "b", "c", "d", "e", "f"} {
		touch(table, name)
		assert.Equal(t, i < 6, peek(table, "http://a") != nil, "asked for twice, and then not for a round, at %s", name)
	}
}

func TestTableKeepsBusyAndRecentHosts(t *testing.T) {
	table := newTable(100)
	busy := table.Acquire(urlOf("http://busy"))
	for i := range 1000 {
		touch(table, fmt.Sprintf("host-%d", i))
		touch(table, "popular")
	}
	assert.Same(t, busy, peek(table, "http://busy"), "in flight")
	assert.NotNil(t, peek(table, "http://popular"), "asked for all the time")
	assert.EqualValues(t, 1000, peek(table, "http://popular").Requests(), "and never evicted in between")
	busy.Release()
	for i := range 300 {
		touch(table, fmt.Sprintf("later-%d", i))
	}
	assert.Nil(t, peek(table, "http://busy"), "idle at last")
}

// A hold that is over keeps no host. Hosts in use stay, even beside many hosts whose
// holds were not tidied away.
func TestTableForgetsHoldsThatAreOver(t *testing.T) {
	for name, row := range map[string]struct {
		now  instant.Instant
		dead int // how many of the held hosts are there in the end
	}{
		"running": {0, 50},
		"over":    {instant.At(time.Minute), 0},
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable(100, func() instant.Instant { return row.now }, func(*State[int]) {})
			for i := range 50 {
				s := table.Acquire(urlOf(fmt.Sprintf("http://dead-%d", i)))
				s.Machines().Limits().Throttle.Hold(0, 1, 30*hosttest.Sec, throttle.Config{Jitter: -1}, 0)
				s.Release()
			}
			for i := range 1000 {
				touch(table, fmt.Sprintf("new-%d", i))
				for j := range 40 {
					touch(table, fmt.Sprintf("live-%d", j))
				}
			}
			dead, live := 0, 0
			table.All(func(s *State[int]) {
				switch host := s.Key().Host; {
				case strings.HasPrefix(host, "dead"):
					dead++
				case strings.HasPrefix(host, "live"):
					live++
					assert.EqualValues(t, 1000, s.Requests(), "never evicted in between")
				}
			})
			assert.Equal(t, row.dead, dead)
			assert.Equal(t, 40, live, "live hosts")
		})
	}
}

// Hosts in flight are the last to go, after those with a running hold.
func TestTableEvictsHostsInFlightLast(t *testing.T) {
	table := newTable(100)
	var flying []*State[int]
	for i := range 90 {
		flying = append(flying, table.Acquire(urlOf(fmt.Sprintf("http://flying-%d", i))))
	}
	for i := range 300 {
		s := table.Acquire(urlOf(fmt.Sprintf("http://held-%d", i)))
		s.Machines().Limits().Throttle.Hold(0, 1, 30*hosttest.Sec, throttle.Config{Jitter: -1}, 0)
		s.Release()
	}
	for i, s := range flying {
		assert.True(t, s == peek(table, fmt.Sprintf("http://flying-%d", i)), i)
	}
}

// Hosts with names of any length cost no more than others.
func TestTableKeepsNoLongNames(t *testing.T) {
	before := testkit.Heap()
	table := newTable(MaxHosts)
	for i := range 20 {
		u := &url.URL{Scheme: "http", Host: strings.Repeat("a", 1<<20) + fmt.Sprint(i)}
		s := table.Acquire(u)
		assert.True(t, s == table.Acquire(u))
	}
	assert.Less(t, testkit.Heap()-before, int64(1<<18))
	assert.Equal(t, 20, table.Len(), "hosts in the table")
	one := table.Acquire(urlOf("http://h.test:36203"))
	assert.Same(t, one, table.Acquire(urlOf("http://h.test:0036203")))
	runtime.KeepAlive(table)
}

func TestTableIsBoundedEvenWhenAllAreBusy(t *testing.T) {
	table := newTable(10)
	first := table.Acquire(urlOf("http://first"))
	for i := range 50 {
		table.Acquire(urlOf(fmt.Sprintf("http://host-%d", i)))
	}
	assert.Equal(t, 10, table.Len(), "hosts in the table")
	assert.False(t, first.begin(), "evicted while it was busy")
	assert.NotNil(t, peek(table, "http://host-40"), "one after the other goes")
}

func TestEvictedStateIsNotBegun(t *testing.T) {
	var gone []string
	table := NewTable(1, func() instant.Instant { return 0 }, func(s *State[int]) { gone = append(gone, s.Name()) })
	a := table.Acquire(urlOf("http://a"))
	a.Release()
	touch(table, "b")
	assert.False(t, a.begin())
	assert.Zero(t, a.InFlight(), "requests in flight")
	again := table.Acquire(urlOf("http://a"))
	assert.NotSame(t, a, again)
	assert.Equal(t, []string{"http://a", "http://b"}, gone)
}

func TestTableUnderConcurrency(t *testing.T) {
	table := newTable(64)
	kept := table.Acquire(urlOf("http://kept"))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				s := table.Acquire(urlOf(fmt.Sprintf("http://host-%d", (i*7+g)%200)))
				assert.Same(t, kept, peek(table, "http://kept"), "in flight")
				assert.GreaterOrEqual(t, s.InFlight(), 1, "a state in use counts no request")
				s.Release()
			}
		})
	}
	wg.Wait()
	kept.Release()
	assert.LessOrEqual(t, table.Len(), 64, "hosts in the table")
	table.All(func(s *State[int]) { assert.Zero(t, s.InFlight(), s.Key()) })
}

// A new host costs two allocations, its state and its name, and a part of the room of the table.
func TestNewHostAllocatesTwice(t *testing.T) {
	const hosts = 10_000
	urls := make([]*url.URL, hosts)
	for i := range urls {
		urls[i] = urlOf(fmt.Sprintf("https://host-%d.example.com", i))
	}
	for _, most := range []int{MaxHosts, 100} {
		var table *testTable
		assert.Less(t, testing.AllocsPerRun(1, func() {
			table = newTable(most)
			for _, u := range urls {
				table.Acquire(u).Release()
			}
		}), 2.1*hosts, "%d hosts at most", most)
		for _, u := range urls[hosts-50:] {
			assert.Equal(t, u.String(), peek(table, u.String()).Name())
		}
	}
}

func TestAcquireAllocatesNothing(t *testing.T) {
	table := newTable(MaxHosts)
	urls := []*url.URL{urlOf("https://one.example.com/"), urlOf("http://two.example.com:8080/"), urlOf("http://THREE.example.com/")}
	for _, u := range urls {
		table.Acquire(u).Release()
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for _, u := range urls {
			table.Acquire(u).Release()
		}
	}))
}

// TestIdleHostIsSmall measures the size of a host without traffic.
func TestIdleHostIsSmall(t *testing.T) {
	n := soak.Size(10_000, 50_000)
	table := newTable(MaxHosts)
	urls := make([]*url.URL, n)
	for i := range urls {
		urls[i] = &url.URL{Scheme: "https", Host: fmt.Sprintf("bucket-%d.storage.example.com", i)}
	}
	before := testkit.Heap()
	for _, u := range urls {
		table.Acquire(u).Release()
	}
	perHost := (testkit.Heap() - before) / int64(n)
	t.Logf("%d B per idle host, State %d B", perHost, unsafe.Sizeof(State[int]{}))
	// The host's name belongs to the URL, which the caller has: add its bytes.
	require.LessOrEqual(t, perHost+int64(len(urls[n-1].Host)), int64(512))
	runtime.KeepAlive(table)
	runtime.KeepAlive(urls)
}

func TestCanonical(t *testing.T) {
	for want, hosts := range map[Key][]string{
		{"https", "example.com"}:         {"example.com", "EXAMPLE.com", "example.com.", "example.com:443", "Example.COM.:443", "EXAMPLE.com:00443"},
		{"https", "example.com:80"}:      {"example.com:80"},
		{"http", "example.com"}:          {"example.com:80", "example.com:", "example.com:0080"},
		{"http", "example.com:443"}:      {"example.com:443"},
		{"http", "example.com:8080"}:     {"example.com:8080", "example.com.:8080", "example.com:08080"},
		{"http", "127.0.0.1"}:            {"127.0.0.1:80"},
		{"http", "[::1]"}:                {"[::1]", "[::1]:80", "[::1]:", "[0:0:0:0:0:0:0:1]", "[::1]:080"},
		{"http", "[::1]:8080"}:           {"[::1]:8080", "[::0001]:8080"},
		{"http", "[fe80::1%25en0]:8080"}: {"[FE80::1%25en0]:8080"},
		{"http", "[fe80::1%eth0]"}:       {"[fe80:0::1%eth0]:80"},
		{"http", "[::ffff:1.2.3.4]"}:     {"[::ffff:102:304]"},
		{"ftp", "example.com:21"}:        {"example.com:21"},
		{"http", "bücher.example"}:       {"BÜCHER.example"},
		{"http", ""}:                     {"", ".", ":80"},
		{"http", ":8080"}:                {":8080"},
		{"http", "["}:                    {"["},
		{"http", "0::80"}:                {"0::80"},
		{"https", "::443"}:               {"::443"},
		{"http", "fe80::1:"}:             {"FE80::1:"},
		{"http", "a::b:8080"}:            {"a::B:8080"},
		{"http", "[::1]x"}:               {"[::1]X"},
		{"http", "a]"}:                   {"a]"},
		{"http", "]"}:                    {"]"},
		{"http", "example.com:0"}:        {"example.com:0"},
	} {
		for _, host := range hosts {
			assert.Equal(t, want.Host, Canonical(want.Scheme, host), "%s %q", want.Scheme, host)
			assert.Equal(t, want, KeyOf(&url.URL{Scheme: want.Scheme, Host: host}))
		}
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add("https", "Example.com.:443")
	f.Add("http", "[::1]:80")
	f.Add("http", "a:080")
	f.Add("http", "0::80")
	f.Add("https", "a:B")
	f.Fuzz(func(t *testing.T, scheme, host string) {
		once := Canonical(scheme, host)
		assert.Equal(t, once, strings.ToLower(once), "of %q", host)
		if isCanonical(host) {
			assert.Equal(t, host, once, "the fast path must not accept a host that the slow path would change")
		}
	})
}

func TestKeyAllocatesNothing(t *testing.T) {
	for _, text := range []string{"https://api.example.com:8443/path", "http://[::1]/", "http://[::1]:8080/", "http://[2001:db8::ff00:42:8329]/", "http://[fe80::1%25eth0]:8080/", "http://h.test:9090/"} {
		u := urlOf(text)
		assert.Zero(t, testing.AllocsPerRun(100, func() { KeyOf(u) }), "allocations for %s", text)
	}
}

// Names of any length cost a bounded number of bytes, and stay apart.
func TestKeyIsBounded(t *testing.T) {
	long := strings.Repeat("a", soak.Size(256<<10, 4<<20))
	keys := map[Key]bool{}
	for _, u := range []url.URL{
		{Scheme: "http", Host: long + ".example.com:8080"},
		{Scheme: "http", Host: "b" + long + ".example.com:8080"},
		{Scheme: "https", Host: long + ".example.com:8080"},
		{Scheme: long, Host: "example.com"},
		{Scheme: "b" + long, Host: "example.com"},
	} {
		k := KeyOf(&u)
		assert.LessOrEqual(t, len(k.Host), maxHostLen)
		assert.LessOrEqual(t, len(k.Scheme), maxSchemeLen)
		hash, end, long := strings.Cut(k.Host, "~")
		assert.True(t, !long || len(hash) == 32 && len(k.Host) == maxHostLen && strings.HasSuffix(u.Host, end), "the end stays")
		keys[k] = true
		assert.Equal(t, k, KeyOf(&url.URL{Scheme: u.Scheme, Host: strings.ToUpper(u.Host)}))
	}
	assert.Len(t, keys, 5)
	assert.Equal(t, []int{320, 64, 8, 256, 131072}, []int{maxHostLen, maxSchemeLen, fewHosts, probes, MaxHosts}, "the figures that the comments name")
	name := strings.Repeat("a.", (maxHostLen-len("test"))/2)
	assert.Equal(t, name+"test", KeyOf(&url.URL{Scheme: "http", Host: name + "test"}).Host, "no shorter name is touched")
}

// A host is quiet if nothing is held or told, and calm if neither quotas nor connections slow it down either.
func TestQuietAndCalm(t *testing.T) {
	for name, row := range map[string]struct {
		happens     func(*Machines)
		quiet, calm bool
	}{
		"nothing":         {func(m *Machines) { m.News(); m.Pools(); m.Limits().Pacing() }, true, true},
		"a hold":          {func(m *Machines) { m.Limits().Throttle.Hold(0, 1, hosttest.Sec, throttle.Config{}, 0) }, false, false},
		"news":            {func(m *Machines) { m.News().Begin(news.Change{}, func() {}) }, false, false},
		"a failure":       {func(m *Machines) { m.Line.Failed(0, line.Failure{Scope: 1}) }, true, true},
		"bad connections": {func(m *Machines) { m.Pools().Failed(m.Pools().Current(), pool.Proof, nil) }, true, false},
		"a quota": {func(m *Machines) {
			m.Limits().Pacing().Note(0, 1, pacing.Pass{}, field.Quota{Limit: 1, Reset: time.Second}, pacing.Config{})
		}, true, false},
	} {
		s := new(State[int])
		assert.True(t, s.Quiet() && s.Calm() && s.PoolsMade() == nil && !s.Failing(), "without machines")
		row.happens(s.Machines())
		assert.Equal(t, []bool{row.quiet, row.calm}, []bool{s.Quiet(), s.Calm()}, "%s: quiet, calm", name)
		assert.Equal(t, name == "a failure", s.Failing(), name)
	}
}

// The first call makes a machine, and the others return it.
func TestMadeOnce(t *testing.T) {
	s := new(State[int])
	m := s.Machines()
	assert.Nil(t, s.PoolsMade())
	assert.Same(t, m.Pools(), s.PoolsMade())
	r := m.Rate(rate.Config{PerSecond: 1})
	assert.NotNil(t, r)
	assert.Same(t, r, m.Rate(rate.Config{PerSecond: 2}))
	assert.Nil(t, m.LimiterMade())
	m.WakeFirst()
	assert.Same(t, m.Limits().Concurrency(), m.LimiterMade())
	inLine, atLimiter := queue.NewWaiter(), queue.NewWaiter()
	for range 2 { // the second waits
		m.Line.Enter(0, &line.Place{Sent: 1}, inLine, &line.Config{Probers: 1})
		m.LimiterMade().Enter(0, new(concurrency.Slot), atLimiter, concurrency.Config{Max: 1})
	}
	m.WakeFirst()
	assert.True(t, hosttest.Woken(inLine) && hosttest.Woken(atLimiter))

	f := &fleet{host: struct{ fleetlink.Host }{}}
	s = &State[int]{name: "http://h.test"}
	assert.Equal(t, f.host, s.Join(f))
	assert.Equal(t, "http://h.test", f.named)
	assert.Same(t, &s.Machines().Line, f.line)
}

// A fleet has the same view of each host.
type fleet struct {
	fleetlink.Fleet
	host  fleetlink.Host
	named string
	line  *line.Line
}

func (f *fleet) Host(name string, l *line.Line, _ func() *concurrency.Limiter) fleetlink.Host {
	f.named, f.line = name, l
	return f.host
}

// A host counts as used until it was not asked for a while.
func TestUsedLately(t *testing.T) {
	now := instant.At(time.Hour)
	table := NewTable(10, func() instant.Instant { return now }, func(*State[int]) {})
	a, b := table.Acquire(urlOf("http://a")), table.Acquire(urlOf("http://b"))
	b.Release()
	wants := func(after time.Duration, others, another bool) {
		t.Helper()
		now = now.Add(after)
		assert.Equal(t, []bool{others, another}, []bool{table.UsedLately(b, time.Minute), table.UsedLately(a, time.Minute)}, "a, b")
	}
	wants(time.Minute-1, true, true)
	wants(1, true, false) // a is in flight
	a.Release()
	touch(table, "b")
	wants(time.Minute, false, true)
	wants(time.Minute-1, false, true)
	wants(1, false, false)
}

func TestStateFillsOneCacheLine(t *testing.T) {
	assert.EqualValues(t, 64, unsafe.Sizeof(State[int]{}))
}
