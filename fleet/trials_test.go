package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
)

// The section "When Redis forgets" of lab/fleet/README.md has the figures that these
// trials log:
//
//	APLOMB_SOAK=1 go -C fleet test -run Trial -v

func fine(int, time.Duration) (int, string) { return 200, "" }

func unpaused(int) time.Duration { return 0 }

// at returns a config for a server, with a prefix of its own.
func at(t *testing.T, n int, addr string) []Config {
	return slices.Repeat([]Config{options(t, addr)}, n)
}

// info returns a number of the INFO command.
func info(t *testing.T, c *redis.Client, name string) float64 {
	t.Helper()
	text := testkit.Must(c.Info(t.Context(), "everything").Result())(t)
	_, text, ok := strings.Cut(text, "\r\n"+name+":")
	require.True(t, ok, name)
	text, _, _ = strings.Cut(text, "\r\n")
	return testkit.Must(strconv.ParseFloat(text, 64))(t)
}

// newcomer starts a member that meets the host, and returns how many holds it hears of.
func newcomer(t *testing.T, c Config) int {
	f, w := start(t, c)
	eventually(t, func() bool { return f.state().Connected }, "not connected")
	f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	time.Sleep(200 * time.Millisecond)
	return get(w, func() int { return len(w.holds) })
}

// Redis forgets all keys again and again. Each time the rate begins with a full burst. The
// members go on with the holds that they know, and a member that starts then knows none.
func TestTrialFlush(t *testing.T) {
	t.Parallel()
	const members, perSecond, burst = 4, 50, 10
	flushes := soak.Size(2, 10)
	server := ownServer(t)
	admin := connect(t, server.Addr)
	configs := at(t, members, server.Addr)
	c := crewOf(t, configs, policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond, Burst: burst}}, fine)
	from := time.Since(c.begun)
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for range flushes {
			time.Sleep(time.Second)
			assert.NoError(t, admin.FlushAll(t.Context()).Err())
		}
	})
	c.run(t, from+time.Duration(flushes+1)*time.Second, unpaused)
	flushing.Wait()
	spent := (time.Since(c.begun) - from).Seconds()
	sent, due := float64(len(c.sends(from, time.Hour))), perSecond*spent+burst
	t.Logf("rate: %.0f sent in %.1f s, %.0f without a FLUSHALL: %.1f more for each FLUSHALL, with a burst of %d", sent, spent, due, (sent-due)/float64(flushes), burst)
	require.LessOrEqual(t, sent, due+float64(flushes*(burst+perSecond/2)), "requests sent")
	require.Zero(t, c.failed.Load(), "requests failed")

	fleets, heard := started(t, 2, options(t, server.Addr))
	fleets[1].tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	heard[1].until(t, func() bool { return len(heard[1].holds) >= 1 }, "no hold")
	config := options(t, server.Addr)
	config.Prefix = fleets[0].store.prefix
	before := newcomer(t, config)
	require.NoError(t, admin.FlushAll(t.Context()).Err())
	after := newcomer(t, config)
	taken := get(heard[1], func() bool {
		return slices.ContainsFunc(heard[1].holds, func(h fleetmsg.Message) bool { return h.Wait <= 0 })
	})
	t.Logf("hold: a newcomer hears of %d holds before the FLUSHALL, and of %d after it; is it taken back from the others: %v", before, after, taken)
	require.Equal(t, 1, before)
	require.False(t, taken)
}

