// A play of a plan: its servers, its network and its clock.

package paired

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/lab/internal/virtual"
)

// A world is a plan that is being played. It lives in a bubble of testing/synctest.
type world struct {
	plan    *plan
	kind    kind
	start   time.Time
	net     *testserver.Net
	routers sync.Mutex // held while a connection over the router is made
	router  net.Listener
	sites   []*site
	asked   atomic.Int32 // requests of callers and ghosts

	mu       sync.Mutex // guards the following, and all arrivals
	arrivals []*arrival
	tries    map[int][]*try // of calls
	dials    map[*host]int
	counts   []int          // arrivals of each call
	haunts   map[[2]int]int // arrivals of each ghost
	running  map[tenant]*running
	used     map[string]*usage
	queues   []*queue
	busy     map[*arrival]bool // whose responses are computed
	outcomes []outcome
}

// A site is a server at an address of a host.
type site struct {
	*testserver.Server
	host     *host
	ip       netip.Addr
	bad      badness
	poisoned int            // connections up to this number are
	gone     map[int]uint32 // the first stream that a GOAWAY excluded, of connections
	used     map[int]bool   // connections that have brought a request
}

// An arrival is a request as a server sees it.
type arrival struct {
	call   *call
	n      int  // counts the arrivals of the call
	ghost  bool // it is the repetition of an arrival of another play
	site   *site
	conn   int
	stream uint32
	reused bool // it is not the first over its connection
	http2  bool // else HTTP/1.1, which an HTTP_1_1_REQUIRED asks for
	rest   bool // it asks for a part of a document
	at     time.Duration
	left   time.Duration // when the client left; never: it did not, as far as the server knows
	failed time.Duration // when the server, or the connection, failed it
	over   time.Duration // when its response ended
	fate   fateKind
	status int
	wait   int // seconds of Retry-After
	acted  bool
	undone bool // a GOAWAY has told that the server did not look at it
	rep    *rep
}

// A try is a request of a call as the base transport sees it. It may wait for a connection and never
// arrive.
type try struct{ at, left time.Duration }

// A result is what a play has shown.
type result struct {
	kind     kind
	outcomes []outcome // of the calls
	arrivals []*arrival
	tries    map[int][]*try // of calls
	dials    map[*host]int
	requests int
	calls    map[int][]*arrival // nil: not sorted yet
}

// A ghost is an arrival that is played again: it belongs to no caller.
type ghost struct {
	call   *call
	n      int
	at     time.Duration
	leaves time.Duration
}

// play plays a plan in a bubble of its own. The ghosts come beside the callers, and the lines
// begin later by up to move.
func play(t *testing.T, p *plan, k kind, ghosts []ghost, move time.Duration, nth uint64) (r *result) {
	stuck := time.AfterFunc(2*time.Minute, func() {
		panic("seed " + strconv.FormatUint(p.seed, 10) + ", " + k.name + ": two minutes of real time have passed")
	})
	defer stuck.Stop()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p, k)
		r = w.run(ghosts, move, dice.Roll(p.seed, ofMove, nth))
	})
	return r
}

func newWorld(p *plan, k kind) *world {
	w := &world{
		plan: p, kind: k, start: time.Now(), net: testserver.NewNet(), counts: make([]int, len(p.calls)), haunts: map[[2]int]int{},
		tries: map[int][]*try{}, dials: map[*host]int{}, running: map[tenant]*running{}, used: map[string]*usage{}, busy: map[*arrival]bool{}, outcomes: make([]outcome, len(p.calls)),
	}
	var err error
	if w.router, err = w.net.Listen(router); err != nil {
		panic(err)
	}
	for _, h := range p.hosts {
		w.queues = append(w.queues, &queue{free: max(h.workers, h.places)})
		if h.like != nil {
			continue
		}
		for i, ip := range h.ips {
			s := &site{host: h, ip: ip, poisoned: h.resets, gone: map[int]uint32{}, used: map[int]bool{}}
			if i == 0 {
				s.bad = h.bad
			}
			c := testserver.Config{Net: w.net, Host: ip.String(), HTTP2: p.http2, Streams: h.streams, Refusing: s.bad == refusing, Handler: func(r *testserver.Received) testserver.Step { return w.receive(s, r) }}
			if p.tls {
				c.TLS = testserver.Trusted
			}
			server, err := testserver.New(c)
			if err != nil {
				panic(err)
			}
			s.Server = server
			w.sites = append(w.sites, s)
			switch s.bad {
			case unreachable:
				w.net.Fail(ip.String(), testserver.ErrBlackhole)
			case silent:
				w.net.Mute(ip.String(), true)
			}
		}
	}
	return w
}

