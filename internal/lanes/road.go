// Package lanes has the pools of connections of a Transport, and the road of a request: which
// lane its next attempt takes, and what an outcome says about the lane. It never changes the
// base transport of the user.
package lanes

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

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/internal/visit"
)

// A Way is the lane of an attempt, and what is known of its connection.
type Way struct {
	Lane  *lane.Lane      // nil: the base transport of a host that had no trouble so far
	heard instant.Instant // when something had come over the lane last before the attempt
	Link  *flight.Link    // nil: nobody needs to know

	instead bool // the attempt takes the lane instead of another, or beside it
}

// Number returns the number of the lane.
func (w *Way) Number() int {
	if w.Lane == nil {
		return 0
	}
	return w.Lane.Number
}

// WasOutrun notes that an attempt over another way had a response first.
func (w *Way) WasOutrun() {
	if w.Lane != nil && w.Lane.Heard() == w.heard {
		w.Lane.Doubt()
	}
}

// FirstWay returns the way of a first attempt. The lanes of the host note what comes from
// the beginning if attempts are timed, may be hedged, or if connections are counted.
func (p *Pools) FirstWay(r *visit.Request) (w Way) {
	if !r.Rule.Lanes {
		return w
	}
	lanes := r.State.LanesMade()
	if lanes == nil {
		if !r.Rule.Noted && p.Most() == 0 || !p.Can(r.Req) {
			return w
		}
		lanes = r.State.Machines().Lanes()
	}
	w.Lane = lanes.Current()
	w.heard = w.Lane.Heard()
	if since := w.Lane.Stale(); since != 0 {
		r.Sleeper.Sleep(r.Ctx, since.Add(staleWait).Sub(r.Ground.Now()), nil)
		if w.Lane.Refresh() {
			closeIdle(p.Of(w.Lane))
		}
	}
	return w
}

// staleWait is the time from the silence of an only lane to the closing of its idle
// connections, for which the attempts wait. Over HTTP/2 the stream of an attempt that was given up ends a moment later, and its
// connection is not idle until then.
const staleWait = time.Millisecond

// NoteResponse notes a response over a way. It is good if it calls for no retry. change is set
// if the host has moved to the lane.
func (p *Pools) NoteResponse(r *visit.Request, w Way, proto int, good bool) (change visit.Change, moved bool) {
	lanes := r.State.LanesMade()
	if lanes == nil {
		return change, false
	}
	lanes.Speak(proto)
	if !lanes.Answered(r.Ground.Now(), w.Lane, good, w.instead) {
		return change, false
	}
	return visit.Change{Condition: visit.ConditionLane, Lane: lanes.Current().Number, Over: true}, r.Ground.Watched
}

// A Road is how the attempts of one request go to one host. Begin must be called first. One
// goroutine uses it.
type Road struct {
	*visit.Request
	pools *Pools

	trouble trouble    // that the last attempt had with its lane
	via     *lane.Lane // for the next attempt; nil: the current lane
	opens   *lane.Lane // whose first connection the next attempt makes; nil: of none
	misled  bool       // an attempt got a 421
}

