package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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

// acl is the rule of the package comment: the commands, keys and channel that a Fleet
// needs.
const acl = "resetkeys resetchannels -@all ~PREFIX:* &PREFIX:news +eval +evalsha +subscribe +ping" +
	" +time +publish +get +set +pttl +pexpire +hget +hset +hdel +hlen +hgetall" +
	" +zadd +zrem +zremrangebyscore +zcard"

func TestACL(t *testing.T) {
	server := ownServer(t)
	admin := connect(t, server.Addr)
	c := options(t, server.Addr)
	user := []any{"acl", "setuser", "fleet", "on", ">secret"}
	for rule := range strings.FieldsSeq(strings.ReplaceAll(acl, "PREFIX", c.Prefix)) {
		user = append(user, rule)
	}
	require.NoError(t, admin.Do(context.Background(), user...).Err())
	c.Redis.Username, c.Redis.Password = "fleet", "secret"
	lines := log(&c)
	fleets, members := started(t, 3, c)
	for i, f := range fleets {
		f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
		f.tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Amount: 1, Wait: time.Minute})
		f.tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: host, PerSecond: 1, Burst: 1, Amount: 1})
		f.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: 5, Wait: 5 * time.Second})
		members[i].until(t, func() bool { return len(members[i].grants) > 0 }, "no tokens")
		for s := range uint64(ledger.MaxScopes + 10) { // makes room for more
			f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: s, Status: 429, Wait: time.Minute})
			f.tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Scope: s, Amount: 1, Wait: time.Minute})
		}
	}
	members[2].until(t, func() bool { return len(members[2].downs) > 0 }, "no outage")
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://other", Status: 429, Wait: time.Minute})
	members[2].until(t, func() bool {
		return slices.ContainsFunc(members[2].holds, func(h fleetmsg.Message) bool { return h.Host == "https://other" })
	}, "no hold")
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: host})
	members[2].until(t, func() bool { return len(members[2].ups) > 0 }, "no return")
	for _, f := range fleets {
		f.Close()
		require.Zero(t, f.store.failed.Load(), "questions failed")
	}
	require.Empty(t, lines.String())
	// Each command is needed, or the list would be too long.
	entries := testkit.Must(admin.Do(context.Background(), "acl", "log").Slice())(t)
	require.Empty(t, entries)
	stats := testkit.Must(admin.Info(context.Background(), "commandstats").Result())(t)
	for field := range strings.FieldsSeq(acl) {
		if name, ok := strings.CutPrefix(field, "+"); ok && name != "ping" { // after 5 s without a message
			require.Contains(t, stats, "cmdstat_"+name+":")
		}
	}
	doc := testkit.Must(os.ReadFile("doc.go"))(t)
	for field := range strings.FieldsSeq(strings.ReplaceAll(acl, "PREFIX", "aplomb")) {
		require.Contains(t, string(doc), field)
	}
}

// A Fleet that Redis refuses says so in one line and in its state, and is never connected
// meanwhile. That includes a user with a right too few.
func TestUnusableFleet(t *testing.T) {
	server := ownServer(t, "--requirepass", "right")
	admin := redis.NewClient(&redis.Options{Addr: server.Addr, Password: "right"})
	defer func() { require.NoError(t, admin.Close()) }()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	type row struct {
		name, reason string
		set          func(*redis.UniversalOptions)
	}
	rows := []row{
		{"wrong password", "WRONGPASS", func(o *redis.UniversalOptions) { o.Password = "wrong" }},
		{"no password", "uthenticat", func(o *redis.UniversalOptions) { o.Password = "" }},
		{"no such database", "out of range", func(o *redis.UniversalOptions) { o.DB = 99 }},
		{"no cluster", "cluster support disabled", func(o *redis.UniversalOptions) { o.IsClusterMode = true }},
		{"no Redis", "malformed", func(o *redis.UniversalOptions) { o.Addrs = []string{web.Listener.Addr().String()} }},
	}
	rights := strings.Fields(strings.ReplaceAll(acl, "PREFIX", t.Name()))
	for i, right := range rights[3:] {
		name := "without" + right
		user := []any{"acl", "setuser", name, "on", ">secret"}
		for j, r := range rights {
			if j != i+3 {
				user = append(user, r)
			}
		}
		require.NoError(t, admin.Do(t.Context(), user...).Err())
		if right != "+eval" { // the script is known
			rows = append(rows, row{name, "", func(o *redis.UniversalOptions) { o.Username, o.Password = name, "secret" }})
		}
	}
	atOnce(t, len(rows), rows, func(r row) string { return r.name }, func(t *testing.T, r row) {
		c := options(t, server.Addr)
		c.Prefix, c.Redis.Password = "TestUnusableFleet", "right"
		r.set(c.Redis)
		lines := log(&c)
		f, _ := start(t, c)
		eventually(t, func() bool { return lines.count("can't be used") > 0 }, "it says nothing")
		for begin := time.Now(); time.Since(begin) < 2500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			callAll(f)
			assert.False(t, f.state().Connected)
			assert.Contains(t, f.store.link.lastReason(), r.reason)
		}
		assert.Equal(t, 1, lines.count("\n"), "%v", lines)
	})
	c := options(t, server.Addr)
	c.Redis.Password = "right"
	fleets, _ := started(t, 1, c)
	require.Empty(t, fleets[0].store.link.lastReason())
}

