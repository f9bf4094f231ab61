// Which lane an attempt takes, and what its outcome says about the lane.

package transport

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/internal/rules"
)

// A way is the lane of an attempt, and what is known of its connection.
type way struct {
	lane  *lane.Lane      // nil: the base transport of a host that had no trouble so far
	heard instant.Instant // when something had come over the lane last before the attempt
	t     *Transport      // whose clock that is
	link  *flight.Link    // nil: nobody needs to know

	instead bool // the attempt takes the lane instead of another, or beside it
}

func (w *way) number() int {
	if w.lane == nil {
		return 0
	}
	return w.lane.Number
}

// firstWay returns the way of a first attempt. The lanes of the host note what comes from
// the beginning if attempts are timed, may be hedged, or if connections are counted.
func (c *call) firstWay() (w way) {
	if !c.rule.Lanes {
		return w
	}
	w.t = c.t
	lanes := c.state.LanesMade()
	if lanes == nil {
		if !c.rule.Noted && !c.t.counted || !c.laned() {
			return w
		}
		lanes = c.state.Machines().Lanes()
	}
	w.lane = lanes.Current()
	w.heard = w.lane.Heard()
	if since := w.lane.Stale(); since != 0 {
		c.sleeper.Sleep(c.ctx, since.Add(staleWait).Sub(c.t.now()), nil)
		if w.lane.Refresh() {
			c.t.pools.Refresh(w.lane)
		}
	}
	return w
}

// staleWait is the time from the silence of an only lane to the closing of its idle
// connections, for which the attempts wait. Over HTTP/2 the stream of an attempt that was given up ends a moment later, and its
// connection is not idle until then.
const staleWait = time.Millisecond

// nextWay returns the way of the next attempt. A retry may have a detour to take. A hedge
// over HTTP/2 takes the spare lane, because the pool of HTTP/2 would send it over the
// connection on which the first attempt waits.
func (x *exchange) nextWay(kind Kind) way {
	w := x.firstWay()
	switch {
	case !x.rule.Lanes:
		return w
	case kind == KindHedge:
		if beside := x.beside(); beside != nil {
			w.lane, w.instead = beside, true
		}
	case x.via != nil:
		w.lane, w.instead = x.via, true
	}
	x.via, x.trouble = nil, noTrouble
	w.heard = w.lane.Heard()
	return w
}

// beside returns the lane for a hedge, or nil if it takes the current lane.
func (x *exchange) beside() *lane.Lane {
	lanes := x.state.LanesMade()
	if lanes == nil || !x.rule.Lanes || !x.laned() || lanes.Protocol() == 1 {
		return nil
	}
	return lanes.Beside(x.t.now(), x.way.lane, x.opener())
}

// linked makes the base transport tell about the connection of an attempt, if somebody
// needs to know. It costs some allocations, so the first attempt of an idempotent request
// goes without. proves is the result of the method proves.
func (x *exchange) linked(a *attempt, proves bool) {
	opens := x.opens
	if opens != nil && opens != a.way.lane {
		opens.Connected() // the host has moved in this moment
		opens = nil
	}
	x.opens = nil
	if opens != nil || a.Number > 1 && (x.laned() || x.told()) || x.asksAddress() || proves {
		a.way.link = &flight.Link{Opens: opens}
	}
}

// asksAddress reports whether a Trace wants to know the address of each attempt.
func (c *call) asksAddress() bool {
	return c.t.trace != nil && c.t.trace.Addresses || c.options != nil && c.options.trace != nil && c.options.trace.Addresses
}

// told reports whether somebody hears of each attempt.
func (c *call) told() bool {
	return c.t.trace != nil || c.t.logger != nil || c.options != nil && c.options.trace != nil
}

// proves reports whether it may matter that an attempt had no connection. A request that
// is idempotent is sent again in any case.
func (c *call) proves() bool {
	return c.rule.Timeouts.Connect > 0 || c.rule.Timed && !c.idempotent()
}

// A trouble is what an outcome says about the way of its attempt.
type trouble uint8

const (
	noTrouble   trouble = iota
	isSilent            // nothing came over the lane while the attempt timed out
	isLate              // the attempt timed out, but something else came
	isStalled           // a body stood still, which says little about other streams
	isSick              // a server answered that it cannot
	isBroken            // the attempt failed in another way, so only another address may help
	isElsewhere         // the server wants the request over another connection
)

// troubleOf returns what an outcome says about the way of its attempt.
func (x *exchange) troubleOf(resp *http.Response, err error, v classify.Verdict) trouble {
	switch {
	case err != nil && errors.Is(x.ctx.Err(), context.Canceled):
		return noTrouble // the caller left
	case err != nil && x.late(err):
		switch {
		case x.timing.kind == KindNone:
			return isStalled
		case x.silent():
			return isSilent
		}
		return isLate
	case !retryable(v):
		return noTrouble
	case err != nil:
		return isBroken
	}
	switch resp.StatusCode {
	case http.StatusMisdirectedRequest:
		return isElsewhere
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return isSick
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		return isBroken
	}
	return noTrouble
}