// An Outcome is what a Road hears of the end of an attempt.
type Outcome struct {
	Way  Way
	Resp *http.Response // nil: an error
	Err  error
	Bad  bool          // it calls for a retry
	Cut  bool          // it is the cut of a body
	Took time.Duration // 0: not known
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

// Begin makes the road that of a request.
func (r *Road) Begin(req *visit.Request, p *Pools) {
	r.Request, r.pools = req, p
}

// HasLanes reports whether the host may have further lanes.
func (r *Road) HasLanes() bool { return r.pools.Can(r.Req) }

// NextWay returns the way of the next attempt. A retry may have a detour to take. A hedge over
// HTTP/2 beside an attempt takes the spare lane, because the pool of HTTP/2 would send it over
// the connection on which that attempt waits.
func (r *Road) NextWay(hedge bool, beside Way) Way {
	w := r.pools.FirstWay(r.Request)
	if !r.Rule.Lanes {
		return w
	}
	to := r.via
	if hedge {
		to = r.spareBeside(beside)
	}
	if to != nil {
		w.Lane, w.instead = to, true
	}
	r.via, r.trouble = nil, noTrouble
	w.heard = w.Lane.Heard()
	return w
}

// spareBeside returns the lane for a hedge, or nil if it takes the current lane.
func (r *Road) spareBeside(first Way) *lane.Lane {
	lanes := r.State.LanesMade()
	if lanes == nil || !r.Rule.Lanes || !r.HasLanes() || lanes.Protocol() == 1 {
		return nil
	}
	return lanes.Beside(r.Ground.Now(), first.Lane, r.opener(first))
}

// Watch makes the base transport tell about the connection of an attempt, if somebody wants to
// know or others wait for it. It costs some allocations, so the first attempt of an idempotent
// request goes without.
func (r *Road) Watch(w *Way, wanted bool) {
	opens := r.opens
	if r.opens = nil; opens != w.Lane {
		opens.Connected() // the host has moved in this moment
		opens = nil
	}
	if opens != nil || wanted {
		w.Link = &flight.Link{Opens: opens}
	}
}

// Note tells the lanes of the host about an outcome. It is called once for each.
func (r *Road) Note(o *Outcome) {
	r.via, r.trouble = nil, noTrouble
	if !r.Rule.Lanes {
		return
	}
	if lanes := r.State.LanesMade(); lanes != nil && o.Way.Lane == nil {
		o.Way.Lane = lanes.First() // they were made while the attempt was under way
	}
	o.Took = cmp.Or(o.Took, max(r.Rule.Timeouts.After, 0))
	r.trouble = r.troubleOf(o)
	if o.Resp != nil {
		if c, moved := r.pools.NoteResponse(r.Request, o.Way, o.Resp.ProtoMajor, r.trouble == noTrouble); moved {
			r.Teller.Tells(c)()
		}
	}
	if r.trouble != noTrouble && r.trouble != isLate && r.HasLanes() {
		r.avoidAddress(o)
	}
	switch {
	case r.trouble == isLate && r.Ctx.Err() != nil && r.HasLanes():
		r.leaveLane(o) // no retry will find out whether another lane is better
		return
	case r.trouble != isSilent:
		return
	case r.HasLanes() || r.pools.isCopied(r.Req):
		r.leaveLane(o)
	}
	if !r.HasLanes() { // leaveLane may have found out
		r.pools.tellSingle(r.Ctx, visit.SafeName(r.State))
	}
}

// troubleOf returns what an outcome says about the way of its attempt.
func (r *Road) troubleOf(o *Outcome) trouble {
	switch {
	case o.Err != nil && errors.Is(r.Ctx.Err(), context.Canceled):
		return noTrouble // the caller left
	case o.Err != nil && flight.IsLate(r.Ctx, o.Err):
		switch {
		case o.Cut:
			return isStalled
		case r.isSilent(o):
			return isSilent
		}
		return isLate
	case !o.Bad:
		return noTrouble
	case o.Err != nil:
		return isBroken
	}
	switch o.Resp.StatusCode {
	case http.StatusMisdirectedRequest:
		return isElsewhere
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return isSick
	}
	if o.Resp.StatusCode >= http.StatusInternalServerError {
		return isBroken
	}
	return noTrouble
}

// isSilent reports whether nothing came over the lane while the attempt timed out. If the
// connection died during the attempt, something may have come before that. So only the
// second half of the time counts, if it is known how long the attempt took.
func (r *Road) isSilent(o *Outcome) bool {
	heard := o.Way.Lane.Heard()
	return heard == o.Way.heard || o.Took > 0 && r.Ground.Now().Sub(heard) > o.Took/2
}

// leaveLane moves the host from the lane of the attempt to another.
func (r *Road) leaveLane(o *Outcome) {
	lanes, now := r.State.Machines().Lanes(), r.Ground.Now()
	left := lanes.Leave(now, o.Way.Lane, r.trouble == isSilent, now.Add(-o.Took), r.opener(o.Way))
	r.pools.Leave(left)
	if to := lanes.Current(); left != nil && left != to {
		r.tellMoved(to, o)
	}
}

// tellMoved tells that the host moved to a lane because of an outcome.
func (r *Road) tellMoved(to *lane.Lane, o *Outcome) {
	if !r.Ground.Watched {
		return
	}
	c := visit.Change{Condition: visit.ConditionLane, Lane: to.Number}
	if c.Err, c.Addr = o.Err, o.Way.Link.Addr(); o.Resp != nil {
		c.Status = o.Resp.StatusCode
	}
	r.Teller.Tells(c)()
}

// LeaveConnection makes the next attempt go over another connection if the server wants that by
// a 421. It reports whether there is none.
func (r *Road) LeaveConnection(o *Outcome) (stuck bool) {
	if o.Resp == nil || o.Resp.StatusCode != http.StatusMisdirectedRequest {
		return false
	}
	if r.trouble != isElsewhere || !r.HasLanes() {
		// HTTP/1 may use another connection anyway. HTTP/2 would use the same.
		return o.Resp.ProtoMajor > 1
	}
	r.detour(o.Way, lane.Detour{New: true, Doubted: !r.misled}) // later the other lane may have said so, too
	r.misled = true
	return r.via == nil
}

// SetOut prepares the way of the next attempt after an outcome. again says that it is a retry
// here. If there is none, the host may try another lane, so that the next request need not
// fail. A 500 says more about its own request. hinted says that the server asked to wait.
// LookAround prepares a detour because of an address.
func (r *Road) SetOut(o *Outcome, again, hinted bool) {
	d := lane.Detour{New: true}
	switch {
	case again && r.trouble == isLate:
		d.Since = r.Ground.Now().Add(-o.Took) // its connection may be dead beside others that are well
	case again && r.trouble == isStalled:
		d.Doubted = true
	case again && r.trouble == isSick:
		d.Doubted, d.New, d.Urgent = true, !hinted, o.Way.Lane.Many()
	case !again && (r.trouble == isSick && !hinted || r.trouble == isBroken && o.Resp == nil && r.mayHaveOthers()):
		d.Moves, d.Urgent = true, o.Way.Lane.Many()
	default:
		return
	}
	moved := r.detour(o.Way, d)
	if again {
		return
	}
	if moved {
		r.tellMoved(r.via, o)
	}
	r.via = nil
}

// mayHaveOthers reports whether the name may have another address. Nothing is looked up.
func (r *Road) mayHaveOthers() bool {
	d := r.pools.DialerFor(r.Req)
	return d != nil && !d.Single(hostPort(r.Req))
}

// LookAround prepares the way of a retry that another address may help. It is called just
// before the retry, because it needs the name's addresses of then. w is the way of the attempt
// that failed.
func (r *Road) LookAround(w Way) {
	if r.trouble == isBroken && r.hasOtherAddress(w) {
		r.detour(w, lane.Detour{Doubted: true, New: true, Urgent: true})
	}
}

// detour makes the next attempt take another lane than that of a way, if there is one. It
// reports whether the host has moved to that lane.
func (r *Road) detour(from Way, d lane.Detour) (moved bool) {
	if !r.HasLanes() {
		return false
	}
	to, left, moved := r.State.Machines().Lanes().Detour(r.Ground.Now(), from.Lane, d, r.opener(from))
	r.pools.Leave(left)
	r.via = to
	return moved
}

// opener returns a function that makes a lane for the host, instead of that of a way.
func (r *Road) opener(from Way) lane.Opener {
	return func(held int, moves bool) *lane.Lane {
		room, ok := r.roomForLane(held, moves)
		if !ok {
			return nil
		}
		return r.pools.Open(r.Req, from.Link.Addr() == "" && r.trouble != isElsewhere, room)
	}
}

// roomForLane returns how many connections a new lane may have, so that all lanes of the host
// keep to the MaxConnsPerHost of the base. It is 0 if that is not bounded. held are the
// connections of the lanes besides the base.
//
// Nobody knows how many the base has. Over HTTP/2 it has one, unless that is full. Over
// HTTP/1 it has at most as many as there are requests, but their number may grow, so
// there is a new lane only if requests no longer take the base.
func (r *Road) roomForLane(held int, moves bool) (room int, ok bool) {
	most := r.pools.Most()
	switch {
	case most <= 0:
		return 0, true
	case r.State.Machines().Lanes().Protocol() > 1:
		return 1, held+1 < most
	}
	room = most - held - r.State.InFlight()
	return room, moves && room > 0
}

// avoidAddress makes later dials try the address of the attempt last.
func (r *Road) avoidAddress(o *Outcome) {
	d := r.pools.DialerFor(r.Req)
	if addr := o.Way.Link.Ip(); d != nil && addr.IsValid() {
		d.Failed(hostPort(r.Req), addr)
	}
}

// hasOtherAddress reports whether the name of the host has another address than that of a way.
func (r *Road) hasOtherAddress(than Way) bool {
	d := r.pools.DialerFor(r.Req)
	if d == nil {
		return false
	}
	used := than.Link.Ip()
	ctx, cancel := context.WithTimeout(r.Ctx, LookupTime)
	defer cancel()
	addrs := d.Addrs(ctx, hostPort(r.Req), LookupAge)
	if !used.IsValid() {
		return len(addrs) > 1
	}
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a != used })
}

