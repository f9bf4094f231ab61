// Package route has the pools of connections of a Transport, and plans the routes of a request: which
// pool its next attempt takes, and what an outcome says about that pool. It never changes the base
// transport of the user.
//
// A host has a current pool, which is the base at first. Attempts take another pool if the current
// pool is bad, or if the last attempts of the same request failed over it. The host moves when the
// other pool has brought a good response while the current pool is bad.
package route

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/pool"
)

// Current makes an attempt take the current pool of the host, and returns its base. If pools is nil,
// that is the base of all hosts.
func (m *Maker) Current(pools *pool.Pools, o *attempt.Outcome) http.RoundTripper {
	if pools == nil {
		return m.first
	}
	o.Pool = pools.Current()
	o.Heard = o.Pool.Heard()
	return cmp.Or(o.Pool.Base(), m.first)
}

// NoteGood notes a good first response over the current pool. If nobody listens to the pools of the host yet, that
// begins with the first response over HTTP/2 to a request whose time is bounded, because others may find silence.
func NoteGood(r *exchange.Request, o *attempt.Outcome) {
	pools := r.State.PoolsMade()
	if pools == nil {
		if o.Resp.ProtoMajor < 2 {
			return
		}
		if _, bounded := r.Ctx.Deadline(); !bounded && !r.Rule.Timed {
			return
		}
		pools = r.State.Machines().Pools()
	}
	pools.Or(o.Pool).Hear(cmp.Or(o.DoneAt, r.Registry.Now()))
	pools.Good(o.Pool, false)
}

// A Planner plans the routes of a request to its host, which its methods get. Its Maker must be set. A single
// goroutine uses it.
type Planner struct {
	Maker   *Maker
	Latest  instant.Instant // after which the next attempt may not start; 0: it may always
	Retried bool            // the first attempt is retried if the server says that it cannot

	last      *pool.Pool      // over which the last attempt failed; nil: none did
	row       int             // attempts in a row that failed over it
	leaves    *pool.Pool      // the next attempt takes another pool than this; nil: it may take any
	failed    *pool.Pool      // that the request leaves; nil: none
	silence   any             // the change to tell if the host moves because nothing came over failed in time; nil: something did
	misled    bool            // a server has already wanted the request over another connection
	stale     instant.Instant // when nothing came over the base, whose idle connections are to be closed; 0: they need not be
	refreshed bool            // they were closed once
}

// MayLeave reports whether the host may have further pools, as far as is known.
func (p *Planner) MayLeave() bool {
	return p.Maker.make != nil || p.Maker.base != nil
}

// Next gives the next attempt its pool and its base. If the base is a [Trial], the attempt needs a
// context of its own.
func (p *Planner) Next(r *exchange.Request, o *attempt.Outcome) http.RoundTripper {
	pools, not := r.State.PoolsMade(), p.leaves
	p.leaves = nil
	base := p.Maker.Current(pools, o)
	current := o.Pool
	if current == nil || pools.Calm() && p.failed != current || !p.Maker.can(r.Req) {
		return base
	}
	answers := isHTTP1(r) && current.Answers()
	if answers && current.Number == 0 && isShared(r) {
		return base // which may hold all workers of the server
	}
	now := r.Registry.Now()
	other := pools.Other(now, not)
	if other == nil || !other.IsDue(now) {
		return base
	}
	if o.Kind == attempt.First && p.Retried && current.Answers() && other.Heard() != 0 && !other.IsOpen() {
		return base // its answer may be good, and comes at once; if it is not, the retry makes the connection
	}
	o.Pool, o.Heard = other, other.Heard()
	return &Trial{registry: r.Registry, maker: p.Maker, base: base, pools: pools, to: other, back: current, patience: p.patience(r),
		waits: not != nil || current.TakesWait(), http1: isHTTP1(r), frees: answers}
}

// patience returns how long the next attempt waits for the first connection of a pool. This is at
// most a quarter of its time, so that enough is left for the current pool.
func (p *Planner) patience(r *exchange.Request) time.Duration {
	d := time.Second
	if until, ok := r.Ctx.Deadline(); ok {
		d = min(d, time.Until(until)/4)
	}
	if after := r.Rule.Timeouts.After; after > 0 {
		d = min(d, after/2)
	}
	if connect := r.Rule.Timeouts.Connect; connect > 0 {
		d = min(d, connect/2)
	}
	if p.Latest != 0 {
		d = min(d, p.Latest.Sub(r.Registry.Now()))
	}
	return max(d, 0)
}

// Beside makes the next attempt one beside another. Over HTTP/1.1 it has another connection in any
// case.
func (p *Planner) Beside(r *exchange.Request, first *attempt.Outcome) {
	if !isHTTP1(r) {
		over := r.State.Machines().Pools().Or(first.Pool)
		p.last, p.leaves, p.failed = over, over, over
		over.Doubt(first.Link.Addr(), false)
	}
}

