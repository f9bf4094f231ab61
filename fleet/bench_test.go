package fleet

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
)

// BenchmarkHold shows the time until another member hears of a hold.
func BenchmarkHold(b *testing.B) {
	fleets, _ := started(b, 1, options(b, sharedServer(b).Addr))
	c := options(b, sharedServer(b).Addr)
	c.Prefix = fleets[0].store.prefix
	heard := make(chan time.Time)
	f := fresh(b, c)
	require.NoError(b, f.join(echo(fleetmsg.Hold, heard)))
	eventually(b, func() bool { return f.state().Connected }, "not connected")
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://" + strconv.Itoa(i%1000), Status: 429, Wait: time.Duration(i+1) * time.Second})
		took = append(took, (<-heard).Sub(begin))
	}
	report(b, took)
}

// BenchmarkTokens shows the time from a question for tokens to the answer.
func BenchmarkTokens(b *testing.B) {
	f := fresh(b, options(b, sharedServer(b).Addr))
	heard := make(chan time.Time)
	require.NoError(b, f.join(echo(fleetmsg.Tokens, heard)))
	eventually(b, func() bool { return f.state().Connected }, "not connected")
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		f.tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: host, PerSecond: 1e6, Burst: 1, Amount: 10})
		took = append(took, (<-heard).Sub(begin))
	}
	report(b, took)
}

// echo returns a member that says when it hears a message of a kind.
func echo(kind fleetmsg.Kind, heard chan<- time.Time) func(fleetmsg.Message) {
	return func(m fleetmsg.Message) {
		if m.Kind == kind {
			heard <- time.Now()
		}
	}
}

func report(b *testing.B, took []time.Duration) {
	b.ReportMetric(float64(percentile(took, 50).Microseconds()), "p50-µs")
	b.ReportMetric(float64(percentile(took, 99).Microseconds()), "p99-µs")
}

// BenchmarkCall shows what Tell costs the Transport.
func BenchmarkCall(b *testing.B) {
	f, _ := start(b, options(b, sharedServer(b).Addr))
	eventually(b, func() bool { return f.state().Connected }, "not connected")
	for name, call := range map[string]func(){
		"hold":    func() { f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Second}) },
		"quota":   func() { f.tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Amount: 1, Wait: time.Second}) },
		"failing": func() { f.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: 1}) },
		"scope":   func() { f.hash.scope("Bearer abcdefghijklmnop") },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

// BenchmarkScript shows how long each script keeps Redis busy, by the statistics of Redis.
func BenchmarkScript(b *testing.B) {
	server := ownServer(b)
	client := connect(b, server.Addr)
	ctx := context.Background()
	for _, s := range []struct {
		name   string
		script *redis.Script
		args   func(i int) []any
	}{
		{"beat", beatScript, func(i int) []any { return []any{7000000, tellSize} }},
		{"failing", failingScript, func(i int) []any { return []any{host, 1, 100000, 50} }},
		{"working", workingScript, func(i int) []any { return []any{host} }},
		{"hold", holdScript, func(i int) []any { return []any{host, "ab", 429, (i + 1) * 1000000, 100000, ledger.MaxScopes} }},
		{"quota", quotaScript, func(i int) []any { return []any{host, "ab", 5, 10, 60000000, "0", 100000, ledger.MaxScopes} }},
		{"tokens", tokensScript, func(i int) []any { return []any{10.0, 1, 10, 0, 0, "", ""} }},
		{"meet", meetScript, func(i int) []any { return nil }},
	} {
		b.Run(s.name, func(b *testing.B) {
			keys := []string{"bench:{x}:" + s.name, "bench:{x}:holds", "bench:{x}:quotas"}
			i := 0
			run := func() {
				i++
				args := append([]any{"", hex(uint64(i % 1000)), "bench:news"}, s.args(i)...)
				require.NoError(b, s.script.Run(ctx, client, keys, args...).Err())
			}
			run()
			require.NoError(b, client.ConfigResetStat(ctx).Err())
			for b.Loop() {
				run()
			}
			text := testkit.Must(client.Info(ctx, "commandstats").Result())(b)
			_, rest, ok := strings.Cut(text, "cmdstat_evalsha:")
			require.True(b, ok)
			_, rest, _ = strings.Cut(rest, "usec_per_call=")
			each, _, _ := strings.Cut(rest, ",")
			us := testkit.Must(strconv.ParseFloat(each, 64))(b)
			b.ReportMetric(us, "µs-in-redis")
		})
	}
}