// hostPort returns the address that net/http dials for a request without a proxy.
func hostPort(req *http.Request) string {
	return net.JoinHostPort(req.URL.Hostname(), cmp.Or(req.URL.Port(), host.DefaultPort(req.URL.Scheme)))
}

// connectWait bounds how long an attempt waits for the connection that another attempt makes
// for both. After that it makes one of its own.
const connectWait = time.Second

// Await waits until the lane of the next attempt is connected, unless this attempt is
// to make the connection. If the host moves to another lane meanwhile, it waits for that
// one, within the same connectWait, and until latest at most, if that is not zero. It reports
// whether it waited. Nothing is sent meanwhile, and no timeout of an attempt runs.
func (r *Road) Await(latest time.Time) (waited bool) {
	var until time.Time
	for r.Ctx.Err() == nil {
		to := r.via
		if lanes := r.State.LanesMade(); to == nil && lanes != nil && r.Rule.Lanes {
			to = lanes.Current()
		}
		if r.claim(to) {
			break
		}
		if !waited {
			until = time.Now().Add(connectWait)
			if !latest.IsZero() && latest.Before(until) {
				until = latest
			}
		}
		waited = true
		wait := time.Until(until)
		if wait <= 0 {
			break
		}
		r.Sleeper.Sleep(r.Ctx, wait, to.Ready())
	}
	return waited
}

