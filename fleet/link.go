package fleet

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
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
type link struct {
	logger *slog.Logger

	mu         sync.Mutex // guards the fields below
	began      bool       // a heartbeat has succeeded, or a command has failed
	commands   bool       // no command has failed since a heartbeat succeeded
	subscribed bool
	bad        bool // the log says that Redis is lost
	losses     int  // log lines since the last calm minute
	since      time.Time
	lastBad    time.Time
}

// lost reports whether news should be dropped.
func (l *link) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began && !l.commands
}

func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.commands && l.subscribed
}

// batch returns how many commands may go in a round trip. As long as the log says that Redis
// is lost, it is a single command, because it may fail like the last.
func (l *link) batch() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bad {
		return 1
	}
	return maxBatch
}

// good says that a heartbeat succeeded. It returns true if the heartbeat before failed, or
// if there was none. Other commands prove less, because a Redis that refuses to write still
// answers some of them.
func (l *link) good() (back bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	back = !l.commands
	l.began, l.commands = true, true
	l.settle()
	return back
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
// longer after each loss. The caller holds the lock.
func (l *link) settle() {
	now := time.Now()
	if !l.commands || !l.subscribed {
		return
	}
	if l.since.IsZero() {
		l.since = now
	}
	if l.bad && now.Sub(l.since) >= min(calm, time.Second<<min(l.losses, 10)>>1) {
		l.bad = false
		if l.logger != nil {
			l.logger.Info("fleet: Redis is back")
		}
	}
	if !l.bad && now.Sub(l.lastBad) > calm {
		l.losses = 0
	}
}

// failed says that a command or the subscription failed.
func (l *link) failed(err error, subscription bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if subscription {
		l.subscribed = false
	} else {
		l.began, l.commands = true, false
	}
	l.since, l.lastBad = time.Time{}, time.Now()
	if l.bad {
		return
	}
	l.bad = true
	l.losses++
	if l.logger != nil {
		l.logger.Warn("fleet: Redis is lost, this process goes on with its own knowledge", "err", err)
	}
}

// pause returns how long to wait before the next attempt.
func pause() time.Duration { return retryEach*3/4 + rand.N(retryEach/2) }

// newClient returns a client whose connections end with ctx.
func newClient(ctx context.Context, o redis.UniversalOptions) redis.UniversalClient {
	o.Addrs = append([]string(nil), o.Addrs...)
	d := &dialer{ctx: ctx, dial: o.Dialer, failures: map[string]failure{}}
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
	ended := &conn{Conn: c}
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
