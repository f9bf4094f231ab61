package fleet

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/testkit"
)

// A key that somebody else has written, with a wrong type or with wrong fields, stops nothing.
// The scripts forget it, and the host of the key is shared as well.
func TestDamagedKeys(t *testing.T) {
	server := ownServer(t)
	admin := connect(t, server.Addr)
	ctx := context.Background()
	pack := func(text string) string { // of a list, by Redis itself
		return testkit.Must(admin.Eval(ctx, "return cmsgpack.pack("+text+")", nil).Text())(t)
	}
	text := func(value string) func(string) error {
		return func(key string) error { return admin.Set(ctx, key, value, 0).Err() }
	}
	fields := func(values ...any) func(string) error {
		return func(key string) error { return admin.HSet(ctx, key, values...).Err() }
	}
	list := func(key string) error { return admin.RPush(ctx, key, "x").Err() }
	for name, damage := range map[string]struct {
		what string
		do   func(key string) error
	}{
		"outage of another type":  {"{H}:outage", list},
		"outage with texts":       {"{H}:outage", text(pack(`{"x","x","x","x","x","x","x","x","x","x","x","x"}`))},
		"outage with lists":       {"{H}:outage", text(pack(`{{},{},{},{},{},{},{},{},{},{},{},{}}`))},
		"outage with bad reports": {"{H}:outage", text(pack(`{0,0,0,0,-1,"",0,0,{{},"x",5},0,{{}},0}`))},
		"outage with garbage":     {"{H}:outage", text("\xc1\xff\x00")},
		"holds of another type":   {"{H}:holds", text("x")},
		"holds with garbage":      {"{H}:holds", fields("0 429", "x", "x", "y")},
		"quotas of another type":  {"{H}:quotas", list},
		"quotas with texts":       {"{H}:quotas", fields("0", pack(`{"x","x","x","x","x","x","x","x"}`))},
		"quotas with garbage":     {"{H}:quotas", fields("0", "x")},
		"quotas that are not any": {"{H}:quotas", fields("0", pack(`{0/0,1/0,1/0,1/0,1/0,0/0,1e300,1/0}`))},
		"rate of another type":    {"{H}:rate", list},
		"rate with garbage":       {"{H}:rate", text("x")},
		"members of another type": {"{members}", text("x")},
		"keys of another type":    {"{members}:keys", text("x")},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, admin.FlushAll(ctx).Err())
			c, lines := logged(t, server.Addr)
			key := c.Prefix + ":" + damage.what
			if len(damage.what) > 3 && damage.what[:3] == "{H}" {
				key = c.Prefix + ":{" + host + "}" + damage.what[3:]
			}
			require.NoError(t, damage.do(key))
			fleets, members := started(t, 2, c)
			require.NoError(t, admin.Del(ctx, key).Err())
			require.NoError(t, damage.do(key)) // now by turns
			for i, f := range fleets {
				f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
				f.tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: host, PerSecond: 1, Burst: 5, Amount: 1})
				members[i].until(t, func() bool { return len(members[i].grants) > 0 }, "no tokens")
				f.tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Amount: 5, Limit: 10, Wait: time.Minute})
				f.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: 10, Wait: 5 * time.Second})
			}
			fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
			fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://other", Status: 429, Wait: time.Minute})
			m := members[1]
			m.until(t, func() bool { return len(m.holds) >= 2 && len(m.quotas) > 0 && len(m.downs) > 0 }, "it is not shared: %v", lines)
			fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: host})
			m.until(t, func() bool { return len(m.ups) > 0 }, "no return")
			for _, f := range fleets {
				require.True(t, f.state().Connected)
				require.Zero(t, f.store.failed.Load(), "questions failed")
				require.Equal(t, 2, f.state().Members, "members")
			}
			require.Empty(t, lines.String())
		})
	}
}