// AwaitBeside waits by a function until the lane of a hedge is connected, if another attempt
// makes the connection. It reports whether the function did.
func (r *Road) AwaitBeside(first Way, wait func(d time.Duration, ready <-chan struct{}) bool) bool {
	to := r.spareBeside(first)
	return r.claim(to) || wait(connectWait, to.Ready())
}

// claim reports whether the next attempt need not wait for a lane. If nobody makes the first
// connection of the lane, the next attempt does, and the lane is noted for it.
func (r *Road) claim(to *lane.Lane) bool {
	if to.IsConnected() || to == r.opens {
		return true
	}
	r.opens.Connected() // it takes another lane now
	if r.opens = nil; to.Ahead() {
		r.opens = to
		return true
	}
	return false
}

// Leave gives up what the next attempt would have taken. Another attempt makes the connection.
func (r *Road) Leave() {
	r.opens.Connected()
	r.via, r.opens, r.trouble = nil, nil, noTrouble
}

// tellSingle logs once that the base has one lane only, when a host would need another.
func (p *Pools) tellSingle(ctx context.Context, name string) {
	if p.Log == nil {
		return
	}
	p.told.Do(func() {
		p.Log.LogAttrs(ctx, slog.LevelInfo, redact.Fit(name, "", func(name, _ string) string {
			return name + " is silent, and the base has one lane only: set Config.Lane"
		}), slog.String("host", name))
	})
}

// LeaveAll leaves the lanes of a host that was evicted.
func (p *Pools) LeaveAll(lanes *lane.Lanes) {
	if lanes != nil {
		for _, l := range lanes.All() {
			p.Leave(l)
		}
	}
}