// Redis evicts keys, because something else fills its memory.
func TestTrialEviction(t *testing.T) {
	t.Parallel()
	const members, perSecond, burst = 4, 50, 10
	window := time.Duration(soak.Size(2, 20)) * time.Second
	server := ownServer(t, "--maxmemory-policy", "allkeys-lru")
	admin := connect(t, server.Addr)
	c := crewOf(t, at(t, members, server.Addr), policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond, Burst: burst}}, fine)
	holder, _ := start(t, c.config)
	eventually(t, func() bool { return holder.state().Connected }, "not connected")
	holder.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Scope: 1, Wait: time.Hour})
	eventually(t, func() bool { return holder.state().Members == members+1 }, "too few members")
	most := int64(info(t, admin, "used_memory")) + 1<<20
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(most, 10)).Err())

	from := time.Since(c.begun)
	var filling sync.WaitGroup
	least := members + 1
	filling.Go(func() {
		junk := strings.Repeat("x", 1000)
		for i := 0; time.Since(c.begun) < from+window || i < 3000; i++ { // a part of them is more than fits
			_ = admin.Set(t.Context(), fmt.Sprint("junk", i), junk, 0).Err() // out of memory is part of the trial
			if i%5 == 0 {
				time.Sleep(time.Millisecond)
			}
			least = min(least, holder.state().Members)
		}
	})
	c.run(t, from+window, unpaused)
	filling.Wait()
	sent, due := len(c.sends(from, time.Hour)), int(perSecond*window.Seconds())+burst
	left := 0
	for _, what := range []string{holder.store.prefix + ":{members}", holder.store.keyOf(host, "rate"), holder.store.keyOf(host, "holds")} {
		n := testkit.Must(admin.Exists(t.Context(), what).Result())(t)
		left += int(n)
	}
	evicted := info(t, admin, "evicted_keys")
	t.Logf("%.0f keys evicted in %v; %d sent, %d without evictions; the least size that was seen is %d of %d; %d of 3 keys are left; a newcomer hears of %d holds",
		evicted, window, sent, due, least, members+1, left, newcomer(t, c.config))
	require.Positive(t, evicted)
	require.Zero(t, c.failed.Load(), "requests failed")
}

// A replica becomes the master without the last writes.
func TestTrialPromotedReplica(t *testing.T) {
	t.Parallel()
	const members, perSecond, burst = 4, 50, 50
	master := ownServer(t)
	wire := newProxy(t, master.Addr)
	wireHost, wirePort, err := net.SplitHostPort(wire.addr)
	require.NoError(t, err)
	replica := ownServer(t, "--replicaof", wireHost+" "+wirePort)
	second := connect(t, replica.Addr)
	front := newProxy(t, master.Addr)
	c := crewOf(t, at(t, members, front.addr), policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond, Burst: burst}}, fine)
	fleets, heard := started(t, 2, options(t, front.addr))
	fleets[1].tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	eventually(t, func() bool { return second.DBSize(t.Context()).Val() > 0 }, "the replica is empty")

	from := time.Since(c.begun)
	var story sync.WaitGroup
	var killed, back time.Duration
	story.Go(func() {
		time.Sleep(time.Second)
		wire.cut() // the replica gets no more
		time.Sleep(500 * time.Millisecond)
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
		time.Sleep(1500 * time.Millisecond)
		killed = time.Since(c.begun)
		master.Kill()
		assert.NoError(t, second.ReplicaOf(t.Context(), "NO", "ONE").Err())
		front.move(replica.Addr)
		for !c.fleets[0].state().Connected {
			time.Sleep(time.Millisecond)
		}
		back = time.Since(c.begun)
	})
	c.run(t, from+6*time.Second, unpaused)
	story.Wait()
	spent := time.Since(c.begun) - from
	sent := len(c.sends(from, time.Hour))
	first := len(c.sends(back, back+2*time.Second))
	config := options(t, front.addr)
	config.Prefix = fleets[0].store.prefix
	t.Logf("rate: %d sent in %.1f s, %.0f are due with one burst of %d; %d in the first 2 s after the return, which took %v; a member knows %d hold, a newcomer %d",
		sent, spent.Seconds(), perSecond*spent.Seconds()+burst, burst, first, (back - killed).Round(10*time.Millisecond),
		get(heard[1], func() int { return len(heard[1].holds) }), newcomer(t, config))
	require.LessOrEqual(t, float64(sent), perSecond*spent.Seconds()+2*burst+perSecond)
	require.Zero(t, c.failed.Load(), "requests failed")
}

