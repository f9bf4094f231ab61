// Config and Transport.

package transport

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-cleanhttp"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/dial"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// Config says how a Transport sends requests. The zero Config is complete. It
// applies the default rule to every host, over a pooled transport of its own.
type Config struct {
	// Base sends each attempt. Default cleanhttp.DefaultPooledTransport(), which
	// has its own pool, keep-alive, HTTP/2, and timeouts for dialling and for the
	// TLS handshake. The default also dials the addresses of a name with the families
	// in turn and 250 ms apart (RFC 8305), tries addresses that failed within the last
	// minute after the others, and closes an HTTP/2 connection that is silent for 30 s
	// and then leaves a PING unanswered for 15 s. Authentication, tracing and caches may go here, below the
	// retries, or around the Transport, above them. Under js/wasm use an
	// &http.Transport{}, because only a transport without a dialer uses Fetch.
	Base http.RoundTripper

	// Rule applies to every host. Its zero fields take policy.Defaults.
	Rule policy.Rule

	// Hosts holds rules for hosts by pattern. Their zero fields inherit from Rule.
	// A pattern is a host name or address ("api.example.com", "[::1]"), with or
	// without a port ("api.example.com:8443"). A pattern without a port means every
	// port. With "*." in front it means all names below ("*.example.com", which is
	// not example.com itself). Only the most specific pattern applies, so the rule
	// of api.example.com takes nothing from the rule of *.example.com. A name is
	// more specific than a wildcard, a longer wildcard than a shorter wildcard, and
	// a pattern with a port than the same pattern without. Case and a trailing dot
	// make no difference. Two patterns that mean the same hosts are an error.
	Hosts map[string]policy.Rule

	// Lane returns a transport like Base, with connections of its own. It is called when
	// the connections of a host seem dead or its server bad, at most a few times per
	// minute for each host (see policy.Rule.Lanes). host is that of the URL. If Lane
	// returns nil, the host keeps the connections that it has. If the transport has
	// CloseIdleConnections, it is called when the transport is no longer needed.
	//
	// It must be safe for concurrent use, and must not use the Transport that calls it.
	// Default: copies of Base if that is an *http.Transport without HTTP/2 of its own
	// (TLSNextProto), and otherwise none. Set it if Base wraps an *http.Transport, or for
	// HTTP/3.
	Lane func(host string) http.RoundTripper

	// TempDir is the directory of the temporary files that Rule.Upload.Disk allows.
	// Default: os.TempDir(). A disk should be behind it, not memory. If no file can
	// be made in it, bodies are kept in memory only.
	TempDir string

	// TempTotal is how many bytes the temporary files of all request bodies of the
	// Transport may have together. When they are used up, a further body is kept in
	// memory only. If it is larger than Rule.Upload.Memory, its request cannot be
	// retried. Default: 1 GiB, or the rule's Upload.Disk if that is more. A negative
	// value is an error.
	TempTotal int64

	// Fleet connects the Transport with those of other processes, so that they share
	// what servers tell them. Default none. The module fleet has a Fleet over Redis.
	//
	// Members share holds if the rule has Cooldown, the knowledge that a host is down
	// if the rule has Gate, and quotas if it has Pacing. Rule.Rate is then the rate of
	// all members together, and the floor of Rule.Budget is divided by their number.
	Fleet Fleet

	// Trace is told about every attempt. Default none.
	Trace *Trace

	// Logger gets log lines. Default none.
	//
	//	Info   a retry, a hedge, a cut body, a resumed body; a success after more than one
	//	       attempt; an error for which no retry was tried; a host that leaves silent
	//	       connections; once, that the base has one lane only
	//	Warn   retries that ended without success; a body that was not resumed
	//	Debug  an attempt that another attempt outran; a host that moves to better
	//	       connections
	//
	// A log line about connections has the attributes host, reason, lane and to, and avoid
	// if an address is avoided that is known. Each other log line has method, url and
	// attempt. If they are known, it has reason, limit, status, error, offset and wait. A log line about an attempt has its
	// duration and the time that it was queued, and the last log line of a request has
	// the time since its beginning (elapsed). URLs in log lines carry no userinfo, no
	// query values and no fragments.
	Logger *slog.Logger
}

// A Transport is an http.RoundTripper that retries requests only when that is
// safe. It is safe for concurrent use. Make it once and share it, because its
// knowledge of a host only helps the requests that share it. It holds no goroutine
// and needs no closing. [Transport.CloseIdleConnections] closes the connections of
// its base.
type Transport struct {
	base    http.RoundTripper
	rules   atomic.Pointer[ruleset]
	hosts   *host.Table[resolved]
	kept    *replay.Pool // of all bodies; it has to be apart, because cleanups of bodies refer to it
	tempDir string
	pools   *pools       // make the lanes
	fleet   Fleet        // nil: none
	size    atomic.Int32 // of the fleet; 0 counts as 1
	trace   *Trace       // nil: nobody observes
	logger  *slog.Logger

	epoch time.Time    // the time of the limits counts from here
	seed  maphash.Seed // for the hashes of credentials
}

