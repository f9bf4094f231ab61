// The endpoints of a request: its own host, and the alternates that serve the same.
//
// A request begins at its host. If an attempt shows that the host cannot serve it, the next
// attempt goes to an alternate that the request has not been to, at once. If it has been to
// all, it waits for the back-off and goes on in turn. If the host is known to be down, the
// first attempt goes to an alternate as well. The rules:
//
//   - Budget and Retry-After are those of one endpoint. The first attempt of a request at
//     an endpoint counts there as a request, and each further one as a retry.
//   - A response about the request or about this client, such as a 429, keeps the request
//     where it is, unless the wait would be longer than the request may wait.
//   - Once a server may have acted on a request, only a request that is idempotent without an
//     Idempotency-Key goes on, because another server need not know the key.
//   - A hedge stays at the endpoint of the attempt beside which it runs.

package transport

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// An endpoint is a place to which the attempts of a call may go.
type endpoint struct {
	base      *url.URL // nil: the request's own host
	rule      *rules.Resolved
	req       *http.Request               // nil: not needed yet
	state     *host.State[rules.Resolved] // nil: not needed yet
	tried     bool                        // the call has been here
	refused   bool                        // its limits refused the attempt that is due
	barred    bool                        // nothing proves that it has the rest of the body
	notBefore time.Time                   // a response of this endpoint asked to wait until then
}

// Endpoints are those of a call whose request may go to an alternate. The first is its own
// host.
type endpoints struct {
	all    []endpoint
	raw    *http.Request // of the call, for its own host
	count  int           // the endpoint that counts a request for which no attempt went yet; -1: none
	bridge resume.Bridge // of a reconnect; how its body goes on at another origin
	origin int           // the endpoint that the bytes of this body come from
	bound  bool          // an endpoint may have acted on the request, so it stays there
}

// findEndpoints finds the endpoints of a call. caller is the caller's request.
func (x *exchange) findEndpoints(caller *http.Request) {
	if !mayTravel(caller, &x.rule.Policy.Alternates) {
		return
	}
	if o := x.options; o != nil && o.rule != nil && o.rule.Policy.Alternates.Enabled() && isAway(caller) {
		return
	}
	all := append(make([]endpoint, 0, 1+len(x.rule.Alternates)), endpoint{req: x.req, state: x.state, rule: x.rule})
	for _, a := range x.rule.Alternates {
		if x.req.URL.Scheme == "https" && a.Base.Scheme != "https" || host.KeyOf(a.Base) == x.state.Key() {
			continue
		}
		rule := a.Rule
		if x.segment {
			rule = rule.Reconnect
		}
		all = append(all, endpoint{base: a.Base, rule: rule})
	}
	if len(all) > 1 {
		x.ends = &endpoints{all: all, raw: x.req}
		x.home, x.at = &endpoint{req: x.req, state: x.state, rule: x.rule}, 0
	}
}

// isAway reports whether http.Client made the request because another host redirected it. The
// alternates in its context serve what the first host serves.
func isAway(req *http.Request) bool {
	first := req
	for range 100 { // somebody may have made a ring
		if first == nil || first.URL == nil {
			break
		}
		if first.Response == nil {
			return host.KeyOf(first.URL) != host.KeyOf(req.URL)
		}
		first = first.Response.Request
	}
	return true // in doubt
}

// findForSegment finds the endpoints of a reconnect, and begins at the origin of the body.
// begins says that it counts as a request. If not, it is a retry.
func (x *exchange) findForSegment(d *download, begins bool) {
	if d.before().events {
		return // the IDs of events are those of one server
	}
	bridge := resume.BridgeWhole
	if x.rule.Policy.Alternates.Validators != policy.On {
		bridge = d.body.Bridge()
	}
	if bridge == resume.NoBridge && d.at == 0 {
		return
	}
	if x.findEndpoints(d.req); x.ends == nil {
		return
	}
	e := x.ends
	e.bridge, e.origin, e.count = bridge, int(d.at), -1
	for i := range e.all {
		e.all[i].tried = d.past.been&(1<<i) != 0
		e.all[i].barred = i != e.origin && (bridge == resume.NoBridge || d.past.astray&(1<<i) != 0)
		if d.past.waits != nil {
			e.all[i].notBefore = d.past.waits[i]
		}
	}
	e.all[0].req, x.notBefore = e.request(0), e.all[0].notBefore
	if e.origin > 0 {
		x.move(e.origin)
	}
	x.here().tried = !begins
}

