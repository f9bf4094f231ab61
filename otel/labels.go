package aplombotel

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/transport"
)

// The keys of the semantic conventions, and our own.
const (
	methodKey   = attribute.Key("http.request.method")
	originalKey = attribute.Key("http.request.method_original")
	resendKey   = attribute.Key("http.request.resend_count")
	statusKey   = attribute.Key("http.response.status_code")
	sizeKey     = attribute.Key("http.response.body.size")
	urlKey      = attribute.Key("url.full")
	addressKey  = attribute.Key("server.address")
	portKey     = attribute.Key("server.port")
	errorKey    = attribute.Key("error.type")

	attemptsKey = attribute.Key("aplomb.attempts")
	delayKey    = attribute.Key("aplomb.delay")
	peerIPKey   = attribute.Key("network.peer.address")
	peerPortKey = attribute.Key("network.peer.port")
	poolKey     = attribute.Key("aplomb.pool")
	versionKey  = attribute.Key("network.protocol.version")
	kindKey     = attribute.Key("aplomb.attempt.kind")
	numberKey   = attribute.Key("aplomb.attempt.number")
	offsetKey   = attribute.Key("aplomb.offset")
	overKey     = attribute.Key("aplomb.over")
	reasonKey   = attribute.Key("aplomb.reason")
	resumesKey  = attribute.Key("aplomb.resumes")
	waitedKey   = attribute.Key("aplomb.waited")
)

// server appends the address and the port of a host.
func server(attrs []attribute.KeyValue, k host.Key) []attribute.KeyValue {
	name, text := host.SplitPort(k.Host)
	if text == "" {
		text = host.DefaultPort(k.Scheme)
	}
	attrs = append(attrs, addressKey.String(strings.Trim(name, "[]")))
	if port, _ := strconv.Atoi(text); port != 0 {
		attrs = append(attrs, portKey.Int(port))
	}
	return attrs
}

// keyOf returns the key of a URL's host, as package transport has it. Its length is
// bounded, because peers are kept for good.
func keyOf(u *url.URL) host.Key {
	if name := bare(u.Host); name != u.Host {
		return host.KeyOf(&url.URL{Scheme: u.Scheme, Host: name})
	}
	return host.KeyOf(u)
}

// bare returns a host without what stands before and behind it. A caller that fills in a
// URL by hand may leave a secret there.
func bare(name string) string {
	for i := range len(name) {
		switch name[i] {
		case '@', '/', '?', '#', '\\', ' ':
			name = name[strings.LastIndexByte(name, '@')+1:]
			if i := strings.IndexAny(name, "/?#\\ "); i >= 0 {
				name = name[:i]
			}
			return name
		}
	}
	return name
}

// methodOf returns the method of a request, and the same as a known method. An unknown
// method is "_OTHER", because servers and callers can invent any number of them.
func methodOf(req *http.Request) (known, method string) {
	switch method = req.Method; method {
	case "":
		return http.MethodGet, http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, "QUERY":
		return method, method
	}
	return "_OTHER", method
}

// withPeer appends the address of the other end of a connection, if it is known.
func withPeer(attrs []attribute.KeyValue, addr string) []attribute.KeyValue {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return attrs
	}
	return append(attrs, peerIPKey.String(at.Addr().String()), peerPortKey.Int(int(at.Port())))
}

// A peer is a server and a method. It has the attributes and the counts of its requests.
type peer struct {
	all               *peers
	room              int                  // how many sets of a measure may be kept if it gets another
	kept              bool                 // it is found again
	attrs             []attribute.KeyValue // the method and the server
	name, requestName string               // of the spans
	sets              map[labels]*set      // guarded by all.mu
	latest            [measures]atomic.Pointer[set]
}

// A set has the measurements of a measure that have the same attributes. The attributes
// are options that are made once, because to sort them costs more than to count.
type set struct {
	labels
	count  *atomic.Int64 // nil if the measure is a histogram
	with   metric.MeasurementOption
	record []metric.RecordOption // the same, for a histogram
}

// labels tell the sets of a peer apart. A zero field is not among the attributes.
type labels struct {
	of      measure
	status  int
	failure string // the error type
	version string // of HTTP
	value   string // of the measure's own key
	over    bool   // of a change
}

// most is how many peers are kept, and how many sets of each measure. With the overflow a
// counter is then just within the default limit of the SDK, which is 2,000 sets.
const most = 1999

// mostUnnamed is how many of them hosts may have that no rule names. A site that redirects a client
// to any number of hosts thus leaves room for the others.
const mostUnnamed = most - 200

