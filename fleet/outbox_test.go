package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// One host with many credentials takes no place of other hosts, and none of the news of outages.
func TestManyCredentials(t *testing.T) {
	const credentials, hosts = 4500, 20
	c, lines := logged(t, sharedServer(t).Addr)
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
			if n := breaks(); n != broken && fleets[0].state().Connected && fleets[3].state().Connected {
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
			fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Scope: 1 + i, Amount: 1, Limit: 10, Wait: wait})
			fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: 1 + i, Status: 429, Wait: wait})
		}
		for i := range hosts {
			fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: name(i), Status: 429, Wait: wait})
			fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: name(i), Amount: 1, Limit: 10, Wait: wait})
		}
		wait *= 2 // a hold that all know is not told again
	}, func() bool { return fleets[0].state().Dropped > 0 })
	until("Failing was dropped", func() {
		for _, f := range fleets[:3] {
			f.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: 10, Wait: 5 * time.Second})
		}
	}, func() bool { return get(m, func() int { return len(m.downs) }) > 0 })
	until("Working was dropped", func() { fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: host}) },
		func() bool { return get(m, func() int { return len(m.ups) }) > 0 })
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
	t.Logf("of %d credentials %d holds and %d quotas arrived, %d dropped", credentials, same, quotas, fleets[0].state().Dropped)
	require.NotZero(t, lines.count("too many"), "%v", lines)
	require.LessOrEqual(t, lines.count("too many"), 2, "%v", lines) // one per minute
	require.Positive(t, fleets[0].state().Dropped)
}

// A question for which there is no room shows in the log, once per minute.
func TestTooManyQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &logLines{}
		f := &Fleet{store: store{journal: journal{logger: lines.logger()}}} // nobody receives
		ask := fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: "http://h", Amount: 1, PerSecond: 1, Burst: 1}
		for range 3 {
			f.tell(ask)
		}
		time.Sleep(time.Minute)
		f.tell(ask)
		synctest.Wait()
		require.Regexp(t, `(?s)too many.* dropped=1 last="ask for tokens" .*too many.* dropped=3 last="ask for tokens"`, lines.String())
		require.EqualValues(t, 4, f.store.dropped.Load(), "messages dropped")
	})
}

// The trays of an outbox are bounded, and so is the part of a host. If there is no room, an item that only remembers makes some.
func TestOutboxMakesRoom(t *testing.T) {
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
		require.True(t, tell(fleetmsg.Hold, name(int(i)), i), "a hold of another host has to make room")
	}
	require.Equal(t, maxItems, o.trays[holdTray].n)
	require.NotNil(t, o.get(topic{kind: fleetmsg.Hold, host: name(2*maxItems - 1), scope: 2*maxItems - 1}))
	told := 0
	for i := range uint64(2 * maxScope) {
		if tell(fleetmsg.Hold, host, i) {
			told++
		}
	}
	require.Equal(t, maxScope, told, "the gaps of a host's scopes bound its news")
	now, told = now.Add(minGap), 0
	for i := range uint64(2 * maxScope) {
		if tell(fleetmsg.Hold, host, 1<<20+i) {
			told++
		}
	}
	require.True(t, maxScope*9/10 < told && told <= maxScope, "%d holds are told after the gap", told)
	require.Equal(t, maxScope, len(o.trays[holdTray].hosts[host]))

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
		f.news.met.add(host)
		forged := func(host string, scope int) {
			f.receiveMessage(fmt.Sprintf("1 h 1 ab %x 429 %d %s", scope, ledger.MaxWait.Microseconds(), host))
			f.receiveMessage(fmt.Sprintf("1 d 1 ab 9 %s", host))
		}
		forged(host, 0)
		for i := range 2 * maxItems {
			forged(name(i), i)
			f.receiveMessage(fmt.Sprintf("1 h 1 ab %x 429 0 %s", i, name(i)))
		}
		require.Equal(t, 1, f.news.out.trays[holdTray].n)
		require.Len(t, f.news.met.at, 1)
		require.False(t, f.news.met.get(host).down.IsZero(), "messages about other hosts have pushed it out")
		for i := range 2 * maxItems {
			forged(host, i)
		}
		require.LessOrEqual(t, f.news.out.trays[holdTray].n, maxScope)
		forged(host, 0)
		sends := func() bool {
			f.store.link.mu.Lock()
			clear(f.store.link.lostNodes)
			f.store.link.mu.Unlock()
			before := f.state().Commands
			f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Hour})
			synctest.Wait()
			return f.state().Commands > before
		}
		require.False(t, sends(), "all know it")
		time.Sleep(remember)
		require.True(t, sends(), "it is remembered for longer")
	})
}

// A handler calls a function for each log line.
type handler func()