// An error about the news of a host is no lost Redis. It shows in the log, once per minute.
func TestRefusedNewsIsNoLostRedis(t *testing.T) {
	c, lines := logged(t, sharedServer(t).Addr)
	fleets, _ := started(t, 1, c)
	f := fleets[0]
	for range 3 {
		f.store.judge("", host, errorReply(t, "WRONGTYPE of "+host))
	}
	require.True(t, f.state().Connected)
	eventually(t, func() bool { return lines.count("refuses the news of a host") == 1 && lines.count("\n") == 1 }, "%v", lines)
	require.EqualValues(t, 3, f.store.failed.Load(), "questions failed")
	f.store.judge("", host, errorReply(t, "ERR unknown command 'evalsha'"))
	require.False(t, f.state().Connected)
}

// errorReply returns the error that go-redis makes of a reply.
func errorReply(t *testing.T, text string) error {
	client := redis.NewClient(&redis.Options{Addr: refusing(t, "-"+text+"\r\n"), MaxRetries: -1})
	err := client.Ping(context.Background()).Err()
	require.ErrorContains(t, err, text)
	require.NoError(t, client.Close())
	return err
}

func TestAboutAHost(t *testing.T) {
	for text, want := range map[string]bool{
		"WRONGTYPE Operation against a key holding the wrong kind of value":                      true,
		"ERR user_script:1: attempt to compare nil with number script: 5, on @user_script:1.":    true,
		"CLUSTERDOWN Hash slot not served":                                                       true,
		"CLUSTERDOWN The cluster is down":                                                        false,
		"OOM command not allowed when used memory > 'maxmemory'. script: 5, on @user_script:18.": false,
		"READONLY You can't write against a read only replica. script: 5, on @user_script:18.":   false,
		"LOADING Redis is loading the dataset in memory":                                         false,
		"ERR The user executing the script can't publish to the channel, in user_script":         false,
		"ERR ACL failure in script: No permissions to access a channel, in user_script":          false,
		"NOAUTH Authentication required.":                                                        false,
		"ERR unknown command 'evalsha'":                                                          false,
	} {
		require.Equal(t, want, aboutAHost(errorReply(t, text)), text)
	}
	require.False(t, aboutAHost(context.DeadlineExceeded))
}

// During a rolling upgrade members of two versions use the same state of a host. A version
// that knows more fields or fewer does not forget an outage, and keeps the fields of the other.
func TestStateOfAnotherVersion(t *testing.T) {
	ctx := context.Background()
	client := connect(t, sharedServer(t).Addr)
	now := 100 * time.Second
	change := func(t *testing.T, key, how string) {
		t.Helper()
		text := "local v = cmsgpack.unpack(redis.call('GET', KEYS[1])) " + how + " redis.call('SET', KEYS[1], cmsgpack.pack(v)) return 1"
		require.NoError(t, client.Eval(ctx, text, []string{key}).Err(), how)
	}
	for name, how := range map[string]string{"a later version": "v[6] = 'news'", "an earlier version": "v[5] = nil", "a wrong type": "v[4] = {}"} {
		t.Run(name, func(t *testing.T) {
			key := unique(t)
			run := func(s *redis.Script, member int64, args ...any) *redis.Cmd {
				return s.Run(ctx, client, []string{key}, append([]any{now.Microseconds(), strconv.FormatInt(member, 16), ""}, args...)...)
			}
			for member := range int64(3) {
				require.NoError(t, run(failingScript, 1+member, "h", 10, (3*time.Second).Microseconds(), 3).Err())
			}
			change(t, key, how)
			got := testkit.Must(run(failingScript, 4, "h", 1, 0, 3).Slice())(t)
			require.Equal(t, "3000000", got[1], "the outage is forgotten")
			up := testkit.Must(run(workingScript, 4, "h").Int64())(t)
			require.Equal(t, int64(1), up)
			if name == "a later version" {
				last, err := client.Eval(ctx, "return cmsgpack.unpack(redis.call('GET', KEYS[1]))[6]", []string{key}).Text()
				require.NoError(t, err)
				require.Equal(t, "news", last)
			}
		})
	}
}

