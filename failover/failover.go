// Endpoints, and the way of a request from one to another.

package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	defaultTimeout = 5 * time.Second
	smallBody      = 64 << 10              // takes next to no time to send or to receive
	drainTime      = 10 * time.Millisecond // for a response that nobody gets
)

// An Endpoint is a base URL that serves the same as the others, with the RoundTripper that sends
// requests to it.
type Endpoint struct {
	// URL is the scheme, the host and perhaps a path, as in "https://eu.example.com/api". If that of
	// the first endpoint is https, those of the others are, too.
	URL string

	// Transport sends the requests of the endpoint. It has to close the body of each request, as
	// http.RoundTripper says, because the next endpoint gets none before that. Endpoints may share one.
	// The rule of a transport.Transport counts only if nothing is around it: within another
	// RoundTripper nobody sees its Classify and its Idempotent. Put the other one below, as its Base.
	Transport http.RoundTripper

	// Timeout bounds the time until the headers of a response if there is another endpoint that is not
	// down. It is cut to half of what is left to the deadline of the request. A transport.Transport sees
	// its end as a deadline, so it starts no wait beyond that. Default 5 s. policy.Off turns it off.
	//
	// A request that could not go on after a silence has no such bound: it must not be acted on twice,
	// or GetBody does not make its body again. Set the ConnectTimeout of the rule for such requests.
	// Neither has a request whose body is larger than 64 KiB, because nobody knows how long it takes to
	// send that.
	Timeout time.Duration

	// Allow lists the names of header fields and query parameters that a request may have if it goes here
	// and not to the first endpoint. Without it, a request may have no query, no trailer, and only
	// these header fields:
	//
	//   - Accept and Accept-*, Cache-Control, Traceparent, User-Agent
	//   - Content-Type, Content-Length, Content-Encoding, Content-Language, Content-Digest
	//   - Idempotency-Key, X-Idempotency-Key
	//
	// A request with another one stays with the first endpoint. Nothing is stripped. "Authorization"
	// allows a user in the URL as well, and "Host" a Host that is not that of the URL. Allow conditions
	// and Range if the endpoints give the same validators to the same bytes only (RFC 9110 §8.8.1).
	//
	// "Idempotency-Key" says that the endpoint and the first know each other's keys. If one of the
	// other endpoints does not allow it, a request that only its key makes idempotent stays. Case makes
	// no difference. The Allow of the first endpoint has no meaning. Default none.
	Allow []string

	// Notify hears when the endpoint is down (up is false, and why is the cause) and when it is back (up is
	// true, and why is nil). That of the first endpoint also hears which name keeps requests there,
	// because an Allow lacks it. It hears each name once, at the first such request, even while the
	// endpoint is up. Then why is a *policy.FieldError with the name as its Field, and up is as before.
	// "?" stands for all names that are longer than 64 bytes or not printable, and for parameters
	// without a value, which may be secrets. After 64 names it hears of no more. The text of why has no secrets.
	//
	// RoundTrip calls it before it returns, and only that request waits. There is one call at a time, and
	// the calls have the order of the changes. If changes come faster than it returns, it hears the
	// last of them. It may send requests over the Transport. If it panics, so does RoundTrip, and the
	// response is closed. Default none.
	Notify func(up bool, why error)
}

// A Transport is an http.RoundTripper over several endpoints. It is safe for concurrent use. Make it
// once and share it, because it knows which endpoints are down. It holds no goroutine and needs no
// closing.
type Transport struct {
	endpoints  []*endpoint
	sharesKeys bool // for idempotency
}

// New returns a Transport over the endpoints, which are tried in this order. If something in them is
// wrong, it returns all faults at once, as *policy.FieldErrors that
// are joined.
func New(endpoints ...Endpoint) (*Transport, error) {
	t := &Transport{sharesKeys: true}
	var faults []error
	wrong := func(field, why string) {
		faults = append(faults, &policy.FieldError{Field: field, Err: errors.New(why)})
	}
	if len(endpoints) == 0 {
		wrong("endpoints", "are none")
	}
	for i, e := range endpoints {
		at := fmt.Sprintf("endpoints[%d].", i)
		base, text, why := parseBase(e.URL, endpoints[0].URL)
		if why != "" {
			wrong(at+"URL", strconv.Quote(text)+" "+why)
		}
		if e.Transport == nil {
			wrong(at+"Transport", "is nil")
		} else if isNil(e.Transport) {
			wrong(at+"Transport", fmt.Sprintf("(%T)(nil) is nil", e.Transport))
		}
		if bad, ok := errors.AsType[*policy.FieldError](policy.Rule{AttemptTimeout: e.Timeout}.Validate()); ok {
			wrong(at+"Timeout", bad.Err.Error()) // it has the bounds of every timeout of a rule
		}
		e.Allow = slices.Clone(e.Allow)
		t.endpoints = append(t.endpoints, &endpoint{Endpoint: e, base: base})
		t.sharesKeys = t.sharesKeys && (i == 0 || len(e.missing([]string{"Idempotency-Key"})) == 0)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return t, nil
}

// isNil reports whether an interface holds a nil pointer or the like.
func isNil(v any) bool {
	r, nils := reflect.ValueOf(v), []reflect.Kind{reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan}
	return slices.Contains(nils, r.Kind()) && r.IsNil()
}

// RoundTrip sends a request to the first endpoint that is not down, and to the next if that fails
// and the request may go there. It keeps to the contract of http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if len(t.endpoints) == 0 {
		_ = cmp.Or[io.ReadCloser](req.Body, http.NoBody).Close()
		return nil, errors.New("failover: a zero Transport; make one with New")
	}
	home := t.endpoints[0]
	if req == nil || req.URL == nil || req.Header == nil || isNil(req.Body) || !home.serves(req.URL) {
		return home.Transport.RoundTrip(req) // which also says what is wrong with it
	}
	o := (&call{Transport: t, req: req}).run()
	if o.resp != nil && o.endpoint != home {
		localize(o.resp, o.req.URL, req.URL)
	}
	told := false
	defer func() {
		if !told { // a Notify has panicked
			discard(o.resp)
		}
	}()
	for _, e := range t.endpoints {
		e.tell()
	}
	told = true
	return o.resp, o.err
}

