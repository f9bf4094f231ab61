package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	retryEach = time.Second // between two attempts while Redis is away, ± a quarter
	calm      = time.Minute // after so long without a failure, the log waits no longer
)

// A link knows whether Redis can be used. There are two ways to lose Redis: commands fail,
// or the subscription ends. While commands fail, only one command per second tries again.
//
// In a cluster each node can be lost alone. Then the hosts of the other nodes are shared as
// before. A node is known by its address. A single server is the node "".
type link struct {
	journal *journal
	hidden  *hidden
	cluster bool

	mu    sync.Mutex // guards the fields below
	began bool       // a heartbeat has succeeded
	// lostNodes has a host of each node that is lost. The node is tried with a question about
	// the host. If the heartbeat has failed there, the host is empty, and the next heartbeat
	// tries the node.
	lostNodes  map[string]string
	subscribed bool
	bad        bool   // the log says that Redis is lost
	refused    bool   // the log says that Redis can't be used
	reason     string // of the last failure
	losses     int    // log lines since the last calm minute
	since      time.Time
	lastBad    time.Time
	gone       time.Time     // since when nothing of Redis answers; zero: it answers
	goneFor    time.Duration // how long that was before
	broken     uint64        // how often a heartbeat or the subscription failed
}

// lost reports whether news for a node should be dropped. The node "" of a cluster is lost
// if no node answers who has which keys.
func (l *link) lost(node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, all := l.lostNodes[""]
	_, this := l.lostNodes[node]
	return all || this
}

// away returns how long Redis was lost in all.
func (l *link) away() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone.IsZero() {
		return l.goneFor
	}
	return l.goneFor + time.Since(l.gone)
}

// breaks returns how often Redis was lost. The loss of a node that has neither the heartbeats
// nor the subscription does not count.
func (l *link) breaks() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// faulty reports whether any node is lost, or no heartbeat has succeeded yet.
func (l *link) faulty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.began || len(l.lostNodes) > 0
}

// toTry returns a host of each lost node that no heartbeat tries.
func (l *link) toTry() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	hosts := map[string]string{}
	for node, host := range l.lostNodes {
		if host != "" {
			hosts[node] = host
		}
	}
	return hosts
}

// connected reports whether all of Redis answers, and messages arrive.
func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began && len(l.lostNodes) == 0 && l.subscribed
}

// lastReason returns why something failed last.
func (l *link) lastReason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// usable reports whether at least a part of Redis answers, and messages arrive.
func (l *link) usable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, all := l.lostNodes[""]
	return (l.began || len(l.lostNodes) > 0) && !all && l.subscribed
}

// batch returns how many commands may go in a round trip. As long as the log says that Redis
// is lost, it is a single command, because it may fail like the last. In a cluster the
// commands go to nodes that are not lost.
func (l *link) batch() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bad && !l.cluster {
		return 1
	}
	return maxBatch
}

// good says that a heartbeat succeeded. It returns true if the heartbeat before failed, or if
// there was none. Other commands prove less, because a Redis that refuses to write still
// answers some of them.
func (l *link) good() (back bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	back = !l.began
	l.began = true
	for node, host := range l.lostNodes {
		// The key of the members may have moved from the node where the heartbeat failed.
		if host == "" {
			l.regained(node)
			back = true
		}
	}
	l.settle()
	return back
}

// served says that the question about the host of a lost node was answered. If a heartbeat has
// failed there since, that proves too little.
func (l *link) served(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lostNodes[node] != "" {
		l.regained(node)
	}
	l.settle()
}

// regained notes that a node is lost no longer; the lock is held.
func (l *link) regained(node string) {
	delete(l.lostNodes, node)
	if node == "" && !l.gone.IsZero() {
		l.goneFor += time.Since(l.gone)
		l.gone = time.Time{}
	}
}

// joined says that the subscription is made.
func (l *link) joined() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribed = true
	l.settle()
}

// settle writes the log line that Redis is back. Redis has to be good for a while first,
// so that a Redis that fails every other second does not fill the log. That while is
// longer after each loss; the lock is held.
func (l *link) settle() {
	now := time.Now()
	if !l.began || len(l.lostNodes) > 0 || !l.subscribed {
		return
	}
	if l.since.IsZero() {
		l.since = now
	}
	if l.bad && now.Sub(l.since) >= min(calm, time.Second<<min(l.losses, 10)>>1) {
		l.bad = false
		l.journal.add(slog.LevelInfo, "fleet: Redis is back")
	}
	if !l.bad && now.Sub(l.lastBad) > calm {
		l.losses = 0
	}
}

// failed says that a command failed at a node. The host is that of the command, or empty for
// a heartbeat.
func (l *link) failed(err error, node, host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lostNodes == nil {
		l.lostNodes = map[string]string{}
	}
	old, was := l.lostNodes[node]
	if !was || old != "" {
		l.lostNodes[node] = host
	}
	if node == "" && !was {
		l.gone = time.Now()
	}
	if node == "" || host == "" {
		l.broken++
	}
	l.note(err, node)
}

// unsubscribed says that the subscription failed.
func (l *link) unsubscribed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribed = false
	l.broken++
	l.note(err, "")
}