// late reports whether an attempt ended because it took too long. A base transport may
// return the cause of the caller's deadline, which can be any error.
func (x *exchange) late(err error) bool {
	return classify.KindOf(err) == classify.Timeout || x.ctx.Err() != nil && errors.Is(err, context.Cause(x.ctx))
}

// silent reports whether nothing came over the lane while the attempt timed out. If the
// connection died during the attempt, something may have come before that. So only the
// second half of the time counts, if it is known how long the attempt took.
func (x *exchange) silent() bool {
	heard, took := x.way.lane.Heard(), x.took()
	return heard == x.way.heard || took > 0 && x.t.now().Sub(heard) > took/2
}

// took returns how long the attempt at hand took, or 0 if that is not known.
func (x *exchange) took() time.Duration {
	return cmp.Or(x.timing.took, max(x.rule.Timeouts.After, 0))
}

// noteWay tells the lanes of the host about an outcome. It is called once for each.
func (x *exchange) noteWay(resp *http.Response, err error, v classify.Verdict) {
	x.via, x.trouble = nil, noTrouble
	if !x.rule.Lanes {
		return
	}
	if lanes := x.state.LanesMade(); lanes != nil && x.way.lane == nil {
		x.way.lane = lanes.First() // they were made while the attempt was under way
	}
	x.trouble = x.troubleOf(resp, err, v)
	if resp != nil {
		x.answered(x.way, resp, x.trouble == noTrouble)
	}
	if x.trouble != noTrouble && x.trouble != isLate && x.laned() {
		x.avoid()
	}
	switch {
	case x.trouble == isLate && x.ctx.Err() != nil && x.laned():
		x.leave(err) // no retry will find out whether another lane is better
		return
	case x.trouble != isSilent:
		return
	case x.laned() || x.t.pools.IsCopied():
		x.leave(err)
	}
	if !x.laned() { // leave may have found out
		x.t.oneLane(x.ctx, safeName(x.state))
	}
}

// leave moves the host from the lane of the attempt to another.
func (x *exchange) leave(err error) {
	lanes, now := x.state.Machines().Lanes(), x.t.now()
	left := lanes.Leave(now, x.way.lane, x.trouble == isSilent, now.Add(-x.took()), x.opener())
	x.t.pools.Leave(left)
	if to := lanes.Current(); left != nil && left != to {
		x.moved(HostChange{Lane: to.Number, Err: err, Addr: x.way.link.Addr()})
	}
}

// answered notes a response.
func (c *call) answered(w way, resp *http.Response, good bool) {
	lanes := c.state.LanesMade()
	if lanes == nil {
		return
	}
	lanes.Speak(resp.ProtoMajor)
	if lanes.Answered(c.t.now(), w.lane, good, w.instead) {
		c.moved(HostChange{Lane: lanes.Current().Number, Over: true})
	}
}

// misdirected reports whether a 421 cannot be sent over another connection. If it can, it
// prepares that.
func (x *exchange) misdirected(resp *http.Response) bool {
	if resp == nil || resp.StatusCode != http.StatusMisdirectedRequest {
		return false
	}
	if x.trouble != isElsewhere || !x.laned() {
		// HTTP/1 may use another connection anyway. HTTP/2 would use the same.
		return resp.ProtoMajor > 1
	}
	x.detour(lane.Detour{New: true, Doubted: !x.misled}) // later the other lane may have said so, too
	x.misled = true
	return x.via == nil
}

// setOut prepares the way of a retry that was decided. lookAround prepares a detour because
// of an address.
func (x *exchange) setOut(hinted bool) {
	switch x.trouble {
	case isLate:
		x.detour(lane.Detour{New: true, Since: x.t.now().Add(-x.took())}) // its connection may be dead beside others that are well
	case isStalled:
		x.detour(lane.Detour{Doubted: true, New: true})
	case isSick:
		x.detour(lane.Detour{Doubted: true, New: !hinted, Urgent: x.way.lane.Many()})
	}
}

// moveOn makes the host try another lane after a failure that is not retried, so that the
// next request need not fail. A 500 says more about its own request.
func (x *exchange) moveOn(resp *http.Response, err error, hinted bool) {
	h := HostChange{Err: err, Addr: x.way.link.Addr()}
	if resp != nil {
		h.Status = resp.StatusCode
	}
	switch {
	case x.trouble == isSick && !hinted:
	case x.trouble == isBroken && resp == nil && x.mayHaveOthers():
	default:
		return
	}
	if x.detour(lane.Detour{New: true, Moves: true, Urgent: x.way.lane.Many()}) {
		h.Lane = x.via.Number
		x.moved(h)
	}
	x.via = nil
}

// mayHaveOthers reports whether the name may have another address. Nothing is looked up.
func (x *exchange) mayHaveOthers() bool {
	d := x.t.pools.DialerFor(x.req)
	return d != nil && !d.Single(hostPort(x.req))
}

// lookAround prepares the way of a retry that another address may help. It is called just
// before the retry, because it needs the name's addresses of then.
func (x *exchange) lookAround() {
	if x.trouble == isBroken && x.otherAddress() {
		x.detour(lane.Detour{Doubted: true, New: true, Urgent: true})
	}
}

