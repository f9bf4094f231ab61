package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
)

// No way to print a Config or a Fleet shows the Key or a password.
func TestNoSecretsInPrints(t *testing.T) {
	c := options(t, "127.0.0.1:1")
	c.Key = []byte("the-secret-of-16-bytes")
	c.Redis.Username, c.Redis.Password, c.Redis.SentinelPassword = "name", "the-password", "the-password"
	f, _ := start(t, c)
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("x", "config", c, "pointer", &c, "fleet", f)
	}
	seen := []string{log.String()}
	for _, v := range []any{c, &c, f, struct{ C Config }{c}, []Config{c}, map[string]any{"f": f, "c": &c}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X"} {
			seen = append(seen, fmt.Sprintf(verb, v))
		}
	}
	all := strings.ToLower(strings.Join(seen, "\n"))
	require.Contains(t, all, "127.0.0.1:1")
	require.Contains(t, all, strings.ToLower(c.Prefix))
	for _, secret := range []string{"the-secret", "the-password", fmt.Sprintf("%x", "the-secret"), fmt.Sprintf("%x", "the-password"), "116 104 101 45", "dghllxnly3jld"} {
		require.NotContains(t, all, secret)
	}
}

// Somebody may take an address for a URL, whose userinfo is a secret.
func TestAddressesAreNoURLs(t *testing.T) {
	for addr, good := range map[string]bool{
		"redis:6379": true, "[::1]:6379": true, "/run/redis/redis.sock": true,
		"redis://:the-password@redis:6379": false, "rediss://redis:6379?password=the-password": false, ":the-password@redis:6379": false,
		"redis:6379/the-password": false, "//:the-password@redis": false,
	} {
		c := options(t, addr)
		c.Redis.Addrs = []string{"redis:6379", addr}
		require.NotContains(t, fmt.Sprint(c), "the-password")
		if good {
			start(t, c)
			continue
		}
		_, err := New(c)
		require.EqualError(t, err, "fleet: Redis.Addrs[1] is neither host:port nor the path of a socket")
	}
}

// A server repeats the arguments of a command that it does not know. None of them reaches the
// log, wherever the password came from.
func TestNoPasswordInTheLog(t *testing.T) {
	const word = "the-password"
	for name, set := range map[string]func(*redis.UniversalOptions){
		"password": func(o *redis.UniversalOptions) { o.Username, o.Password = "name", word },
		"provider": func(o *redis.UniversalOptions) {
			o.CredentialsProvider = func() (string, string) { return "name", word }
		},
		"provider with context": func(o *redis.UniversalOptions) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "name", word, nil }
		},
	} {
		for _, reply := range []string{
			"-ERR unknown command 'auth', with args beginning with: 'name' '" + word + "' \r\n",
			"-WRONGPASS " + word + " is wrong\r\n", "-" + word + "\r\n", "-ERR " + strings.Repeat("x", 1000) + word + "\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				lines := &logLines{}
				c := options(t, refusing(t, reply))
				c.Logger = lines.logger()
				set(c.Redis)
				f, _ := start(t, c)
				eventually(t, func() bool { return lines.count("own knowledge") > 0 }, "no log line")
				require.NotContains(t, lines.String(), word)
				require.Less(t, len(lines.String()), 1000)
				f.Close()
			})
		}
	}
	for range 2 * maxHidden { // a provider may return another one each time
		h := &hidden{}
		h.add("")
		h.add(word)
		require.Equal(t, "ab", h.reason(errors.New("ab")))
		require.Equal(t, "a…b", h.reason(errors.New("a"+word+"b")))
		// Redis cuts long arguments, so the whole password does not appear.
		require.Equal(t, "unknown command 'auth', …", h.reason(errors.New("unknown command 'auth', with args beginning with: 'name' 'the-pass'")))
	}
}

// An error of Redis writes no line of its own into a log that prints messages as they are.
func TestReasonIsPrintable(t *testing.T) {
	var h *hidden
	err := errors.New("ERR a\x1b[2K\r\nfleet: Redis is back\u009b31m")
	require.Equal(t, "ERR a?[2K??fleet: Redis is back?31m", h.reason(err))
}

// Forged messages that members come and go change no size, and bring few heartbeats.
func TestForgedSize(t *testing.T) {
	fleets, members := started(t, 2, options(t, sharedServer(t).Addr))
	admin := connect(t, sharedServer(t).Addr)
	begin, before := time.Now(), fleets[0].FleetState().Commands
	for time.Since(begin) < time.Second {
		for _, size := range []string{"", " 1", " 16777216"} {
			require.NoError(t, admin.Publish(t.Context(), fleets[0].store.channel, "1 s 5 ab"+size).Err())
		}
	}
	beats, took := fleets[0].FleetState().Commands-before, time.Since(begin)
	assert.LessOrEqual(t, beats, 2+uint64(took/minGap))
	assert.GreaterOrEqual(t, beats, uint64(1))
	for _, m := range members {
		assert.Equal(t, 2, slices.Max(get(m, func() []int { return m.sizes })))
		assert.Equal(t, 2, m.lastSize())
	}
}

