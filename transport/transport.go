// Config and Transport.

package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/route"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// Config says how a Transport sends requests. The zero Config is complete. It
// applies the default rule to every host, over a pooled transport of its own.
type Config struct {
	// Base sends each attempt. Default a copy of http.DefaultTransport, as that is at the first
	// request, so that the certificates, the proxy and the dialer that a program has set there stay
	// in force. Authentication, tracing and caches may go here, below the retries, or around the
	// Transport, above them. A Base that changes the bodies of responses removes their ETag and
	// Last-Modified, because the rest of a cut body comes as the server has it. A Base does not change
	// the request, as the contract of http.RoundTripper says, because it may be sent again. An error of
	// a dial says that nothing was sent, so a Base that asks a second server after the first returns
	// another error.
	//
	// If the connections of a host are bad, copies of an *http.Transport dial again (see NewPool). So a
	// DialContext that always returns the same connection, such as a pipe to a process, belongs
	// into a Base of another type, which is not copied. The CancelRequest of a Base knows the requests
	// that it was given. A streamed body is sent in a copy of its request, so CancelRequest with the caller's
	// request does not end that. The request's context does.
	//
	// The copy has a pool of its own, and sets options that http.DefaultTransport leaves to net/http. It
	// keeps 4 idle connections for a host. It dials the addresses of a name 250 ms apart, or
	// twice the time in which the name was connected last, the families in turn (RFC 8305), and those that
	// failed within the last minute last. It closes an HTTP/2 connection that is silent for 30 s and then
	// leaves a PING unanswered for a minute. It knows why a proxy has refused to connect.
	//
	// If http.DefaultTransport is no *http.Transport, or has protocols that were registered with it,
	// it is the base as it is. A request fails if it leads back to this Transport.
	Base http.RoundTripper

	// Rule applies to every host. Its zero fields take policy.Defaults.
	Rule policy.Rule

	// Hosts holds rules for hosts and for paths by pattern. The pattern of a host is a host
	// name or address ("api.example.com", "[::1]"), with or without a port
	// ("api.example.com:8443"). A pattern without a port means every port. With "*." in
	// front it means all names below ("*.example.com", which is not example.com itself). The
	// rule of a host inherits from those of all other patterns that mean it, the most
	// specific first, and at last from Rule: api.example.com from *.example.com, and that
	// from *.com. A name is more specific than a wildcard, a longer wildcard than a shorter
	// wildcard, and a pattern with a port than the same pattern without. A host that should
	// inherit nothing has a rule over policy.Defaults. Case, a trailing dot and the spelling of an
	// IPv6 address make no difference. A name that is not ASCII has its xn-- form in the pattern,
	// and in the URLs of requests. Two patterns that mean the same hosts are an error.
	//
	// With a path behind the host ("api.example.com/v1/reports/") a pattern means these
	// requests only, as in http.ServeMux. With a slash at its end it means everything below
	// the path, and otherwise just the path. A method may be in front ("POST
	// api.example.com/charges"), where GET means HEAD as well. The host is chosen first, so
	// the paths of wider patterns do not count. Of its paths the most specific applies, and
	// inherits from the rule that the host has without it. Paths are case-sensitive, and are
	// compared as they are sent, segment by segment, without their escapes. There are no
	// wildcards, so braces are an error, and so is a pair that http.ServeMux refuses because
	// neither is more specific. Where http.ServeMux would redirect, as for "//", ".." or a
	// missing slash at the end, no path matches, nor does it if url.URL.Opaque is set. The
	// rule of a path has no limits that all requests to the host share.
	Hosts map[string]policy.Rule

	// NewPool returns a transport like Base, with connections of its own. It is called when
	// the connections of a host have proven bad or have failed a request, for each host
	// twice at once and then once in 10 s. host is that of the URL.
	// If NewPool returns nil, the host keeps the connections that it has. The
	// transport's CloseIdleConnections, if there is such a method, is called when attempts
	// no longer take it.
	//
	// It must be safe for concurrent use, and must not use the Transport that calls it.
	// Default: copies of Base if that is an *http.Transport without MaxConnsPerHost and
	// without HTTP/2 of its own (TLSNextProto), and otherwise none. Set it if Base wraps an
	// *http.Transport, or for HTTP/3.
	NewPool func(host string) http.RoundTripper

	// Fleet connects the Transport with those of other processes, so that they share
	// what servers tell them. Default none. The module fleet has a Fleet over Redis.
	//
	// Members share holds if the rule has ShareRetryAfter, and quotas if it has QuotaPacing. Rule.RateLimit is then the rate of
	// all members together, and the floor of Rule.RetryBudget is divided by their number.
	Fleet Fleet

	// Traces are told about every request, in their order. A later trace gets the contexts that an
	// earlier trace returned. Nil entries are skipped. Default none.
	Traces []*Trace

	// Logger gets log lines. Default none.
	//
	//	Warn   a limit of a host began to hold or to refuse requests (see HostChange)
	//	Info   it is over; requests take another pool of connections; once, that the base has one pool;
	//	       a request failed after more than one attempt, or although a retry was due; a request
	//	       begins a wait of 10 s or more, of which no line about the host tells
	//	Debug  an attempt, with its outcome and what follows; a request that is not sent
	//
	// Any other request or body that failed has no line of its own, and neither has a request whose
	// caller left. The error tells everything (see Explain), unless an SDK hides it.
	//
	// A host gets at most six lines about its changes within a minute, and six about requests. Further
	// changes have no line. The first request after that minute writes a line with the lasting
	// conditions, or else with the last change. The next line about a request says how many were left out.
	// Each line is written when it happens, so none is lost if the process ends.
	//
	// The messages are constant. They and the attributes are listed in docs/observability.md.
	// URLs in log lines carry no userinfo, no query values and no fragments.
	//
	// The request whose line is written waits for the handler, and still has its slot of the
	// limiter. No other request waits for it, and no lock is held. So a handler may send
	// requests over the same Transport, which may have to wait for slots at the same host.
	Logger *slog.Logger
}

