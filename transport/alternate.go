// The places of a request: its own host, and the alternates that serve the same.
//
// A request begins at its host. If an attempt shows that the host cannot serve it, the next
// attempt goes to an alternate that the request has not been to, at once. If it has been to
// all, it waits for the back-off and goes on in turn. If the host is known to be down, the
// first attempt goes to an alternate as well. The rules:
//
//   - Budget and Retry-After are those of one place. The first attempt of a request at
//     a place counts there as a request, and each further one as a retry.
//   - A response about the request or about this client, such as a 429, keeps the request
//     where it is, unless the wait would be longer than the request may wait.
//   - Once a server may have acted on a request, only a request that is idempotent without an
//     Idempotency-Key goes on, because another server need not know the key. A request whose
//     key the caller made stays, because an earlier call may have sent it.
//   - An alternate that cannot be reached because of its name, its address or its certificate is
//     left out from then on, and so is a host like that. So is an alternate that says that
//     it does not have the resource, does not know the client or does not take the method.
//     That proves nothing, so the last attempt is then at the host, and its outcome counts.
//   - A hedge stays at the place of the attempt beside which it runs.

package transport

import (
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/lanes"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/visit"
	"github.com/aplomb-go/aplomb/policy"
)

// places are those of a call whose request may go to an alternate. The first is its
// own host.
type places struct {
	all    []*place
	home   call          // as the caller made it
	count  *place        // that counts a request for which no attempt went yet; nil: none
	bridge resume.Bridge // of a reconnect; how its body goes on at another origin
	origin int8          // the place that the bytes of this body come from
	bound  bool          // a server may have acted on the request, so it stays there
	first  *kept         // the last outcome of the request's own host; nil: none
}

// A kept outcome of the request's own host is for the caller if no alternate has the answer.
type kept struct {
	resp   *http.Response // nil: an error, or its body could not be kept
	err    error
	status int
}

// findPlaces finds the places of a call. caller is the caller's request.
func (x *exchange) findPlaces(caller *http.Request) {
	if !rules.MayTravel(caller, &x.Rule.Policy.Alternates) || x.staysWithKey() {
		return
	}
	if o := x.options; o != nil && o.rule != nil && o.rule.Policy.Alternates.Enabled() && rules.IsAway(caller) {
		return
	}
	others := make([]place, 0, len(x.Rule.Alternates))
	all := append(make([]*place, 0, 1+cap(others)), &x.own)
	for _, a := range x.Rule.Alternates {
		if x.Req.URL.Scheme == "https" && a.Base.Scheme != "https" || host.KeyOf(a.Base) == x.State.Key() {
			continue
		}
		rule := a.Rule
		if x.segment {
			rule = rule.Reconnect
		}
		others = append(others, place{base: a.Base, call: call{Request: visit.Request{Rule: rule}, at: int8(len(all))}})
		all = append(all, &others[len(others)-1])
	}
	if len(all) > 1 {
		x.places = &places{all: all, home: x.call, count: &x.own}
		x.own.home = &x.places.home
	}
}

// findPlacesForSegment finds the endpoints of a reconnect, and begins at the origin of the body.
// begins says that it counts as a request. If not, it is a retry.
func (x *exchange) findPlacesForSegment(d *download, begins bool) {
	bridge := resume.BridgeWhole
	if x.Rule.Policy.Alternates.Validators != policy.On {
		bridge = d.body.Bridge()
	}
	if bridge == resume.NoBridge && d.at == 0 {
		return
	}
	if x.findPlaces(d.req); x.places == nil {
		return
	}
	e := x.places
	e.bridge, e.origin, e.count = bridge, d.at, nil
	for i, p := range e.all {
		p.tried = d.past.been&(1<<i) != 0
		p.barred = p.at != e.origin && (bridge == resume.NoBridge || d.past.astray&(1<<i) != 0)
		if d.past.waits != nil {
			p.wait = d.past.waits[i]
		}
	}
	x.own.Req = x.requestForPlace(&x.own)
	if e.origin > 0 {
		x.moveTo(e.all[e.origin])
	}
	x.tried = !begins
}

// requestForPlace makes the request for a place. What concerns the other origin's bytes alone does
// not travel.
func (x *exchange) requestForPlace(p *place) *http.Request {
	e := x.places
	raw, drops := e.home.Req, p.at != e.origin && e.bridge >= resume.BridgeDigest
	if p.base == nil && !drops {
		return raw
	}
	req := raw.WithContext(raw.Context())
	if drops {
		req.Header = req.Header.Clone()
		delete(req.Header, "If-Range")
		if e.bridge == resume.BridgeCompare {
			delete(req.Header, "Range")
		}
	}
	if p.base != nil {
		req.URL, req.Host = rules.Joined(p.base, req.URL), ""
	}
	return req
}

