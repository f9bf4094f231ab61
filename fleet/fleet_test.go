package fleet

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/transport"
)

func TestConfigFaultsAllAtOnce(t *testing.T) {
	_, err := New(Config{Prefix: "a b"})
	for _, field := range []string{"Redis is nil", "Key has 0 bytes", `Prefix "a b"`} {
		require.ErrorContains(t, err, field)
	}
	_, err = New(Config{Redis: &redis.UniversalOptions{}, Key: testKey})
	require.EqualError(t, err, "fleet: Redis.Addrs is empty")
	for _, prefix := range []string{"a{b", "a}b", "a\nb", string(make([]byte, 65))} {
		_, err = New(Config{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}, Key: testKey, Prefix: prefix})
		require.ErrorContains(t, err, "Prefix")
	}
}

func TestZeroFleet(t *testing.T) {
	_, err := transport.New(transport.Config{Fleet: new(Fleet)})
	require.ErrorIs(t, err, errNotMade)
	require.ErrorIs(t, new(Fleet).Close(), errNotMade)
}

func TestScopeIsAKeyedHash(t *testing.T) {
	c := options(t, "127.0.0.1:1")
	a, _ := start(t, c)
	b, _ := start(t, c)
	c.Key = []byte("another secret of the tests")
	other, _ := start(t, c)
	require.Zero(t, a.hash.scope(""))
	require.NotZero(t, a.hash.scope("Bearer abc"))
	require.Equal(t, a.hash.scope("Bearer abc"), b.hash.scope("Bearer abc"))
	require.NotEqual(t, a.hash.scope("Bearer abc"), a.hash.scope("Bearer abd"))
	require.NotEqual(t, a.hash.scope("Bearer abc"), other.hash.scope("Bearer abc"))
}

// If all members know of a hold, those who are told the same say nothing.
func TestHoldsThatAreKnownAreNotSent(t *testing.T) {
	fleets, members := started(t, 4, options(t, sharedServer(t).Addr))
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 503, Wait: 30 * time.Second})
	for _, m := range members[1:] {
		m.until(t, func() bool { return len(m.holds) >= 1 }, "no hold")
	}
	before := fleets[1].state().Commands
	for range 1000 {
		for _, f := range fleets {
			f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 503, Wait: 30*time.Second - time.Millisecond})
		}
	}
	time.Sleep(50 * time.Millisecond)
	require.LessOrEqual(t, fleets[1].state().Commands, before+1) // perhaps a heartbeat
	before = fleets[0].state().Commands
	for range 5 {
		time.Sleep(110 * time.Millisecond) // it may send again
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 503, Wait: 29 * time.Second})
	}
	require.LessOrEqual(t, fleets[0].state().Commands, before+1)
	require.Zero(t, get(members[0], func() int { return len(members[0].holds) }))
}

// News of a topic comes at once, and then at most every 100 ms.
func TestNewsIsCoalesced(t *testing.T) {
	fleets, members := started(t, 2, options(t, sharedServer(t).Addr))
	begin := time.Now()
	for i := range 2000 {
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Hour + time.Duration(i)*time.Second})
		if i%100 == 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	members[1].until(t, func() bool {
		n := len(members[1].holds)
		return n > 0 && members[1].holds[n-1].Wait > time.Hour+1990*time.Second
	}, "the latest hold is missing")
	took := time.Since(begin)
	require.LessOrEqual(t, get(members[1], func() int { return len(members[1].holds) }), 2+int(took/minGap))
}

