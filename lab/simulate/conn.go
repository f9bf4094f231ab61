// Connections. A host may have pools of them, one for each lane.

package simulate

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
)

// A fate is what becomes of a connection.
type fate uint8

const (
	lives  fate = iota
	dies        // without a word, so nothing comes over it any more
	drags       // everything takes longer
	sick        // leads to a server that answers 503
	strays      // leads to a server that answers 421
	fates
)

func (f fate) String() string {
	return [...]string{"well", "dead", "slow", "sick", "astray"}[f]
}

// A wiring describes the connections of a host.
type wiring struct {
	untold  bool // the base calls no hooks of httptrace
	alone   bool // there is one lane only
	streams int  // that a connection of HTTP/2 has at most
	bad     int  // percent of the connections have a fate, some time after they were made
	undone  int  // percent of the dials hang or are refused
}

// String describes the connections for the printed story.
func (w *wiring) String() string {
	return fmt.Sprintf("no hooks %v, one lane %v, %d streams, %d %% bad, %d %% of dials fail", w.untold, w.alone, w.streams, w.bad, w.undone)
}

// addWires gives some hosts connections. It has dice of its own, so it does not change other plans.
func (p *plan) addWires() {
	d := dice.Roll(p.seed, ofConn)
	if !d.Chance(20) {
		return
	}
	for _, h := range p.hosts {
		if h.scene == nil && d.Chance(70) {
			h.wires = newWiring(d)
			p.drawWireRules(d, h)
		}
	}
}

// newWiring draws connections with random fates.
func newWiring(d dice.Dice) *wiring {
	return &wiring{
		untold: d.Chance(15), alone: d.Chance(10), streams: dice.One(d, 2, 100, 100, 1000),
		bad: dice.One(d, 0, 10, 40, 80), undone: dice.One(d, 0, 0, 5, 30),
	}
}

// drawWireRules draws the settings that matter for connections.
func (p *plan) drawWireRules(d dice.Dice, h *host) {
	rules := []*policy.Rule{&h.rule}
	for i := range p.updates {
		rules = append(rules, &p.updates[i].rules[h.id])
	}
	for _, r := range rules {
		r.Lanes = dice.One(d, 0, 0, 0, 0, policy.On, policy.Off)
		if p.nested {
			continue // the outer Transport would end an attempt of the inner one
		}
		if d.Chance(50) {
			r.AttemptTimeout = d.Between(10*time.Millisecond, 20*time.Second)
		}
		if d.Chance(30) {
			r.ConnectTimeout = d.Between(time.Millisecond, 10*time.Second)
		}
	}
}

// A conn is a connection. The lock of its base guards it.
type conn struct {
	net.Conn // nil: nobody uses it
	pool     *base
	host     *host
	id       int // counts the connections of the host
	addr     net.TCPAddr
	fate     fate          // what becomes of it
	turns    time.Duration // when that happens
	streams  int           // attempts under way
	zombies  int           // attempts that were given up after it had died
	idle     time.Duration // since when there is no attempt under way
	closed   bool
}

func (c *conn) RemoteAddr() net.Addr { return &c.addr }

// is reports whether the connection has this fate by now.
func (c *conn) is(f fate) bool {
	return c != nil && c.fate == f && c.pool.world.now() >= c.turns
}

// idleTime is the time after which a pool closes an idle connection.
const idleTime = 90 * time.Second

// mayWait returns for how long the Transport may let an attempt wait for a connection that
// another attempt makes.
func (h *host) mayWait() time.Duration {
	if h.wires == nil {
		return 0
	}
	return time.Second
}