// openPlace gives a place its request and the state of its host.
func (x *exchange) openPlace(p *place) {
	if p.State != nil {
		return
	}
	rule, at := p.Rule, p.at
	p.call = x.call
	p.Rule, p.at, p.home = rule, at, &x.places.home
	p.Req = x.requestForPlace(p)
	p.State = x.Ground.Hosts.Acquire(p.Req.URL)
	p.State.ReleaseCount() // an attempt counts
	p.begin()
	x.Ground.RuleFor(p.State, x.Ground.Rules.Load())
}

// moveTo makes the next attempt go to another place.
func (x *exchange) moveTo(to *place) {
	x.openPlace(to)
	to.limits.Queued = x.limits.TakeWaited()
	x.limits.Release()
	x.road.Leave()
	x.takeBackCount()
	x.place, x.way = to, lanes.Way{}
}

// takeBackCount takes back the count of a request for which no attempt went.
func (x *exchange) takeBackCount() {
	switch {
	case x.places == nil:
		x.State.ReleaseCount()
	case x.places.count != nil:
		x.places.count.State.ReleaseCount()
		x.places.count = nil
	}
}

// noteDeparture notes that an attempt goes to the present place.
func (x *exchange) noteDeparture() {
	switch {
	case x.places.count == x.place:
		x.places.count = nil
	case !x.tried:
		x.State.Count()
	}
	x.tried = true
	for _, p := range x.places.all {
		p.refused = false
	}
}

// notePlaces notes for the next reconnect to which places attempts went, how long they asked to
// wait, and which of them do not have the body.
func (x *exchange) notePlaces(past *past) {
	past.waits = make([]time.Time, len(x.places.all))
	for i, p := range x.places.all {
		if past.waits[i] = p.wait; p.tried {
			past.been |= 1 << i
		}
		if p.barred && !x.segment {
			past.astray |= 1 << i
		}
	}
}

// releasePlaces releases the hosts of the alternates. It may be called again.
func (x *exchange) releasePlaces() {
	for _, p := range x.places.all[1:] {
		if p.State != nil {
			p.State.Release()
			p.State = nil
		}
	}
}

// mayBeRepeatedAnywhere reports whether an attempt that fails, whatever it did, can be followed
// by one at another place.
func (x *exchange) mayBeRepeatedAnywhere() bool {
	if x.isSingle() || !x.isIdempotentAnywhere() {
		return false
	}
	replayable := x.body == nil
	if !replayable {
		replayable, _ = x.body.Known()
	}
	return replayable
}

// nameOfOther names the endpoint to which requests go while the present place is down, or returns
// "" if all others are down as well.
func (x *exchange) nameOfOther() string {
	for _, p := range x.places.all {
		if p == x.place {
			continue
		}
		if x.openPlace(p); !p.IsDown() {
			return visit.SafeName(p.State)
		}
	}
	return ""
}

// bestOtherPlace returns the place that is best for the next attempt, apart from the present, and
// whether it is down. It is nil if there is none. untried leaves out those that the call has
// been to.
func (x *exchange) bestOtherPlace(untried bool) (best *place, down bool) {
	if x.places.bound {
		return nil, false
	}
	bestRank, n := 4, len(x.places.all)
	for i := 1; i < n; i++ {
		p := x.places.all[(int(x.at)+i)%n]
		if !p.mayBeNext(untried) {
			continue
		}
		rank := 0
		if p.tried {
			rank = 2
		}
		if rank < bestRank {
			if x.openPlace(p); p.AvoidIfDown(x.mayBeRepeatedAnywhere) {
				rank++
			}
		}
		if rank < bestRank {
			best, bestRank = p, rank
		}
	}
	if bestRank == 3 && !x.barred && !x.AvoidIfDown(x.mayBeRepeatedAnywhere) {
		return nil, false
	}
	return best, bestRank%2 == 1
}

// mayBeNext reports whether the next attempt may go to a place.
func (p *place) mayBeNext(untried bool) bool { return !p.refused && !p.barred && !(untried && p.tried) }

// hasUntriedPlace reports whether there is a place that the call has not been to.
func (x *exchange) hasUntriedPlace() bool {
	return !x.places.bound && slices.ContainsFunc(x.places.all, func(p *place) bool { return p != x.place && p.mayBeNext(true) })
}

// bindToPlace makes a request stay where it is if a server may have acted on it, and it may not be sent
// to another server then.
func (x *exchange) bindToPlace(v classify.Verdict) {
	if x.places != nil && v == classify.Ambiguous && !x.isIdempotentAnywhere() {
		x.places.bound = true
	}
}

