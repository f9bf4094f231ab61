// Package lanes has the pools of connections of a Transport, and the road of a request: which
// lane its next attempt takes, and what an outcome says about the lane. It never changes the
// base transport of the user.
//
// A new lane has no connection yet. One attempt seeks it, and the others wait. All of them wait
// for a quarter of the time to their deadline, and for 1 s at most. If there is no connection by
// then, or if the dial fails, nothing was sent. The same attempt then goes over the lane that the
// host has, even if it is a POST. The dial goes on, and further attempts try the new lane after
// 1 s, 2 s, 4 s and so on up to 1 min, or when the dial has ended. A response over the old lane
// ends that.
//
// A server of HTTP/1 may serve few connections at a time, and look at a new one only when an old
// one ends. So if nothing comes over another lane than the current one for a while, both close their
// idle connections. This moves no host, and nothing more is sent.
//
// A lane that is left is not closed. Its idle connections are closed a moment later. If the lane is
// the base, these are the idle connections of other hosts, too, because net/http cannot close those
// of one host alone. If more hosts have lanes than the base's MaxIdleConns, the lanes that were used
// longest ago close their idle connections.
//
// All lanes of a host keep to the base's MaxConnsPerHost. Nobody can count the connections of
// the base. So with a MaxConnsPerHost a host gets a new lane only if it leaves the old one.
// Over HTTP/2 the old lane counts as one connection, and over HTTP/1.1 as one for each request
// in flight. Bodies that are still being read are not counted. If a base has one lane and a
// host would need another, the idle connections of a base that has CloseIdleConnections are
// closed before the next attempt. That heals a dead connection as soon as no other stream is
// under way on it.
package lanes

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/internal/visit"
)

// A Way is the lane of an attempt, and what is known of its connection.
type Way struct {
	Lane *lane.Lane      // nil: the base transport of a host that had no trouble so far
	Link *flight.Link    // nil: nobody needs to know
	Came instant.Instant // when a light first attempt had its response; 0: not known

	heard   instant.Instant // when something had come over the lane last before the attempt
	instead lane.Instead
	other   instant.Instant // when something had come over the lane that the attempt takes if this one gets no connection
}

// Went notes over which other lane and connection the attempt went in the end.
func (w *Way) Went(over *lane.Lane, link *flight.Link) {
	*w = Way{Lane: over, heard: w.other, Link: link}
}

// Number returns the number of the lane.
func (w *Way) Number() int {
	if w.Lane == nil {
		return 0
	}
	return w.Lane.Number
}

// Outran notes that the attempt had a response before that of another way. If something came over
// that way meanwhile, its request alone was slow, and the host stays.
func (w *Way) Outran(other *Way) {
	switch {
	case other.Lane == nil:
	case other.Lane.Heard() == other.heard:
		other.Lane.Doubt()
	default:
		w.instead = lane.Not
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
		if !r.Rule.Noted && p.Most() == 0 || !p.closes && !p.Can(r.Req) {
			return w
		}
		lanes = r.State.Machines().Lanes()
	}
	w.Lane = lanes.Current()
	w.heard = w.Lane.Heard()
	p.refresh(r, w.Lane)
	return w
}

// refresh closes the idle connections of a stale lane, and reports whether it waited for that. All
// who wait close them, because none may go on before that.
func (p *Pools) refresh(r *visit.Request, l *lane.Lane) (waited bool) {
	since := l.Stale()
	if since == 0 {
		return false
	}
	//lint:ignore SA1019 old callers still set Request.Cancel, which a light attempt has nobody to watch
	r.Sleeper.Sleep(r.Ctx, since.Add(staleWait).Sub(r.Ground.Now()), r.Req.Cancel)
	if l.Stale() == since {
		closeIdle(p.Of(l))
		l.Refreshed(since)
	}
	return true
}

// staleWait is the time from the silence of an only lane to the closing of its idle
// connections, for which the attempts wait. Over HTTP/2 the stream of an attempt
// that was given up ends a moment later, and its connection is not idle until then.
const staleWait = time.Millisecond

