// The lanes of a Transport: making them, and closing them.

package lanes

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/dial"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// Pools make further lanes, and close the connections of lanes that nobody needs.
type Pools struct {
	first http.RoundTripper       // the lane of all hosts
	each  func(func(*lane.Lanes)) // calls a function for the lanes of each host
	now   func() instant.Instant
	base  *http.Transport                     // is copied for a lane; nil: it cannot be
	make  func(host string) http.RoundTripper // Config.Lane; nil: base is copied
	Own   func() *dial.Dialer                 // of the lanes; nil: they dial names like the base
	Log   *slog.Logger                        // nil: none

	closes bool        // the base can close its idle connections
	single atomic.Bool // the base has one lane only, as far as is known
	told   sync.Once   // the log knows it

	mu    sync.Mutex                // guards the fields below
	timer *time.Timer               // nil: nothing to close
	due   time.Time                 // when it fires
	left  map[*lane.Lane]leaving    // lanes that attempts no longer take
	kept  map[*lane.Lanes]time.Time // hosts with further lanes, and when to sweep them
}

// A leaving says when the idle connections of a lane are to be closed.
type leaving struct {
	due   time.Time
	times int // before
}

const (
	// LookupAge is how old the addresses of a name may be for a detour.
	LookupAge = 100 * time.Millisecond
	// LookupTime bounds the time of a name server before a retry.
	LookupTime = 500 * time.Millisecond
)

// leaveTimes are the times from leaving a lane to closing its idle connections, again and
// again, until the attempts that were under way should have ended.
var leaveTimes = [...]time.Duration{50 * time.Millisecond, time.Second, lane.Idle}

// NewPools returns the pools of a base transport. make is Config.Lane.
func NewPools(base http.RoundTripper, make func(host string) http.RoundTripper, dialer *dial.Dialer, now func() instant.Instant, each func(func(*lane.Lanes))) *Pools {
	p := &Pools{first: base, make: make, each: each, now: now, left: map[*lane.Lane]leaving{}, kept: map[*lane.Lanes]time.Time{}}
	if runtime.GOOS == "js" {
		p.make = nil // the browser chooses the connections
		return p
	}
	_, p.closes = base.(interface{ CloseIdleConnections() })
	if t, ok := base.(*http.Transport); ok && p.make == nil {
		p.base = t
		p.Own = sync.OnceValue(func() *dial.Dialer {
			if dialer != nil {
				return dialer
			}
			return dial.New(t)
		})
	}
	p.single.Store(p.base == nil)
	return p
}

// Most returns how many connections a host may have in all lanes, or 0 if any number.
func (p *Pools) Most() int {
	if p.base == nil {
		return 0
	}
	return max(p.base.MaxConnsPerHost, 0)
}

// hasOwnTLS reports whether the base makes the connections of TLS in a way of its own.
func hasOwnTLS(t *http.Transport) bool {
	//lint:ignore SA1019 old transports still set DialTLS
	return t.DialTLS != nil || t.DialTLSContext != nil
}

// Of returns the base transport of a lane.
func (p *Pools) Of(l *lane.Lane) http.RoundTripper {
	if l == nil || l.Base == nil {
		return p.first
	}
	return l.Base
}

// Open makes a lane for the host of a request. If guess is set, the address that the
// last attempt reached is not known. It returns nil if there can be none.
func (p *Pools) Open(req *http.Request, guess bool, room int) *lane.Lane {
	if p.make != nil {
		base := p.make(req.URL.Host)
		if base == nil || replay.IsNil(base) {
			return nil
		}
		return lane.New(base)
	}
	if !p.Can(req) {
		return nil
	}
	c := clone(p.base)
	if c == nil || room > 0 && hasOwnTLS(c) { // its connections could not be counted
		p.single.Store(true)
		return nil
	}
	if c.IdleConnTimeout == 0 {
		c.IdleConnTimeout = lane.Idle
	}
	l := lane.New(c)
	if d := p.DialerFor(req); d != nil {
		c.DialContext = dialing(d, l, guess)
	}
	if room > 0 {
		closeIdle(p.first) // nobody counted these
		l.Room, c.MaxConnsPerHost = room, room
		c.DialContext = counting(dialOf(c), l) // has priority over Dial
	}
	return l
}

// dialOf returns the function that a transport dials with.
func dialOf(t *http.Transport) dial.Func {
	//lint:ignore SA1019 old transports still set Dial
	old := t.Dial
	switch {
	case t.DialContext != nil:
		return t.DialContext
	case old != nil:
		return func(_ context.Context, network, addr string) (net.Conn, error) { return old(network, addr) }
	}
	return new(net.Dialer).DialContext
}

// counting returns a DialContext that counts the connections of a lane.
func counting(dial dial.Func, lane *lane.Lane) dial.Func {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		lane.Conns.Add(1)
		return &countedConn{Conn: conn, lane: lane}, nil
	}
}

// A countedConn is a connection of a lane that has a Room.
type countedConn struct {
	net.Conn
	lane *lane.Lane
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.lane.Conns.Add(-1) })
	return c.Conn.Close()
}