// request makes the request for an endpoint. What concerns the other origin's bytes alone
// does not travel.
func (e *endpoints) request(i int) *http.Request {
	base, drops := e.all[i].base, i != e.origin && e.bridge >= resume.BridgeDigest
	if base == nil && !drops {
		return e.raw
	}
	req := e.raw.WithContext(e.raw.Context())
	if drops {
		req.Header = req.Header.Clone()
		delete(req.Header, "If-Range")
		if e.bridge == resume.BridgeCompare {
			delete(req.Header, "Range")
		}
	}
	if base != nil {
		req.URL, req.Host = joined(base, req.URL), ""
	}
	return req
}

// joined returns the URL of a request at another base. What is escaped stays escaped.
func joined(base, u *url.URL) *url.URL {
	to := *u
	to.Scheme, to.Host = base.Scheme, base.Host
	to.RawPath = strings.TrimSuffix(base.EscapedPath(), "/") + u.EscapedPath() // counts if it is another spelling of Path
	to.Path, _ = url.PathUnescape(to.RawPath)
	return &to
}

// here returns the endpoint of the attempt at hand, or of the next attempt.
func (x *exchange) here() *endpoint { return &x.ends.all[x.at] }

// open gives an endpoint its request and the state of its host.
func (x *exchange) open(i int) *endpoint {
	n := &x.ends.all[i]
	if n.state == nil {
		n.req = x.ends.request(i)
		n.state = x.t.hosts.Acquire(n.req.URL)
		n.state.ReleaseCount() // an attempt counts
		x.t.ruleFor(n.state, x.t.rules.Load())
	}
	return n
}

// move makes the next attempt go to another endpoint.
func (x *exchange) move(to int) {
	x.limits.release()
	x.uncount()
	x.here().notBefore = x.notBefore
	n := x.open(to)
	x.at, x.req, x.state, x.rule, x.notBefore = to, n.req, n.state, n.rule, n.notBefore
	x.limits = limits{call: &x.call, queued: x.limits.queued, total: x.limits.total}
	x.way, x.via, x.trouble = way{}, nil, noTrouble
	x.opens.Connected() // another attempt makes the connection
	x.opens = nil
}

// uncount takes back the count of a request for which no attempt went.
func (x *exchange) uncount() {
	switch {
	case x.ends == nil:
		x.state.ReleaseCount()
	case x.ends.count >= 0:
		x.ends.all[x.ends.count].state.ReleaseCount()
		x.ends.count = -1
	}
}

// arrives reports whether the next attempt is the first of the call at its endpoint.
func (x *exchange) arrives() bool { return !x.here().tried }

// departs notes that an attempt goes to the present endpoint.
func (x *exchange) departs() {
	n := x.here()
	switch {
	case x.ends.count == x.at:
		x.ends.count = -1
	case !n.tried:
		n.state.Count()
	}
	n.tried = true
	for i := range x.ends.all {
		x.ends.all[i].refused = false
	}
}

// been notes the endpoints to which attempts went, and their waits, for the next reconnect.
func (x *exchange) been(past *past) {
	if x.ends == nil {
		return
	}
	x.here().notBefore = x.notBefore
	past.waits = make([]time.Time, len(x.ends.all))
	for i := range x.ends.all {
		if past.waits[i] = x.ends.all[i].notBefore; x.ends.all[i].tried {
			past.been |= 1 << i
		}
	}
}

// mayBridge reports whether the body of a response may have to be compared with one of
// another origin.
func (c *call) mayBridge() bool {
	return c.home != nil && c.rule.Policy.Resume.Again > 0 && c.home.rule.Policy.Alternates.Validators != policy.On
}

// releaseEndpoints releases the hosts of the alternates. It may be called again.
func (x *exchange) releaseEndpoints() {
	for i := range x.ends.all[1:] {
		if n := &x.ends.all[1+i]; n.state != nil {
			n.state.Release()
			n.state = nil
		}
	}
}

// alternate names the alternate of the attempt at hand. It is "" if the attempt goes to the
// request's own host.
func (x *exchange) alternate() string {
	if x.at == 0 {
		return ""
	}
	return safeName(x.here().state)
}

// isDown reports whether an endpoint is down. If it is, one request per second is told that
// it is not. A closed gate chooses by itself which request is a probe, so it only counts if
// tries is false.
func (x *exchange) isDown(n *endpoint, tries bool) bool {
	m := n.state.MachinesMade()
	if m == nil {
		return false
	}
	if o := m.OutageMade(); o != nil && o.Down() && (m.Cooldown.Holding(x.t.now()) || !o.Try(x.t.now())) {
		return true
	}
	g, _ := m.Made()
	return !tries && n.rule.Gate && g != nil && g.State().Closed
}