// Redis closes the connection of a subscriber that reads too slowly. The subscriber comes
// back and hears of what it missed.
func TestTrialSlowSubscriber(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "--client-output-buffer-limit", "pubsub 256kb 0 0")
	admin := connect(t, server.Addr)
	config := options(t, server.Addr)
	lines := &logLines{}
	deaf := new(deafness)
	slow := config
	slow.Logger = lines.logger()
	slow.Redis = &redis.UniversalOptions{Addrs: []string{server.Addr}, Dialer: deaf.dial}
	f, w := start(t, slow)
	other, _ := start(t, config)
	for _, f := range []*Fleet{f, other} {
		eventually(t, func() bool { return f.state().Connected && f.state().Members == 2 }, "not connected")
	}
	f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	deaf.on.Store(true)
	defer deaf.on.Store(false)
	junk := strings.Repeat("x", 100_000)
	published, left := 0, 2
	for ; left == 2 && published < 1000; published++ {
		require.NoError(t, admin.Publish(t.Context(), f.store.channel, junk).Err())
		list := testkit.Must(admin.Do(t.Context(), "client", "list", "type", "pubsub").Text())(t)
		left = strings.Count(list, "\n")
	}
	other.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	time.Sleep(100 * time.Millisecond)
	missed := get(w, func() int { return len(w.holds) })
	begin := time.Now()
	deaf.on.Store(false)
	w.until(t, func() bool { return len(w.holds) > 0 }, "the hold is lost: %v", lines)
	took := time.Since(begin)
	eventually(t, func() bool { return lines.count("back") >= 1 }, "not back: %v", lines)
	t.Logf("closed after %.1f MB that were not read; %d holds before the return; the hold came %v after the subscriber read again; %d log line for the loss, %d for the return",
		float64(published*len(junk))/1e6, missed, took.Round(10*time.Millisecond), lines.count("lost"), lines.count("back"))
	require.Equal(t, 1, left)
	require.Equal(t, 1, lines.count("lost"))
}

// A deafness makes connections with a subscription that do not read while it is on.
type deafness struct{ on atomic.Bool }

func (d *deafness) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &deafConn{Conn: c, of: d}, err
}

type deafConn struct {
	net.Conn
	of         *deafness
	subscribed atomic.Bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("subscribe")) {
		c.subscribed.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	for c.subscribed.Load() && c.of.on.Load() {
		time.Sleep(time.Millisecond)
	}
	return c.Conn.Read(b)
}

// Half of the members lose Redis, and nobody else.
func TestTrialPartition(t *testing.T) {
	t.Parallel()
	const members, perSecond = 10, 50
	cutFor := time.Duration(soak.Size(3, 15)) * time.Second
	server := ownServer(t)
	wire := newProxy(t, server.Addr)
	configs := at(t, members, server.Addr)
	for i := range members / 2 {
		configs[i].Redis = &redis.UniversalOptions{Addrs: []string{wire.addr}}
	}
	var told atomic.Int64 // when a member of the cut half was told to wait
	c := crewOf(t, configs, policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond, Burst: 1}}, fine)
	holders := make([]*Fleet, 2)
	heard := make([]*witness, 2)
	for i := range holders {
		holders[i], heard[i] = start(t, configs[i*members/2])
	}
	for _, f := range holders {
		eventually(t, func() bool { return f.state().Connected }, "not connected")
		f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	}
	from := time.Since(c.begun) + time.Second
	var story sync.WaitGroup
	story.Go(func() {
		time.Sleep(from + 2*time.Second - time.Since(c.begun))
		wire.cut()
		time.Sleep(2500 * time.Millisecond)
		told.Store(int64(time.Since(c.begun)))
		holders[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: 1, Status: 429, Wait: time.Hour})
		time.Sleep(from + 2*time.Second + cutFor - time.Since(c.begun))
		wire.heal()
	})
	c.run(t, from+cutFor+soak.Size(3*time.Second, 6*time.Second), unpaused) // nothing is asserted of the time after it
	story.Wait()
	rate := func(from, to time.Duration) string {
		var cut, rest float64
		for _, s := range c.sends(from, to) {
			if s.member < members/2 {
				cut++
			} else {
				rest++
			}
		}
		s := (to - from).Seconds()
		return fmt.Sprintf("%.0f + %.0f = %.0f per second", cut/s, rest/s, (cut+rest)/s)
	}
	begin := from + 2*time.Second
	t.Logf("cut half + other half: %s before; %s in the partition of %v; %s after it",
		rate(from, begin), rate(begin, begin+cutFor), cutFor, rate(begin+cutFor+2*time.Second, begin+cutFor+4*time.Second))
	config := configs[members-1]
	t.Logf("a hold of the cut half: heard by %d of the other half, by %d newcomers after the partition",
		get(heard[1], func() int { return len(heard[1].holds) }), newcomer(t, config))
	require.Zero(t, c.failed.Load(), "requests failed")
	whole := len(c.sends(begin, begin+cutFor))
	require.LessOrEqual(t, float64(whole), 1.75*perSecond*cutFor.Seconds()+perSecond)
}

