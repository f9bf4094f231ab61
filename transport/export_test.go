// Names for the tests, which are all in package transport_test but for the table of decide.

package transport

import (
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/dial"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/route"
	"github.com/aplomb-go/aplomb/internal/rules"
)

const (
	CloseTime       = attempt.CloseTime
	DrainTime       = attempt.DrainTime
	LaterTimeout    = rules.LaterTimeout
	LongPart        = longPart
	ContinuationGap = continuationGap
	PingAfter       = route.PingAfter
	PingTimeout     = route.PingTimeout
	ResumeJitter    = resumeJitter
)

var (
	ErrLate    = errLate
	ErrOverdue = errOverdue
	Nested     = gaveUpBelow
	SafeName   = exchange.SafeName
)

type Download = download

// HeldBy returns the error of a request that waited for a limit.
func (e Error) HeldBy(limit Reason) Error { e.held = held{time.Second, limit}; return e }

// BodyError returns the error of the body of a URL.
func BodyError(req *http.Request, cut, cause error) *Error {
	url := req.URL.String()
	return &Error{History: History{Reason: ReasonNotResumable}, Err: &bodyError{cut, cause, true, url}, url: url, ofBody: true}
}

func (t *Transport) Base() http.RoundTripper { return t.pools.Resolve() }
func (t *Transport) Hosts() Hosts            { return Hosts{t.registry.Hosts} }

type Hosts struct{ *host.Table[rules.Resolved] }

// Len returns the number of hosts.
func (h Hosts) Len() (n int) {
	h.All(func(*host.State[rules.Resolved]) { n++ })
	return n
}

// Peek returns the state of a URL's host, or nil.
func (h Hosts) Peek(u *url.URL) (found *host.State[rules.Resolved]) {
	h.All(func(s *host.State[rules.Resolved]) {
		if s.Key() == host.KeyOf(u) {
			found = s
		}
	})
	return found
}
func (t *Transport) Kept() *replay.Pool   { return &t.kept }
func (t *Transport) Now() instant.Instant { return t.registry.Now() }

// DialWith makes the connections of the default base with d.
func (t *Transport) DialWith(d *dial.Dialer) { t.pools.Own = func() dial.Func { return d.DialContext } }

// Evict does with the pools of a host what the eviction of the host does.
func (t *Transport) Evict(url string) {
	t.registry.Hosts.All(func(s *host.State[rules.Resolved]) {
		if s.Name() == url {
			t.pools.LeaveAll(s.PoolsMade())
		}
	})
}

// RefusedByProxy says whether err is the refusal of a proxy, before a request was sent.
func (t *Transport) RefusedByProxy(req *http.Request, err error) bool {
	return route.RefusedByProxy(t.Base(), req, err)
}

// Observed returns a body that tells its end to a Trace.
func Observed(body io.ReadCloser, trace Trace) io.ReadCloser {
	return &observedBody{ReadCloser: body, traces: []Trace{trace}}
}
