package fleet

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/redisserver"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// A cluster of three masters: all keys of a host are at one node, and messages reach
// members at every node.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes, c := newCluster(t, 0)
	admin := redis.NewClusterClient(c.Redis.Cluster())
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	fleets, members := started(t, 4, c)
	const hosts = 30
	for i := range hosts {
		fleets[i%4].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: name(i), Status: 429, Wait: time.Minute})
		for _, f := range fleets {
			f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: name(i)})
			f.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: name(i), Failures: 10, Wait: 5 * time.Second})
		}
	}
	for i, m := range members {
		m.until(t, func() bool { return len(m.holds) >= hosts*3/4-1 && len(m.downs) >= hosts }, "member %d", i)
	}
	// The clock of the node of the heartbeats is behind those of the others.
	fleets[0].roster.mu.Lock()
	fleets[0].roster.clock.redis -= time.Hour.Microseconds()
	fleets[0].roster.mu.Unlock()
	for i := range hosts { // one after the other, because old questions are not sent
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: name(i), PerSecond: 0.1, Burst: 1, Amount: 1})
		members[0].until(t, func() bool { return len(members[0].grants) > i }, "no answer")
	}
	var mu sync.Mutex
	keys := map[string]int{}
	require.NoError(t, admin.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
		list, err := node.Keys(ctx, "*").Result()
		mu.Lock()
		keys[node.Options().Addr] = len(list)
		mu.Unlock()
		for _, key := range list {
			ttl, err := node.PTTL(ctx, key).Result()
			if err != nil || ttl <= 0 {
				return fmt.Errorf("%s: %v, %v", key, ttl, err)
			}
		}
		return err
	}))
	require.Len(t, keys, 3)
	for addr, n := range keys {
		require.Greater(t, n, 5, "%s: the hosts should be spread: %v", addr, keys)
	}
	for _, f := range fleets {
		f.Close()
		require.LessOrEqual(t, f.store.failed.Load(), uint64(soak.Size(20, 0))) // a loaded machine may take a second for a command
	}
	for _, s := range nodes {
		client := connect(t, s.Addr)
		eventually(t, func() bool {
			list, err := client.ClientList(context.Background()).Result()
			return err == nil && !strings.Contains(list, " sub=1 ")
		}, "connections are left")
	}
}

// If a replica takes the place of a master that died, its hosts are shared again.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	if soak.Size(0, 1) == 0 {
		t.Skip("only in make soak")
	}
	nodes, c := newCluster(t, 1)
	eventually(t, func() bool {
		ready := 0
		for _, s := range nodes {
			text, err := connect(t, s.Addr).Info(context.Background(), "replication").Result()
			if err == nil && strings.Contains(text, "master_link_status:up") {
				ready++
			}
		}
		return ready == 3
	}, "no replicas")
	fleets, members := started(t, 2, c)
	owner := func() string { return fleets[0].store.nodeOf(t.Context(), fleets[0].beatCommand(0)) }
	host := ""
	for i := 0; host == ""; i++ { // at the node of the heartbeats
		if fleets[0].store.nodeOf(t.Context(), fleets[0].meetCommand(name(i))) == owner() {
			host = name(i)
		}
	}
	first := owner()
	for _, f := range fleets {
		f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
	}
	for _, s := range nodes {
		if s.Addr == first {
			s.Kill()
		}
	}
	begin := time.Now()
	scope := uint64(0)
	eventually(t, func() bool {
		time.Sleep(10 * time.Millisecond)
		scope++
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Scope: scope, Status: 429, Wait: time.Minute})
		return get(members[1], func() bool { return len(members[1].holds) > 0 && members[1].holds[len(members[1].holds)-1].Scope > 10 }) && owner() != first
	}, "the hosts of the node are not shared again")
	t.Logf("back %v after the master died", time.Since(begin).Round(100*time.Millisecond))
	for _, f := range fleets {
		eventually(t, func() bool { return f.state().Connected }, "not back")
	}
}