// Redis sends a message to the subscribers of all databases. Members in different databases
// do not hear each other all the same.
func TestDatabasesShareNothing(t *testing.T) {
	c := options(t, sharedServer(t).Addr)
	first, _ := started(t, 2, c)
	c.Redis = &redis.UniversalOptions{Addrs: c.Redis.Addrs, DB: 2}
	second, heard := started(t, 2, c)
	first[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	second[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Hour})
	heard[1].until(t, func() bool { return len(heard[1].holds) > 0 }, "the hold of its own database")
	for i, f := range append(first, second...) {
		require.Equal(t, 2, f.state().Members, "members, %v", i)
	}
	for _, w := range heard {
		for _, h := range get(w, func() []fleetmsg.Message { return w.holds }) {
			require.Greater(t, h.Wait, time.Minute, "of another database")
		}
	}
}

func TestSizeFollowsJoinAndClose(t *testing.T) {
	t.Parallel()
	c := options(t, sharedServer(t).Addr)
	fleets, members := started(t, 5, c)
	fleets[4].Close()
	for _, m := range members[:4] {
		eventually(t, func() bool { return m.lastSize() == 4 }, "the member is still counted")
	}
}

// Every key has an expiry, and the number and size of keys are bounded.
func TestKeysExpireAndAreBounded(t *testing.T) {
	server := ownServer(t)
	client := connect(t, server.Addr)
	fleets, _ := started(t, 3, options(t, server.Addr))
	const hosts = 20
	for i := range hosts {
		name := "https://host" + strconv.Itoa(i) + ".example.com:8443"
		for j, f := range fleets {
			f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: name})
			f.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: name, Failures: 5, Wait: 3 * time.Second})
			f.tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: name, PerSecond: 10, Burst: 5, Amount: 5})
			for s := range uint64(100) {
				f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: name, Scope: 1 + s + 100*uint64(j)<<32, Status: 429, Wait: time.Minute})
				f.tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: name, Scope: 1 + s + 100*uint64(j)<<32, Amount: 5, Limit: 10, Wait: time.Minute})
			}
		}
		if i%4 == 0 {
			time.Sleep(150 * time.Millisecond)
		}
	}
	for _, f := range fleets {
		eventually(t, func() bool {
			f.news.mu.Lock()
			defer f.news.mu.Unlock()
			_, due := f.news.out.next()
			return !due && len(f.desk.asks) == 0
		}, "it is not sent")
	}
	time.Sleep(50 * time.Millisecond)
	ctx := context.Background()
	keys := testkit.Must(client.Keys(ctx, "*").Result())(t)
	require.LessOrEqual(t, len(keys), 4*hosts+2)
	most := map[string]int64{}
	for _, key := range keys {
		ttl := testkit.Must(client.PTTL(ctx, key).Result())(t)
		require.NotEqual(t, time.Duration(-1), ttl, "%s has no expiry", key) // -2: it is over
		size, err := client.MemoryUsage(ctx, key, 0).Result()
		if err == redis.Nil {
			continue // it is over now
		}
		require.NoError(t, err)
		what := key[len(key)-6:]
		most[what] = max(most[what], size)
	}
	t.Logf("%d keys, largest in bytes: %v", len(keys), most)
	for _, what := range []string{":holds", "quotas"} { // a loaded machine may lose Redis for a moment, and some of the news
		require.Positive(t, most[what])
		require.Less(t, most[what], int64(64<<10))
	}
}

func TestHoldsOfAHostAreBounded(t *testing.T) {
	client := connect(t, sharedServer(t).Addr)
	key := unique(t)
	hold := func(at time.Duration, scope int, wait time.Duration) {
		err := holdScript.Run(context.Background(), client, []string{key}, at.Microseconds(), "1", "", host, hex(uint64(scope)), 429,
			wait.Microseconds(), minGap.Microseconds(), 10).Err()
		require.NoError(t, err)
	}
	for i := range 20 {
		hold(time.Second, i, time.Minute)
	}
	n := testkit.Must(client.HLen(context.Background(), key).Result())(t)
	require.EqualValues(t, 10, n)
	hold(2*time.Minute, 100, time.Minute) // the others are over
	n = testkit.Must(client.HLen(context.Background(), key).Result())(t)
	require.EqualValues(t, 1, n)
}

