package fleet

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// Members that start together keep their rate from the first second on. make soak plays them
// with a process for each:
//
//	APLOMB_SOAK=1 go -C fleet test -run FirstSecond -v
func TestFirstSecond(t *testing.T) {
	const members, allowed = 60, 50 + 50 // the rate and its burst
	var counts []int
	for range 5 { // on a loaded machine an answer may take longer than 250 ms
		var mu sync.Mutex
		var sends []time.Time
		soak.Size(membersOfAProcess, membersWithProcesses)(t, members, options(t, sharedServer(t).Addr), func(at time.Time) {
			mu.Lock()
			defer mu.Unlock()
			sends = append(sends, at)
		})
		slices.SortFunc(sends, time.Time.Compare)
		n, _ := slices.BinarySearchFunc(sends, sends[0].Add(time.Second), time.Time.Compare)
		counts = append(counts, n)
		if n <= 3*allowed/2 && soak.Size(true, false) {
			break
		}
	}
	t.Logf("%d sent in the first second, %d are allowed", counts, allowed)
	require.GreaterOrEqual(t, slices.Min(counts), allowed/2)
	require.LessOrEqual(t, slices.Min(counts), 3*allowed/2)
}

func membersOfAProcess(t *testing.T, n int, c Config, note func(time.Time)) {
	together(n, func(int) { startAndSend(t, c, note) })
}

func membersWithProcesses(t *testing.T, n int, c Config, note func(time.Time)) {
	together(n, func(int) {
		p := exec.Command(os.Args[0], "-test.run=^TestMemberOfFirstSecond$", "-test.v")
		p.Env = append(os.Environ(), "APLOMB_MEMBER="+c.Prefix, "APLOMB_REDIS="+c.Redis.Addrs[0])
		out, err := p.StdoutPipe()
		if !assert.NoError(t, err) || !assert.NoError(t, p.Start()) {
			return
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if at, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				note(time.UnixMicro(at))
			}
		}
		assert.NoError(t, p.Wait())
	})
}

// TestMemberOfFirstSecond is a process of TestFirstSecond.
func TestMemberOfFirstSecond(t *testing.T) {
	prefix := os.Getenv("APLOMB_MEMBER")
	if prefix == "" {
		t.Skip("it is a part of TestFirstSecond")
	}
	c := Config{Redis: &redis.UniversalOptions{Addrs: []string{os.Getenv("APLOMB_REDIS")}}, Key: testKey, Prefix: prefix}
	var mu sync.Mutex
	startAndSend(t, c, func(at time.Time) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(at.UnixMicro())
	})
}

// startAndSend starts a member that sends all it may for a while.
func startAndSend(t *testing.T, c Config, note func(time.Time)) {
	f, err := New(c)
	if !assert.NoError(t, err) {
		return
	}
	defer f.Close()
	tr, err := transport.New(transport.Config{Fleet: f, Rule: policy.Rule{Rate: policy.Rate{PerSecond: 50}}, Base: roundTrip(func(req *http.Request) (*http.Response, error) {
		note(time.Now())
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})})
	if !assert.NoError(t, err) {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(1500*time.Millisecond, cancel).Stop()
	together(4, func(int) {
		for ctx.Err() == nil {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, host, nil)
			if assert.NoError(t, err) {
				_, err := tr.RoundTrip(req)
				assert.True(t, err == nil || ctx.Err() != nil, "%v", err)
			}
		}
	})
}
