package fleet

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/redisserver"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A scene is a Redis behind a proxy, members under load, and the same load without a
// fleet.
type scene struct {
	t      *testing.T
	server *redisserver.Server
	admin  *redis.Client
	proxy  *proxy
	config Config
}

// A fault happens to Redis. Either both functions are there, or only mend, and Redis is
// at fault from the start.
type fault struct {
	name   string
	server []string // settings
	before func(*scene)
	begin  func(*scene)
	mend   func(*scene)
}

var faults = []fault{
	{
		name:   "down at the start",
		before: func(s *scene) { s.server.Kill() },
		mend:   func(s *scene) { s.restart() },
	},
	{
		name:  "killed",
		begin: func(s *scene) { s.server.Kill() },
		mend:  func(s *scene) { s.restart() },
	},
	{
		name:  "slow",
		begin: func(s *scene) { s.proxy.delay.Store(int64(2 * time.Second)) },
		mend:  func(s *scene) { s.proxy.delay.Store(0) },
	},
	{
		name:  "frozen",
		begin: func(s *scene) { s.signal(syscall.SIGSTOP) },
		mend:  func(s *scene) { s.signal(syscall.SIGCONT) },
	},
	{
		name:  "out of memory",
		begin: func(s *scene) { s.set("maxmemory", "1") },
		mend:  func(s *scene) { s.set("maxmemory", "0") },
	},
	{
		name:  "partition",
		begin: func(s *scene) { s.proxy.cut() },
		mend:  func(s *scene) { s.proxy.heal() },
	},
	{
		name:  "read only",
		begin: func(s *scene) { require.NoError(s.t, s.admin.ReplicaOf(context.Background(), "127.0.0.1", "1").Err()) },
		mend:  func(s *scene) { require.NoError(s.t, s.admin.ReplicaOf(context.Background(), "NO", "ONE").Err()) },
	},
	{
		name:  "failover to an empty server",
		begin: func(s *scene) { s.server.Kill() },
		mend:  func(s *scene) { s.proxy.move(ownServer(s.t).Addr) },
	},
	{
		name:   "wrong password",
		server: []string{"--requirepass", "right"},
		before: func(s *scene) { s.config.Redis.Password = "wrong" },
		mend: func(s *scene) {
			admin := redis.NewClient(&redis.Options{Addr: s.server.Addr, Password: "right"})
			defer func() { require.NoError(s.t, admin.Close()) }()
			require.NoError(s.t, admin.ConfigSet(context.Background(), "requirepass", "wrong").Err())
		},
	},
	{
		name:  "no permission for the channel",
		begin: func(s *scene) { s.permit("resetchannels") },
		mend:  func(s *scene) { s.permit("allchannels") },
	},
	{
		name: "loading",
		before: func(s *scene) {
			s.proxy.target.Store(refusing(s.t, "-LOADING Redis is loading the dataset in memory\r\n"))
		},
		mend: func(s *scene) { s.proxy.move(s.server.Addr) },
	},
	{
		name:   "no master",
		before: func(s *scene) { s.proxy.target.Store(refusing(s.t, "-MOVED 1 127.0.0.1:1\r\n")) },
		mend:   func(s *scene) { s.proxy.move(s.server.Addr) },
	},
}

// Whatever happens to Redis, no request fails, the methods return at once, two log lines
// say that Redis is lost and back, few attempts are made meanwhile, and news flows again
// after it.
func TestFaults(t *testing.T) {
	t.Parallel()
	atOnce(t, soak.Size(8, 1), faults, func(f fault) string { return f.name }, playFault)
}

// atOnce runs so many subtests at a time. They mostly wait, so there can be more of them
// than the machine has cores.
func atOnce[T any](t *testing.T, most int, list []T, name func(T) string, test func(*testing.T, T)) {
	turns := make(chan struct{}, most)
	var group sync.WaitGroup
	defer group.Wait()
	for _, v := range list {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			t.Run(name(v), func(t *testing.T) { test(t, v) })
		})
	}
}