// peers are the peers of a Telemetry, with all counts.
type peers struct {
	overflow [counters]atomic.Int64 // the counts of the sets that are not kept

	mu      sync.RWMutex // guards the fields below, and the sets of the peers
	watched []*transport.Transport
	known   map[peerKey]*peer
	// kept is in the order in which the sets were made. So if the limit of the SDK is
	// lower, the same sets are above it in each collection.
	kept [measures][]*set
}

type peerKey struct {
	host   host.Key
	method string
}

// of returns the peer of a request.
func (p *peers) of(req *http.Request) *peer {
	method, own := methodOf(req)
	key := peerKey{keyOf(req.URL), method}
	p.mu.RLock()
	known := p.known[key] // a sync.Map would allocate for the key
	p.mu.RUnlock()
	if known != nil {
		return known
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known = p.known[key]; known != nil {
		return known
	}
	// The key of a canonical host is a part of the text of the whole URL.
	key.host.Scheme, key.host.Host = strings.Clone(key.host.Scheme), strings.Clone(key.host.Host)
	made := &peer{all: p, name: method, sets: map[labels]*set{}}
	if method != own {
		made.name = "HTTP"
	}
	made.requestName = "aplomb " + made.name
	made.attrs = server([]attribute.KeyValue{methodKey.String(method)}, key.host)
	made.room = mostUnnamed
	if p.isNamed(req) {
		made.room = most
	}
	if made.kept = len(p.known) < made.room; made.kept {
		p.known[key] = made
	}
	return made
}

// hosts returns the hosts of the peers that are kept.
func (p *peers) hosts() map[host.Key]bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	kept := make(map[host.Key]bool, len(p.known))
	for k := range p.known {
		kept[k.host] = true
	}
	return kept
}

// isNamed reports whether a rule of a watched Transport names the host of a request; the lock is held.
func (p *peers) isNamed(req *http.Request) bool {
	return slices.ContainsFunc(p.watched, func(tr *transport.Transport) bool {
		_, patterns := tr.RuleFor(req)
		return len(patterns) > 0
	})
}

// watch adds a Transport to those whose rules name hosts, and returns a function that removes it.
func (p *peers) watch(tr *transport.Transport) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched = append(p.watched, tr)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i := slices.Index(p.watched, tr); i >= 0 {
			p.watched = slices.Delete(p.watched, i, i+1)
		}
	}
}

// set returns the set with the labels. It is the same each time, so that no count is lost.
// The counts of the sets beyond the limit go into the overflow.
func (p *peer) set(l labels) *set {
	latest := &p.latest[l.of] // mostly the same as before
	if s := latest.Load(); s != nil && s.labels == l {
		return s
	}
	s := p.find(l)
	latest.Store(s)
	return s
}

// find is set without the shortcut.
func (p *peer) find(l labels) *set {
	all := p.all
	all.mu.RLock()
	known := p.sets[l]
	all.mu.RUnlock()
	if known != nil {
		return known
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if known = p.sets[l]; known != nil {
		return known
	}
	made := p.newSet(l)
	switch {
	case p.kept && len(all.kept[l.of]) < p.room:
		made.count = new(atomic.Int64)
		all.kept[l.of] = append(all.kept[l.of], made)
		p.sets[l] = made
	case l.of < counters:
		made.count = &all.overflow[l.of]
	default: // The SDK makes no further set if it has its own overflow. So this has the method as well.
		made.record = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(p.attrs[0], overflow))}
	}
	return made
}

func (p *peer) newSet(l labels) *set {
	attrs := append(make([]attribute.KeyValue, 0, len(p.attrs)+4), p.attrs...) // NewSet sorts it
	if l.of == changes {
		attrs[0] = overKey.Bool(l.over) // instead of the method
	}
	attrs = withResult(attrs, l.status, l.failure, l.version)
	if l.value != "" {
		attrs = append(attrs, about[l.of].key.String(l.value))
	}
	with := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &set{labels: l, with: with, record: []metric.RecordOption{with}}
}

// describe appends the attributes of a request.
func (p *peer) describe(attrs []attribute.KeyValue, req *http.Request) []attribute.KeyValue {
	attrs = append(append(attrs, p.attrs...), urlKey.String(redact.URL(req.URL)))
	if known, method := methodOf(req); known != method {
		attrs = append(attrs, originalKey.String(method))
	}
	return attrs
}

// overflow marks the measurements of the sets that are not kept, as in the SDK.
var (
	overflow   = attribute.Bool("otel.metric.overflow", true)
	overflowed = metric.WithAttributeSet(attribute.NewSet(overflow))
)

// observe reports all counts.
func (p *peers) observe(report func(of measure, count int64, with metric.MeasurementOption)) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for of := range counters {
		for _, s := range p.kept[of] {
			report(of, s.count.Load(), s.with)
		}
		if n := p.overflow[of].Load(); n > 0 {
			report(of, n, overflowed)
		}
	}
}
