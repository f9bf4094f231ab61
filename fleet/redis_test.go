package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/redisserver"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
)

const host = "https://api.example.com"

var testKey = []byte("a secret of the tests, 32 bytes ")

// shared is the server of all tests that do it no harm.
var shared struct {
	once   sync.Once
	server *redisserver.Server
	err    error
}

func TestMain(m *testing.M) {
	// The parallel tests mostly wait, so there can be more of them than the machine has cores.
	if err := flag.Set("test.parallel", strconv.Itoa(soak.Size(8, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.Stop()
	}
	if left := leftovers(); left != "" && code == 0 {
		fmt.Println("goroutines are left:\n" + left)
		code = 1
	}
	os.Exit(code)
}

func sharedServer(t testing.TB) *redisserver.Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = redisserver.Start() })
	return skip(t, shared.server, shared.err)
}

// ownServer starts a server that a test may harm.
func ownServer(t testing.TB, args ...string) *redisserver.Server {
	t.Helper()
	s, err := redisserver.Start(args...)
	skip(t, s, err)
	t.Cleanup(s.Stop)
	return s
}

func skip(t testing.TB, s *redisserver.Server, err error) *redisserver.Server {
	t.Helper()
	if errors.Is(err, redisserver.ErrMissing) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return s
}

// freeAddress returns an address that nobody listened at a moment ago, and its port.
func freeAddress(t testing.TB) (addr, port string) {
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, l.Close())
	addr = l.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return addr, port
}

func connect(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

var runs atomic.Int64

// unique returns a prefix that no other test has, and no other run of this test.
func unique(t testing.TB) string {
	name := strings.NewReplacer(" ", "_", "{", "_", "}", "_").Replace(t.Name())
	return fmt.Sprint(name[:min(len(name), 50)], runs.Add(1))
}

// options returns a Config for a server.
func options(t testing.TB, addr string) Config {
	return Config{Redis: &redis.UniversalOptions{Addrs: []string{addr}}, Key: testKey, Prefix: unique(t)}
}

// fresh starts a Fleet without a member.
func fresh(t testing.TB, c Config) *Fleet {
	t.Helper()
	f := testkit.Must(New(c))(t)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// start starts a Fleet with a member that notes what it is told.
func start(t testing.TB, c Config) (*Fleet, *witness) {
	t.Helper()
	f, w := fresh(t, c), &witness{}
	require.NoError(t, f.join(w.hear))
	return f, w
}

// started starts so many Fleets and waits until all of them are connected and know of
// each other.
func started(t testing.TB, n int, c Config) ([]*Fleet, []*witness) {
	t.Helper()
	fleets, members := make([]*Fleet, n), make([]*witness, n)
	for i := range n {
		fleets[i], members[i] = start(t, c)
	}
	for i, f := range fleets {
		eventually(t, func() bool { return f.state().Connected && members[i].lastSize() == n }, "member %d of %d is not connected", i, n)
	}
	return fleets, members
}

// eventually waits until a condition holds. The time is long, because a loaded machine may
// stop everything for seconds.
func eventually(t testing.TB, ok func() bool, format string, args ...any) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			require.FailNow(t, "it did not happen", fmt.Sprintf(format, args...))
		}
	}
}

// A witness is a member that notes what it is told.
type witness struct {
	mu     sync.Mutex
	sizes  []int
	holds  []fleetmsg.Message
	quotas []fleetmsg.Message
	downs  []string
	ups    []time.Duration
	upOf   []string // the hosts of ups
	grants []fleetmsg.Message
	last   time.Time // of the last hold
}

func (w *witness) hear(m fleetmsg.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m.Kind {
	case fleetmsg.Members:
		w.sizes = append(w.sizes, m.Members)
	case fleetmsg.Hold:
		w.holds, w.last = append(w.holds, m), time.Now()
	case fleetmsg.Quota:
		w.quotas = append(w.quotas, m)
	case fleetmsg.Down:
		w.downs = append(w.downs, m.Host)
	case fleetmsg.Up:
		w.ups, w.upOf = append(w.ups, m.Wait), append(w.upOf, m.Host)
	case fleetmsg.Tokens:
		w.grants = append(w.grants, m)
	}
}

func (w *witness) lastSize() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sizes) == 0 {
		return 0
	}
	return w.sizes[len(w.sizes)-1]
}

// until waits until something holds for what a witness was told.
func (w *witness) until(t testing.TB, ok func() bool, format string, args ...any) {
	t.Helper()
	eventually(t, func() bool { return get(w, ok) }, format, args...)
}

// get reads something of a witness under its lock.
func get[T any](w *witness, read func() T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return read()
}

// log is a Logger whose lines a test can read.
type logLines struct{ testkit.Text }

// logged is options with a log.
func logged(t testing.TB, addr string) (Config, *logLines) {
	c := options(t, addr)
	return c, log(&c)
}

// log gives a Config a Logger, whose lines it returns.
func log(c *Config) *logLines {
	lines := &logLines{}
	c.Logger = lines.logger()
	return lines
}

func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logLines) count(s string) int { return strings.Count(l.String(), s) }

// leftovers returns the stacks of the goroutines of this package and of go-redis. It gives
// them time to end.
func leftovers() (left string) {
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		var text strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
			return err.Error()
		}
		left = ""
		for s := range strings.SplitSeq(text.String(), "\n\n") {
			if strings.Contains(s, "fleet.(*Fleet)") || strings.Contains(s, "go-redis") {
				left += s + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
	}
	return left
}

// clients returns how many connections a server has, without the one that asks.
func clients(t testing.TB, c *redis.Client) int {
	list := testkit.Must(c.ClientList(context.Background()).Result())(t)
	return strings.Count(list, "\n") - 1
}