// noteOutage notes whether an outcome shows that the host is up or down. With a gate, the
// gate knows that, apart from a 503 that names a wait.
func (x *exchange) noteOutage(resp *http.Response, err error, hint time.Duration) {
	sure := resp != nil && resp.StatusCode == http.StatusServiceUnavailable && hint > 0 && x.rule.Policy.Cooldown == policy.On
	switch o := x.state.Machines().Outage(); flight.ResultOf(x.ctx, resp, err) {
	case gate.Success:
		o.Succeeded()
	case gate.Failed, gate.Lost:
		if sure || !x.rule.Gate {
			o.Failed(x.t.now(), sure)
		}
	}
}

// another returns the endpoint that is best for the next attempt, apart from the present,
// and whether it is down. It is -1 if there is none. untried leaves out those that the call
// has been to.
func (x *exchange) another(untried bool) (best int, down bool) {
	if x.ends.bound {
		return -1, false
	}
	best, bestRank := -1, 4
	for i := 1; i < len(x.ends.all); i++ {
		j := (x.at + i) % len(x.ends.all)
		n := &x.ends.all[j]
		if !n.free(untried) {
			continue
		}
		rank := 0
		if n.tried {
			rank = 2
		}
		if rank < bestRank && x.isDown(x.open(j), false) {
			rank++
		}
		if rank < bestRank {
			best, bestRank = j, rank
		}
	}
	if bestRank == 3 && !x.isDown(x.here(), false) {
		return -1, false
	}
	return best, bestRank%2 == 1
}

// free reports whether the next attempt may go to an endpoint.
func (n *endpoint) free(untried bool) bool { return !n.refused && !n.barred && !(untried && n.tried) }

// mayLeave reports whether there is an endpoint that the call has not been to.
func (x *exchange) mayLeave() bool {
	for i := range x.ends.all {
		if i != x.at && x.ends.all[i].free(true) {
			return !x.ends.bound
		}
	}
	return false
}

// bind makes a request stay where it is if a server may have acted on it, and it may not be sent
// to another server then.
func (x *exchange) bind(v classify.Verdict) {
	if x.ends != nil && v == classify.Ambiguous && !x.idempotentAnywhere() {
		x.ends.bound = true
	}
}

// aim decides about an outcome. It returns the endpoint that the next attempt goes to if it
// does not stay, and -1 otherwise.
func (x *exchange) aim(f *facts, resp *http.Response, d *decision) (to int) {
	d.reason, d.Wait = decide(*f)
	x.bind(d.Verdict)
	if x.timing.kind == KindNone { // a body that was cut is first continued where it was
		return -1
	}
	if d.Hint > 0 {
		x.notBefore = d.Time.Add(d.Hint)
	}
	switch d.reason {
	case ReasonRetry:
		if resp != nil && resp.StatusCode < http.StatusInternalServerError {
			return -1 // it is about the request, its connection or this client
		}
	case ReasonDeadline, ReasonMaxRetryAfter, ReasonMaxElapsed, ReasonCooldown:
	default:
		return -1
	}
	if to, _ = x.another(false); to < 0 {
		return -1
	}
	n, g, there := &x.ends.all[to], *f, x.call
	there.req, there.state, there.rule = n.req, n.state, n.rule
	g.hint = max(n.notBefore.Sub(d.Time), x.asked, 0)
	if !n.tried {
		g.backoff = 0
	}
	g.turn, g.limit, g.refused = (&limits{call: &there}).next(d.Time)
	x.price = there.price // Cost is asked once
	reason, wait := decide(g)
	if reason != ReasonRetry {
		return -1
	}
	*f, d.reason, d.Wait = g, reason, wait
	return to
}

// idempotentAnywhere reports whether a request on which a server may have acted may be sent
// to another server. A key for idempotency proves nothing there.
func (x *exchange) idempotentAnywhere() bool {
	if x.options != nil && x.options.sending == repeatable {
		return true
	}
	bare := x.req.WithContext(x.ctx)
	bare.Header = x.req.Header.Clone()
	maps.DeleteFunc(bare.Header, func(name string, _ []string) bool { return strings.Contains(strings.ToLower(name), "idempoten") })
	return x.rule.Policy.Idempotent(bare)
}

