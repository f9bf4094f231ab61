// What a Transport is made of, and how it is made.

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
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// Config says how a Transport sends. The zero Config is complete: the default
// rule for every host over a pooled transport of its own.
type Config struct {
	// Base sends each attempt. Default: cleanhttp.DefaultPooledTransport(), a
	// pool of this Transport's own with keep-alive, HTTP/2 and dial and TLS
	// handshake timeouts. Authentication, tracing and caches go here, below
	// the retries, or around the Transport, above them. Under js/wasm give it an
	// &http.Transport{}: only one without a dialer of its own uses Fetch.
	Base http.RoundTripper

	// Rule applies to every host. Its zero fields take policy.Defaults.
	Rule policy.Rule

	// Hosts holds rules for hosts by pattern; their zero fields take Rule's. A
	// pattern is a host name or address ("api.example.com", "[::1]"), one with
	// a port ("api.example.com:8443"), or either behind "*." for all names
	// below it ("*.example.com", which is not example.com itself). A pattern
	// without a port means every port. The most specific pattern wins and is
	// alone merged over Rule, so the rule of api.example.com takes nothing from
	// that of *.example.com: a name before a wildcard, a longer wildcard before
	// a shorter one, with a port before without. Case and a trailing dot make
	// no difference; two patterns that mean the same are an error.
	Hosts map[string]policy.Rule

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

	// Trace is told what happens to every request. Default: nobody.
	Trace *Trace

	// Logger gets a line for each retry, hedge and resumed body (Info), each time
	// that retries end without success and each body that was not resumed (Warn),
	// each success that took more than one send and each error that no retry was
	// tried for (Info), and each send that another one outran (Debug). URLs in it
	// carry no passwords and no query values. Default: no log.
	Logger *slog.Logger
}

// A Transport is an http.RoundTripper that sends requests again when, and only
// when, that is safe. It is safe for concurrent use; make it once and share
// it, since what it learns about a host helps only those who share it. It
// holds no goroutine and needs no closing; see [Transport.CloseIdleConnections]
// for its base's connections.
type Transport struct {
	base    http.RoundTripper
	rules   atomic.Pointer[ruleset]
	hosts   *host.Table[resolved]
	kept    replay.Pool // what all request bodies keep
	tempDir string
	trace   *Trace
	logger  *slog.Logger

	epoch time.Time    // the machines' time counts from here
	seed  maphash.Seed // of the hashes of credentials
}

// now returns the time as the hosts' machines count it.
func (t *Transport) now() time.Duration { return time.Since(t.epoch) }

// New returns a Transport. It copies what it is given, reports every fault of
// the configuration at once (as [policy.Errors], each with its path), and
// returns a nil Transport with an error.
func New(c Config) (*Transport, error) {
	t := &Transport{
		base:    c.Base,
		hosts:   host.NewTable[resolved](host.MaxHosts),
		tempDir: c.TempDir,
		logger:  c.Logger,
		epoch:   time.Now(),
		seed:    maphash.MakeSeed(),
	}
	t.hosts.Now = t.now
	t.kept.MaxDisk = c.TempTotal
	var faults policy.Errors
	if c.TempTotal < 0 {
		faults = append(faults, &policy.FieldError{Field: "TempTotal", Value: c.TempTotal, Reason: "is negative; leave Upload.Disk at 0 to keep nothing in files"})
	}
	switch {
	case t.base == nil:
		t.base = defaultBase()
	case replay.IsNil(t.base):
		faults = append(faults, &policy.FieldError{Field: "Base", Value: c.Base, Reason: "is a nil pointer"})
	}
	if c.Trace != nil {
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
	t.rules.Store(set)
	return t, nil
}

// defaultBase is cleanhttp's pool; a proxy that answers CONNECT with a passing
// failure is told apart from a server that does: nothing of the request has left.
func defaultBase() *http.Transport {
	base := cleanhttp.DefaultPooledTransport()
	base.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, req *http.Request, resp *http.Response) error {
		if retryable(classify.Default(classify.Outcome{Request: req, Response: resp})) {
			answer := *resp
			answer.Body = http.NoBody // the connection is closed
			return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: &proxyAnswer{&answer}}
		}
		return nil // net/http says what it says
	}
	return base
}

// A proxyAnswer is what a proxy said instead of connecting; it may ask to wait.
type proxyAnswer struct{ resp *http.Response }

func (p *proxyAnswer) Error() string { return p.resp.Status }

// Default returns a Transport with the zero Config. It has no timeout for a
// request: Timeout of the http.Client bounds a whole call, Rule.AttemptTimeout
// each attempt.
//
// Give it to a client rather than to http.DefaultTransport. Some libraries
// assert that http.DefaultTransport is an *http.Transport, and panic when it is
// anything else.
func Default() *Transport {
	t, err := New(Config{})
	if err != nil {
		panic("transport: the default configuration is invalid: " + err.Error()) // a defect of ours; a test pins it
	}
	return t
}

// Update puts new rules in the place of Config.Rule and Config.Hosts, for all
// requests that begin after it; those under way keep theirs. What is known of
// each host is kept. With an error, nothing changes.
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

// CloseIdleConnections closes the base transport's idle connections, where it
// can. The Transport itself never does so: other requests own them.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
