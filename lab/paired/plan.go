// The choices of a seed before time begins, random selections and texts.

package paired

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

const never = time.Duration(1<<63 - 1)

// A plan is a world and its callers.
type plan struct {
	seed    uint64
	theme   string
	http2   bool
	tls     bool
	wrapped bool // aplomb's base hides that it is an *http.Transport, so it cannot be copied
	most    int  // MaxConnsPerHost that the program has set, or 0
	hosts   []*host
	routes  []*route
	lines   []*line
	calls   []*call
	strikes []*strike
	coupled bool // arrivals affect each other, so calls are compared by count and quantile
	only    int  // how many rules play; 0: all
	profile string

	reps sync.Map // of documents, by their version
}

// A host is a name with servers at its addresses.
type host struct {
	id      int
	name    string
	ips     []netip.Addr
	bad     badness       // of the first address
	turns   time.Duration // after this time the name server begins with the next address; 0: never
	dial    time.Duration // to connect
	lookup  time.Duration // to look the name up
	workers int           // that serve at the same time; 0: any number
	drops   bool          // work ends when its client leaves
	cold    time.Duration // until then everything takes longer
	freezes []span        // in which nothing is worked on
	streams int           // of a connection of HTTP/2
	deaf    bool          // answers no PING while it computes a response

	like     *host         // it has the servers of that host; nil: its own
	distance time.Duration // of the bytes on each way
	forgets  time.Duration // a NAT forgets a connection that has been silent for longer; 0: never
	keeps    time.Duration // the server closes an idle connection then; 0: never
	places   int           // connections that are served at the same time, the others wait; 0: any number
	resets   int           // of the first connections
}

// A span is a part of the world's time.
type span struct{ from, to time.Duration }

// A badness is what is wrong with one of several addresses.
type badness uint8

const (
	sound badness = iota
	refusing
	unreachable
	unwell // answers 503
	resetting
	silent
)

// A route is a method and a path of a host.
type route struct {
	id     int
	host   *host
	method string
	path   string
	lo, hi time.Duration // how long a request takes
	limit  *limit
	alone  *alone
	doc    *document
	tenant string // where a request names its tenant: token, body or query
	size   int    // of the bodies of requests
	broken int    // percent of them whose source fails

	fail    int        // percent of the first arrivals that have a fate of firsts
	firsts  []fateKind // the others are well
	again   int        // percent of the later arrivals that have a fate of seconds
	seconds []fateKind
}

// A limit refuses requests.
type limit struct {
	by     string // whose requests are counted together: host, route, tenant; "": only guilty calls are refused
	n      int    // so many are served within a window
	window time.Duration
	bucket bool // n is refilled steadily
	status int
	wait   int // seconds of Retry-After, if the window does not say; 0: none
	silent bool
}

// An alone is what a server does about a second request of a tenant beside a running one.
type alone struct {
	replaces bool // the second goes on, and the first gets the status
	status   int
	wait     int
}

// A document is what a route answers with.
type document struct {
	media   string
	size    int
	tagged  bool // has a strong ETag
	chunked bool
	marked  bool // a header field tells the versions apart
	late    bool // versions differ only behind the first 40 bytes, within the first 512
	coded   bool // gzip
	stream  bool // each response tells what happens from then on
	beats   bool // and begins with the same heartbeat
	piece   int
	every   time.Duration // between pieces
}

// A line is a caller, who makes calls one after the other.
type line struct {
	at    time.Duration
	calls []*call
}

// A call is a request of a caller.
type call struct {
	id       int
	line     *line
	route    *route
	tenant   int
	think    time.Duration // before it
	deadline time.Duration // 0: none
	guilty   bool          // it is refused by a limit that refuses only such calls
	reads    reading
	fails    int // after so many bytes the source of its body fails; 0: it does not
	strike   *strike
}

// A reading is how a caller reads a response.
type reading uint8

const (
	readsAll reading = iota
	readsSlowly
	decodes // reads no further than it must
	leaves  // closes after a part
)

// A strike is a fault of connections. It is triggered by the time, or by a call.
type strike struct {
	at    time.Duration // never: in the middle of its call
	host  *host
	kind  strikeKind
	lasts time.Duration
}

type strikeKind uint8

const (
	silences strikeKind = iota // the open connections
	mutes                      // the open connections and the new ones, while it lasts
	resetsAll
	restarts // open connections are reset, and new ones are refused while it lasts
	poisons  // each stream of the open connections is reset from now on
)

// outlasts reports whether the fault also meets requests that come after its beginning.
func (k strikeKind) outlasts() bool { return k == mutes || k == restarts }

func (k strikeKind) String() string {
	return [...]string{"silences", "mutes", "resets", "restarts", "poisons"}[k]
}

// A rep is a representation of a document: what a response consists of.
type rep struct {
	fields http.Header
	body   []byte
	plain  []byte // of a coded one
	etag   string
	from   *arrival // of a stream
}

// ofHost adds a host.
func (p *plan) ofHost(d dice.Dice) *host {
	h := &host{id: len(p.hosts), name: fmt.Sprintf("h%d.test", len(p.hosts)), dial: d.Between(time.Millisecond, 200*time.Millisecond)}
	h.ips = []netip.Addr{ipOf(h.id, 0)}
	p.hosts = append(p.hosts, h)
	return h
}