// NoteGood notes a good first response over a way. change is set if the host has moved to the lane.
func NoteGood(r *visit.Request, w Way, proto int) (change news.Change, moved bool) {
	lanes := r.State.LanesMade()
	if lanes == nil {
		return change, false
	}
	if w.Came == 0 {
		w.Came = r.Ground.Now()
	}
	change, moved = noteResponse(lanes, w.Came, &w, proto, lane.Good)
	return change, moved && r.Ground.Watched
}

func noteResponse(lanes *lane.Lanes, now instant.Instant, w *Way, proto int, v lane.Verdict) (change news.Change, moved bool) {
	resp := lane.Response{From: w.Lane, Major: proto, Verdict: v, Instead: w.instead}
	if v == lane.Sick || w.instead == lane.OfSick {
		resp.Addr = w.Link.Ip()
	}
	if !lanes.Answered(now, resp) {
		return change, false
	}
	return news.Change{Key: news.Key{Condition: news.Lane}, Lane: lanes.Current().Number, Over: true}, true
}

// A Road is how the attempts of one request go to one host. Its Request and its Pools must be
// set. One goroutine uses it.
type Road struct {
	*visit.Request
	Pools *Pools
	lanes *lane.Lanes // of the host, as Note and Await found them; nil: it had none

	more    bool         // the host may have further lanes, as Note found out after a trouble
	trouble trouble      // that the last attempt had with its lane
	via     *lane.Lane   // for the next attempt; nil: the current lane
	instead lane.Instead // why
	seeks   *lane.Lane   // whose first connection the next attempt seeks; nil: of none
	latest  time.Time    // after which it may not start; zero: it may always
	misled  bool         // an attempt got a 421
}

// An Outcome is what a Road hears of the end of an attempt.
type Outcome struct {
	Way   Way
	Resp  *http.Response // nil: an error
	Err   error
	Other bool            // it says nothing of the lane: it is of a Transport below, or of the request's own body
	Bad   bool            // it calls for a retry
	Cut   bool            // it is the cut of a body
	Took  time.Duration   // 0: not known
	At    instant.Instant // when it was known
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

// made returns the lanes of the host, which the first call makes.
func (r *Road) made() *lane.Lanes {
	if r.lanes == nil {
		r.lanes = r.State.Machines().Lanes()
	}
	return r.lanes
}

// HasLanes reports whether the host may have further lanes.
func (r *Road) HasLanes() bool { return r.more || r.Pools.Can(r.Req) }

// NextWay returns the way of the next attempt, for which Await has chosen the lane. wanted says
// that somebody wants to know its connection. The base transport then tells it. That costs some
// allocations, so the first attempt of an idempotent request goes without.
func (r *Road) NextWay(wanted bool) (w Way) {
	switch {
	case r.lanes == nil:
		w = r.Pools.FirstWay(r.Request)
	case r.Rule.Lanes:
		w.Lane = r.lanes.Current()
		w.heard = w.Lane.Heard()
		w.other = w.heard
		if r.via != nil {
			w.Lane, w.heard, w.instead = r.via, r.via.Heard(), r.instead
		}
		wanted = wanted || r.lanes.Suspected()
	}
	if r.seeks != nil || wanted {
		w.Link = new(flight.Link)
	}
	if r.seeks != nil {
		seek := &flight.Seek{Lane: r.seeks, Patience: r.patience(time.Now())}
		if w.Link.Seeks = seek; r.trouble != isElsewhere { // what it does if it finds no connection
			seek.Else = r.made().Current()
			seek.Base = r.Pools.Of(seek.Else)
		}
	}
	if r.via != nil && r.via != r.lanes.Current() && r.lanes.Protocol() == 1 {
		r.makeRoom(w)
	}
	r.via, r.seeks, r.trouble = nil, nil, noTrouble
	return w
}

// roomAfter is how long nothing comes over another lane until the current lane makes room for it.
const roomAfter = 5 * time.Second

// makeRoom closes the idle connections of the current lane if nothing comes over the other lane that
// an attempt takes. A server that serves few connections at a time may not look at a new one before
// an old one ends.
func (r *Road) makeRoom(w Way) {
	d, ctx, p, current := roomAfter, r.Ctx, r.Pools, r.lanes.Current()
	if until, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(until)/2)
	}
	if after := r.Rule.Timeouts.After; after > 0 {
		d = min(d, after/2)
	}
	time.AfterFunc(d, func() {
		if ctx.Err() == nil && !w.Link.Unsent() && w.Lane.Silent(w.heard) {
			closeIdle(p.Of(w.Lane)) // first, so that its connection is not kept after the response, and the next request has room
			closeIdle(p.Of(current))
		}
	})
}