// In a fleet of 10,000 members, too, all members learn of a short hold, and of a hold that
// ends much later than they know.
func TestHoldsInALargeFleet(t *testing.T) {
	client := connect(t, sharedServer(t).Addr)
	key := unique(t)
	hold := func(at, wait time.Duration) int {
		n, err := holdScript.Run(context.Background(), client, []string{key}, at.Microseconds(), "1", "", host, "0", 429,
			wait.Microseconds(), (10 * time.Second).Microseconds(), 10).Int()
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 1, hold(100*time.Second, 2*time.Second))
	require.Equal(t, 0, hold(100100*time.Millisecond, 2*time.Second))
	require.Equal(t, 1, hold(100700*time.Millisecond, 2*time.Second))
	require.Equal(t, 1, hold(103*time.Second, time.Second))
	require.Equal(t, 0, hold(103100*time.Millisecond, time.Second))
	require.Equal(t, 1, hold(103300*time.Millisecond, time.Second))
	require.Equal(t, 1, hold(103400*time.Millisecond, time.Minute))
	require.Equal(t, 0, hold(110*time.Second, time.Minute))
}

// A member that meets a host again is told again.
func TestMeetAsksAgain(t *testing.T) {
	fleets, members := started(t, 2, options(t, sharedServer(t).Addr))
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	for n := range 4 {
		members[1].until(t, func() bool { return len(members[1].holds) > n }, "not told")
		fleets[1].tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	}
}

// What the members ask again after an interruption is spread by their number and that of the
// hosts, so that it does not cut them off once more.
func TestMeetAgainIsSpread(t *testing.T) {
	fleets, _ := started(t, 1, options(t, sharedServer(t).Addr))
	f := fleets[0]
	f.roster.setSize(50, f.store.link.breaks())
	for i := range 100 {
		f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: name(i)})
	}
	due := func() []*item {
		f.news.mu.Lock()
		defer f.news.mu.Unlock()
		return slices.Clone(f.news.out.trays[meetTray].due)
	}
	eventually(t, func() bool { return len(due()) == 0 }, "not asked")
	begin := time.Now()
	f.meetAgain()
	list := due()
	require.Greater(t, list[len(list)/2].due.Sub(begin), 2*time.Second)
	require.LessOrEqual(t, list[len(list)-1].due.Sub(begin), time.Since(begin)+10*time.Second)
}

func TestScriptsAreSentAgainIfRedisForgetsThem(t *testing.T) {
	server := ownServer(t)
	fleets, members := started(t, 2, options(t, server.Addr))
	require.NoError(t, connect(t, server.Addr).ScriptFlush(context.Background()).Err())
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: host, PerSecond: 1, Burst: 1, Amount: 1})
	members[1].until(t, func() bool { return len(members[1].holds) > 0 }, "no hold")
	members[0].until(t, func() bool { return len(members[0].grants) > 0 }, "no answer")
	require.True(t, fleets[0].state().Connected)
}

func TestCloseLeavesNothing(t *testing.T) {
	server := ownServer(t)
	client := connect(t, server.Addr)
	c := options(t, server.Addr)
	fleets, _ := started(t, 5, c)
	require.LessOrEqual(t, clients(t, client), 5*3)
	begin := time.Now()
	for _, f := range fleets {
		f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
		require.NoError(t, f.Close())
		require.NoError(t, f.Close())
		f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
		f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Hour})
		f.tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: host, PerSecond: 1, Burst: 1, Amount: 1})
	}
	require.Less(t, time.Since(begin), 5*leaving, "each Close waited for the timer")
	require.Empty(t, leftovers(), "goroutines are left")
	eventually(t, func() bool { return clients(t, client) == 0 }, "connections are left")
	n := testkit.Must(client.ZCard(context.Background(), c.Prefix+":{members}").Result())(t)
	require.Zero(t, n)
	// The last news before Close was sent.
	left := testkit.Must(client.HLen(context.Background(), fleets[0].store.keyOf(host, "holds")).Result())(t)
	require.EqualValues(t, 1, left)
}