// run plays the lines until all have ended, or until the horizon.
func (w *world) run(ghosts []ghost, move time.Duration, d dice.Dice) *result {
	client, closeIdle := w.kind.client(w)
	ctx, cancel := context.WithCancel(context.Background()) // a deadline would be the callers'
	defer time.AfterFunc(w.plan.horizon(), cancel).Stop()
	var lines, others sync.WaitGroup
	for _, l := range w.plan.lines {
		late := time.Duration(d.Float64() * float64(move))
		lines.Go(func() {
			time.Sleep(l.at + late)
			for i, c := range l.calls {
				if i > 0 {
					time.Sleep(c.think)
				}
				w.outcomes[c.id] = w.ask(ctx, client, c, 0)
			}
		})
	}
	for _, g := range ghosts {
		others.Go(func() {
			time.Sleep(g.at)
			ctx, cancel := ctx, context.CancelFunc(func() {})
			if g.leaves < never {
				ctx, cancel = context.WithDeadline(ctx, w.start.Add(g.leaves))
			}
			defer cancel()
			w.ask(ctx, client, g.call, g.n)
		})
	}
	for _, s := range w.plan.strikes {
		if s.at < never {
			others.Go(func() {
				time.Sleep(s.at)
				w.strike(s)
			})
		}
	}
	lines.Wait()
	cancel()
	closeIdle()
	others.Wait()
	time.Sleep(10 * time.Minute) // what is discarded ends
	closeIdle()
	for _, s := range w.sites {
		s.Close()
	}
	_ = w.router.Close()
	time.Sleep(10 * time.Minute)
	return &result{w.kind, w.outcomes, w.arrivals, w.tries, w.dials, int(w.asked.Load()), nil}
}

func (w *world) now() time.Duration { return time.Since(w.start) }

// with calls f under the lock.
func (w *world) with(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// hostOf returns the host of "name:port".
func (w *world) hostOf(addr string) *host {
	name, _, _ := net.SplitHostPort(addr)
	for _, h := range w.plan.hosts {
		if h.name == name {
			return h
		}
	}
	return nil
}

// lookup is the name server of the world.
func (w *world) lookup(ctx context.Context, _, addr string) ([]netip.Addr, error) {
	h := w.hostOf(addr)
	if h == nil {
		return nil, &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}
	}
	if err := virtual.Pause(ctx, h.lookup); err != nil {
		return nil, err
	}
	ips := slices.Clone(h.ips)
	if h.turns > 0 {
		first := int(w.now()/h.turns) % len(ips)
		ips = append(ips[first:], ips[:first]...)
	}
	return ips, nil
}

// dial connects to an address.
func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // as in http.DefaultTransport
	defer cancel()
	ip := netip.MustParseAddrPort(addr).Addr()
	var h *host
	for _, s := range w.sites {
		if s.ip == ip {
			h = s.host
		}
	}
	w.with(func() { w.dials[h]++ })
	if err := virtual.Pause(ctx, h.dial); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	c, err := w.net.DialContext(ctx, network, addr)
	switch {
	case err != nil:
		return nil, err
	case h.distance+h.forgets+h.keeps > 0 || h.places > 0:
		return w.route(h, c)
	case !h.deaf:
		return c, nil
	}
	return &deaf{Conn: c, computes: func() (all []*arrival) {
		w.with(func() {
			for a := range w.busy {
				if a.site.host == h {
					all = append(all, a)
				}
			}
		})
		return all
	}}, nil
}