func (handler) Enabled(context.Context, slog.Level) bool    { return true }
func (h handler) Handle(context.Context, slog.Record) error { h(); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handler) WithGroup(string) slog.Handler             { return h }

// unreachable returns a Config of a Redis that cannot be reached, without a network.
func unreachable(t testing.TB, h slog.Handler) Config {
	c := options(t, "redis.example.com:6379")
	c.Redis.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused by the test") }
	c.Logger = slog.New(h)
	return c
}

func healthyTransport(t testing.TB, f *Fleet) *transport.Transport {
	tr := transport.MustNew(transport.Config{
		Fleet: f,
		Rule:  policy.Rule{ShareRetryAfter: policy.On, Concurrency: policy.Concurrency{Max: 50}, QuotaPacing: policy.On},
		Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}),
	})
	return tr
}

// A log handler that blocks costs no request any time. Close takes no longer than it
// takes while Redis is away.
func TestLogThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		blocked := atomic.Bool{}
		f, err := New(unreachable(t, handler(func() {
			blocked.Store(true)
			<-unblock
		})))
		require.NoError(t, err)
		tr := healthyTransport(t, f)
		synctest.Wait()
		require.True(t, blocked.Load(), "there was no log line")
		begin := time.Now()
		for i := range 10 {
			req := testkit.Must(http.NewRequest(http.MethodGet, name(i), nil))(t)
			testkit.Must(tr.RoundTrip(req))(t)
			callAll(f)
			f.state()
		}
		require.Zero(t, time.Since(begin))
		time.Sleep(time.Minute) // the heartbeats go on
		require.Greater(t, f.state().Commands, uint64(30))
		begin = time.Now()
		f.Close()
		require.Equal(t, leaving, time.Since(begin))
		close(unblock)
	})
}

// A log handler may send its lines through the Transport that the Fleet serves, and may call
// the Fleet.
func TestLogOverTheSameTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr atomic.Pointer[transport.Transport]
		var shipped atomic.Int64
		var f *Fleet
		ready := make(chan struct{})
		f, err := New(unreachable(t, handler(func() {
			<-ready
			f.state()
			req, err := http.NewRequest(http.MethodPost, "https://logs.example.com", nil)
			if err == nil {
				_, err = tr.Load().RoundTrip(req)
			}
			if err == nil {
				shipped.Add(1)
			}
		})))
		require.NoError(t, err)
		tr.Store(healthyTransport(t, f))
		close(ready)
		synctest.Wait()
		require.Positive(t, shipped.Load())
		f.Close()
	})
}

// The log is bounded, and lines keep their order.
func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &logLines{}
		unblock := make(chan struct{})
		j := journal{logger: slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
			<-unblock
			return lines.Write(b)
		}), nil))}
		for i := range 2 * maxLines {
			j.add(slog.LevelInfo, "line", "number", i)
			synctest.Wait()
		}
		close(unblock)
		synctest.Wait()
		require.Equal(t, maxLines+1, lines.count("\n"))
		require.Regexp(t, `(?s)number=0\n.*number=1\n.*number=16\n$`, lines.String())
		j.add(slog.LevelInfo, "again")
		j.close(t.Context())
		require.Equal(t, 1, lines.count("again"))
		j.add(slog.LevelInfo, "late")
		synctest.Wait()
		require.Zero(t, lines.count("late"))
	})
}

// A handler that panics ends neither the process nor the log.
func TestLogThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		j := journal{logger: slog.New(handler(func() {
			if calls++; calls == 1 {
				panic("of the handler")
			}
		}))}
		j.add(slog.LevelInfo, "line")
		j.add(slog.LevelInfo, "line")
		synctest.Wait()
		require.Equal(t, 2, calls, "calls of the handler")
		j.close(t.Context())
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// The scripts and package ledger answer the same for random questions at the same times.
func TestScriptsDoWhatTheLedgerDoes(t *testing.T) {
	client := connect(t, sharedServer(t).Addr)
	for seed := range uint64(soak.Size(40, 2000)) {
		t.Run(fmt.Sprint("outage/", seed), func(t *testing.T) { compareOutage(t, client, seed) })
		t.Run(fmt.Sprint("tokens/", seed), func(t *testing.T) { compareTokens(t, client, seed) })
	}
}