// Keys and messages have the names of hosts, and no credentials.
func TestNoSecretsInRedis(t *testing.T) {
	server := ownServer(t)
	admin := connect(t, server.Addr)
	var seen []string
	sub := admin.Subscribe(context.Background(), "aplomb:news")
	defer func() { require.NoError(t, sub.Close()) }()
	testkit.Must(sub.Receive(context.Background()))(t)
	c := options(t, server.Addr)
	c.Prefix = ""
	fleets, members := started(t, 2, c)
	const secret = "Bearer sk-the-secret"
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: fleets[0].hash.scope(secret), Status: 429, Wait: time.Minute})
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Scope: fleets[0].hash.scope(secret), Amount: 1, Wait: time.Minute})
	members[1].until(t, func() bool { return len(members[1].holds) > 0 && len(members[1].quotas) > 0 }, "no news")
	for {
		m, err := sub.ReceiveTimeout(context.Background(), 50*time.Millisecond)
		if err != nil {
			break
		}
		seen = append(seen, fmt.Sprintf("%+v", m))
	}
	keys := testkit.Must(admin.Keys(context.Background(), "*").Result())(t)
	require.NotEmpty(t, seen)
	for _, key := range keys {
		dump := testkit.Must(admin.Dump(context.Background(), key).Result())(t)
		seen = append(seen, key, dump)
	}
	all := strings.Join(seen, "\n")
	require.Contains(t, all, host)
	require.NotContains(t, all, "sk-the")
	require.NotContains(t, all, string(testKey))
	for _, key := range keys {
		require.True(t, strings.HasPrefix(key, "aplomb:{"), key)
	}
}

// No time of day is used. time.Now is only for differences, which do not depend on the
// clock of the machine.
func TestNoTimeOfDay(t *testing.T) {
	files := testkit.Must(filepath.Glob("*.go"))(t)
	uses := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file := testkit.Must(parser.ParseFile(set, name, nil, 0))(t)
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				switch s.Sel.Name {
				case "Now":
					uses++
				case "Unix", "UnixMilli", "UnixMicro", "UnixNano", "Format", "Round", "UTC", "Local", "Date", "AppendFormat", "WithDeadline":
					require.Fail(t, "a time of day", "%v: %s", set.Position(s.Pos()), s.Sel.Name)
				}
			}
			return true
		})
	}
	require.Positive(t, uses)
}

func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	cert := web.TLS.Certificates[0]
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return path
	}
	certFile := write("cert.pem", "CERTIFICATE", cert.Certificate[0])
	keyFile := write("key.pem", "PRIVATE KEY", testkit.Must(x509.MarshalPKCS8PrivateKey(cert.PrivateKey))(t))
	addr, port := freeAddress(t)
	ownServer(t, "--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile, "--tls-auth-clients", "no")
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	c := options(t, addr)
	c.Redis.TLSConfig = &tls.Config{RootCAs: roots}
	fleets, members := started(t, 2, c)
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	members[1].until(t, func() bool { return len(members[1].holds) >= 1 }, "no hold")

	c.Redis.TLSConfig = &tls.Config{} // does not know the certificate
	lines := log(&c)
	start(t, c)
	eventually(t, func() bool { return lines.count("unknown authority") >= 1 }, "%v", lines)
}

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
		"": false, " :6379": false, "redis": false, "redis:": false, "redis:x": false, "redis:65536": false, "a:1,b:2": false,
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
				c, lines := logged(t, refusing(t, reply))
				set(c.Redis)
				f, _ := start(t, c)
				eventually(t, func() bool { return lines.count("fleet: Redis ") > 0 }, "no log line")
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
	begin, before := time.Now(), fleets[0].state().Commands
	for time.Since(begin) < time.Second {
		for _, size := range []string{"", " 1", " 16777216"} {
			require.NoError(t, admin.Publish(t.Context(), fleets[0].store.channel, "1 s 5 ab"+size).Err())
		}
	}
	beats, took := fleets[0].state().Commands-before, time.Since(begin)
	assert.LessOrEqual(t, beats, 2+uint64(took/minGap))
	assert.GreaterOrEqual(t, beats, uint64(1))
	for _, m := range members {
		assert.Equal(t, 2, slices.Max(get(m, func() []int { return m.sizes })), "size of the fleet")
		assert.Equal(t, 2, m.lastSize(), "size of the fleet")
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
				before := f.state().Commands
				f.life.beatSoon()
				eventually(t, func() bool { return f.state().Commands > before && !f.life.beatNow.Load() }, "no heartbeat")
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
	wrong.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute}) // it is a member all the same
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
	eventually(t, func() bool { return f.state().Connected && teller.state().Connected }, "not connected")
	p.delay.Store(int64(2 * leastAge))
	f.roster.mu.Lock()
	f.roster.clock.redis += (6 * time.Second).Microseconds()
	f.roster.mu.Unlock()
	f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	teller.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: 3 * time.Second})
	teller.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://other", Status: 429, Wait: time.Hour}) // all messages before it were heard
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
		teller.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://third", Status: 503, Wait: 3 * time.Second})
		return heard("https://third")()
	}, "new messages seem to be old")
	eventually(t, heard(host), "the hold is lost")
}