// now returns the time as the limits of the hosts count it.
func (t *Transport) now() instant.Instant { return instant.Instant(time.Since(t.epoch)) }

// instantOf returns a time as the limits of the hosts count it.
func (t *Transport) instantOf(at time.Time) instant.Instant { return instant.Instant(at.Sub(t.epoch)) }

// timeOf returns the time of an instant of now.
func (t *Transport) timeOf(at instant.Instant) time.Time { return t.epoch.Add(at.Since()) }

// New returns a Transport. It copies the configuration. If something in it is
// wrong, New returns all faults at once, as [policy.Errors] with their paths, and a
// nil Transport.
func New(c Config) (*Transport, error) {
	t := &Transport{
		base:    c.Base,
		hosts:   host.NewTable[resolved](host.MaxHosts),
		kept:    &replay.Pool{MaxDisk: c.TempTotal},
		tempDir: c.TempDir,
		logger:  c.Logger,
		epoch:   time.Now(),
		seed:    maphash.MakeSeed(),
	}
	t.hosts.Now = t.now
	t.hosts.Evicted = t.leaveAll
	var faults policy.Errors
	var dialer *dial.Dialer // of the default base
	if c.TempTotal < 0 {
		faults = append(faults, &policy.FieldError{Field: "TempTotal", Value: c.TempTotal, Reason: "is negative; leave Upload.Disk at 0 to keep nothing in files"})
	}
	switch {
	case t.base == nil:
		base := defaultBase()
		if dialer = dial.New(base); dialer != nil {
			base.DialContext = dialer.DialContext
		}
		t.base = base
	case replay.IsNil(t.base):
		faults = append(faults, &policy.FieldError{Field: "Base", Value: c.Base, Reason: "is a nil pointer"})
	}
	switch {
	case c.Fleet == nil:
	case replay.IsNil(c.Fleet):
		faults = append(faults, &policy.FieldError{Field: "Fleet", Value: c.Fleet, Reason: "is a nil pointer"})
	default:
		t.fleet = c.Fleet
	}
	if !c.Trace.empty() {
		trace := *c.Trace
		t.trace = &trace
	}
	set, err := newRuleset(c.Rule, c.Hosts)
	if more := (policy.Errors)(nil); errors.As(err, &more) {
		faults = append(faults, more...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	t.pools = newPools(&c, t.base, dialer)
	t.rules.Store(set)
	if t.fleet != nil {
		if err := t.fleet.Join(t.hear); err != nil {
			return nil, policy.Errors{{Field: "Fleet", Value: c.Fleet, Reason: err.Error(), Err: err}}
		}
	}
	return t, nil
}

// The default base sends a PING over an HTTP/2 connection from which nothing came for
// pingAfter, and closes the connection if no answer comes within pingTimeout. Some servers
// count pings to a connection that is silent, and close it after the fourth (gRPC's
// enforcement policy), so a silent stream lives for two minutes there.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// defaultBase returns the default base transport. If a proxy answers CONNECT with a
// passing failure, the error says so, because nothing of the request has left then.
func defaultBase() *http.Transport {
	base := cleanhttp.DefaultPooledTransport()
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	base.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, req *http.Request, resp *http.Response) error {
		if retryable(classify.Default(classify.Outcome{Request: req, Response: resp})) {
			answer := *resp
			answer.Body = http.NoBody // the connection is closed
			return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: &proxyAnswer{&answer}}
		}
		return nil // net/http returns its own error
	}
	return base
}

// A proxyAnswer is the response of a proxy that did not connect. It may ask to wait.
type proxyAnswer struct{ resp *http.Response }

func (p *proxyAnswer) Error() string { return p.resp.Status }

// Default returns a Transport with the zero Config. It has no timeout. The Timeout
// of an http.Client bounds a whole call, and Rule.AttemptTimeout bounds an attempt.
//
// Set the Transport of a client rather than http.DefaultTransport. Some libraries
// assert that http.DefaultTransport is an *http.Transport, and panic if it is not.
func Default() *Transport {
	t, err := New(Config{})
	if err != nil {
		panic("transport: the default configuration is invalid: " + err.Error()) // a defect of ours; a test pins it
	}
	return t
}

// Update replaces Config.Rule and Config.Hosts for all requests that begin after
// it. Requests under way keep their rule, and the Transport keeps its knowledge of
// each host. If Update returns an error, nothing changes.
func (t *Transport) Update(rule policy.Rule, hosts map[string]policy.Rule) error {
	if t.rules.Load() == nil {
		return errNotMade
	}
	set, err := newRuleset(rule, hosts)
	if err != nil {
		return err
	}
	t.rules.Store(set)
	return nil
}

// CloseIdleConnections closes the idle connections of the base transport and of the
// transports of Config.Lane, if they have such a method. The Transport itself only closes
// them when a host has left them because they seemed dead.
func (t *Transport) CloseIdleConnections() {
	closeIdle(t.base)
	if t.hosts != nil {
		t.hosts.All(closeLanes)
	}
}