func compareOutage(t *testing.T, client *redis.Client, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	var host ledger.Host
	now := instant.At(100 * time.Second)
	key := unique(t)
	members := 1 + r.IntN(5)
	run := func(s *redis.Script, member int64, args ...any) *redis.Cmd {
		return s.Run(context.Background(), client, []string{key}, append([]any{now.Since().Microseconds(), strconv.FormatInt(member, 16), ""}, args...)...)
	}
	outages, ups, known := 0, 0, false
	for step := range 150 {
		steps := []time.Duration{0, time.Millisecond, 137 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second, 11 * time.Second, 61 * time.Second}
		now = now.Add(steps[min(r.IntN(len(steps)), r.IntN(len(steps)))])
		member := 1 + r.Int64N(int64(members)+2)
		switch r.IntN(6) {
		case 0:
			want := int64(0)
			if host.Working(now) {
				want = 1
				ups++
			}
			got := testkit.Must(run(workingScript, member, "h").Int64())(t)
			require.Equal(t, want, got, step)
		default:
			failures, since := 1+r.IntN(6), time.Duration(r.Int64N(int64(4*time.Second))).Truncate(time.Microsecond)
			wasDown := host.IsDown()
			down, from := host.Failing(now, member, failures, now.Add(-since), members)
			got := testkit.Must(run(failingScript, member, "h", failures, since.Microseconds(), members).Slice())(t)
			require.Equal(t, down, got[0] == int64(1), step)
			switch {
			case down:
				outages++
				require.Equal(t, strconv.FormatInt(now.Sub(from).Microseconds(), 10), got[1], step)
			case wasDown: // the script also says since when
				require.Equal(t, strconv.FormatInt(now.Sub(host.Since()).Microseconds(), 10), got[1], step)
			default:
				require.Equal(t, "-1", got[1], step)
			}
		}
		met, err := meetScript.Run(context.Background(), client, []string{key, key + "h", key + "q"}, now.Since().Microseconds(), "", "").Slice()
		require.NoError(t, err)
		if down := "-1"; host.IsDown() {
			down = strconv.FormatInt(now.Sub(host.Since()).Microseconds(), 10)
			require.Equal(t, down, met[0], step)
		} else if met[0] != "-2" { // nothing was reported yet
			require.Equal(t, down, met[0], step)
			known = true
		} else {
			require.False(t, known, step)
		}
	}
	t.Logf("%d members: %d outages, %d ups", members, outages, ups)
}

func compareTokens(t *testing.T, client *redis.Client, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	var tokens ledger.Tokens
	now := instant.At(100 * time.Second)
	key := unique(t)
	rates := []float64{0.01, 0.5, 3, 10, 100, 1000, 12345}
	ask := fleetmsg.Message{Host: "h", PerSecond: rates[r.IntN(len(rates))], Burst: float64(1 + r.IntN(20))}
	mixed := r.IntN(2) == 0
	each := everyOf(ask)
	given := 0
	for step := range 150 {
		now = now.Add(time.Duration(r.Int64N(int64(5*each))).Truncate(time.Microsecond) * time.Duration(r.IntN(2)))
		if mixed && r.IntN(5) == 0 { // another member, with another rule
			ask.PerSecond = rates[r.IntN(len(rates))]
			each = everyOf(ask)
		}
		want := 1 + r.IntN(30)
		var a ledger.Absence // what the member says about the bucket
		due := ""
		if r.IntN(4) == 0 {
			a.Silence = time.Duration(r.Int64N(int64(10 * each))).Truncate(time.Microsecond)
			a.Spent = float64(r.IntN(5))
		}
		if r.IntN(4) == 0 {
			a.Due, a.Sure = (time.Duration(r.Int64N(int64(each)*30)) - each*25).Truncate(time.Microsecond), true
			due = strconv.FormatInt(a.Due.Microseconds(), 10)
			if r.IntN(4) == 0 { // Redis has lost the key
				tokens = ledger.Tokens{}
				require.NoError(t, client.Del(context.Background(), key).Err())
			}
		}
		args := []any{now.Since().Microseconds(), "", "", float64(each) / float64(time.Microsecond), ask.Burst}
		if r.IntN(5) == 0 {
			unused := 1 + r.IntN(10)
			tokens.GiveBack(now, ask.PerSecond, int(ask.Burst), unused)
			require.NoError(t, unusedScript.Run(context.Background(), client, []string{key}, append(args, unused)...).Err())
		}
		tokens.Repay(now, ask.PerSecond, int(ask.Burst), a)
		n, first, every, again := tokens.Take(now, ask.PerSecond, int(ask.Burst), want)
		require.Equal(t, each, every)
		got, err := tokensScript.Run(context.Background(), client, []string{key}, append(args, want, a.Silence.Microseconds(), a.Spent, due, "")...).Slice()
		require.NoError(t, err)
		require.Equal(t, int64(n), got[0], step)
		given += n
		if n > 0 {
			near(t, first.Sub(now), got[1], step)
		} else {
			near(t, again, got[2], step)
		}
	}
	t.Logf("%v per second: %d tokens", ask.PerSecond, given)
}

// near compares durations up to the rounding of the script.
func near(t *testing.T, want time.Duration, got any, step int) {
	t.Helper()
	d, ok := micros(got)
	require.True(t, ok)
	require.LessOrEqual(t, math.Abs(float64(want-d)), float64(time.Microsecond), "step %d: %v and %v", step, want, d)
}
