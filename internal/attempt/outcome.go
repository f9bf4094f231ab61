// The outcome of an attempt, and its connection.

package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pool"
)

// An Outcome describes an attempt and its end. The cut of a body is an Outcome as well, without
// an attempt. The loop fills in the first fields before the send, the Attempt fills in the next, and the
// loop adds the class. The limits, the routes and the observers read all of them.
type Outcome struct {
	Number int // counts the attempts of the call from 1
	Kind   Kind
	SentAt instant.Instant // 0: not known
	Queued Queued          // before it was sent
	Pool   *pool.Pool      // that it takes, and that hears when something comes; nil: the first pool, which nobody listens to
	Heard  instant.Instant // when something had come over the pool last before it
	Link   *Link           // its connection; nil: nobody needs to know

	Resp   *http.Response // nil: an error, or it was discarded
	Err    error
	DoneAt instant.Instant // when it had a response or an error; 0: not known

	Class     classify.Class // Unknown: nobody was asked yet
	BodyBroke bool           // the request's own body failed
	Below     bool           // a Transport below has the attempts of which Err tells
}

// A Kind says why an attempt was made.
type Kind string

const (
	Cut    Kind = ""       // there was no attempt, but the body of a response was cut
	First  Kind = "first"  // of a request
	Retry  Kind = "retry"  // after a failure
	Hedge  Kind = "hedge"  // beside a slow attempt
	Resume Kind = "resume" // for the rest of a cut body
)

// Queued is how long a request has waited at each limit.
type Queued struct{ Line, Outage, Throttle, Pacing, Concurrency, Rate time.Duration }

// Status returns the status of the response, or 0 if there was none.
func (o *Outcome) Status() int {
	if o.Resp == nil {
		return 0
	}
	return o.Resp.StatusCode
}

// Took returns the time until the headers or the error, or 0 if it is not known.
func (o *Outcome) Took() time.Duration {
	if o.SentAt == 0 || o.DoneAt == 0 {
		return 0
	}
	return o.DoneAt.Sub(o.SentAt)
}

// Failed reports whether the outcome calls for a retry.
func (o *Outcome) Failed() bool {
	return o.Class == classify.Refused || o.Class == classify.Ambiguous
}

// A Result tells how an attempt ended, as a sign of the host.
type Result uint8

const (
	// Neutral tells nothing. The caller cancelled, a hedge lost, or the server
	// responded that this client sends too much (429).
	Neutral Result = iota
	// Success is any response of a server that works, 404 included.
	Success
	// Failed is a response or an error that says that the host does not work,
	// and that the host is done with the request: 5xx, or a refused or reset
	// connection.
	Failed
	// Lost is a request that timed out without a response. The server may still
	// be working on the request, or find it in its socket later.
	Lost
)

// ResultOf returns the meaning of an outcome for the host as a whole.
func ResultOf(ctx context.Context, resp *http.Response, err error) Result {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return Neutral // the caller left
	case err != nil && IsLate(ctx, err):
		return Lost // the host may be busy with it still
	case err != nil:
		switch classify.ErrorTypeOf(err) {
		case classify.ErrorDNS, classify.ErrorDial, classify.ErrorTLS, classify.ErrorReset:
			return Failed
		}
		return Neutral // the request's own fault, or nobody's
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return Neutral // this client sends too much, or too slowly
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusNetworkAuthenticationRequired:
		return Success // it is about this request alone
	}
	if resp.StatusCode >= 500 {
		return Failed
	}
	return Success
}