// dialing returns the DialContext of a lane. With guess, the address that is dialled first
// is the one to be avoided. It is not looked up before the lane dials, because a request
// that has failed does not wait for a name server.
func dialing(d *dial.Dialer, lane *lane.Lane, guess bool) dial.Func {
	var once sync.Once
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		addrs := d.Addrs(ctx, addr, time.Hour)
		lane.Ways.Store(int32(len(addrs)))
		once.Do(func() {
			if guess && len(addrs) > 1 {
				d.Failed(addr, addrs[0])
			}
		})
		return d.DialContext(ctx, network, addr)
	}
}

// DialerFor returns what dials the addresses of a request's host in the lanes. It is nil
// if the base dials in its own way, or through a proxy.
func (p *Pools) DialerFor(req *http.Request) *dial.Dialer {
	if p.Own == nil {
		return nil
	}
	d := p.Own()
	if proxy := p.base.Proxy; d != nil && proxy != nil {
		if u, err := proxy(req); err != nil || u != nil {
			return nil
		}
	}
	return d
}

// Leave closes the idle connections of a lane that attempts no longer take, a moment
// later. What is under way goes on.
func (p *Pools) Leave(l *lane.Lane) {
	if l == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[l] = leaving{due: time.Now().Add(leaveTimes[0])}
	p.wake(p.left[l].due)
}

// keep watches the lanes of a host, of which one gets its first connection, or one anew.
func (p *Pools) keep(lanes *lane.Lanes) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[lanes] = time.Now().Add(time.Second)
	p.wake(p.kept[lanes])
}

// wake makes tidy run at that time at the latest; the lock is held.
func (p *Pools) wake(due time.Time) {
	switch d := time.Until(due); {
	case p.timer == nil:
		p.timer = time.AfterFunc(d, p.tidy)
	case due.Before(p.due):
		p.timer.Reset(d)
	default:
		return
	}
	p.due = due
}

// tidy closes the connections that nobody needs. It runs from time to time while there are
// lanes, and holds no goroutine between.
func (p *Pools) tidy() {
	for _, l := range p.idleNow() {
		closeIdle(p.Of(l))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	for _, l := range p.left {
		p.wake(l.due)
	}
	for _, due := range p.kept {
		p.wake(due)
	}
}

// idleNow returns the lanes whose idle connections are to be closed now.
func (p *Pools) idleNow() (idle []*lane.Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, heard := time.Now(), p.now()
	for l, at := range p.left {
		if at.due.After(now) {
			continue
		}
		idle = append(idle, l)
		at.times++
		if at.times < len(leaveTimes) || l.Base != nil && heard.Sub(l.Heard()) < lane.Idle { // a stream goes on
			at.due = now.Add(leaveTimes[min(at.times, len(leaveTimes)-1)])
			p.left[l] = at
		} else {
			delete(p.left, l)
		}
	}
	for lanes, due := range p.kept {
		if due.After(now) {
			continue
		}
		closing, again := lanes.Sweep(heard)
		idle = append(idle, closing...)
		if again > 0 {
			p.kept[lanes] = now.Add(again)
		} else {
			delete(p.kept, lanes)
		}
	}
	return append(idle, p.beyond()...)
}

// beyond returns the lanes that were used longest ago, if there are more than idle connections
// of the base; the lock is held.
func (p *Pools) beyond() []*lane.Lane {
	if p.base == nil || p.base.MaxIdleConns <= 0 || len(p.kept) <= p.base.MaxIdleConns {
		return nil
	}
	var all []*lane.Lane
	for lanes := range p.kept {
		all = append(all, lanes.All()...)
	}
	slices.SortFunc(all, func(a, b *lane.Lane) int { return cmp.Compare(a.Heard(), b.Heard()) })
	return all[:max(len(all)-p.base.MaxIdleConns, 0)]
}

// CloseAll closes the idle connections of all lanes, also of those that were left.
func (p *Pools) CloseAll() {
	closeIdle(p.first)
	p.each(func(lanes *lane.Lanes) {
		for _, l := range lanes.All() {
			closeIdle(l.Base)
		}
	})
	p.mu.Lock()
	left := slices.Collect(maps.Keys(p.left))
	p.mu.Unlock()
	for _, l := range left {
		closeIdle(p.Of(l))
	}
}

// Can reports whether the host of a request may have further lanes.
func (p *Pools) Can(req *http.Request) bool {
	return p.make != nil || !p.single.Load() && p.isCopied(req)
}

// isCopied reports whether a copy of the base could send a request. A copy knows no other
// schemes, which may be registered with the base.
func (p *Pools) isCopied(req *http.Request) bool {
	return p.base != nil && (req.URL.Scheme == "http" || req.URL.Scheme == "https")
}

// closeIdle closes the idle connections of a base transport, if it can. A timer may call it, where
// a panic would end the process.
func closeIdle(base http.RoundTripper) {
	defer func() { _ = recover() }()
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