func playFault(t *testing.T, fault fault) {
	s := newScene(t, fault)
	if fault.before != nil {
		fault.before(s)
	}
	var workers []*worker
	var logs []*logLines
	config := func() Config {
		c := s.config
		logs = append(logs, &logLines{})
		c.Logger = logs[len(logs)-1].logger()
		return c
	}
	f, m := start(t, config())
	for range 3 {
		f := fresh(t, config())
		workers = append(workers, newWorker(t, f))
	}
	leaver, _ := start(t, s.config)
	fleets := []*Fleet{f, workers[0].fleet, workers[1].fleet, workers[2].fleet}
	if fault.begin != nil {
		for _, f := range fleets {
			eventually(t, func() bool { return f.state().Connected }, "not connected")
		}
	}
	stop := load(workers...)
	if fault.begin != nil {
		time.Sleep(time.Second)
		fault.begin(s)
	}
	for i, f := range fleets {
		eventually(t, func() bool { return logs[i].count("fleet: Redis ") > 0 && !f.state().Connected }, "no log line")
	}
	accepted, before := s.proxy.accepted.Load(), f.state()
	var calls []time.Duration
	begin := time.Now()
	for range 1000 {
		calls = append(calls, callAll(f)...)
		time.Sleep(time.Millisecond)
	}
	leaver.Close()
	took := time.Since(begin)
	assert.LessOrEqual(t, s.proxy.accepted.Load()-accepted, int64(float64(5*2)*(took.Seconds()*4/3+2)), "connections in %v", took)
	after := f.state()
	assert.LessOrEqual(t, after.Commands-before.Commands, uint64(took.Seconds()*4/3+2)*8, "commands in %v", took)
	assert.Less(t, percentile(calls, 90), 100*time.Millisecond) // nothing waits for Redis, and a loaded machine delays a few
	fault.mend(s)
	for i, f := range fleets {
		eventually(t, func() bool {
			lost, back := losses(logs[i])
			return f.state().Connected && back == lost
		}, "not back: %v", logs[i])
	}
	got := len(get(m, func() []fleetmsg.Message { return m.holds }))
	scope := uint64(0)
	eventually(t, func() bool {
		scope++ // another hold, because a machine under load may lose Redis once more
		workers[0].fleet.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://after.example.com", Scope: scope, Status: 429, Wait: time.Minute})
		return len(get(m, func() []fleetmsg.Message { return m.holds })) > got
	}, "no news after the fault")
	stop()
	for _, w := range workers {
		assert.Zero(t, w.failed.Load(), "requests failed")
		assert.Less(t, percentile(w.took, 50), 200*time.Millisecond)
		w.fleet.Close()
	}
	for _, l := range logs {
		// If many faults are played at once, a command may take longer than a second, and
		// Redis counts as lost once more.
		lost, back := losses(l)
		assert.Equal(t, l.count("\n"), l.count("fleet: Redis "), "%v", l)
		assert.LessOrEqual(t, lost, soak.Size(20, 1), "%v", l)
		assert.InDelta(t, lost, back, soak.Size(1.0, 0.0), "%v", l)
	}
	f.Close()
	s.proxy.close()
	if s.admin.Ping(context.Background()).Err() == nil {
		eventually(t, func() bool { return clients(t, s.admin) == 0 }, "connections are left")
	}
}

// losses returns how often the log says that Redis is lost and back. Another line about the same
// loss may say that Redis can't be used.
func losses(l *logLines) (lost, back int) {
	for line := range strings.Lines(l.String()) {
		switch {
		case strings.Contains(line, "Redis is back"):
			back++
		case lost == back:
			lost++
		}
	}
	return lost, back
}

// callAll tells and asks what a Transport does, and returns how long each call took.
func callAll(f *Fleet) (took []time.Duration) {
	for _, call := range []func(){
		func() { f.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host}) },
		func() { f.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Second}) },
		func() { f.tell(fleetmsg.Message{Kind: fleetmsg.Quota, Host: host, Amount: 1, Wait: time.Second}) },
		func() { f.tell(fleetmsg.Message{Kind: fleetmsg.Failing, Host: host, Failures: 1, Wait: time.Second}) },
		func() {
			f.tell(fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: host, PerSecond: 1, Burst: 1, Amount: 1})
		},
	} {
		begin := time.Now()
		call()
		took = append(took, time.Since(begin))
	}
	return took
}