// IsLate reports whether an attempt ended because it took too long. A base transport may
// return the cause of the caller's deadline, which can be any error.
func IsLate(ctx context.Context, err error) bool {
	return classify.ErrorTypeOf(err) == classify.ErrorTimeout || ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// A Link is the connection of one attempt. The base transport tells it by the hooks of
// net/http/httptrace. It may call them from goroutines of its own, and also after the
// attempt. A base transport that calls no hooks tells nothing. The nil link belongs to an
// attempt whose connection nobody needs to know.
type Link struct {
	Proves bool // the class of the outcome depends on it; else only observers hear of it
	ctx    *attemptContext

	asked  atomic.Bool // a connection is wanted
	got    atomic.Bool // there was one, so the server may have seen the request
	others atomic.Bool // connections to several servers were wanted

	mu     sync.Mutex // guards the fields below
	server string     // the first for which a connection was wanted
	remote net.Addr
}

// getConn bounds the time until the attempt has a connection, unless the attempt ends earlier. The
// base transport may seek a connection again later, which is not bounded.
func (l *Link) getConn(server string) {
	l.mu.Lock()
	if l.server = cmp.Or(l.server, server); l.server != server {
		l.others.Store(true)
	}
	l.mu.Unlock()
	l.asked.Store(true)
	a := l.ctx
	if a.Timeouts == nil || a.Connect <= 0 {
		return
	}
	a.lock()
	defer a.mu.Unlock()
	switch {
	case a.phase != waiting || a.linked:
	case a.After > 0 && a.After-time.Since(a.began) <= a.Connect:
		a.linked = true
	default:
		a.on(seeksConnection, nil)
	}
}

// gotConn gives the attempt the rest of its time.
func (l *Link) gotConn(info httptrace.GotConnInfo) {
	l.got.Store(true)
	if info.Conn != nil {
		func() {
			// net/http never asks a user's connection for its address, so a connection that cannot
			// tell it is used like any other.
			defer func() { _ = recover() }()
			remote := info.Conn.RemoteAddr()
			l.mu.Lock()
			l.remote = remote
			l.mu.Unlock()
		}()
	}
	a := l.ctx
	if a.Timeouts == nil || a.Connect <= 0 {
		return
	}
	a.lock()
	defer a.mu.Unlock()
	a.linked = a.on(hasConnection, nil) || a.linked
}

// Connected reports whether the attempt surely had a connection.
func (l *Link) Connected() bool { return l != nil && l.got.Load() }

// Unsent reports whether the attempt surely never had a connection. That a connection was
// there and no byte was written would prove nothing: over HTTP/2 the hooks that say so may
// come after the server has acted.
func (l *Link) Unsent() bool { return l != nil && l.asked.Load() && !l.got.Load() }

// ConnectedLate reports whether an attempt had a connection although err says that there was
// none in time. The base transport may send a request over a connection that comes in the
// same moment as the end of the context.
func (l *Link) ConnectedLate(err error) bool {
	return l.Connected() && errors.Is(err, errUnconnected)
}

// AskedOthers reports whether an attempt had a connection and wanted a connection to another server, too. So
// the failure of a dial says nothing about the first server.
func (l *Link) AskedOthers() bool { return l.Connected() && l.others.Load() }

// Addr returns the address of the server or the proxy, or "" if it is not known.
func (l *Link) Addr() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remote == nil {
		return ""
	}
	return l.remote.String()
}

// traceKey is the key of a ClientTrace in a context.
var traceKey = func() (key any) {
	httptrace.ContextClientTrace(keyFinder{context.Background(), &key})
	return key
}()

// A keyFinder finds out which key it is asked for.
type keyFinder struct {
	context.Context
	key *any
}

func (f keyFinder) Value(key any) any {
	*f.key = key
	return nil
}

// A hooking is the part of an attempt's context that its hooks need.
type hooking struct {
	link     *Link                  // nil: nobody needs to know the connection
	settings *http.Transport        // has those of the base transport; nil: they are not known
	expects  bool                   // the request has Expect: 100-continue
	trace    *httptrace.ClientTrace // nil: the base transport has not asked for it; the lock of the context guards it
}