// A deaf is a connection to a server that looks at no PING while it computes the responses that it computes when the PING comes.
type deaf struct {
	net.Conn
	computes func() []*arrival
	mu       sync.Mutex // guards held, and the Writes
	held     []byte     // PINGs
}

// Write holds a PING back, which net/http writes by itself.
func (d *deaf) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(p) == 17 && p[2] == 8 && p[3] == 6 { // a frame of 8 bytes of type 6
		d.held = append(d.held, p...)
		first := d.computes()
		go func() {
			for slices.ContainsFunc(d.computes(), func(a *arrival) bool { return slices.Contains(first, a) }) {
				time.Sleep(100 * time.Millisecond)
			}
			d.hear()
		}()
		return len(p), nil
	}
	return d.Conn.Write(p)
}

// Read reads what the server says, which hears the PINGs then.
func (d *deaf) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	d.hear()
	return n, err
}

func (d *deaf) hear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.held) > 0 {
		_, _ = d.Conn.Write(d.held)
		d.held = nil
	}
}

// dialName connects to a name as a net.Dialer does: it gives each address a part of the time.
func (w *world) dialName(ctx context.Context, network, addr string) (net.Conn, error) {
	ips, err := w.lookup(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var first error
	for i, ip := range ips {
		deadline, _ := ctx.Deadline()
		part, stop := context.WithTimeout(ctx, max(time.Until(deadline)/time.Duration(len(ips)-i), min(2*time.Second, time.Until(deadline))))
		c, err := w.dial(part, network, net.JoinHostPort(ip.String(), port))
		stop()
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// base leads a transport into the world. It sets its protocols, its certificates and its proxy, and
// nothing else.
func (w *world) base(t *http.Transport) {
	t.Proxy, t.Protocols = w.tried, new(http.Protocols)
	t.Protocols.SetHTTP1(w.plan.tls || !w.plan.http2)
	t.Protocols.SetHTTP2(w.plan.tls && w.plan.http2)
	t.Protocols.SetUnencryptedHTTP2(!w.plan.tls && w.plan.http2)
	if w.plan.tls {
		t.TLSClientConfig = trusting()
	}
}

// tried notes a try. net/http asks each time for a proxy.
func (w *world) tried(r *http.Request) (*url.URL, error) {
	if id, err := strconv.Atoi(r.Header.Get(callField)); err == nil && r.Header.Get(ghostField) == "" {
		t := &try{at: w.now(), left: never}
		w.with(func() { w.tries[id] = append(w.tries[id], t) })
		context.AfterFunc(r.Context(), func() { w.with(func() { t.left = w.now() }) })
	}
	return nil, nil
}

// strike plays a fault of connections.
func (w *world) strike(s *strike) {
	for _, to := range w.sites {
		if to.host != s.host {
			continue
		}
		ip := to.ip.String()
		switch s.kind {
		case silences:
			w.net.Silence(ip)
		case mutes:
			w.net.Silence(ip)
			w.net.Mute(ip, true)
		case resetsAll:
			to.ResetAll()
		case restarts:
			to.Refuse()
			to.ResetAll()
		case poisons:
			w.with(func() { to.poisoned = to.Conns() })
		}
		if s.kind == poisons {
			continue
		}
		w.with(func() {
			for _, a := range w.arrivals {
				if a.site == to {
					a.fail(w.now())
				}
			}
		})
	}
	if !s.kind.outlasts() {
		return
	}
	time.Sleep(s.lasts)
	for _, to := range w.sites {
		switch {
		case to.host != s.host || to.bad != sound:
		case s.kind == mutes:
			w.net.Mute(to.ip.String(), false)
		default:
			_ = to.Listen()
		}
	}
}

// fail notes that the server or the connection has failed an arrival that is under way; the lock
// of the world is held.
func (a *arrival) fail(now time.Duration) {
	if a.over > now && a.failed > now {
		a.failed = now
	}
}