// One member has another key than the others.
func TestTrialWrongKey(t *testing.T) {
	t.Parallel()
	const members, wait = 4, 2 * time.Second
	for name, credentials := range map[string]string{"without credentials": "", "with credentials": "Bearer secret"} {
		t.Run(name, func(t *testing.T) {
			configs := at(t, members, sharedServer(t).Addr)
			configs[members-1].Key = []byte("not the secret of all the others")
			var mu sync.Mutex
			var told time.Duration
			c := crewOf(t, configs, policy.Rule{ShareRetryAfter: policy.On}, func(_ int, at time.Duration) (int, string) {
				mu.Lock()
				defer mu.Unlock()
				if left := told + wait - at; told > 0 && left > 0 {
					return 429, strconv.Itoa(int((left + time.Second - 1) / time.Second))
				}
				return 200, ""
			})
			c.header = http.Header{}
			if credentials != "" {
				c.header.Set("Authorization", credentials)
			}
			for i := range members {
				require.Equal(t, 200, c.get(t, i))
			}
			mu.Lock()
			told = time.Since(c.begun)
			mu.Unlock()
			var first sync.WaitGroup
			first.Go(func() { c.get(t, 0) })
			time.Sleep(100 * time.Millisecond)
			c.run(t, told+wait+500*time.Millisecond, func(int) time.Duration { return 50 * time.Millisecond })
			first.Wait()
			by := make([]int, members)
			for _, s := range c.sends(told, told+wait) {
				by[s.member]++
			}
			t.Logf("requests in a wait of %v that the first member was told: %v, the last has another key", wait, by)
			require.Equal(t, 1, by[0])
			require.LessOrEqual(t, by[1]+by[2], 2)
			require.LessOrEqual(t, by[members-1], 3)
			if credentials != "" {
				require.Positive(t, by[members-1])
			}
		})
	}
}

// Redis is cut off from all members, or it dies and comes back empty. One member of four sends nothing
// while it is away. In make soak this happens twice.
func TestTrialInterruptions(t *testing.T) {
	t.Parallel()
	atOnce(t, soak.Size(4, 2), []string{"cut", "emptied", "cut, and a member is idle", "emptied, and a member is idle"}, func(s string) string { return s }, trialInterruption)
}