// newCluster starts a cluster of three masters, of which each works on without the others.
func newCluster(t *testing.T, replicas int) ([]*redisserver.Server, Config) {
	var nodes []*redisserver.Server
	var addrs []string
	for range 3 * (1 + replicas) {
		s := clusterNode(t)
		nodes, addrs = append(nodes, s), append(addrs, s.Addr)
	}
	args := append([]string{"--cluster", "create"}, addrs...)
	out, err := exec.Command("redis-cli", append(args, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	eventually(t, func() bool {
		ok := true
		for _, s := range nodes { // each of them has to say so
			text, err := connect(t, s.Addr).ClusterInfo(context.Background()).Result()
			ok = ok && err == nil && strings.Contains(text, "cluster_state:ok")
		}
		return ok
	}, "no cluster")
	c := options(t, "")
	c.Redis.Addrs = addrs
	return nodes, c
}

// If a node of a cluster dies or stands still, the members share the hosts of the other nodes
// as before. They do so whatever else the node had: the heartbeats, or their subscription.
func TestClusterLosesANode(t *testing.T) {
	t.Parallel()
	stories := []string{"heartbeats killed", "hosts frozen", "hosts killed", "heartbeats frozen"}
	atOnce(t, 2, stories[:soak.Size(2, 4)], func(story string) string { return story }, func(t *testing.T, story string) {
		clusterLosesANode(t, strings.Contains(story, "frozen"), strings.Contains(story, "heartbeats"))
	})
}

func clusterLosesANode(t *testing.T, frozen, heartbeats bool) {
	nodes, c := newCluster(t, 0)
	lines := log(&c)
	fleets, members := started(t, 3, c)
	owner := func(c command) string { return fleets[0].store.nodeOf(t.Context(), c) }
	beats := owner(fleets[0].beatCommand(0))
	dead := nodes[0]
	for _, s := range nodes {
		if (s.Addr == beats) == heartbeats {
			dead = s
		}
	}
	var live []string
	for i := 0; len(live) < 40; i++ {
		for _, f := range fleets {
			f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: name(i)})
		}
		if owner(fleets[0].meetCommand(name(i))) != dead.Addr {
			live = append(live, name(i))
		}
	}
	if frozen {
		require.NoError(t, dead.Process().Signal(syscall.SIGSTOP))
	} else {
		dead.Kill()
	}
	deadHost := ""
	for i := 0; deadHost == ""; i++ {
		if owner(fleets[0].meetCommand(name(i))) == dead.Addr {
			deadHost = name(i)
		}
	}
	// The first command to the dead node may take a second.
	eventually(t, func() bool {
		for _, f := range fleets {
			f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: deadHost, Scope: 1, Status: 429, Wait: time.Minute})
		}
		lost := 0
		for _, f := range fleets {
			f.store.link.mu.Lock()
			if _, ok := f.store.link.lostNodes[dead.Addr]; ok && f.store.link.subscribed {
				lost++
			}
			f.store.link.mu.Unlock()
		}
		return lost == len(fleets)
	}, "nobody noticed")
	// While the node is away, news of its hosts goes on to come.
	arrived, connected := map[string]bool{}, 0
	for i, h := range live {
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: deadHost, Scope: uint64(i), Status: 429, Wait: time.Minute})
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: h, Status: 429, Wait: time.Hour})
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: h, Failures: 10, Wait: 5 * time.Second})
		fleets[1].tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: h, Failures: 10, Wait: 5 * time.Second})
		fleets[2].tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: h, Failures: 10, Wait: 5 * time.Second})
		time.Sleep(50 * time.Millisecond)
		if fleets[2].store.link.usable() && !fleets[2].store.link.lost("") {
			connected++
		}
	}
	eventually(t, func() bool {
		m := members[2]
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, h := range m.holds {
			arrived[h.Host] = true
		}
		downs := map[string]bool{}
		for _, h := range m.downs {
			downs[h] = true
		}
		for _, h := range live {
			if !arrived[h] || !downs[h] {
				return false
			}
		}
		return true
	}, "%d of %d hosts arrived, link up at %d looks\n%v", len(arrived), len(live), connected, lines)
	require.GreaterOrEqual(t, connected, soak.Size(1, len(live))) // on a loaded machine a command may take a second
	for _, m := range members {
		require.Equal(t, 3, m.lastSize(), "size of the fleet")
	}
	require.LessOrEqual(t, lines.count("lost"), 2*len(fleets), "%v", lines)
	if frozen {
		require.NoError(t, dead.Process().Signal(syscall.SIGCONT))
	} else {
		require.NoError(t, dead.Restart())
	}
	for _, f := range fleets {
		eventually(t, func() bool { return f.state().Connected }, "not back")
	}
	eventually(t, func() bool {
		fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: deadHost, Scope: 1 << 30, Status: 503, Wait: time.Minute})
		return get(members[2], func() bool {
			for _, h := range members[2].holds {
				if h.Host == deadHost && h.Scope == 1<<30 {
					return true
				}
			}
			return false
		})
	}, "the hosts of the node are not shared again")
}