// isHTTP1 reports whether the last response came over HTTP/1.x.
func isHTTP1(r *exchange.Request) bool { return r.State.Protocol.Load() == 1 }

// Note notes an outcome, and decides about the pool of the next attempt. It is called once for each.
func (p *Planner) Note(r *exchange.Request, o *attempt.Outcome) {
	p.leaves = nil
	pools := r.State.PoolsMade()
	if o.Resp != nil {
		r.State.Protocol.Store(int32(o.Resp.ProtoMajor))
	}
	if o.Resp != nil && pools != nil {
		over := pools.Or(o.Pool)
		over.Hear(o.DoneAt)
		if o.Kind == attempt.Resume && o.Number > 1 && over == pools.Current() && !o.Failed() {
			return // the last body over the pool was cut before it made progress, and so may this body
		}
		if !o.Failed() {
			p.noteGood(r, pools, over)
			return
		}
	}
	weight, leaves := weigh(r, o)
	switch {
	case weight == 0:
		return
	case !p.Maker.can(r.Req):
		if o.Resp == nil && o.Class != classify.Refused && attempt.IsLate(r.Ctx, o.Err) {
			p.refresh(r, o, weight)
		}
		return
	case pools == nil:
		pools = r.State.Machines().Pools()
	}
	over := pools.Or(o.Pool)
	if p.last != over {
		p.last, p.row = over, 0
	}
	p.row++
	over.Doubt(o.Link.Addr(), weight == pool.Weak && o.Resp != nil)
	change := news.Change{Key: news.Key{Condition: news.Pool}, Over: weight == pool.Weak} // to be told if the host moves
	if !change.Over {
		change.Cause = news.Cause{Err: r.Observer.Safe(o.Err), Addr: o.Link.Addr()}
	}
	if leaves || p.row > 1 {
		p.leaves = over
	}
	if p.leaves == pools.Current() {
		if p.failed, p.silence = over, nil; weight == pool.Alone {
			p.silence = change
		}
	}
	if o.Err != nil && WantsHTTP1(o.Err) {
		pools.HTTP1.Store(true)
	}
	if left := pools.Failed(over, weight, change); left != nil {
		p.leave(r, left)
	}
}

// noteGood notes a good response over a pool.
func (p *Planner) noteGood(r *exchange.Request, pools *pool.Pools, over *pool.Pool) {
	if p.silence != nil && over != p.failed { // so it was not the request that is slow
		pools.Failed(p.failed, pool.Half-pool.Alone, p.silence)
	}
	left, cause := pools.Good(over, r.State.InFlight() < 2)
	if left == nil {
		return
	}
	p.leave(r, left)
	if c, ok := cause.(news.Change); ok && r.Registry.Watched {
		c.Pool = pools.Current().Number
		r.Observer.Tells(c)()
	}
}

// leave closes the idle connections of a pool that the attempts of the host no longer take. The base is
// shared, so it keeps its connections over HTTP/2, and those of other hosts that were asked lately. A server
// of HTTP/1.x may have no worker for a new connection while it keeps the old ones.
func (p *Planner) leave(r *exchange.Request, left *pool.Pool) {
	base := cmp.Or(left.Base(), p.Maker.first)
	afterwards(func() {
		if left.Number != 0 || isHTTP1(r) && !isShared(r) {
			closeIdle(base)
		}
	})
}

// isShared reports whether another host was asked lately, whose idle connections the base may have.
func isShared(r *exchange.Request) bool { return r.Registry.Hosts.UsedLately(r.State, idle) }

// refresh notes silence of a base that is the only pool. Its idle connections are closed before the
// retry, once for a request, because then even a new connection is silent. Without a retry nobody
// finds out whether they are dead. net/http itself closes a connection of HTTP/1.1, and the others may
// be well. A host that has brought no good response yet may have no connection, and net/http would
// give up those that it is making.
func (p *Planner) refresh(r *exchange.Request, o *attempt.Outcome, weight int32) {
	if r.State.Protocol.Load() < 2 {
		return
	}
	pools := r.State.Machines().Pools()
	pools.Failed(pools.Current(), weight, nil)
	if pools.Calm() && weight == pool.Weak || r.Ctx.Err() != nil || p.refreshed {
		return
	}
	m := p.Maker
	if m.Log != nil { // the host would need another pool
		m.told.Do(func() {
			m.Log.LogAttrs(r.Ctx, slog.LevelInfo, "the base has one pool only: set Config.NewPool", slog.String("host", exchange.SafeName(r.State)))
		})
	}
	if _, closes := m.first.(interface{ CloseIdleConnections() }); closes && !isShared(r) {
		p.stale = o.DoneAt
	}
}