// spareBeside returns the lane for a hedge, or nil if it takes the current lane. The pool of HTTP/2
// would send the hedge over the connection on which the other attempt waits.
func (r *Road) spareBeside(first Way) *lane.Lane {
	if r.lanes = r.State.LanesMade(); r.lanes == nil || !r.Rule.Lanes || !r.Pools.Can(r.Req) || r.lanes.Protocol() == 1 {
		return nil
	}
	d := lane.Detour{Beside: true, Doubted: true, New: true, Urgent: true}
	to, left := r.lanes.Detour(r.Ground.Now(), first.Lane, d, r.opener(first.Link.Addr() == ""))
	r.Pools.Leave(left)
	return to
}

// Note tells the lanes of the host about an outcome. It is called once for each.
func (r *Road) Note(o *Outcome) {
	r.via, r.trouble = nil, noTrouble
	if !r.Rule.Lanes {
		return
	}
	o.Took = cmp.Or(o.Took, max(r.Rule.Timeouts.After, 0))
	r.lanes = r.State.LanesMade()
	r.move()
	r.trouble, r.instead = r.troubleOf(o), lane.OfBad
	if r.more = r.trouble != noTrouble && r.Pools.Can(r.Req); r.more && o.Resp != nil {
		r.made() // counts such responses
	}
	if o.Resp != nil && r.lanes != nil {
		v := lane.Good
		switch {
		case r.trouble == noTrouble:
		case o.Resp.StatusCode >= http.StatusInternalServerError:
			v, r.instead = lane.Sick, lane.OfSick
		default:
			v = lane.Bad
		}
		if c, moved := noteResponse(r.lanes, o.At, &o.Way, o.Resp.ProtoMajor, v); moved && r.Ground.Watched {
			r.Teller.Tells(c)()
		}
	}
	if r.more && r.trouble != isLate {
		r.avoidAddress(o)
	}
	switch {
	case r.trouble == isLate && r.Ctx.Err() != nil && r.more:
		r.leaveLane(o) // no retry will find out whether another lane is better
		return
	case r.trouble != isSilent:
		return
	case r.more || r.Pools.closes:
		r.leaveLane(o)
	}
	if r.more = r.Pools.Can(r.Req); !r.more { // leaveLane may have found out
		r.Pools.tellSingle(r.Ctx, visit.SafeName(r.State))
	}
}