// isNoAnswer reports whether the outcome at hand says nothing about the request: the attempt did
// not come to a server, or an alternate does not serve what its host serves.
func (x *exchange) isNoAnswer() bool {
	switch {
	case x.places.bound || x.timing.kind == KindNone:
		return false
	case x.resp != nil:
		return x.at > 0 && !x.segment && rules.IsForeign(x.resp.StatusCode)
	case x.Ctx.Err() != nil || retryable(x.verdict):
		return false // it goes on anyway
	}
	switch classify.KindOf(x.err) {
	case classify.DNS, classify.Dial:
		return true
	case classify.TLS: // an alert may come after the handshake
		return x.way.Link.Unsent() || x.isIdempotentAnywhere()
	}
	return false
}

// leaveOut leaves the present place out, and reports whether there is another.
func (x *exchange) leaveOut() bool {
	x.barred = true
	return slices.ContainsFunc(x.places.all, func(p *place) bool { return p != x.place && p.mayBeNext(false) })
}

// choosePlace returns the place of the next attempt, after an outcome about which d decided. If it is
// another place than that of the outcome, f and d are those of an attempt there.
func (x *exchange) choosePlace(f *facts, d *decision) (to *place) {
	x.bindToPlace(d.Verdict)
	if x.timing.kind == KindNone { // a body that was cut is first continued where it was
		return x.place
	}
	if d.Hint > 0 {
		x.wait = d.Time.Add(d.Hint)
	}
	switch d.reason {
	case ReasonRetry:
		if x.resp != nil && x.resp.StatusCode < http.StatusInternalServerError && !x.barred {
			return x.place // it is about the request, its connection or this client
		}
	case ReasonDeadline, ReasonMaxRetryAfter, ReasonMaxElapsed, ReasonCooldown:
	default:
		return x.place
	}
	if to = x.nextPlace(); to == nil {
		return x.place
	}
	g := *f
	g.hint, g.silence = max(to.wait.Sub(d.Time), 0), 0 // the silence was here
	if !to.tried {
		g.backoff = 0
	}
	g.turn, g.limit, g.refused = to.limits.NextTurn(d.Time)
	reason, wait := decide(g)
	if reason != ReasonRetry && !x.barred {
		return x.place
	}
	*f, d.reason, d.Wait = g, reason, wait
	if reason != ReasonRetry {
		return x.place
	}
	return to
}

// nextPlace returns the place that is best for the next attempt, apart from the present, or nil
// if there is none. If an alternate gave no answer, the last attempt is at the request's own
// host.
func (x *exchange) nextPlace() *place {
	own := &x.own
	last := x.sent+1 >= x.Rule.Policy.Attempts && slices.ContainsFunc(x.places.all[1:], func(p *place) bool { return p.barred })
	if last && !x.segment && x.place != own && own.mayBeNext(false) && !x.places.bound {
		return own
	}
	best, _ := x.bestOtherPlace(false)
	return best
}

// admitSomewhere admits an attempt at the place that is due. If that is down, or if its limits
// refuse the attempt, it admits the attempt at a place that the call has not been to.
func (x *exchange) admitSomewhere(first bool) *visit.Refusal {
	if m := x.State.MachinesMade(); x.sent == 0 && m != nil && x.AvoidIfOut(m, x.mayBeRepeatedAnywhere) {
		if to, down := x.bestOtherPlace(true); to != nil && !down {
			x.moveTo(to)
		}
	}
	for {
		x.limits.Leaves = x.hasUntriedPlace()
		no := x.admitHere(first || !x.tried)
		if no == nil {
			return nil
		}
		if no.Why != visit.WhyLate && no.Why != visit.WhyHeld && no.Why != visit.WhyFull {
			return no
		}
		to, _ := x.bestOtherPlace(true)
		if to == nil {
			return no
		}
		x.refused = true
		x.moveTo(to)
	}
}

// isIdempotentAnywhere reports whether a request on which a server may have acted may be sent
// to another server. A key for idempotency proves nothing there.
func (x *exchange) isIdempotentAnywhere() bool {
	return x.options != nil && x.options.sending == sendRepeatable || x.Rule.Policy.Idempotent(rules.Keyless(x.Req))
}

// staysWithKey reports whether a request stays at its host because its caller made its key. The
// caller may send it again with the same key, and only that host knows whether it has acted.
func (x *exchange) staysWithKey() bool {
	return !x.keyed && rules.Keyless(x.Req) != x.Req && !(x.isVouchedFor() && x.isIdempotentAnywhere())
}