// ipOf returns the nth address of a host.
func ipOf(id, n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(id), byte(n + 1)}) }

// ofRoute adds a route whose requests take from lo to hi.
func (p *plan) ofRoute(h *host, method, name string, lo, hi time.Duration) *route {
	r := &route{id: len(p.routes), host: h, method: method, path: "/" + name, lo: lo, hi: hi, tenant: "token"}
	r.doc = &document{media: "application/json", size: 40 + 13*r.id}
	if method == "POST" || method == "PUT" {
		r.size = 100
	}
	p.routes = append(p.routes, r)
	return r
}

// later adds a line that begins with a call at a time.
func (p *plan) later(at time.Duration, r *route) *call {
	l := &line{at: at + time.Duration(len(p.lines))*1009} // no two lines begin in the same instant
	p.lines = append(p.lines, l)
	return p.then(l, r, 0)
}

// then adds a call to a line.
func (p *plan) then(l *line, r *route, think time.Duration) *call {
	c := &call{id: len(p.calls), line: l, route: r, think: think}
	l.calls = append(l.calls, c)
	p.calls = append(p.calls, c)
	return c
}

// open adds an open loop of n calls from a time on. each may change a call.
func (p *plan) open(d dice.Dice, r *route, n int, perSecond float64, from time.Duration, each func(*call)) (end time.Duration) {
	for i := range n {
		end = from + time.Duration((float64(i)+d.Float64())/perSecond*float64(time.Second))
		if c := p.later(end, r); each != nil {
			each(c)
		}
	}
	return end
}

// closed adds callers with n calls each.
func (p *plan) closed(d dice.Dice, r *route, callers, n int, think, from time.Duration, each func(*call)) {
	for range callers {
		var l *line
		for i := range n {
			pause := time.Duration((0.5 + d.Float64()) * float64(think))
			var c *call
			if i == 0 {
				c = p.later(from+pause, r)
				l = c.line
			} else {
				c = p.then(l, r, pause)
			}
			if each != nil {
				each(c)
			}
		}
	}
}

// unchain makes each call begin at a time of its own. A caller who waits for a retry makes the next
// calls later than over net/http alone. If the server is down meanwhile, or was before, other calls
// meet that.
func (p *plan) unchain() {
	chained := p.lines
	p.lines = nil
	for _, l := range chained {
		at := l.at
		for _, c := range l.calls {
			at += c.think
			c.think, c.line = 0, &line{at: at, calls: []*call{c}}
			p.lines = append(p.lines, c.line)
		}
	}
}

// horizon is when all is over.
func (p *plan) horizon() time.Duration {
	last := time.Duration(0)
	for _, l := range p.lines {
		at := l.at
		for _, c := range l.calls {
			at += c.think
		}
		last = max(last, at)
	}
	return last + 2*time.Hour
}

// takes returns how long an arrival takes.
func (p *plan) takes(c *call, n int) time.Duration {
	if r := c.route; r.lo < r.hi {
		return dice.Roll(p.seed, ofTime, uint64(c.id), uint64(n)).Between(r.lo, r.hi)
	}
	return c.route.lo
}

// url returns where a call goes.
func (p *plan) url(c *call) string {
	scheme := "http://"
	if p.tls {
		scheme = "https://"
	}
	u := scheme + c.route.host.name + c.route.path
	if c.route.tenant == "query" {
		u += fmt.Sprintf("?tenant=%d", c.tenant)
	}
	return u
}

// String describes the world.
func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, HTTP/2 %v, TLS %v, at most %d connections, wrapped %v, coupled %v, profile %q, %d lines, %d calls\n",
		p.theme, p.http2, p.tls, p.most, p.wrapped, p.coupled, p.profile, len(p.lines), len(p.calls))
	for _, h := range p.hosts {
		fmt.Fprintf(&b, "  %+v\n", *h)
	}
	for _, r := range p.routes {
		fmt.Fprintf(&b, "  %s %s%s %v to %v, tenant in %s, %d bytes up, %d %% broken; %d %% %v, then %d %% %v; %+v", r.method, r.host.name, r.path, r.lo, r.hi, r.tenant, r.size, r.broken, r.fail, r.firsts, r.again, r.seconds, *r.doc)
		if r.limit != nil {
			fmt.Fprintf(&b, " limit %+v", *r.limit)
		}
		if r.alone != nil {
			fmt.Fprintf(&b, " alone %+v", *r.alone)
		}
		b.WriteByte('\n')
	}
	for _, s := range p.strikes {
		fmt.Fprintf(&b, "  %s %v at %v for %v\n", s.host.name, s.kind, s.at, s.lasts)
	}
	return b.String()
}

// some returns a random selection of those given, at least one.
func some[T any](d dice.Dice, of ...T) (chosen []T) {
	for chosen == nil {
		for _, x := range of {
			if d.Chance(40) {
				chosen = append(chosen, x)
			}
		}
	}
	return chosen
}

// The parts of a story that have dice of their own.
const (
	ofPlan uint64 = iota
	ofFate
	ofTime
	ofText
	ofMove
)

// text returns n bytes that look like no other text.
func text(n int, key ...uint64) []byte {
	d := dice.Roll(append(key, ofText)...)
	p := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], d.Uint64())
	}
	for i := range p {
		p[i] = ' ' + p[i]%94 // what can be printed
	}
	return p[:n]
}