func newScene(t *testing.T, f fault) *scene {
	server := ownServer(t, f.server...)
	p := newProxy(t, server.Addr)
	return &scene{t: t, server: server, admin: connect(t, server.Addr), proxy: p, config: options(t, p.addr)}
}

func (s *scene) restart() { require.NoError(s.t, s.server.Restart()) }

func (s *scene) set(name, value string) {
	require.NoError(s.t, s.admin.ConfigSet(context.Background(), name, value).Err())
}

func (s *scene) signal(sig syscall.Signal) { require.NoError(s.t, s.server.Process().Signal(sig)) }

func (s *scene) permit(rule string) {
	require.NoError(s.t, s.admin.Do(context.Background(), "acl", "setuser", "default", rule).Err())
}

// A worker is a Transport under load.
type worker struct {
	fleet  *Fleet
	tr     *transport.Transport
	failed atomic.Int64
	took   []time.Duration // for each request
}

// newWorker makes a Transport with every limit that a fleet has to do with, over a server
// in memory that always succeeds.
func newWorker(t *testing.T, f *Fleet) *worker {
	tr := transport.MustNew(transport.Config{
		Fleet: f,
		Rule:  policy.Rule{ShareRetryAfter: policy.On, Concurrency: policy.Concurrency{Max: 50}, QuotaPacing: policy.On},
		Hosts: map[string]policy.Rule{"rate.example.com": {RateLimit: policy.RateLimit{PerSecond: 2000, Burst: 200}}},
		Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			h := http.Header{"X-Ratelimit-Remaining": {"1000000"}, "X-Ratelimit-Reset": {"60"}}
			return &http.Response{StatusCode: 200, Header: h, Body: http.NoBody, Request: req}, nil
		}),
	})
	return &worker{fleet: f, tr: tr}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func (w *worker) get(url string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return w.tr.RoundTrip(req)
}

// load makes each worker send 100 requests per second, until stop.
func load(workers ...*worker) (stop func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	for _, w := range workers {
		group.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				for _, url := range []string{"https://load.example.com/", "https://rate.example.com/"} {
					begin := time.Now()
					resp, err := w.get(url)
					w.took = append(w.took, time.Since(begin))
					if err != nil || resp.StatusCode != 200 {
						w.failed.Add(1)
					}
				}
			}
		})
	}
	return func() {
		close(done)
		group.Wait()
	}
}

func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[(len(d)-1)*p/100]
}

// A proxy passes connections on to a target.
type proxy struct {
	addr     string
	target   atomic.Value // string
	delay    atomic.Int64 // of what the server sends, in nanoseconds
	accepted atomic.Int64

	listener net.Listener
	mu       sync.Mutex // guards the fields below
	open     chan struct{}
	conns    []net.Conn
	closed   bool
}

func newProxy(t *testing.T, target string) *proxy {
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &proxy{addr: l.Addr().String(), listener: l, open: make(chan struct{})}
	close(p.open)
	p.target.Store(target)
	go p.serve()
	t.Cleanup(p.close)
	return p
}

func (p *proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		go func() {
			p.wait()
			s, err := net.Dial("tcp", p.target.Load().(string))
			if err != nil {
				c.Close()
				return
			}
			p.mu.Lock()
			if p.closed {
				s.Close()
				c.Close()
			}
			p.conns = append(p.conns, c, s)
			p.mu.Unlock()
			go p.pass(s, c, nil)
			p.pass(c, s, &p.delay)
		}()
	}
}

// pass copies from one connection to the other.
func (p *proxy) pass(to, from net.Conn, delay *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.wait()
		if delay != nil {
			time.Sleep(time.Duration(delay.Load()))
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait waits until the network is whole.
func (p *proxy) wait() {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	<-open
}

// cut makes a partition. What was on the way arrives after heal.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = make(chan struct{})
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.open)
}

// move closes all connections and connects to another target from then on.
func (p *proxy) move(target string) {
	p.target.Store(target)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	select {
	case <-p.open:
	default:
		close(p.open)
	}
	for _, c := range p.conns {
		c.Close()
	}
}

// refusing is a server that refuses all commands with an error.
func refusing(t *testing.T, text string) string {
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					if strings.HasPrefix(line, "*") { // a command begins
						if _, err := io.WriteString(c, text); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