// A Transport is an http.RoundTripper that retries requests only when that is
// safe. It is safe for concurrent use. Make it once and share it, because its
// knowledge of a host only helps the requests that share it. It holds no goroutine
// and needs no closing. [Transport.CloseIdleConnections] closes the connections of
// its base.
type Transport struct {
	responses attempt.Room      // of responses whose requests wait for their next attempt
	kept      replay.Pool       // of all requests' bodies
	pools     *route.Maker      // of connections
	registry  exchange.Registry // that all requests stand on
	traces    []Trace           // with hooks for requests
	logger    *slog.Logger      // nil: there is none

	hostChanged []func(context.Context, HostChange) // hooks
}

// New returns a Transport. It copies the configuration. If something in it is
// wrong, New returns all faults at once, as *policy.FieldErrors that are joined, and a
// nil Transport. Its time and its memory are linear in the number of rules: some
// microseconds and some kilobytes for each host and each path of the configuration. If wider
// patterns have ports, it is as much again for each of these ports.
func New(c Config) (*Transport, error) {
	t := &Transport{logger: c.Logger}
	t.registry.Prepare(func(s *host.State[rules.Resolved]) { t.pools.LeaveAll(s.PoolsMade()) })
	var faults []*policy.FieldError
	if replay.IsNil(c.Base) {
		faults = append(faults, &policy.FieldError{Field: "Base", Err: fmt.Errorf("(%T)(nil) is a nil pointer", c.Base)})
	}
	if replay.IsNil(c.Fleet) {
		faults = append(faults, &policy.FieldError{Field: "Fleet", Err: fmt.Errorf("(%T)(nil) is a nil pointer", c.Fleet)})
	}
	for _, trace := range c.Traces {
		if trace.hasHooks() {
			t.traces = append(t.traces, *trace)
		}
		if trace != nil && trace.HostChange != nil {
			t.hostChanged = append(t.hostChanged, trace.HostChange)
		}
	}
	t.registry.Watched = t.logger != nil || t.hostChanged != nil
	t.pools = route.NewMaker(c.Base, c.NewPool, func(f func(*pool.Pools)) { // for the pools of each host that has some
		t.registry.Hosts.All(func(s *host.State[rules.Resolved]) {
			if pools := s.PoolsMade(); pools != nil {
				f(pools)
			}
		})
	})
	set, more := rules.NewRuleset(c.Rule, c.Hosts, new(rules.Owner))
	if faults = append(faults, more...); len(faults) > 0 {
		return nil, rules.Join(faults)
	}
	t.pools.Log = t.logger
	t.registry.Rules.Store(set)
	if c.Fleet != nil {
		t.registry.Fleet = c.Fleet.Link()
		if err := t.registry.Fleet.Join(t.registry.Clock); err != nil {
			return nil, errors.Join(&policy.FieldError{Field: "Fleet", Err: err})
		}
	}
	return t, nil
}