// A member that asks about a host may hear of its outage before it has the answer, which does not
// know of the outage.
func TestAnswerIsOlderThanTheNews(t *testing.T) {
	for _, first := range []string{"-1", "-2"} { // it was not down, or nobody knew it
		f, w := start(t, options(t, "127.0.0.1:1"))
		f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
		ups := func() int { return get(w, func() int { return len(w.ups) }) }
		answer := func(asked time.Time, down string) {
			f.hearHost(host, asked, redis.NewCmdResult([]any{down, []any{}, []any{}}, nil))
		}
		asked := time.Now()
		f.hearDown(host, time.Second)
		answer(asked, first)
		require.Zero(t, ups(), first)
		answer(time.Now(), "-1")
		require.Equal(t, 1, ups(), first)
		answer(time.Now(), "-1")
		require.Equal(t, 1, ups(), first)
	}
}

// A member that lost the connection while a host came back hears of it later. A Redis that
// lost its memory does not make it return.
func TestNewsMissedWhileAway(t *testing.T) {
	server := ownServer(t)
	p := newProxy(t, server.Addr)
	c := options(t, server.Addr)
	fleets, members := started(t, 3, c)
	c.Redis.Addrs = []string{p.addr}
	away, m := start(t, c)
	eventually(t, func() bool { return away.state().Connected && away.state().Members == 4 }, "not connected")
	away.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	other := "https://other.example.com"
	away.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: other})
	for _, name := range []string{host, other} {
		for _, f := range fleets {
			f.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: name, Failures: 10, Wait: 5 * time.Second})
		}
	}
	eventually(t, func() bool { // the answer to a Meet may say the same
		return get(m, func() bool { return slices.Contains(m.downs, host) && slices.Contains(m.downs, other) })
	}, "no outage")
	p.move("127.0.0.1:1")
	eventually(t, func() bool { return !away.state().Connected }, "still connected")
	require.False(t, away.state().Connected)
	require.True(t, fleets[0].state().Connected)
	lost := away.state().LastHeartbeat
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: host})
	members[1].until(t, func() bool { return len(members[1].ups) >= 1 }, "no return")
	require.NoError(t, connect(t, server.Addr).Del(context.Background(), fleets[0].store.keyOf(other, "outage")).Err())
	require.Equal(t, lost, away.state().LastHeartbeat) // no heartbeat succeeds meanwhile
	p.move(server.Addr)
	m.until(t, func() bool { return len(m.ups) >= 1 }, "no return")
	eventually(t, func() bool { return away.state().Connected }, "not connected")
	time.Sleep(50 * time.Millisecond)
	for _, of := range get(m, func() []string { return m.upOf }) { // it may hear it again if it connects again
		require.Equal(t, host, of)
	}
	require.True(t, away.state().Connected)
	away.Close()
	require.False(t, away.state().Connected)
}

// While Redis cannot be reached, there is a dial per half a second at most, whatever
// go-redis tries.
func TestDialsAreFew(t *testing.T) {
	t.Parallel()
	c := options(t, "127.0.0.1:1")
	var mu sync.Mutex
	var dials []time.Time
	c.Redis.Dialer = func(context.Context, string, string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		dials = append(dials, time.Now())
		return nil, errors.New("refused by the test")
	}
	lines := log(&c)
	f, _ := start(t, c)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(dials)
	}
	eventually(t, func() bool { return count() >= 4 }, "no dials")
	require.ErrorContains(t, f.Close(), "Redis did not answer")
	mu.Lock()
	defer mu.Unlock()
	for i, at := range dials[2:] { // the first two can be at the same time
		require.GreaterOrEqual(t, at.Sub(dials[i+1]), retryEach/2)
	}
	require.Equal(t, 1, lines.count("Redis is lost"))
}