func trialInterruption(t *testing.T, name string) {
	const members, perSecond = 4, 50
	burst, away, times := soak.Size(100, 500), soak.Size(3*time.Second, 10*time.Second), soak.Size(1, 2)
	server := ownServer(t)
	wire := newProxy(t, server.Addr)
	c := crewOf(t, at(t, members, wire.addr), policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond, Burst: burst}}, fine)
	var idle atomic.Bool
	stop := c.keep(t, func(member int) int { return 1 + 10*member }, func(_ context.Context, i int) {
		if i == members-1 && idle.Load() {
			time.Sleep(time.Millisecond)
			return
		}
		c.get(t, i)
	})
	time.Sleep(time.Duration(burst)*time.Second/400 + 2*time.Second)
	var backs []time.Duration
	for range times {
		idle.Store(strings.HasSuffix(name, "idle"))
		wire.cut()
		if strings.HasPrefix(name, "emptied") {
			require.NoError(t, connect(t, server.Addr).FlushAll(t.Context()).Err())
		}
		time.Sleep(away)
		wire.heal()
		for _, f := range c.fleets {
			eventually(t, func() bool { return f.state().Connected }, "not back")
		}
		idle.Store(false)
		backs = append(backs, time.Since(c.begun))
		time.Sleep(3 * time.Second)
	}
	stop()
	var after []float64
	for _, back := range backs {
		after = append(after, float64(len(c.sends(back-time.Second/2, back+5*time.Second/2)))/3)
	}
	worst, window := worstWindow(c.sends(0, time.Hour), perSecond, burst)
	t.Logf("%.0f per second in the 3 s around each return; %d sent in all; the busiest window of %v has %.2f times the rate with one burst",
		after, len(c.sends(0, time.Hour)), window.Round(10*time.Millisecond), worst)
	require.LessOrEqual(t, worst, soak.Size(1.3, 1.1)) // see trialShortInterruptions
}

// Redis refuses all writes, or answers nothing, for 1.2 s, seven times in 20 s. The members
// return one after the other, and each repays what it sent while others had the whole rate.
func TestTrialShortInterruptions(t *testing.T) {
	t.Parallel()
	atOnce(t, soak.Size(2, 1), []string{"out of memory", "paused"}, func(s string) string { return s }, trialShortInterruptions)
}

func trialShortInterruptions(t *testing.T, name string) {
	var shares []float64
	for range soak.Size(1, 5) {
		shares = append(shares, shareOfTheRate(t, name))
	}
	slices.Sort(shares)
	t.Logf("%.3f times the rate", shares)
	// If a loaded machine takes more than 10 ms for an answer, members are silent
	// without an interruption.
	require.LessOrEqual(t, shares[len(shares)/2], soak.Size(1.3, 1.05))
}

// shareOfTheRate returns how much of the rate was sent.
func shareOfTheRate(t *testing.T, name string) float64 {
	const members, perSecond, lasts, window = 20, 100, 1200 * time.Millisecond, 20 * time.Second
	times := soak.Size(1, 7)
	server := ownServer(t)
	admin := connect(t, server.Addr)
	c := crewOf(t, at(t, members, server.Addr), policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond, Burst: 1}}, fine)
	stop := c.keep(t, func(int) int { return 3 }, func(_ context.Context, i int) { c.get(t, i) })
	time.Sleep(time.Second)
	from := time.Since(c.begun)
	for i := range times {
		if name == "paused" {
			require.NoError(t, admin.Do(t.Context(), "client", "pause", lasts.Milliseconds(), "all").Err())
			time.Sleep(lasts)
		} else {
			require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
			time.Sleep(lasts)
			require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
		}
		time.Sleep(from + window/7*time.Duration(i+1) - time.Since(c.begun))
	}
	to := time.Since(c.begun)
	for _, f := range c.fleets {
		f.Close() // so that the requests that wait do not hold up the test
	}
	stop()
	return float64(len(c.sends(from, to))-1) / (perSecond * (to - from).Seconds())
}

// Redis stands still, for a shorter and for a longer time than a command may take. All of many members are
// busy, and have a small part of the rate each.
func TestTrialStandstill(t *testing.T) {
	t.Parallel()
	atOnce(t, 2, []time.Duration{300 * time.Millisecond, 1500 * time.Millisecond}, time.Duration.String, trialStandstill)
}