// CloseIdleConnections closes the idle connections of each endpoint's Transport, if that has such a
// method. If endpoints share a Transport, it is called once.
func (t *Transport) CloseIdleConnections() {
	for i, e := range t.endpoints {
		closer, ok := e.Transport.(interface{ CloseIdleConnections() })
		same := func(o *endpoint) bool { return o.Transport == e.Transport }
		known := reflect.ValueOf(e.Transport).Comparable() && slices.ContainsFunc(t.endpoints[:i], same)
		if ok && !known {
			closer.CloseIdleConnections()
		}
	}
}

// A call is a request on its way. One goroutine uses it.
type call struct {
	*Transport
	req   *http.Request // the caller's
	route []*endpoint   // those that it may go to, in their order
	all   bool          // all of them are down, so that this does not matter
}

// An outcome is how a request ended at an endpoint.
type outcome struct {
	*endpoint
	source
	req  *http.Request // as the endpoint got it, with the caller's context
	resp *http.Response
	err  error
}

// run sends the request to one endpoint after another, until one has the outcome for the caller.
func (c *call) run() (won *outcome) {
	c.route = c.findRoute()
	c.all = !slices.ContainsFunc(c.route, (*endpoint).up)
	var kept, last *outcome // of the first endpoint that was asked, and of the last
	defer func() {
		if kept != nil && kept != won { // also after a panic
			discard(kept.resp)
		}
	}()
	for i, e := range c.route {
		probes := !c.all && !e.up()
		if probes && !e.probe(!c.mayGoAfterSilence(e)) {
			continue
		}
		if last = c.ask(i, probes, last); last == nil {
			return kept
		}
		// The next endpoint may not have the resource, the client or the method that the first has.
		switch foreign := e != c.endpoints[0] && last.resp != nil && slices.Contains([]int{401, 403, 404, 405, 410, 501}, last.resp.StatusCode); {
		case last.broken.Load() || !foreign && !c.mayGo(last):
			return last
		case foreign:
			discard(last.resp)
			why := fmt.Errorf("failover: %s is down, and %s answered %d", c.endpoints[0].URL, e.URL, last.resp.StatusCode)
			return cmp.Or(kept, &outcome{endpoint: e, err: why})
		case kept == nil:
			kept = last
		default:
			discard(last.resp)
		}
	}
	if kept == nil { // the last that was up went down just now
		return c.run()
	}
	return kept
}

// findRoute returns the endpoints that the request may go to, in their order.
func (c *call) findRoute() []*endpoint {
	home := &outcome{endpoint: c.endpoints[0], req: c.req, err: new(transport.Error)} // if the request was not sent
	names, ok := ties(c.req)
	free := ok && c.mayGo(home)
	if ok && !free && transport.MayGoElsewhere(home.Transport, c.req, nil, home.err, true) {
		names = append(names, "Idempotency-Key")
	}
	route, missing := c.endpoints[:1:1], []string(nil)
	for _, e := range c.endpoints[1:] {
		more := e.missing(names)
		if missing = append(missing, more...); free && len(more) == 0 {
			route = append(route, e)
		}
	}
	if len(route) == 1 && home.Notify != nil {
		home.keep(missing, c.req.URL.Query())
	}
	return route
}

// mayGo reports whether an endpoint has failed and the request may go to another one.
func (c *call) mayGo(o *outcome) bool {
	return transport.MayGoElsewhere(o.Transport, o.req, o.resp, o.err, c.sharesKeys)
}

// mayGoAfterSilence reports whether the request could go on from an endpoint that does not answer. Nobody knows how
// long it takes to send a body that is not small.
func (c *call) mayGoAfterSilence(e *endpoint) bool {
	n, none := c.req.ContentLength, c.req.Body == nil || c.req.Body == http.NoBody
	return (none || c.req.GetBody != nil && 0 < n && n <= smallBody) &&
		c.mayGo(&outcome{endpoint: e, req: e.at(c.req, c.endpoints[0]), err: context.DeadlineExceeded})
}