// hooks returns the ClientTrace of the attempt. It calls the hooks of the caller as well. It is made
// when the base transport asks for it, because a base that has no hooks never does.
func (a *attemptContext) hooks() *httptrace.ClientTrace {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.trace == nil {
		a.trace = new(httptrace.ClientTrace)
		if l := a.link; l != nil {
			a.trace.GetConn, a.trace.GotConn = l.getConn, l.gotConn
		}
		if a.Timeouts != nil && (a.quiet > 0 || a.expects) {
			i := &interims{ctx: a, most: 10 << 20, pause: time.Second} // the defaults of net/http
			if a.settings != nil {
				i.most, i.pause = cmp.Or(a.settings.MaxResponseHeaderBytes, i.most), a.settings.ExpectContinueTimeout
			}
			if a.trace.Got1xxResponse = i.got; a.expects {
				a.trace.Wait100Continue = i.await
			}
		}
		if httptrace.ContextClientTrace(a.Context) != nil {
			httptrace.WithClientTrace(a.Context, a.trace) // gives it the caller's hooks
		}
	}
	return a.trace
}

// interims are the interim responses to an attempt (RFC 9110 §15.2). net/http leaves it to the hook to
// bound their size.
type interims struct {
	ctx        *attemptContext
	size, most int64         // of their headers, in bytes
	pause      time.Duration // for which the base waits for a 100 at most
	until      time.Duration // the end of that; 0: it does not wait
}

// await lets the time of the attempt stand still while the base waits for a 100.
func (i *interims) await() {
	a := i.ctx
	a.lock()
	defer a.mu.Unlock()
	if a.phase == waiting && a.due != 0 {
		i.until = time.Since(a.began) + i.pause
		a.move(i.pause)
	}
}

// got takes an interim response as progress. The AttemptTimeout runs on.
func (i *interims) got(_ int, header textproto.MIMEHeader) error {
	a := i.ctx
	a.lock()
	defer a.mu.Unlock()
	var fields strings.Builder
	_ = http.Header(header).Write(&fields)
	i.size += int64(len("HTTP/1.1 102 Processing\r\n\r\n") + fields.Len())
	if left := i.until - time.Since(a.began); left > 0 && a.phase == waiting {
		a.move(-left)
	}
	i.until = 0
	if whole := a.whole; a.quiet > 0 && (a.phase == waiting || a.phase == sending) {
		a.limit(time.Since(a.began), a.quiet)
		if a.whole = whole; a.phase == waiting && a.attempt > 0 {
			a.due = min(a.due, whole)
			a.run()
		}
	}
	if i.size > i.most { // the error is that of net/http; if the caller has a hook, its error counts
		return fmt.Errorf("net/http: server response headers exceeded %d bytes; aborted", i.most)
	}
	return nil
}

// Untraced returns a context without the caller's ClientTrace. A trace of its own covers the
// hooks for package net, which have a key that nobody else can name.
func Untraced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(untraced{ctx}, &httptrace.ClientTrace{DNSStart: func(httptrace.DNSStartInfo) {}})
}

// silenced returns a copy of the caller's trace that calls no hook once the time of the attempt is over.
// net/http goes on with a dial that nobody waits for. So it would call the hooks beside those of the
// next attempt, or when the caller has its error and reads what the hooks wrote.
func (a *attemptContext) silenced(trace *httptrace.ClientTrace) *httptrace.ClientTrace {
	copied := *trace
	for _, hook := range reflect.ValueOf(&copied).Elem().Fields() {
		if hook.IsNil() {
			continue
		}
		call, kind := reflect.ValueOf(hook.Interface()), hook.Type()
		hook.Set(reflect.MakeFunc(kind, func(args []reflect.Value) (results []reflect.Value) {
			a.lock()
			isLate := a.phase == late
			if a.mu.Unlock(); !isLate {
				return call.Call(args)
			}
			for result := range kind.Outs() {
				results = append(results, reflect.Zero(result))
			}
			return results
		}))
	}
	return &copied
}

// untraced hides a ClientTrace.
type untraced struct{ context.Context }

func (u untraced) Value(key any) any {
	v := u.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}
