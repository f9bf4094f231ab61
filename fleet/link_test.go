package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A Redis that comes and goes writes few log lines.
func TestFlappingWritesFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &logLines{}
		l := link{journal: &journal{logger: lines.logger()}}
		l.joined()
		for range 200 {
			l.failed(errors.New("connection refused"), "", "")
			time.Sleep(time.Second)
			l.good()
			require.True(t, l.connected()) // it is used all the same
			time.Sleep(1500 * time.Millisecond)
			l.good()
		}
		synctest.Wait() // for the log
		require.Equal(t, 2, lines.count("lost"))
		require.Equal(t, 1, lines.count("back"))
		time.Sleep(2 * time.Second)
		l.good()
		synctest.Wait()
		require.Equal(t, 2, lines.count("back"))
		// After a calm minute the next loss is told as soon as the first.
		time.Sleep(2 * calm)
		l.good()
		l.unsubscribed(errors.New("connection refused"))
		require.False(t, l.connected())
		require.False(t, l.lost("")) // commands still work
		l.joined()
		time.Sleep(time.Second)
		l.good()
		synctest.Wait()
		require.Equal(t, 3, lines.count("lost"))
		require.Equal(t, 3, lines.count("back"))
	})
}

// The link knows how long Redis was lost in all.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := link{journal: &journal{}, cluster: true}
		lost := errors.New("connection refused")
		for i := range time.Duration(3) {
			time.Sleep(time.Minute)
			require.Equal(t, i*3*time.Second, l.away())
			l.failed(lost, "", "")
			time.Sleep(time.Second)
			l.failed(lost, "", "h") // it is lost already
			time.Sleep(time.Second)
			require.Equal(t, i*3*time.Second+2*time.Second, l.away())
			l.failed(lost, "a node", "")
			time.Sleep(time.Second)
			l.good()
		}
		l.failed(lost, "", "h")
		l.failed(lost, "", "") // the heartbeat fails, and then the question is answered
		l.served("")
		require.True(t, l.lost(""))
		l.good()
		require.False(t, l.lost(""))
		l.failed(lost, "a node", "h") // the hosts of the other nodes are shared
		time.Sleep(time.Minute)
		require.Equal(t, 9*time.Second, l.away())
	})
}

// A Transport hears of its own member as soon as there is a connection, and before that of nobody.
func TestTransportHearsOfAConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts nothing, so nobody answers
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Close()) }()
	refused := errors.New("connection refused")
	for _, connects := range []bool{true, false} {
		c := options(t, l.Addr().String())
		if !connects {
			c.Redis.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, refused }
		}
		f := testkit.Must(New(c))(t)
		defer f.Close()
		heard := make(chan fleetmsg.Message, 10)
		require.NoError(t, f.join(func(m fleetmsg.Message) { heard <- m }))
		if connects {
			assert.Equal(t, fleetmsg.Message{Kind: fleetmsg.Members, Members: 1}, <-heard)
			assert.Zero(t, f.state().Members, "members")
			continue
		}
		eventually(t, func() bool { return f.store.link.lastReason() != "" }, "it connects")
		assert.Empty(t, heard)
	}
}

// Members that start together keep their rate from the first second on. make soak plays them
// with a process for each:
//
//	APLOMB_SOAK=1 go -C fleet test -run FirstSecond -v
func TestFirstSecond(t *testing.T) {
	const members, allowed = 60, 50 + 50 // the rate and its burst
	fits := func(n int) bool { return allowed/2 <= n && n <= 3*allowed/2 }
	var counts []int
	for range 5 { // on a loaded machine an answer may take longer than a second, and so may 50 sends
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
		if fits(n) && soak.Size(true, false) {
			break
		}
	}
	t.Logf("%d sent in the first second, %d are allowed", counts, allowed)
	require.True(t, slices.ContainsFunc(counts, fits))
}

func membersOfAProcess(t *testing.T, n int, c Config, note func(time.Time)) {
	testkit.Together(n, func(int) { startAndSend(t, c, note) })
}

func membersWithProcesses(t *testing.T, n int, c Config, note func(time.Time)) {
	testkit.Together(n, func(int) {
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
	tr, err := transport.New(transport.Config{Fleet: f, Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 50}}, Base: roundTrip(func(req *http.Request) (*http.Response, error) {
		note(time.Now())
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})})
	if !assert.NoError(t, err) {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(1500*time.Millisecond, cancel).Stop()
	testkit.Together(4, func(int) {
		for ctx.Err() == nil {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, host, nil)
			if assert.NoError(t, err) {
				_, err := tr.RoundTrip(req)
				assert.True(t, err == nil || ctx.Err() != nil, "%v", err)
			}
		}
	})
}

func TestRedisKeepsTheContract(t *testing.T) {
	t.Parallel()
	addr := sharedServer(t).Addr
	fleettest.Run(t, func(t *testing.T) func() fleettest.Fleet {
		c := options(t, addr)
		return func() fleettest.Fleet {
			f := fresh(t, c)
			eventually(t, func() bool { return f.state().Connected }, "not connected")
			return f
		}
	})
}

// The scripts keep the fields of ledger.Host, in the same order.
func TestScriptsHaveTheFieldsOfTheLedger(t *testing.T) {
	list := regexp.MustCompile(`local NAMES = \{(.*)\}`).FindStringSubmatch(outage)
	require.Len(t, list, 2)
	var want []string
	for i := range reflect.TypeFor[ledger.Host]().NumField() {
		want = append(want, "'"+reflect.TypeFor[ledger.Host]().Field(i).Name+"'")
	}
	require.Equal(t, strings.Join(want, ", "), list[1])
}

// A script defines each constant that it uses, and gets those of the ledger from there.
func TestScriptsDefineTheirConstants(t *testing.T) {
	used := 0
	for _, text := range []string{outage, failingText, workingText, holdText, quotaText, bucketText, tokensText, unusedText, meetText, beatText} {
		code := regexp.MustCompile(`--.*|'[^']*'|KEYS|ARGV`).ReplaceAllString(text, "")
		for _, name := range regexp.MustCompile(`\b[A-Z][A-Z_]+\b`).FindAllString(code, -1) {
			used++
			require.Contains(t, constants(text)+text, "local "+name+" =", name)
		}
		require.NotRegexp(t, `\d{5}`, regexp.MustCompile(`local KEEP = \d+`).ReplaceAllString(code, ""))
	}
	require.Greater(t, used, 20)
}