// Refresh closes the idle connections of the base before a retry, if they are to be. Over HTTP/2 the
// stream of an attempt that was given up ends a moment later, and its connection is not idle
// until then.
func (p *Planner) Refresh(r *exchange.Request) {
	if p.stale == 0 {
		return
	}
	idle := r.Registry.TimeOf(p.stale).Add(time.Millisecond)
	p.stale = 0
	if until, ok := r.Ctx.Deadline(); ok && !idle.Before(until) {
		return // nothing could be sent after this sleep
	}
	instant.Sleep(r.Ctx, time.Until(idle), nil)
	if r.Ctx.Err() == nil && r.State.Machines().Pools().MayRefresh(r.Registry.Now()) {
		p.refreshed = true
		done := make(chan struct{})
		time.AfterFunc(0, func() { closeIdle(p.Maker.first); close(done) })
		instant.Sleep(r.Ctx, attempt.DrainTime, done) // a base may wait for its requests
	}
}

// weigh returns the weight of a failure for its pool, or 0 if it says nothing about connections. leaves
// says that the next attempt takes another pool in any case.
func weigh(r *exchange.Request, o *attempt.Outcome) (weight int32, leaves bool) {
	switch {
	case o.Below, o.BodyBroke, o.Err != nil && errors.Is(r.Ctx.Err(), context.Canceled):
		return 0, false // of this pool, or the caller left
	case o.Err != nil && attempt.IsLate(r.Ctx, o.Err):
		return weighSilence(r, o), true // its connection may be dead beside others that are well
	case !o.Failed():
		return 0, false
	case o.Err != nil && WantsHTTP1(o.Err):
		return pool.Proof, true
	case o.Err != nil && o.Class == classify.Refused && o.Link.Unsent() && classify.ErrorTypeOf(o.Err) == classify.ErrorReset:
		return pool.Half, false // the connection was made, and ended in the handshake
	case o.Err != nil && o.Class == classify.Refused:
		// After a failed dial there is no connection of which it could say anything, a stream that was refused
		// met a limit of the server, and a server that goes away ends its connection.
		return 0, false
	case o.Err != nil:
		return pool.Half, strings.Contains(o.Err.Error(), "stream error: stream ID ")
	case o.Resp.StatusCode == http.StatusMisdirectedRequest:
		return pool.Proof, true
	case o.Resp.StatusCode >= http.StatusInternalServerError && o.Resp.Header.Get("Retry-After") == "":
		return pool.Weak, false
	}
	return 0, false
}

// weighSilence returns the weight of a timeout. If nothing came over the pool in the last half of the
// attempt, to nobody, its connections are bad. If nobody else has asked, its own request may be slow,
// unless another pool then brings the response.
func weighSilence(r *exchange.Request, o *attempt.Outcome) int32 {
	over := o.Pool
	var heard instant.Instant
	if pools := r.State.PoolsMade(); pools != nil {
		heard = pools.Or(over).Heard()
	}
	took := cmp.Or(o.Took(), max(r.Rule.Timeouts.After, 0))
	silent := heard <= o.Heard || took > 0 && o.DoneAt.Sub(heard) > took/2
	switch {
	case o.Kind == attempt.Cut, !silent:
		return pool.Weak
	case over != nil && over != r.State.PoolsMade().Current():
		return pool.Proof // it has yet to show that it is better
	case r.State.InFlight() < 2:
		return pool.Alone
	case over == nil: // nobody listened
		return pool.Weak
	}
	over.Silent(r.State.InFlight())
	return pool.Proof
}

// IsStuck reports whether there is no other connection for a retry, after a server wanted the request
// over another. HTTP/1.1 may use another in the same pool, unlike HTTP/2. If two servers want that,
// others will, too.
func (p *Planner) IsStuck(r *exchange.Request, o *attempt.Outcome) bool {
	twice := p.misled
	if p.misled = true; p.leaves != nil {
		return twice || r.State.PoolsMade().Other(r.Registry.Now(), p.leaves) == nil
	}
	return twice || o.Resp == nil || o.Resp.ProtoMajor > 1
}

// TakesHTTP1 reports whether a server wants HTTP/1.1, and the host may have a pool without HTTP/2.
func (m *Maker) TakesHTTP1(req *http.Request, err error) bool {
	return WantsHTTP1(err) && m.canHTTP1(req)
}

// WantsHTTP1 reports whether a server has ended a stream or a connection of HTTP/2 because it wants
// HTTP/1.1 (RFC 9113 §7).
func WantsHTTP1(err error) bool {
	return strings.Contains(err.Error(), "HTTP_1_1_REQUIRED")
}