// Redis keeps an outage as long as members report that the host still fails.
func TestReportsKeepAnOutage(t *testing.T) {
	ctx := context.Background()
	client := connect(t, sharedServer(t).Addr)
	key := unique(t)
	fails := func() any {
		got, err := failingScript.Run(ctx, client, []string{key}, "", "1", "", "h", 10, (3 * time.Second).Microseconds(), 1).Slice()
		require.NoError(t, err)
		return got[0]
	}
	fails()
	require.NoError(t, client.Eval(ctx, "local v = cmsgpack.unpack(redis.call('GET', KEYS[1])) v[1] = 1 redis.call('SET', KEYS[1], cmsgpack.pack(v), 'PX', 5000) return 1", []string{key}).Err())
	require.Equal(t, int64(0), fails(), "a new outage")
	require.Greater(t, client.PTTL(ctx, key).Val(), 5*time.Minute)
}

// passInPieces passes a text byte by byte. In the middle of a text of many megabytes the pieces
// are longer.
func passInPieces(r *replies, text string) bool {
	ok := true
	for at, n := 0, 0; at < len(text); at += n {
		if n = 1; at > 1000 && len(text)-at > 1_000_000 {
			n = 997
		}
		ok = r.pass([]byte(text[at:at+n])) && ok
	}
	return ok
}

func TestRepliesAreBounded(t *testing.T) {
	many := "*100000\r\n" + strings.Repeat(":1\r\n", 100000)
	for name, text := range map[string]string{
		"status": "+OK\r\n", "error": "-ERR no\r\n", "number": ":5\r\n", "nil": "$-1\r\n", "nil list": "*-1\r\n",
		"text": "$5\r\na\r\nbc\r\n", "empty": "$0\r\n\r\n", "no elements": "*0\r\n",
		"nested": "*3\r\n$1\r\na\r\n*2\r\n:1\r\n*1\r\n$1\r\nb\r\n$1\r\nc\r\n", "map": "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n", "push": ">2\r\n$1\r\na\r\n#t\r\n", "many": many, "long": "$4000000\r\n" + strings.Repeat("x", 4000000) + "\r\n",
	} {
		var whole, bytewise replies
		for range 3 { // the bound is for a single reply
			require.True(t, whole.pass([]byte(text)), name)
			require.True(t, passInPieces(&bytewise, text), name)
		}
		require.Equal(t, replies{line: whole.line}, whole, name)
	}
	for _, text := range []string{
		"$1000000000000\r\n", "$5000000\r\n", "*1000000000\r\n", "*300000\r\n", "*9223372036854775807\r\n", "*-2\r\n", "$-5\r\n", "$x\r\n", "*\r\n",
		"%1000000\r\n", "~1000000\r\n", ">1000000\r\n", "|1\r\n", "\r\n", "$?\r\n", "+" + strings.Repeat("x", 5<<20), "-" + strings.Repeat("x", 5<<20) + "\r\n",
		strings.Repeat("*4096\r\n", 64), "*3\r\n$2000000\r\n" + strings.Repeat("x", 2000000) + "\r\n$2200000\r\n",
	} {
		var whole, bytewise replies
		require.False(t, whole.pass([]byte(text)), "%.20q", text)
		passInPieces(&bytewise, text)
		require.True(t, bytewise.bad, "%.20q", text)
	}
}

// A server that names a size that does not fit into memory ends the connection, and nothing
// else.
func TestHugeReply(t *testing.T) {
	for _, reply := range []string{"*9000000000000000000\r\n", "$9000000000000000\r\n", "*200000000\r\n"} {
		c, lines := logged(t, refusing(t, reply))
		start(t, c)
		eventually(t, func() bool { return lines.count("larger than 4 MiB") >= 1 }, "%v", lines)
	}
}

func FuzzReplies(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n:1\r\n"), 3)
	f.Fuzz(func(t *testing.T, p []byte, at int) {
		var whole, parts replies
		at = max(0, min(at, len(p)))
		ok := whole.pass(p)
		require.Equal(t, ok, parts.pass(p[:at]) && parts.pass(p[at:]))
		require.LessOrEqual(t, len(whole.line), maxWord)
		require.True(t, !ok || whole.size <= maxReply && whole.skip <= maxReply+2)
	})
}