// note writes the log line that Redis is lost, or that it can't be used; the lock is held.
func (l *link) note(err error, node string) {
	l.since, l.lastBad, l.reason = time.Time{}, time.Now(), l.hidden.reason(err)
	refused := isRefusal(err)
	if l.bad && (l.refused || !refused) {
		return
	}
	if !l.bad {
		l.losses++
	}
	l.bad, l.refused = true, refused
	text, args := "fleet: Redis is lost", []any{"error", l.reason}
	if refused {
		text = "fleet: Redis can't be used"
	}
	if node != "" {
		args = append(args, "node", node)
	}
	l.journal.add(slog.LevelWarn, text, args...)
}

// isRefusal reports whether Redis answers and does not do what a Fleet needs, such as for a wrong
// password or a missing right, or if something else or a node of a cluster answers. Other errors
// pass, also that Redis is loading, full or read only.
func isRefusal(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return errors.Is(err, errReply)
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	return slices.Contains([]string{"ERR", "MOVED", "NOAUTH", "NOPERM", "WRONGPASS"}, code)
}

// aboutAHost reports whether an error says something about the keys of a host, and nothing
// about Redis. A script cannot read a key with the wrong type, for instance.
func aboutAHost(err error) bool {
	if redis.HasErrorPrefix(err, "WRONGTYPE") || redis.HasErrorPrefix(err, "CLUSTERDOWN Hash slot not served") || redis.HasErrorPrefix(err, "TRYAGAIN") {
		return true
	}
	var reply redis.Error
	if !errors.As(err, &reply) || !strings.HasPrefix(reply.Error(), "ERR ") || !strings.Contains(reply.Error(), "user_script") {
		return false
	}
	return !slices.ContainsFunc(missingRights[:], func(text string) bool { return strings.Contains(reply.Error(), text) })
}

// missingRights are in the error of a script whose user lacks a right. Redis up to 7.0
// has the first text, and later Redis and Valkey have the second. Such an error is about
// all hosts.
var missingRights = [...]string{"The user executing the script", "ACL failure in script"}

// pause returns how long to wait before the next attempt.
func pause() time.Duration { return retryEach*3/4 + rand.N(retryEach/2) }

// newClient returns a client whose connections end with ctx. It calls made after each connection
// that it makes.
func newClient(ctx context.Context, o redis.UniversalOptions, made func()) redis.UniversalClient {
	o.Addrs = append([]string(nil), o.Addrs...)
	d := &dialer{ctx: ctx, dial: o.Dialer, made: made, failures: map[string]failure{}}
	if d.dial == nil {
		network := &net.Dialer{Timeout: timeout}
		d.dial = network.DialContext
		if o.TLSConfig != nil {
			d.dial = (&tls.Dialer{NetDialer: network, Config: o.TLSConfig}).DialContext
		}
	}
	o.Dialer = d.Dial
	o.Protocol = 2
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.MaxActiveConns, o.MinIdleConns, o.MaxIdleConns = 2, 2, 0, 0
	o.PipelinePoolSize = -1 // pipelines use the same connections
	o.ReadBufferSize, o.WriteBufferSize = 4096, 4096
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClientSideCache, o.ClientSideCacheConfig, o.AutoPipelineOptions = nil, nil, nil
	return redis.NewUniversalClient(&o)
}

// A dialer makes connections that end with a context. After a failure it does not dial the
// same address for a while. It reports failures by a connection on which nothing works,
// because the pool of go-redis logs each failed dial, and starts a goroutine that dials by
// itself.
type dialer struct {
	ctx  context.Context
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	made func() // is called after a success

	mu       sync.Mutex // guards failures
	failures map[string]failure
}

type failure struct {
	at  time.Time
	err error
}

func (d *dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := d.tooSoon(addr); err != nil {
		return dead{err}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	c, err := d.dial(ctx, network, addr)
	if err == nil {
		d.made()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if len(d.failures) > 1024 {
			clear(d.failures)
		}
		d.failures[addr] = failure{time.Now(), err}
		return dead{err}, nil
	}
	delete(d.failures, addr)
	ended := &conn{Conn: &bounded{Conn: c}}
	ended.stop = context.AfterFunc(d.ctx, func() { _ = c.Close() })
	if s, ok := c.(syscall.Conn); ok {
		return &checked{ended, s}, nil
	}
	return ended, nil
}

// tooSoon returns the last error of an address, if it is too soon for another attempt.
// Else the attempt counts from now on, so that no other begins at the same time.
func (d *dialer) tooSoon(addr string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, ok := d.failures[addr]
	if !ok {
		return nil
	}
	if time.Since(last.at) < retryEach/2 {
		return last.err
	}
	d.failures[addr] = failure{time.Now(), last.err}
	return nil
}

// A conn is closed when its context ends.
type conn struct {
	net.Conn
	stop func() bool
}

func (c *conn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// checked is a conn of which go-redis can see whether the server has closed it.
type checked struct {
	*conn
	syscall.Conn
}

func (c *checked) Close() error { return c.conn.Close() }

// dead is a connection that could not be made.
type dead struct{ err error }

func (d dead) Read([]byte) (int, error)       { return 0, d.err }
func (d dead) Write([]byte) (int, error)      { return 0, d.err }
func (dead) Close() error                     { return nil }
func (dead) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (dead) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (dead) SetDeadline(time.Time) error      { return nil }
func (dead) SetReadDeadline(time.Time) error  { return nil }
func (dead) SetWriteDeadline(time.Time) error { return nil }
