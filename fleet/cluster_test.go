package fleet

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/redisserver"
	"github.com/aplomb-go/aplomb/transport"
)

// A cluster of three masters: all keys of a host are at one node, and messages reach
// members at every node.
func TestCluster(t *testing.T) {
	t.Parallel()
	var nodes []*redisserver.Server
	args := []string{"--cluster", "create"}
	for range 3 {
		s := clusterNode(t)
		nodes = append(nodes, s)
		args = append(args, s.Addr)
	}
	out, err := exec.Command("redis-cli", append(args, "--cluster-replicas", "0", "--cluster-yes")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := options(t, "")
	c.Redis.Addrs = []string{nodes[0].Addr, nodes[1].Addr, nodes[2].Addr}
	admin := redis.NewClusterClient(c.Redis.Cluster())
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	eventually(t, func() bool {
		ok := true
		for _, s := range nodes { // each of them has to say so
			text, err := connect(t, s.Addr).ClusterInfo(context.Background()).Result()
			ok = ok && err == nil && strings.Contains(text, "cluster_state:ok")
		}
		return ok
	}, "no cluster")
	fleets, members := started(t, 4, c)
	const hosts = 30
	for i := range hosts {
		fleets[i%4].Hold(transport.FleetHold{Host: name(i), Status: 429, Wait: time.Minute})
		for _, f := range fleets {
			f.Meet(name(i))
			f.Failing(transport.FleetFailing{Host: name(i), Failures: 10, Since: 5 * time.Second})
		}
	}
	for i, m := range members {
		eventually(t, func() bool {
			return get(m, func() bool { return len(m.holds) >= hosts*3/4-1 && len(m.downs) >= hosts })
		}, "member %d", i)
	}
	for i := range hosts { // one after the other, because old questions are not sent
		fleets[0].Tokens(transport.FleetTokens{Host: name(i), PerSecond: 0.1, Burst: 1, Want: 1})
		fleets[0].Probe(name(i))
		eventually(t, func() bool {
			return get(members[0], func() bool { return len(members[0].grants) > i && len(members[0].probes) > i })
		}, "no answer")
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
		require.Zero(t, f.Snapshot().Failed)
	}
	for _, s := range nodes {
		client := connect(t, s.Addr)
		eventually(t, func() bool {
			list, err := client.ClientList(context.Background()).Result()
			return err == nil && !strings.Contains(list, "cmd=subscribe")
		}, "connections are left")
	}
}

func name(i int) string { return fmt.Sprintf("https://%x.example.com", (i+1)*40503&0xffff) }

// clusterNode starts a node of a cluster, which has a second port for the other nodes.
func clusterNode(t *testing.T) *redisserver.Server {
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		s, err := redisserver.Start("--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", "2000")
		if err != nil && strings.Contains(err.Error(), "Address already in use") {
			continue // the port was taken in between
		}
		skip(t, s, err)
		t.Cleanup(s.Stop)
		return s
	}
}