// A Redis that restarts empty and dies again, over and over, changes no size. If it lives, the
// members learn of a smaller fleet.
func TestHeldSize(t *testing.T) {
	var h heldSize
	now := time.Unix(1e9, 0)
	assert.Equal(t, 1, h.hear(now, 1, beatEach, 1))
	assert.Equal(t, 20, h.hear(now, 20, beatEach, 1))
	for range 100 {
		now = now.Add(20 * time.Second)
		assert.Equal(t, 20, h.hear(now, 1, beatEach, 1))
		now = now.Add(300 * time.Millisecond)
		assert.Equal(t, 20, h.hear(now, 4, beatEach, 1))
	}
	now = now.Add(20 * time.Second)
	for at := time.Duration(0); at < 7*time.Second; at += beatEach {
		assert.Equal(t, 20, h.hear(now.Add(at), 4, beatEach, 1), at)
	}
	assert.Equal(t, 4, h.hear(now.Add(8*time.Second), 3, beatEach, 1))
	assert.Equal(t, 5, h.hear(now.Add(9*time.Second), 5, beatEach, 1))
}

// A Redis that dies again and again between two heartbeats changes no size either.
func TestHeldSizeWhileRedisFlaps(t *testing.T) {
	var h heldSize
	now := time.Unix(1e9, 0)
	assert.Equal(t, 20, h.hear(now, 20, beatEach, 0))
	for lost := range uint64(100) {
		now = now.Add(beatEach)
		assert.Equal(t, 20, h.hear(now, 7, beatEach, lost+1))
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]message{
		"1 h 5 ab 1f 429 2000000 https://a.test": {at: 5, from: "ab", news: fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://a.test", Scope: 0x1f, Status: 429, Wait: 2 * time.Second}},
		"1 h 5 ab 0 503 0 http://[::1]:8080":     {at: 5, from: "ab", news: fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://[::1]:8080", Status: 503}},
		"1 q 5 ab 1f 3 10 7000 3 https://a.test": {at: 5, from: "ab", news: fleetmsg.Message{Kind: fleetmsg.Quota, Host: "https://a.test", Scope: 0x1f, Amount: 3, Limit: 10, Wait: 7 * time.Millisecond, Members: 3}},
		"1 d 5 ab 9 https://a.test":              {at: 5, from: "ab", news: fleetmsg.Message{Kind: fleetmsg.Down, Wait: 9 * time.Microsecond, Host: "https://a.test"}},
		"1 u 5 ab https://a.test":                {at: 5, from: "ab", news: fleetmsg.Message{Kind: fleetmsg.Up, Host: "https://a.test"}},
		"1 s 1763798400000000 7fffffffffffffff ": {at: 1763798400000000, from: "7fffffffffffffff", news: fleetmsg.Message{Kind: fleetmsg.Members}},
	} {
		got, err := parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{
		"", "1", "1 h", "2 u 5 ab https://a.test", "1 x 5 ab https://a.test", "1 u 5 ab ", "1 u 5 ab a b", "1 u 5 ab a\x00b",
		"1 u -5 ab https://a.test", "1 u 5 xyz https://a.test", "1 u 5 ab " + strings.Repeat("a", ledger.MaxHost+1),
		"1 h 5 ab 1f 200 2000000 https://a.test", "1 h 5 ab 1f 429 -1 https://a.test", "1 h 5 ab 1f 429 1e9 https://a.test",
		"1 h 5 ab 1f 429 9223372036854775807 https://a.test", "1 h 5 ab 11111111111111111 429 1 https://a.test",
		"1 s 5 ab 50", "1 uu 5 ab https://a.test", "1  5 ab https://a.test",
	} {
		_, err := parse(text)
		require.ErrorIs(t, err, errMessage, "%q", text)
	}
}

// Whatever arrives on the channel, a Fleet does not panic, and the Transport gets nothing
// out of bounds.
func FuzzReceive(f *testing.F) {
	f.Add("1 h 5 ab 1f 429 2000000 https://a.test")
	f.Add("1 q 5 ab 1f 3 10 7000 3 https://a.test")
	f.Add("1 d 5 ab 9 https://a.test")
	f.Add("1 u 5 ab https://a.test")
	f.Add("1 s 5 ab ")
	f.Add("1 h 99999999999999 ab 1f 503 0 https://a.test\n")
	fleet, member := start(f, options(f, "127.0.0.1:1"))
	fleet.roster.clock.set(time.Now(), time.Now(), 6)
	f.Fuzz(func(t *testing.T, text string) {
		fleet.receiveMessage(text)
		member.mu.Lock()
		defer member.mu.Unlock()
		for _, h := range member.holds {
			require.True(t, validHost(h.Host) && h.Wait >= 0 && h.Wait <= ledger.MaxWait && (h.Status == 429 || h.Status == 503), "%+v", h)
		}
		for _, q := range member.quotas {
			require.True(t, validHost(q.Host) && q.Amount >= 0 && q.Limit >= 0 && q.Wait > 0 && q.Wait <= ledger.MaxWait && q.Members >= 0, "%+v", q)
		}
		for _, spread := range member.ups {
			require.True(t, spread >= 0 && spread <= 5*time.Second)
		}
		for _, host := range member.downs {
			require.True(t, validHost(host))
		}
		member.holds, member.quotas, member.ups, member.downs = nil, nil, nil, nil
		require.Zero(t, fleet.state().Members, "members")
		fleet.news.mu.Lock()
		defer fleet.news.mu.Unlock()
		require.LessOrEqual(t, fleet.news.out.trays[holdTray].n, maxItems)
		require.LessOrEqual(t, len(fleet.news.met.at), maxMet)
	})
}

// Garbage on the channel costs nothing but the time to read it.
func TestGarbageOnTheChannel(t *testing.T) {
	c := options(t, sharedServer(t).Addr)
	fleets, members := started(t, 2, c)
	admin := connect(t, sharedServer(t).Addr)
	for _, text := range []string{"", "garbage", "2 h 5 ab 1f 429 2000000 https://a.test", "1 h 5 ab", strings.Repeat("1 ", 1<<16), "\xff\xfe\x00"} {
		require.NoError(t, admin.Publish(context.Background(), fleets[0].store.channel, text).Err())
	}
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	members[1].until(t, func() bool { return len(members[1].holds) >= 1 }, "no hold")
}

// A message that was under way for long, because Redis or the network stood still, says
// how long a hold still lasts. Old outages do not count.
func TestLateMessages(t *testing.T) {
	fleet, member := start(t, options(t, "127.0.0.1:1"))
	now := int64(1763798400000000)
	fleet.roster.clock.set(time.Now(), time.Now(), now)
	at := func(age time.Duration) string { return strconv.FormatInt(now-age.Microseconds(), 10) }
	fleet.receiveMessage("1 h " + at(0) + " ab 1f 429 8000000 https://a.test")
	fleet.receiveMessage("1 h " + at(3*time.Second) + " ab 1f 429 8000000 https://a.test")
	fleet.receiveMessage("1 h " + at(9*time.Second) + " ab 1f 429 8000000 https://a.test")
	require.Len(t, member.holds, 2)
	require.Equal(t, 8*time.Second, member.holds[0].Wait)
	require.InDelta(t, 5*time.Second, member.holds[1].Wait, float64(time.Second))
	fleet.receiveMessage("1 d " + at(9*time.Second) + " ab 5 https://a.test")
	require.Empty(t, member.downs)
	fleet.receiveMessage("1 d " + at(time.Second) + " ab 5 https://a.test")
	require.Len(t, member.downs, 1)
	// The clock of Redis went back by an hour.
	fleet.receiveMessage("1 h " + at(-time.Hour) + " ab 1f 429 8000000 https://a.test")
	require.Equal(t, 8*time.Second, member.holds[2].Wait)
}
