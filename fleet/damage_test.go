package fleet

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
)

// A key that somebody else has written, with a wrong type or with wrong fields, stops nothing.
// The scripts forget it, and the host of the key is shared as well.
func TestDamagedKeys(t *testing.T) {
	server := ownServer(t)
	admin := connect(t, server.Addr)
	ctx := context.Background()
	pack := func(text string) string { // of a list, by Redis itself
		v, err := admin.Eval(ctx, "return cmsgpack.pack("+text+")", nil).Text()
		require.NoError(t, err)
		return v
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
		"gate of another type":    {"{H}:gate", list},
		"gate with texts":         {"{H}:gate", text(pack(`{"x","x","x","x","x","x","x","x","x","x","x","x"}`))},
		"gate with lists":         {"{H}:gate", text(pack(`{{},{},{},{},{},{},{},{},{},{},{},{}}`))},
		"gate with bad reports":   {"{H}:gate", text(pack(`{0,0,0,0,-1,"",0,0,{{},"x",5},0,{{}},0}`))},
		"gate with garbage":       {"{H}:gate", text("\xc1\xff\x00")},
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
			lines := &logLines{}
			c := options(t, server.Addr)
			c.Logger = lines.logger()
			key := c.Prefix + ":" + damage.what
			if len(damage.what) > 3 && damage.what[:3] == "{H}" {
				key = c.Prefix + ":{" + host + "}" + damage.what[3:]
			}
			require.NoError(t, damage.do(key))
			fleets, members := started(t, 2, c)
			require.NoError(t, admin.Del(ctx, key).Err())
			require.NoError(t, damage.do(key)) // now by turns
			for i, f := range fleets {
				f.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
				f.Tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: host, PerSecond: 1, Burst: 5, Amount: 1})
				eventually(t, func() bool { return get(members[i], func() bool { return len(members[i].grants) > 0 }) }, "no tokens")
				f.Tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Amount: 5, Limit: 10, Wait: time.Minute})
				f.Tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: 10, Wait: 5 * time.Second})
			}
			fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
			fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://other", Status: 429, Wait: time.Minute})
			m := members[1]
			eventually(t, func() bool {
				return get(m, func() bool { return len(m.holds) >= 2 && len(m.quotas) > 0 && len(m.downs) > 0 })
			}, "it is not shared: %v", lines)
			fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.AskProbe, Host: host})
			eventually(t, func() bool { return get(members[0], func() bool { return len(members[0].probes) > 0 }) }, "no probe")
			fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: host})
			eventually(t, func() bool { return get(m, func() bool { return len(m.ups) > 0 }) }, "no return")
			for _, f := range fleets {
				require.True(t, f.FleetState().Connected)
				require.Zero(t, f.store.failed.Load(), "questions failed")
				require.Equal(t, 2, f.FleetState().Members)
			}
			require.Empty(t, lines.String())
		})
	}
}

// An error about the news of a host is no lost Redis. It shows in the log, once per minute.
func TestRefusedNewsIsNoLostRedis(t *testing.T) {
	lines := &logLines{}
	c := options(t, sharedServer(t).Addr)
	c.Logger = lines.logger()
	fleets, _ := started(t, 1, c)
	f := fleets[0]
	for range 3 {
		f.store.judge("", host, errorReply(t, "WRONGTYPE of "+host))
	}
	require.True(t, f.FleetState().Connected)
	eventually(t, func() bool { return lines.count("refuses the news of a host") == 1 && lines.count("\n") == 1 }, "%v", lines)
	require.EqualValues(t, 3, f.store.failed.Load(), "questions failed")
	f.store.judge("", host, errorReply(t, "ERR unknown command 'evalsha'"))
	require.False(t, f.FleetState().Connected)
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
	for name, how := range map[string]string{"a later version": "v[13] = 'news'", "an earlier version": "v[12] = nil", "a wrong type": "v[11] = 7"} {
		t.Run(name, func(t *testing.T) {
			key := unique(t)
			run := func(s *redis.Script, member int64, args ...any) *redis.Cmd {
				return s.Run(ctx, client, []string{key}, append([]any{now.Microseconds(), strconv.FormatInt(member, 16), ""}, args...)...)
			}
			for member := range int64(3) {
				require.NoError(t, run(failingScript, 1+member, "h", 10, (3*time.Second).Microseconds(), 3).Err())
			}
			change(t, key, how)
			got, err := run(failingScript, 4, "h", 1, 0, 3).Slice()
			require.NoError(t, err)
			require.Equal(t, "3000000", got[1], "the outage is forgotten")
			got, err = run(probeScript, 4, "h", 3).Slice()
			require.NoError(t, err)
			require.Equal(t, int64(1), got[0])
			if name == "a later version" {
				last, err := client.Eval(ctx, "return cmsgpack.unpack(redis.call('GET', KEYS[1]))[13]", []string{key}).Text()
				require.NoError(t, err)
				require.Equal(t, "news", last)
			}
		})
	}
	t.Run("a permit of an earlier version", func(t *testing.T) {
		key := unique(t)
		run := func(member int64) any {
			got, err := probeScript.Run(ctx, client, []string{key}, now.Microseconds(), strconv.FormatInt(member, 16), "", "h", 3).Slice()
			require.NoError(t, err)
			return got[0]
		}
		require.Equal(t, int64(1), run(1))
		change(t, key, "v[7] = 1 v[8] = v[8] + 9000000") // it lent a permit for 10 s
		require.Equal(t, int64(0), run(2))
		require.Equal(t, int64(1), run(1))
		now += 2 * time.Second
		require.Equal(t, int64(1), run(2))
	})
}
