//go:build linux

package fleet

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/redisserver"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// The master dies, and a sentinel makes the replica the master. The members follow, with
// one log line for the loss and one for the return.
func TestSentinel(t *testing.T) {
	if soak.Size(true, false) {
		t.Skip("a failover takes long: make soak")
	}
	master := ownServer(t)
	host0, port0, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	ownServer(t, "--replicaof", host0+" "+port0)
	sentinel, port := freeAddress(t)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "port %s\nbind 127.0.0.1\nsentinel monitor main %s %s 1\n"+
		"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n", port, host0, port0), 0o600))
	cmd := exec.Command(redisserver.Program(), file, "--sentinel")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	})
	watch := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	t.Cleanup(func() { require.NoError(t, watch.Close()) })
	eventually(t, func() bool {
		replicas, err := watch.Replicas(t.Context(), "main").Result()
		return err == nil && len(replicas) == 1
	}, "the sentinel does not know the replica")

	c := options(t, sentinel)
	c.Redis.MasterName = "main"
	lines := log(&c)
	fleets, members := started(t, 2, c)
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Minute})
	members[1].until(t, func() bool { return len(members[1].holds) >= 1 }, "no hold")
	begin := time.Now()
	master.Kill()
	eventually(t, func() bool { return lines.count("lost") >= 2 }, "not lost: %v", lines)
	eventually(t, func() bool { return lines.count("back") >= 2 }, "not back: %v", lines)
	t.Log("back after", time.Since(begin).Round(100*time.Millisecond))
	fleets[0].tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://after.example.com", Status: 429, Wait: time.Minute})
	members[1].until(t, func() bool {
		return len(members[1].holds) > 0 && members[1].holds[len(members[1].holds)-1].Host == "https://after.example.com"
	}, "no hold after the failover")
	require.Equal(t, 2, lines.count("lost"), "%v", lines)
}