func trialStandstill(t *testing.T, lasts time.Duration) {
	const members, perSecond = 60, 10
	server := ownServer(t)
	c := crewOf(t, at(t, members, server.Addr), policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond}}, fine)
	stop := c.keep(t, func(int) int { return 1 }, func(ctx context.Context, i int) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, host, nil)
		if assert.NoError(t, err) {
			_, err = c.tr[i].RoundTrip(req)
			assert.True(t, err == nil || ctx.Err() != nil, "%v", err)
		}
	})
	time.Sleep(2 * time.Second)
	from := time.Since(c.begun)
	require.NoError(t, connect(t, server.Addr).Do(t.Context(), "client", "pause", lasts.Milliseconds(), "all").Err())
	time.Sleep(lasts + 3*time.Second)
	stop()
	list, most := c.sends(from, time.Hour), 0
	for i, first := range list {
		most = max(most, len(list[i:])-len(c.sends(first.at+time.Second, time.Hour)))
	}
	t.Logf("%v: %d sent in the busiest second, %d in all", lasts, most, len(list))
	require.LessOrEqual(t, most, 2*perSecond+perSecond)
}

// worstWindow returns the window in which most was sent, compared with the rate and one burst.
func worstWindow(list []send, perSecond, burst int) (most float64, window time.Duration) {
	for i, first := range list {
		for j, last := range list[i:] {
			d := last.at - first.at
			if share := float64(j+1) / (float64(perSecond)*d.Seconds() + float64(burst)); share > most {
				most, window = share, d
			}
		}
	}
	return most, window
}

// Redis restarts empty and dies again, over and over. Each time it counts the members anew.
func TestTrialRestarts(t *testing.T) {
	t.Parallel()
	const members = 20
	server := ownServer(t)
	fleets, witnesses := started(t, members, options(t, server.Addr))
	var most float64 // the parts of all members, as a multiple of the rate
	least, beats := members, uint64(0)
	look := func() {
		parts := 0.0
		for _, w := range witnesses {
			n := w.lastSize()
			least = min(least, n)
			parts += 1 / float64(n)
		}
		most = max(most, parts)
	}
	watch := func(d time.Duration) {
		for begin := time.Now(); time.Since(begin) < d; time.Sleep(5 * time.Millisecond) {
			look()
		}
	}
	for range soak.Size(2, 20) {
		server.Kill()
		watch(1500 * time.Millisecond)
		before := answered(fleets)
		require.NoError(t, server.Restart())
		watch(300 * time.Millisecond)
		beats += answered(fleets) - before
	}
	server.Kill()
	watch(time.Second)
	t.Logf("%d members heard of a size; the parts add up to %.2f times the rate at most, and the least size that a member believed is %d", beats, most, least)
	require.LessOrEqual(t, most, 1.2)
	require.Greater(t, least, 1)
	require.Positive(t, beats)
}

// A Redis that gets a hundredth of a processor restarts. What the members ask it again about their
// hosts does not cut them off once more.
func TestTrialSlowRestart(t *testing.T) {
	if soak.Size(true, false) {
		t.Skip("it needs a machine with nothing else to do: make soak")
	}
	const members, hosts = 100, 200
	server := ownServer(t)
	fleets, _ := started(t, members, options(t, server.Addr))
	for i := range hosts {
		for _, f := range fleets {
			f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: name(i)})
		}
		time.Sleep(20 * time.Millisecond)
	}
	server.Kill()
	time.Sleep(1500 * time.Millisecond)
	require.NoError(t, server.Restart())
	var slow sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	slow.Go(func() {
		for ctx.Err() == nil {
			assert.NoError(t, server.Process().Signal(syscall.SIGSTOP))
			time.Sleep(190 * time.Millisecond)
			assert.NoError(t, server.Process().Signal(syscall.SIGCONT))
			time.Sleep(2 * time.Millisecond)
		}
	})
	breaks := func() (n uint64) {
		for _, f := range fleets {
			n += f.store.link.breaks()
		}
		return n
	}
	time.Sleep(4 * time.Second)
	before, commands := breaks(), answered(fleets)
	time.Sleep(20 * time.Second)
	again := breaks() - before
	cancel()
	slow.Wait()
	t.Logf("%d commands in 20 s; Redis was lost %d times more", answered(fleets)-commands, again)
	require.LessOrEqual(t, again, uint64(members)) // other work may hold Redis up as well
}

// answered returns how many commands Redis answered.
func answered(fleets []*Fleet) (n uint64) {
	for _, f := range fleets {
		n += f.store.commands.Load() - f.store.failed.Load()
	}
	return n
}