// detour makes the next attempt take another lane than the attempt at hand, if there is
// one. It reports whether the host has moved to that lane.
func (x *exchange) detour(d lane.Detour) (moved bool) {
	if !x.laned() {
		return false
	}
	to, left, moved := x.state.Machines().Lanes().Detour(x.t.now(), x.way.lane, d, x.opener())
	x.t.pools.Leave(left)
	x.via = to
	return moved
}

// opener returns a function that makes a lane for the host.
func (x *exchange) opener() lane.Opener {
	return func(held int, moves bool) *lane.Lane {
		room, ok := x.room(held, moves)
		if !ok {
			return nil
		}
		return x.t.pools.Open(x.req, x.way.link.Addr() == "" && x.trouble != isElsewhere, room)
	}
}

// room returns how many connections a new lane may have, so that all lanes of the host
// keep to the MaxConnsPerHost of the base. It is 0 if that is not bounded. held are the
// connections of the lanes besides the base.
//
// Nobody knows how many the base has. Over HTTP/2 it has one, unless that is full. Over
// HTTP/1 it has at most as many as there are requests, but their number may grow, so
// there is a new lane only if requests no longer take the base.
func (x *exchange) room(held int, moves bool) (room int, ok bool) {
	most := x.t.pools.Most()
	switch {
	case most <= 0:
		return 0, true
	case x.state.Machines().Lanes().Protocol() > 1:
		return 1, held+1 < most
	}
	room = most - held - x.state.InFlight()
	return room, moves && room > 0
}

// avoid makes later dials try the address of the attempt last.
func (x *exchange) avoid() {
	d := x.t.pools.DialerFor(x.req)
	if addr := x.way.link.Ip(); d != nil && addr.IsValid() {
		d.Failed(hostPort(x.req), addr)
	}
}

// otherAddress reports whether the name of the host has another address than that of the
// attempt at hand.
func (x *exchange) otherAddress() bool {
	d := x.t.pools.DialerFor(x.req)
	if d == nil {
		return false
	}
	used := x.way.link.Ip()
	ctx, cancel := context.WithTimeout(x.ctx, lookupTime)
	defer cancel()
	addrs := d.Addrs(ctx, hostPort(x.req), lookupAge)
	if !used.IsValid() {
		return len(addrs) > 1
	}
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a != used })
}

// hostPort returns the address that net/http dials for a request without a proxy.
func hostPort(req *http.Request) string {
	return net.JoinHostPort(req.URL.Hostname(), cmp.Or(req.URL.Port(), host.DefaultPort(req.URL.Scheme)))
}

// moved tells that a host moved to another lane.
func (c *call) moved(h HostChange) {
	if c.t.watched {
		h.Condition = ConditionLane
		c.tells(h)()
	}
}

// laneWait bounds how long an attempt waits for the connection that another attempt makes
// for both. After that it makes one of its own.
const laneWait = time.Second

// awaitLane waits until the lane of the next attempt is connected, unless this attempt is
// to make the connection. If the host moves to another lane meanwhile, it waits for that
// one, within the same laneWait. It reports whether it waited. Nothing is sent meanwhile,
// and no timeout of an attempt runs.
func (x *exchange) awaitLane() (waited bool) {
	var until time.Time
	for x.ctx.Err() == nil {
		to := x.via
		if lanes := x.state.LanesMade(); to == nil && lanes != nil && x.rule.Lanes {
			to = lanes.Current()
		}
		if to.IsConnected() || !x.comes(to) {
			break
		}
		if !waited {
			until = time.Now().Add(laneWait)
			if latest := x.latest(); !latest.IsZero() && latest.Before(until) {
				until = latest
			}
		}
		waited = true
		wait := time.Until(until)
		if wait <= 0 {
			break
		}
		x.sleeper.Sleep(x.ctx, wait, to.Ready())
	}
	return waited
}

// comes reports whether another attempt makes the first connection of a lane. If nobody
// does, the next attempt of this exchange does, and the lane is noted for it.
func (x *exchange) comes(to *lane.Lane) bool {
	if to.IsConnected() || to == x.opens {
		return false
	}
	x.opens.Connected() // it takes another lane now
	if x.opens = nil; to.Ahead() {
		x.opens = to
		return false
	}
	return true
}

// laned reports whether the host may have further lanes.
func (c *call) laned() bool { return c.t.pools.Can(c.req) }

// oneLane logs once that the base has one lane only, when a host would need another.
func (t *Transport) oneLane(ctx context.Context, name string) {
	if t.logger == nil {
		return
	}
	t.pools.Once(func() {
		t.logger.LogAttrs(ctx, slog.LevelInfo, redact.Fit(name, "", func(name, _ string) string {
			return name + " is silent, and the base has one lane only: set Config.Lane"
		}), slog.String("host", name))
	})
}

// leaveAll leaves the lanes of a host that was evicted.
func (t *Transport) leaveAll(s *host.State[rules.Resolved]) {
	if lanes := s.LanesMade(); lanes != nil {
		for _, l := range lanes.All() {
			t.pools.Leave(l)
		}
	}
}