// If the node dies to which a member listens, it listens to another.
func TestClusterLosesTheNodeOfTheChannel(t *testing.T) {
	t.Parallel()
	nodes, c := newCluster(t, 0)
	fleets, members := started(t, 1, c)
	f := fleets[0]
	subscribed := func() (addr string) {
		for _, s := range nodes {
			list, err := connect(t, s.Addr).ClientList(context.Background()).Result()
			if err == nil && strings.Contains(list, " sub=1 ") {
				addr = s.Addr
			}
		}
		return addr
	}
	first := subscribed()
	for _, s := range nodes {
		if s.Addr == first {
			s.Kill()
		}
	}
	eventually(t, func() bool { return !f.store.link.usable() || subscribed() != first }, "nobody noticed")
	eventually(t, func() bool { now := subscribed(); return now != "" && now != first && f.store.link.usable() }, "nobody listens")
	for _, s := range nodes {
		if s.Addr != first {
			require.NoError(t, connect(t, s.Addr).Publish(context.Background(), f.store.channel, "1 u 5 ab "+host).Err())
			break
		}
	}
	members[0].until(t, func() bool { return len(members[0].ups) > 0 }, "no message")
}

func name(i int) string { return fmt.Sprintf("https://%x.example.com", (i+1)*40503&0xffff) }

// clusterNode starts a node of a cluster, which has a second port for the other nodes.
func clusterNode(t *testing.T) *redisserver.Server {
	for {
		_, port := freeAddress(t)
		s, err := redisserver.Start("--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", "2000",
			"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0")
		if err != nil && strings.Contains(err.Error(), "Address already in use") {
			continue // the port was taken in between
		}
		skip(t, s, err)
		t.Cleanup(s.Stop)
		return s
	}
}

// A node of a cluster is no single server. It refuses the hosts of other nodes.
func TestNodeTakenForAServer(t *testing.T) {
	t.Parallel()
	_, c := newCluster(t, 0)
	whole, _ := start(t, c)
	lines := &logLines{}
	beats := whole.store.nodeOf(t.Context(), whole.beatCommand(0)) // it takes the heartbeats
	c.Logger, c.Redis = lines.logger(), &redis.UniversalOptions{Addrs: []string{beats}}
	f, _ := start(t, c)
	use := func() {
		for i := range 20 {
			f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: name(i), Status: 429, Wait: time.Hour})
		}
	}
	eventually(t, func() bool { use(); return lines.count("can't be used\" error=\"MOVED") > 0 }, "%v", lines)
	for begin := time.Now(); time.Since(begin) < 2500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		use()
		require.False(t, f.state().Connected)
		require.Contains(t, f.store.link.lastReason(), "MOVED")
	}
	require.Equal(t, 1, lines.count("\n"), "%v", lines)
}