// A bucketOf asks for tokens as a member does, at times that the test sets. The rate is 50/s with
// a burst of 500.
type bucketOf struct {
	t       *testing.T
	client  *redis.Client
	key     string
	buckets buckets
	silence time.Duration // for which it got no answer
	spent   float64       // tokens that it used meanwhile
}

const bucketEach = 20 * time.Millisecond

func when(now time.Duration) time.Time { return time.Unix(0, int64(now)) }

// take asks for tokens. Redis gets the question after a time.
func (m *bucketOf) take(now, way, away time.Duration, want int) (n int64, first time.Duration) {
	missed := m.buckets.missed("h", m.silence, away)
	due := m.buckets.due("h", when(now))
	got, err := tokensScript.Run(context.Background(), m.client, []string{m.key}, (now + way).Microseconds(), "", "",
		bucketEach.Microseconds(), 500, want, missed.Microseconds(), int64(m.spent), due, "").Slice()
	require.NoError(m.t, err)
	m.silence, m.spent = 0, 0
	first, _ = micros(got[1])
	if n = got[0].(int64); n > 0 {
		m.buckets.answered("h", when(now+first+time.Duration(n)*bucketEach), away)
	}
	return n, now + way + first
}

// After an interruption of Redis a bucket is as full as before it, although the key says that
// it had time to fill, or is lost. The members used their parts of the rate meanwhile.
func TestBucketAfterAnInterruption(t *testing.T) {
	client := connect(t, sharedServer(t).Addr)
	for name, lost := range map[string]bool{"cut": false, "emptied": true} {
		for _, idle := range []bool{false, true} {
			if idle {
				name += ", nothing asked meanwhile"
			}
			t.Run(name, func(t *testing.T) {
				m := &bucketOf{t: t, client: client, key: unique(t), buckets: buckets{}}
				now, away := 1000*time.Second, time.Duration(0)
				take := func() int64 {
					n, _ := m.take(now, 0, away, 1000)
					return n
				}
				require.GreaterOrEqual(t, take(), int64(500))
				for range 2 {
					now += 10 * time.Second
					if idle {
						away += 10 * time.Second
					} else {
						m.silence, m.spent = 10*time.Second, 500 // it is alone
					}
					if lost {
						require.NoError(t, client.Del(context.Background(), m.key).Err())
					}
					assert.LessOrEqual(t, take(), int64(15), "tokens taken")
				}
				now += 2 * time.Second // without an interruption it fills
				assert.InDelta(t, 100, take(), 15)
				m.buckets = buckets{} // a member of an earlier version, or one that knows nothing
				now += 2 * time.Second
				assert.InDelta(t, 100, take(), 15)
			})
		}
	}
}

// Only the time in which Redis was away fills no bucket. A member that asks again much later
// does not empty a bucket that had time to fill since.
func TestBucketFillsAfterAnInterruption(t *testing.T) {
	m := &bucketOf{t: t, client: connect(t, sharedServer(t).Addr), key: unique(t), buckets: buckets{}}
	now := 1000 * time.Second
	n, _ := m.take(now, 0, 0, 1000)
	require.GreaterOrEqual(t, n, int64(500))
	m.silence = time.Second
	now += time.Minute
	n, _ = m.take(now, 0, time.Second, 1000)
	assert.GreaterOrEqual(t, n, int64(500))
}

// The way to Redis and back costs a member no tokens, also if it is alone.
func TestBucketCountsNoWay(t *testing.T) {
	m := &bucketOf{t: t, client: connect(t, sharedServer(t).Addr), key: unique(t), buckets: buckets{}}
	now := 1000 * time.Second
	m.take(now, 0, 0, 1000)
	var sent int64
	for i := range 100 {
		now += 150 * time.Millisecond
		n, _ := m.take(now, time.Duration(i%3)*4*time.Millisecond, 0, 20)
		sent += n
	}
	assert.InDelta(t, 100*0.15*50, sent, 10)
}

// Four members lose Redis twice for 10 s, and send their parts meanwhile. In no window they
// send more than 1.1 times the rate and one burst.
func TestBucketOfFourMembers(t *testing.T) {
	client := connect(t, sharedServer(t).Addr)
	for name, lost := range map[string]bool{"cut": false, "emptied": true} {
		t.Run(name, func(t *testing.T) {
			key := unique(t)
			var members [4]*bucketOf
			var turn [4]time.Duration // of a member's own part
			for i := range members {
				members[i] = &bucketOf{t: t, client: client, key: key, buckets: buckets{}}
			}
			var list []send
			away := time.Duration(0)
			const step = 50 * time.Millisecond
			for at := time.Duration(0); at < 45*time.Second; at += step {
				i := int(at/step) % len(members)
				m, now := members[i], 1000*time.Second+at
				if at%(15*time.Second) >= 5*time.Second { // two thirds of the time
					away += step
					m.silence += 4 * step
					for turn[i] = max(turn[i], at); turn[i] < at+step*4; turn[i] += 4 * bucketEach {
						list = append(list, send{i, turn[i]})
						m.spent++
					}
					if lost {
						require.NoError(t, client.Del(context.Background(), key).Err())
					}
					continue
				}
				n, first := m.take(now, 0, away, 500)
				for j := range n {
					list = append(list, send{i, max(at, first-1000*time.Second+time.Duration(j)*bucketEach)})
				}
			}
			slices.SortFunc(list, func(a, b send) int { return int(a.at - b.at) })
			worst, window := worstWindow(list, 50, 500)
			t.Logf("%d sent; the busiest window of %v has %.2f times the rate with one burst", len(list), window, worst)
			assert.LessOrEqual(t, worst, 1.1)
			assert.Greater(t, len(list), 45*50*9/10)
		})
	}
}