// ask sends the request to an endpoint. It returns nil if there is no body for it.
func (c *call) ask(i int, probes bool, last *outcome) *outcome {
	o := &outcome{endpoint: c.route[i], req: c.route[i].at(c.req, c.endpoints[0])}
	if probes {
		defer o.probing.Store(false) // also after a panic, which note may have as well
	}
	defer func(began time.Time) { c.note(o, probes, began) }(time.Now()) // also after a panic
	body, ok := c.bodyAfter(last)
	if !ok {
		return nil
	}
	sent, next := o.req, slices.ContainsFunc(c.route[i+1:], func(to *endpoint) bool { return c.all || to.up() })
	var s *span
	if bound := cmp.Or(o.Timeout, defaultTimeout); next && bound > 0 && c.mayGoAfterSilence(o.endpoint) {
		s = newSpan(c.req.Context(), bound)
		sent = sent.WithContext(s)
	}
	if body != nil && body != http.NoBody {
		sent = sent.WithContext(sent.Context())
		o.lendTo(sent, body)
	}
	o.resp, o.err = o.Transport.RoundTrip(sent)
	if o.resp != nil && o.resp.Request == sent {
		o.resp.Request = o.req
	}
	s.settle(o)
	return o
}

// bodyAfter returns the body for the next endpoint, once the last has closed its own. It is false if there is none.
func (c *call) bodyAfter(last *outcome) (io.ReadCloser, bool) {
	switch {
	case last == nil || c.req.Body == nil || c.req.Body == http.NoBody:
		return c.req.Body, true
	case c.req.GetBody == nil || !last.take(c.req.Context()):
		return nil, false
	}
	body, err := c.req.GetBody()
	return body, err == nil && body != nil && body != http.NoBody && !isNil(body)
}

// discard reads the rest of a response that nobody gets, so that its connection can be used again, and closes it. A
// success may wait for that, so a server has little time for it. The Read and the Close may block or panic, so they run
// in other goroutines, which may outlive the request and know nothing of it but the response. If net/http decompresses a
// body, its Close waits for a Read that waits for the first bytes. Only the end of the context ends such a Read, so the
// body is read only if its span can end.
func discard(resp *http.Response) {
	if resp == nil || resp.Body == nil {
		return
	}
	r := resp.Body
	spanned, ok := r.(*body)
	shut := func(read bool) {
		defer func() { _ = recover() }()
		defer r.Close()
		if read {
			_, _ = io.CopyN(io.Discard, r, smallBody)
		}
	}
	read := ok || !resp.Uncompressed
	done := make(chan struct{})
	go func() {
		defer close(done)
		shut(read)
	}()
	select {
	case <-done:
	case <-time.After(drainTime):
		if ok {
			spanned.end(nil)
		}
		go shut(false) // ends a Read that blocks
	}
}

// A span is the context of a request that has a bounded time. Its deadline counts until the headers of the response
// have come. It ends with the body of the response, because the caller's context refers to it until then.
type span struct {
	context.Context // derived from the caller's
	end             context.CancelCauseFunc
	until           time.Time
	timer           *time.Timer
	over            atomic.Bool // the outcome is there
}

func newSpan(ctx context.Context, bound time.Duration) *span {
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline)/2)
	}
	s := &span{until: time.Now().Add(bound)}
	s.Context, s.end = context.WithCancelCause(ctx)
	s.timer = time.AfterFunc(bound, func() { s.end(context.DeadlineExceeded) }) // also if the endpoint panics
	return s
}

func (s *span) Deadline() (time.Time, bool) {
	if s.over.Load() {
		return s.Context.Deadline()
	}
	return s.until, true
}

func (s *span) String() string { return "failover.span" } // keeps package fmt from reading the fields

// settle ends the time with an outcome. A response that comes when the time is over is too late.
func (s *span) settle(o *outcome) {
	if s == nil {
		return
	}
	s.over.Store(true)
	if !s.timer.Stop() {
		discard(o.resp)
		if o.resp = nil; o.err == nil || errors.Is(o.err, context.Canceled) {
			o.err = context.DeadlineExceeded
		}
		o.err = &net.OpError{Op: "no response in time from", Net: o.URL, Err: o.err}
	}
	if o.resp == nil || o.resp.Body == nil {
		s.end(nil)
	} else if _, ok := o.resp.Body.(io.Writer); !ok { // a 101 is a connection, which lasts as long as the caller's context
		o.resp.Body = &body{o.resp.Body, s.end}
	}
}

// A body ends a span when it has been read to its end or closed.
type body struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end(nil)
	}
	return n, err
}

// ResumeTried tells a Transport around this one whether a Transport below has asked for the rest of the body.
func (b *body) ResumeTried() bool {
	below, ok := b.ReadCloser.(interface{ ResumeTried() bool })
	return ok && below.ResumeTried()
}

func (b *body) Close() error {
	defer b.end(nil)
	return b.ReadCloser.Close()
}
