package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/big"
	"net"
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

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
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
	lines := &logLines{}
	c.Logger = lines.logger()
	fleets, members := started(t, 3, c)
	for i, f := range fleets {
		f.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
		f.Tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Amount: 1, Wait: time.Minute})
		f.Tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: host, PerSecond: 1, Burst: 1, Amount: 1})
		f.Tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: 5, Wait: 5 * time.Second})
		eventually(t, func() bool { return get(members[i], func() bool { return len(members[i].grants) > 0 }) }, "no tokens")
		for s := range uint64(ledger.MaxScopes + 10) { // makes room for more
			f.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: s, Status: 429, Wait: time.Minute})
			f.Tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Scope: s, Amount: 1, Wait: time.Minute})
		}
	}
	eventually(t, func() bool { return get(members[2], func() bool { return len(members[2].downs) > 0 }) }, "no outage")
	fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.AskProbe, Host: host})
	eventually(t, func() bool { return get(members[0], func() bool { return len(members[0].probes) > 0 }) }, "no probe")
	fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.ProbeFailed, Host: host})
	fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://other", Status: 429, Wait: time.Minute})
	told := func(over bool) func() bool {
		return func() bool {
			return get(members[2], func() bool {
				return slices.ContainsFunc(members[2].holds, func(h fleetmsg.Message) bool { return h.Host == "https://other" && (h.Wait == 0) == over })
			})
		}
	}
	eventually(t, told(false), "no hold")
	fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://other", Status: 429})
	eventually(t, told(true), "no end of the hold")
	fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: host})
	eventually(t, func() bool { return get(members[2], func() bool { return len(members[2].ups) > 0 }) }, "no return")
	for _, f := range fleets {
		f.Close()
		require.Zero(t, f.store.failed.Load())
	}
	require.Empty(t, lines.String())
	// Each command is needed, or the list would be too long.
	entries, err := admin.Do(context.Background(), "acl", "log").Slice()
	require.NoError(t, err)
	require.Empty(t, entries)
	stats, err := admin.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	for field := range strings.FieldsSeq(acl) {
		if name, ok := strings.CutPrefix(field, "+"); ok && name != "ping" { // after 5 s without a message
			require.Contains(t, stats, "cmdstat_"+name+":")
		}
	}
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
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
		lines := &logLines{}
		c.Logger = lines.logger()
		f, _ := start(t, c)
		eventually(t, func() bool { return lines.count("can't be used") > 0 }, "it says nothing")
		for begin := time.Now(); time.Since(begin) < 2500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			callAll(f)
			s := f.FleetState()
			assert.False(t, s.Connected)
			assert.NotEmpty(t, s.Err)
			assert.Contains(t, s.Err, r.reason)
		}
		assert.Equal(t, 1, lines.count("\n"), "%v", lines)
	})
	c := options(t, server.Addr)
	c.Redis.Password = "right"
	fleets, _ := started(t, 1, c)
	require.Empty(t, fleets[0].FleetState().Err)
}

// Keys and messages have the names of hosts, and no credentials.
func TestNoSecretsInRedis(t *testing.T) {
	server := ownServer(t)
	admin := connect(t, server.Addr)
	var seen []string
	sub := admin.Subscribe(context.Background(), "aplomb:news")
	defer func() { require.NoError(t, sub.Close()) }()
	_, err := sub.Receive(context.Background())
	require.NoError(t, err)
	c := options(t, server.Addr)
	c.Prefix = ""
	fleets, members := started(t, 2, c)
	const secret = "Bearer sk-the-secret"
	fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: fleets[0].Scope(secret), Status: 429, Wait: time.Minute})
	fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Scope: fleets[0].Scope(secret), Amount: 1, Wait: time.Minute})
	eventually(t, func() bool {
		return get(members[1], func() bool { return len(members[1].holds) > 0 && len(members[1].quotas) > 0 })
	}, "no news")
	for {
		m, err := sub.ReceiveTimeout(context.Background(), 50*time.Millisecond)
		if err != nil {
			break
		}
		seen = append(seen, fmt.Sprintf("%+v", m))
	}
	keys, err := admin.Keys(context.Background(), "*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, seen)
	for _, key := range keys {
		dump, err := admin.Dump(context.Background(), key).Result()
		require.NoError(t, err)
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
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	uses := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
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
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return path
	}
	certFile, keyFile := write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", secret)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	l.Close()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	ownServer(t, "--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile, "--tls-auth-clients", "no")
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	c := options(t, addr)
	c.Redis.TLSConfig = &tls.Config{RootCAs: roots}
	fleets, members := started(t, 2, c)
	fleets[0].Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	eventually(t, func() bool { return get(members[1], func() int { return len(members[1].holds) }) >= 1 }, "no hold")

	c.Redis.TLSConfig = &tls.Config{} // does not know the certificate
	lines := &logLines{}
	c.Logger = lines.logger()
	start(t, c)
	eventually(t, func() bool { return lines.count("unknown authority") >= 1 }, "%v", lines)
}