// TestMemoryOfAHost logs how much memory the state of a host takes in Redis.
func TestMemoryOfAHost(t *testing.T) {
	server := ownServer(t)
	client := connect(t, server.Addr)
	fleets, members := started(t, 3, options(t, server.Addr))
	use := func() map[string]int64 {
		sizes := map[string]int64{}
		keys := testkit.Must(client.Keys(context.Background(), "*").Result())(t)
		for _, key := range keys {
			n, err := client.MemoryUsage(context.Background(), key, 0).Result()
			if errors.Is(err, redis.Nil) {
				continue // it has expired
			}
			require.NoError(t, err)
			sizes[key[strings.LastIndex(key, ":")+1:]] = n
		}
		return sizes
	}
	tell := func(scopes uint64) {
		for s := range scopes {
			fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: s << 40, Status: 429, Wait: time.Hour})
			fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Scope: s << 40, Amount: 5, Limit: 5000, Wait: time.Hour})
		}
		members[1].until(t, func() bool { return len(members[1].holds) >= int(scopes) && len(members[1].quotas) >= int(scopes) }, "not told")
	}
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: host, PerSecond: 1, Burst: 10, Amount: 1})
	for _, f := range fleets {
		f.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: 1, Wait: time.Second})
	}
	tell(1)
	eventually(t, func() bool { return len(use()) == 5 }, "keys are missing: %v", use())
	t.Log("bytes with 1 scope:", use())
	tell(ledger.MaxScopes)
	full := use()
	t.Log("bytes with 256 scopes:", full)
	sum := int64(0)
	for _, n := range full {
		sum += n
	}
	require.Less(t, sum, int64(64<<10))
}

// TestLargeFleet logs how long a hold takes to all members of a fleet, and how many
// commands Redis gets in peace.
func TestLargeFleet(t *testing.T) {
	t.Parallel()
	n := soak.Size(30, 1000)
	server := ownServer(t)
	client := connect(t, server.Addr)
	fleets, members := make([]*Fleet, n), make([]*witness, n)
	c := options(t, server.Addr)
	for i := range n {
		fleets[i], members[i] = start(t, c)
	}
	for _, f := range fleets {
		eventually(t, func() bool { return f.state().Connected && f.state().Members > n*9/10 }, "not connected")
	}
	commands := func() (sum uint64) {
		for _, f := range fleets {
			sum += f.state().Commands
		}
		return sum
	}
	before, began := commands(), time.Now()
	time.Sleep(time.Duration(soak.Size(1, 20)) * time.Second)
	rate := float64(commands()-before) / time.Since(began).Seconds()
	begin := time.Now()
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	var last time.Duration
	for _, m := range members[1:] {
		m.until(t, func() bool { return len(m.holds) >= 1 }, "no hold")
		last = max(last, m.last.Sub(begin))
	}
	before = commands()
	for _, f := range fleets {
		f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	}
	time.Sleep(100 * time.Millisecond)
	known := commands() - before
	for _, f := range fleets { // all are told at the same moment
		f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://storm.example.com", Status: 429, Wait: time.Minute})
	}
	time.Sleep(time.Second)
	messages := testkit.Must(client.Info(context.Background(), "commandstats").Result())(t)
	_, messages, _ = strings.Cut(messages, "cmdstat_publish:calls=")
	messages, _, _ = strings.Cut(messages, ",")
	t.Logf("%d members: %.0f commands per second in peace; %d connections; a hold reached the last member after %v; %d commands when all were told what they knew; %d members at Redis; %s messages in all",
		n, rate, clients(t, client), last.Round(100*time.Microsecond), known, fleets[0].state().Members, messages)
	require.LessOrEqual(t, rate, float64(n)/beatEach.Seconds()*5/4*1.2+20)
}