// A fleet that is very large mutes no topic for long.
func TestGapsAreBounded(t *testing.T) {
	f, _ := start(t, options(t, "127.0.0.1:1"))
	f.roster.setSize(maxSize, 0)
	for k := fleetmsg.Meet; k <= fleetmsg.Leave; k++ {
		for range 20 {
			require.LessOrEqual(t, f.gap(k), 11*time.Second, k)
		}
	}
}

// The log of each member shows that a member has another Key. It does so once.
func TestAnotherKey(t *testing.T) {
	c := options(t, sharedServer(t).Addr)
	var logs []*logLines
	var fleets []*Fleet
	begin := func(key string) *Fleet {
		lines := &logLines{}
		logs = append(logs, lines)
		c.Key, c.Logger = []byte(key), lines.logger()
		f, _ := start(t, c)
		fleets = append(fleets, f)
		return f
	}
	beat := func() { // all of them twice
		for range 2 {
			for _, f := range fleets {
				before := f.FleetState().Commands
				f.life.beatSoon()
				eventually(t, func() bool { return f.FleetState().Commands > before && !f.life.beatNow.Load() }, "no heartbeat")
			}
		}
	}
	begin("the right key of the tests")
	begin("the right key of the tests")
	beat()
	require.Zero(t, logs[0].count("different values of Key"))
	wrong := begin("the wrong key of the tests")
	beat()
	for i, lines := range logs {
		eventually(t, func() bool { return lines.count("different values of Key") >= 1 }, "%d: %v", i, lines)
	}
	beat()
	require.NotEqual(t, id(t, logs[0]), id(t, logs[2]))
	require.Equal(t, id(t, logs[0]), id(t, logs[1]))
	for _, lines := range logs {
		require.Equal(t, 1, lines.count("\n"), "%v", lines)
	}
	wrong.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute}) // it is a member all the same
}

func id(t *testing.T, l *logLines) string {
	_, id, ok := strings.Cut(l.String(), "key_of_this_member=")
	require.True(t, ok)
	return id
}

// The clock of Redis may be known badly, because every answer is slow, and it may jump. No
// message seems older than it is.
func TestClock(t *testing.T) {
	begin := time.Now()
	redisAt := func(offset time.Duration) int64 { return 1763798400000000 + offset.Microseconds() }
	const slow = 400 * time.Millisecond
	var c clock
	require.False(t, c.set(begin.Add(-slow), begin, redisAt(0))) // Redis answered late
	require.Zero(t, c.age(redisAt(150*time.Millisecond)), "it may be new")
	require.InDelta(t, 9800*time.Millisecond, c.age(redisAt(-10*time.Second-slow/2)), float64(time.Second))
	require.Zero(t, c.age(redisAt(time.Hour)))
	require.Zero(t, c.age(0))
	require.Zero(t, c.age(1<<62))
	// The clock of Redis jumps, and all answers are slow.
	c = clock{}
	c.set(begin.Add(-time.Millisecond), begin, redisAt(0))
	require.False(t, c.set(begin, begin.Add(slow), redisAt(slow)), "a quick answer tells more")
	require.Equal(t, time.Millisecond/2, c.slack)
	require.True(t, c.set(begin, begin.Add(slow), redisAt(-6*time.Second)))
	require.Zero(t, c.age(redisAt(-6*time.Second)), "a new message")
	require.True(t, c.set(begin, begin.Add(slow), redisAt(6*time.Second)))
	require.Zero(t, c.age(redisAt(6*time.Second)))
	// After a while a slow answer tells more than an old quick one.
	c = clock{}
	c.set(begin.Add(-time.Millisecond), begin, redisAt(0))
	later := begin.Add(10 * time.Minute)
	require.False(t, c.set(later, later.Add(slow), redisAt(10*time.Minute+slow/2)))
	require.Equal(t, slow/2, c.slack)
}

// If the clock of Redis was known wrongly, the next heartbeat corrects it, however slow the
// heartbeats are. What seemed too old meanwhile is asked for again.
func TestClockIsCorrected(t *testing.T) {
	p := newProxy(t, sharedServer(t).Addr)
	c := options(t, sharedServer(t).Addr)
	teller, _ := start(t, c)
	c.Redis = &redis.UniversalOptions{Addrs: []string{p.addr}}
	f, m := start(t, c)
	eventually(t, func() bool { return f.FleetState().Connected && teller.FleetState().Connected }, "not connected")
	p.delay.Store(int64(2 * leastAge))
	f.roster.mu.Lock()
	f.roster.clock.redis += (6 * time.Second).Microseconds()
	f.roster.mu.Unlock()
	f.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	teller.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: 3 * time.Second})
	teller.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://other", Status: 429, Wait: time.Hour}) // all messages before it were heard
	heard := func(host string) func() bool {
		return func() bool {
			return get(m, func() bool {
				for _, h := range m.holds {
					if h.Host == host {
						return true
					}
				}
				return false
			})
		}
	}
	eventually(t, heard("https://other"), "no message")
	f.life.beatSoon()
	eventually(t, func() bool {
		teller.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://third", Status: 503, Wait: 3 * time.Second})
		return heard("https://third")()
	}, "new messages seem to be old")
	eventually(t, heard(host), "the hold is lost")
}