// Default returns a Transport with the zero Config. It has no timeout. The Timeout
// of an http.Client bounds a whole call, and Rule.AttemptTimeout bounds an attempt.
//
// Set the Transport of a client rather than http.DefaultTransport, of which the Transport
// sends its requests over a copy. Some libraries assert that http.DefaultTransport is an
// *http.Transport, and panic if it is not.
func Default() *Transport { return MustNew(Config{}) }

// Wrap returns a Transport that sends its requests over base, which it leaves as it is, by the
// default rule. It is New with a Config that has nothing but a Base.
func Wrap(base http.RoundTripper) *Transport { return MustNew(Config{Base: base}) }

// NewBase returns a transport like the default of [Config.Base], to be changed and then
// set there. It is a copy of http.DefaultTransport as it is at this moment. It keeps
// up to 4 idle connections for a host, notices dead HTTP/2 connections by pings, dials
// addresses that failed last, and knows when a proxy refused to connect. A field that
// http.DefaultTransport sets stays. If that cannot be copied, the transport begins with that of
// github.com/hashicorp/go-cleanhttp.
func NewBase() *http.Transport { return route.NewBase() }

// MustNew is like [New], and panics with all faults if something is wrong. It is for a
// configuration that stands in the source code, such as that of a package-level variable. If
// a part of it comes from a user or from a file, use New.
func MustNew(c Config) *Transport {
	t, err := New(c)
	if err != nil {
		panic(fmt.Errorf("transport: wrong Config: %w", err))
	}
	return t
}

// Update replaces Config.Rule and Config.Hosts for all requests that begin after
// it. Requests under way keep their rule, but its rate and its Concurrency.Max are those of the
// newest. The Transport keeps its knowledge of each host. If Update returns an error, nothing changes.
func (t *Transport) Update(rule policy.Rule, hosts map[string]policy.Rule) error {
	old := t.registry.Rules.Load()
	if old == nil {
		return errNotMade
	}
	set, faults := rules.NewRuleset(rule, hosts, old.Owner)
	if len(faults) > 0 {
		return rules.Join(faults)
	}
	t.registry.Rules.Store(set)
	return nil
}

// CloseIdleConnections closes the idle connections of the base transport and of the
// transports of Config.NewPool, if they have such a method. The Transport itself only closes
// them when a host has left them because they seemed dead.
func (t *Transport) CloseIdleConnections() {
	if t.pools != nil {
		t.pools.CloseAll()
	}
}

var errNotMade = errors.New("transport: a zero Transport; make one with New or Default")

// A Fleet lets the Transports of several processes share what servers tell them, so
// that the processes behave like one client. Each such Transport is a member. The
// module fleet has a Fleet over Redis. There is no other, because a Link is internal.
//
// The first try at a healthy host without a RateLimit asks no Fleet. A Fleet that is
// slow or away fails no request: the Transport then goes on with its own knowledge.
type Fleet interface {
	// Link connects a Transport. [New] calls it.
	Link() fleetlink.Fleet
}