// troubleOf returns what an outcome says about the way of its attempt.
func (r *Road) troubleOf(o *Outcome) trouble {
	switch {
	case o.Other, o.Err != nil && errors.Is(r.Ctx.Err(), context.Canceled):
		return noTrouble // of this road, or the caller left
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
	return heard == o.Way.heard || o.Took > 0 && o.At.Sub(heard) > o.Took/2
}

// leaveLane makes the host leave the lane of the attempt.
func (r *Road) leaveLane(o *Outcome) {
	why := news.Change{Key: news.Key{Condition: news.Lane}, Cause: news.Cause{Err: r.Teller.Safe(o.Err), Addr: o.Way.Link.Addr()}}
	s := lane.Suspicion{Used: o.Way.Lane, Silent: r.trouble == isSilent || o.Way.Lane.Many(), Since: o.At.Add(-o.Took), Cause: why}
	r.Pools.Leave(r.made().Suspect(o.At, s, r.opener(o.Way.Link.Addr() == "")))
	r.move()
}

// move moves the host to its other lane if it wants to leave this one and the other has a
// connection by now, and tells that.
func (r *Road) move() {
	if r.lanes == nil {
		return
	}
	left, why := r.lanes.Move()
	if left == nil {
		return
	}
	r.Pools.Leave(left)
	if c, ok := why.(news.Change); ok && r.Ground.Watched {
		c.Lane = r.lanes.Current().Number
		r.Teller.Tells(c)()
	}
}

// LeaveConnection makes the next attempt go over another connection after a 421, by which the
// server wants that. It reports whether there is none.
func (r *Road) LeaveConnection(o *Outcome) (stuck bool) {
	if r.trouble != isElsewhere || !r.more {
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
		d.Since = o.At.Add(-o.Took) // its connection may be dead beside others that are well
	case again && r.trouble == isStalled:
		d.Doubted = true
	case r.trouble == isSick && (again || !hinted && r.more && r.made().TriesSpare()):
		d.Sick, d.Doubted, d.New, d.Urgent = true, true, !hinted, o.Way.Lane.Many()
	case !again && r.trouble == isBroken && o.Resp == nil && r.more && r.mayHaveOthers():
		r.leaveLane(o)
		return
	default:
		return
	}
	r.detour(o.Way, d)
	if !again {
		r.via = nil // there is a spare for the next request
	}
}

// mayHaveOthers reports whether the name may have another address. Nothing is looked up.
func (r *Road) mayHaveOthers() bool {
	d := r.Pools.DialerFor(r.Req)
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

// detour makes the next attempt take another lane than that of a way, if there is one.
func (r *Road) detour(from Way, d lane.Detour) {
	if !r.more {
		return
	}
	to, left := r.made().Detour(r.Ground.Now(), from.Lane, d, r.opener(from.Link.Addr() == "" && r.trouble != isElsewhere))
	if left != nil {
		r.Pools.Leave(left)
	}
	r.via = to
}

// opener returns a function that makes a lane for the host. guess is as for Open.
func (r *Road) opener(guess bool) lane.Opener {
	return func(held int, moves bool) *lane.Lane {
		room, ok := r.roomForLane(held, moves)
		if !ok {
			return nil
		}
		return r.Pools.Open(r.Req, guess, room)
	}
}

// roomForLane returns how many connections a new lane may have, so that all lanes of the host
// keep to the MaxConnsPerHost of the base. It is 0 if that is not bounded. held are the
// connections of the lanes besides the base.
//
// Nobody knows how many the base has, and it may get more, so there is a new lane only if
// requests no longer take the base. Then the base has at most as many as there are requests,
// because Open closes those that are idle. Over HTTP/2 it counts for one, unless that is full.
func (r *Road) roomForLane(held int, moves bool) (room int, ok bool) {
	most := r.Pools.Most()
	switch {
	case most <= 0:
		return 0, true
	case r.made().Protocol() > 1:
		return 1, moves && held+1 < most
	}
	room = most - held - r.State.InFlight()
	return room, moves && room > 0
}

// avoidAddress makes later dials try the address of the attempt last.
func (r *Road) avoidAddress(o *Outcome) {
	if addr := o.Way.Link.Ip(); addr.IsValid() {
		if d := r.Pools.DialerFor(r.Req); d != nil {
			d.Failed(hostPort(r.Req), addr)
		}
	}
}

// hasOtherAddress reports whether the name of the host has another address than that of a way.
func (r *Road) hasOtherAddress(than Way) bool {
	d := r.Pools.DialerFor(r.Req)
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
	addr := net.JoinHostPort(req.URL.Hostname(), cmp.Or(req.URL.Port(), host.DefaultPort(req.URL.Scheme)))
	if strings.IndexFunc(addr, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
		return addr
	}
	asked := &http.Transport{DialContext: func(_ context.Context, _, ascii string) (net.Conn, error) {
		addr = ascii
		return nil, net.ErrClosed
	}}
	_, _ = asked.RoundTrip(&http.Request{URL: &url.URL{Scheme: "http", Host: addr}, Header: http.Header{}}) // dials nothing
	return addr
}

// connectWait bounds how long an attempt waits for the first connection of a lane, which another
// attempt may seek for both. After that it goes over the lane that the host has.
const connectWait = time.Second

// patience returns how long the next attempt waits for the first connection of a lane. This is
// at most a quarter of the time that its caller has, so that enough is left for the other lane.
// No attempt starts after latest.
func (r *Road) patience(now time.Time) time.Duration {
	d := connectWait
	if until, ok := r.Ctx.Deadline(); ok {
		d = min(d, until.Sub(now)/4)
	}
	if !r.latest.IsZero() {
		d = min(d, r.latest.Sub(now))
	}
	return max(d, 0)
}

// Await chooses the lane of the next attempt. If another attempt seeks the first connection of
// that lane, it waits for it, until latest at most, if that is not zero. It reports whether it
// waited. Nothing is sent meanwhile, and no timeout of an attempt runs.
func (r *Road) Await(latest time.Time) (waited bool) {
	if r.lanes = r.State.LanesMade(); r.lanes == nil || !r.Rule.Lanes {
		return false
	}
	detour := r.via
	r.latest = latest
	r.choose(func() *lane.Lane {
		r.move()
		if detour != nil {
			return detour
		}
		to, trial := r.lanes.Next()
		if trial {
			r.instead = lane.OfSick
		}
		return to
	}, func(d time.Duration, ready <-chan struct{}) bool {
		r.Sleeper.Sleep(r.Ctx, d, ready)
		waited = true
		return r.Ctx.Err() == nil
	})
	return r.Pools.refresh(r.Request, r.lanes.Current()) || waited // now, because NextWay is too late to ask the limits again
}

// AwaitBeside chooses the lane of a hedge, and waits by a function until it has its first
// connection, if another attempt seeks that. It reports whether the function did.
func (r *Road) AwaitBeside(first Way, wait func(d time.Duration, ready <-chan struct{}) bool) (ok bool) {
	to := r.spareBeside(first)
	ok, r.instead = true, lane.OfBad
	r.choose(func() *lane.Lane { return to }, func(d time.Duration, ready <-chan struct{}) bool {
		ok = wait(d, ready)
		return ok
	})
	return ok
}

// choose makes the next attempt take the lane that a function returns. If the function returns
// nil, or if its lane gets no connection in time, the attempt takes the current lane. wait
// waits for the connection that another attempt seeks, and reports whether the function is to be
// asked again.
func (r *Road) choose(next func() *lane.Lane, wait func(d time.Duration, ready <-chan struct{}) bool) {
	until := time.Now()
	until = until.Add(r.patience(until))
	for {
		to := next()
		if to != nil && to == r.seeks {
			return
		}
		if r.seeks != nil {
			r.seeks.Quit() // it takes another lane now
		}
		r.via, r.seeks = to, nil
		if to.IsOpen() {
			return
		}
		entry, ready := to.Enter(r.Ground.Now())
		switch left := time.Until(until); {
		case entry == lane.Seek:
			r.seeks = to
			r.Pools.keep(r.made())
		case entry == lane.Wait && left > 0 && wait(left, ready):
			continue
		case entry != lane.Go && r.trouble != isElsewhere:
			r.via = nil
		}
		return
	}
}

// Leave gives up what the next attempt would have taken.
func (r *Road) Leave() {
	if r.seeks != nil {
		r.seeks.Quit()
	}
	r.via, r.seeks, r.trouble = nil, nil, noTrouble
}

// tellSingle logs once that the base has one lane only, when a host would need another.
func (p *Pools) tellSingle(ctx context.Context, name string) {
	if p.Log == nil {
		return
	}
	p.told.Do(func() {
		p.Log.LogAttrs(ctx, slog.LevelInfo, redact.Printable(name+" is silent, and the base has one lane only: set Config.Lane"), slog.String("host", name))
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