// admitSomewhere admits an attempt at the endpoint that is due. If that is down, or if its
// limits refuse the attempt, it admits the attempt at an endpoint that the call has not been
// to.
func (x *exchange) admitSomewhere(first bool) *refusal {
	if x.arrives() && x.isDown(x.here(), true) {
		if to, down := x.another(true); to >= 0 && !down {
			x.move(to)
		}
	}
	for {
		x.limits.leaves = x.mayLeave()
		no := x.admitHere(first || x.arrives())
		if no == nil {
			return nil
		}
		switch no.reason {
		case ReasonDeadline, ReasonCooldown, ReasonGateFull:
		default:
			return no
		}
		to, _ := x.another(true)
		if to < 0 {
			return no
		}
		x.here().refused = true
		x.move(to)
	}
}

// settle makes a response of an alternate fit for a caller who thinks that it comes from the
// request's host. A Location stays what it means at the alternate, and a cookie of the
// alternate is not sent to the host.
func (x *exchange) settle(resp *http.Response) {
	if resp == nil || x.at == 0 {
		return
	}
	location, cookies := resp.Header.Get("Location"), len(resp.Header["Set-Cookie"])+len(resp.Header["Set-Cookie2"])
	if location == "" && cookies == 0 {
		return
	}
	header := resp.Header.Clone() // the base may keep its own
	delete(header, "Set-Cookie")
	delete(header, "Set-Cookie2")
	if location != "" {
		if to, err := x.req.URL.Parse(location); err == nil {
			header.Set("Location", to.String())
		}
	}
	resp.Header = header
}

// mayTravel reports whether a request may go to an alternate. In doubt it stays.
func mayTravel(req *http.Request, a *policy.Alternates) bool {
	u := req.URL
	switch {
	case flight.Upgrades(req), u.Opaque != "", u.Path != "" && u.Path[0] != '/':
		return false
	case strings.Contains(u.Path+"/", "/../"), strings.Contains(u.Path, "/..;"):
		return false // it could leave the path of a base; some servers drop what begins with a semicolon
	case req.Host != "" && !strings.EqualFold(req.Host, u.Host):
		return false // it means another host than the URL
	case a.Validators != policy.On && isConditional(req.Header):
		return false
	}
	return a.Credentials == policy.On || !carriesKey(req)
}

// isConditional reports whether a request depends on what its host sent before.
func isConditional(h http.Header) bool {
	for name, values := range h {
		if len(values) > 0 && (name == "Range" || name == "Last-Event-Id" || strings.HasPrefix(name, "If-") || strings.HasPrefix(strings.ToLower(name), "x-ms-if-")) {
			return true
		}
	}
	return false
}

// carriesKey reports whether a request has something that looks like a credential.
func carriesKey(req *http.Request) bool {
	if req.URL.User != nil || queryHasKey(req.URL.RawQuery) || host.ScopeText(req.Header) != "" {
		return true
	}
	for name := range req.Trailer {
		if namesKey(name) {
			return true
		}
	}
	for name, values := range req.Header {
		for _, v := range values {
			_, query, _ := strings.Cut(v, "?") // of a Referer, for instance
			if namesKey(name) || isScheme64(v) || queryHasKey(query) || strings.Contains(v, "@") && strings.Contains(v, "://") {
				return true
			}
		}
	}
	return false
}

// isScheme64 reports whether a value begins with a scheme of Authorization.
func isScheme64(v string) bool {
	scheme, _, ok := strings.Cut(v, " ")
	return ok && (strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "Basic"))
}

// queryHasKey reports whether the name of a parameter looks like that of a credential, such
// as that of a signature.
func queryHasKey(query string) bool {
	for query != "" {
		var part string
		part, query, _ = strings.Cut(query, "&")
		name, _, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || strings.Contains(part, ";") || strings.EqualFold(plain, "sig") || strings.EqualFold(plain, "pwd") || namesKey(plain) {
			return true
		}
	}
	return false
}

// keyWords are parts of the names of credentials.
var keyWords = [...]string{"auth", "cookie", "token", "secret", "passw", "sign", "session", "credential", "jwt", "bearer", "cert"}

// namesKey reports whether the name of a header or of a parameter looks like that of a
// credential. It takes some other names for one as well, and their requests stay.
func namesKey(name string) bool {
	name = strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
	if name == "idempotencykey" || name == "xidempotencykey" {
		return false
	}
	return strings.HasSuffix(name, "key") || strings.HasSuffix(name, "keyid") ||
		slices.ContainsFunc(keyWords[:], func(word string) bool { return strings.Contains(name, word) })
}