// newLane is the Config.NewPool of the story.
func (w *world) newLane(authority string) http.RoundTripper {
	for _, h := range w.plan.hosts {
		if _, own, _ := strings.Cut(h.origin, "://"); own != authority || h.wires == nil || h.wires.alone {
			continue
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lanes[h] = append(w.lanes[h], w.now())
		n := len(w.lanes[h])
		w.story = append(w.story, entry{w.now(), -1, "%s opens lane %d", []any{h.name, n}})
		return &base{world: w, lane: n}
	}
	return nil
}

// connect gets a connection for an attempt, from the pool or by dialling. It calls the
// hooks of httptrace as net/http does.
func (b *base) connect(s *attempt) error {
	trace := httptrace.ContextClientTrace(s.req.Context())
	if trace == nil || s.host.wires.untold {
		trace = new(httptrace.ClientTrace)
	}
	if trace.GetConn != nil {
		trace.GetConn(s.req.URL.Host)
	}
	if s.script.outcome == cannotDial || s.script.outcome == distrusts {
		return nil // exchange makes the error
	}
	c := b.pooled(s)
	reused := c != nil
	if !reused {
		var err error
		if c, err = b.dial(s); err != nil {
			return err
		}
	}
	s.connected(c)
	if trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c, Reused: reused})
	}
	if trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
	return nil
}

// pooled returns a connection that the pool has, or nil. A request of the end of the story
// gets a new one, because the network is well then.
func (b *base) pooled(s *attempt) *conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.conns) - 1; i >= 0; i-- {
		c := b.conns[i]
		if c.streams == 0 && b.world.now()-c.idle > idleTime {
			c.closed = true
		}
		if c.host != s.host || c.closed || s.call.last && !c.is(lives) {
			continue
		}
		if c.streams == 0 && c.zombies == 0 || s.host.http2 && c.streams+c.zombies < s.host.wires.streams {
			c.streams++
			return c
		}
	}
	return nil
}

// dial makes a connection.
func (b *base) dial(s *attempt) (*conn, error) {
	h, w := s.host, s.host.wires
	b.world.mu.Lock()
	b.world.dials[h]++
	id := b.world.dials[h]
	b.world.mu.Unlock()
	d := dice.Roll(b.world.plan.seed, ofConn, uint64(h.id), uint64(id))
	takes, fails, hangs := d.Between(100*time.Microsecond, 50*time.Millisecond), d.Chance(w.undone), d.Chance(50)
	if s.call.last {
		takes, fails = 0, false
	}
	if fails && hangs {
		takes = never
	}
	if takes > 0 {
		if err := s.wait(takes); err != nil {
			return nil, err
		}
	}
	if fails {
		return nil, s.fault(errorOf(cannotDial))
	}
	c := &conn{pool: b, host: h, id: id, streams: 1, addr: net.TCPAddr{IP: net.IPv4(127, 0, byte(b.lane), byte(id)), Port: 80}}
	if d.Chance(w.bad) && !s.call.last {
		c.fate, c.turns = dice.One(d, dies, dies, dies, drags, sick, strays), b.world.now()
		if d.Chance(80) {
			c.turns += d.Between(time.Millisecond, time.Minute)
		}
	}
	if h.http2 {
		if other := b.pooled(s); other != nil {
			return other, nil // net/http closes the new connection as well
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = append(b.conns, c)
	return c, nil
}

// connected gives the attempt its connection. A bad server answers in its own way.
func (s *attempt) connected(c *conn) {
	w := s.world
	w.mu.Lock()
	defer w.mu.Unlock()
	s.conn = c
	state := lives
	for f := range fates {
		if f > lives && c.is(f) {
			state = f
		}
	}
	w.story = append(w.story, entry{w.now(), s.call.plan.id, "  attempt %d: connection %d of lane %d, which is %v", []any{s.number, c.id, c.pool.lane, state}})
	sc := *s.script
	switch {
	case sc.outcome != responds && sc.outcome != resets && sc.outcome != refuses, s.call.last:
		return
	case state == drags:
		sc.takes += 2 * time.Second
	case state == sick, state == strays:
		sc.outcome, sc.status, sc.told, sc.acts = responds, 503, told{}, false
		if state == strays {
			sc.status = 421
		}
	}
	s.script = &sc
}

// release gives the connection back, if there is one. whole says that the response has
// ended properly. HTTP/1 closes the connection otherwise. HTTP/2 goes on with it, and if
// it is dead, it also counts the streams that were given up.
func (s *attempt) release(whole bool) {
	c := s.conn
	if c == nil {
		return
	}
	dead := c.is(dies)
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.streams--
	c.idle = s.world.now()
	switch broken := s.script.outcome == resets || s.script.outcome == talksNonsense; {
	case broken && !dead, !s.host.http2 && !whole:
		c.closed = true
	case dead:
		c.zombies++
	}
}
