// Package exchange is a request and its host, as far as every call needs them: the rule, the wait that a server asks for, the line
// of the host and its outage, and which conditions of the host are told. The limits that a rule turns on stand apart, in package
// limit.
//
// The files:
//
//	request.go    a request, the wait that its outcome asks for, and the registry of its Transport
//	queue.go      how a request waits in a queue, and why it may not
//	line.go       its turn in the line of the host
//	condition.go  the conditions of a host, and who is told
package exchange

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/scope"
)

// A Registry has the hosts of a Transport, their rules, its clock and its fleet.
type Registry struct {
	instant.Clock // of the limits
	Hosts         *host.Table[rules.Resolved]
	Rules         atomic.Pointer[rules.Ruleset]
	Fleet         fleetlink.Fleet // nil: none
	Watched       bool            // somebody is told about the state of the hosts
	Seed          maphash.Seed    // for the hashes of credentials
}

// Prepare makes a registry without rules. evicted is told of hosts that are forgotten.
func (g *Registry) Prepare(evicted func(*host.State[rules.Resolved])) {
	g.Hosts = host.NewTable(host.MaxHosts, g.Now, evicted)
	g.Clock, g.Seed = instant.NewClock(), maphash.MakeSeed()
}

// HostRule returns the rule for a host. It searches for the rule at the first request
// and at the first request after an Update. Otherwise it costs one atomic load.
func (g *Registry) HostRule(s *host.State[rules.Resolved], set *rules.Ruleset) *rules.Resolved {
	if r := s.Resolved.Load(); r != nil && r.Set == set {
		return r
	}
	r, _ := set.ForHost(s.Key())
	if g.Fleet != nil {
		s.Join(g.Fleet).Obey(&r.Policy)
	}
	if r.RateLimit {
		// Used tokens of the rate stay used. An Update must not allow another burst.
		s.Machines().Rate(r.Settings.Rate).Set(g.Now(), r.Settings.Rate)
	}
	if s.Resolved.Store(r); s.MachinesMade() != nil { // an Update may let go who waits for the rate, for a slot or in line
		s.Machines().WakeFirst()
	}
	return r
}

// A Request goes to a host under a rule. Once attempts go, only its price and its
// plain request change. One goroutine uses it.
type Request struct {
	Observer Observer // of changes of the host; set once somebody may have to be told
	Registry *Registry
	Req      *http.Request   // the caller's, or a copy with the key that its rule makes
	Ctx      context.Context // the caller's, or a context that ends with Request.Cancel as well
	Linked   bool            // Request.Cancel ends Ctx, too
	State    *host.State[rules.Resolved]
	Rule     *rules.Resolved
	Plain    *http.Request // the request without its Expect, after a 417; nil: its attempts go with it
	Price    int32         // see Cost; 0: the rule was not asked yet
	Held     time.Duration // for how long the holds of others have made all attempts wait
	scope    uint64        // the scope's key, once scoped
	scoped   bool
}

// ObeyCancel makes the closing of Request.Cancel end r.Ctx, so that every wait of
// the call sees it. Old callers still use Request.Cancel. The attempts keep
// the caller's context, because the base transport looks at the channel itself,
// and because the body of its response outlives the call. stop ends the goroutine that
// listens. That goroutine may run late. So a channel that is closed already, as after a light
// first attempt, ends the context at once.
func (r *Request) ObeyCancel() (stop func()) {
	//lint:ignore SA1019 old callers still set Request.Cancel
	canceled := r.Req.Cancel
	if canceled == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Ctx)
	r.Ctx, r.Linked = ctx, true
	select {
	case <-canceled:
		cancel(attempt.ErrRequestCanceled)
	default:
		go func() {
			select {
			case <-canceled:
				cancel(attempt.ErrRequestCanceled)
			case <-ctx.Done():
			}
		}()
	}
	return func() { cancel(nil) }
}

// Cost returns the cost of the request. The rule is asked once per request. A reconnect of the
// body costs as much.
func (r *Request) Cost() int {
	if r.Price == 0 {
		r.Price = 1
		if own := r.Rule.Policy.Cost; own != nil {
			r.Price = int32(min(max(own(r.Req), 1), math.MaxInt32))
		}
	}
	return int(r.Price)
}

// DropExpect makes the next attempts leave Expect out. A server that cannot meet an
// expectation has not acted, and may act on the same request without it (RFC 9110
// §10.1.1).
func (r *Request) DropExpect() {
	r.Plain = r.Req.WithContext(r.Ctx)
	r.Plain.Header = r.Req.Header.Clone()
	delete(r.Plain.Header, "Expect")
}

// Sleep waits until d is over or ready receives something. It ends at once when the
// caller's context does.
func (r *Request) Sleep(d time.Duration, ready <-chan struct{}) error {
	if instant.Sleep(r.Ctx, d, ready); r.Ctx.Err() != nil {
		return attempt.ContextErr(r.Ctx)
	}
	return nil
}

// SafeName returns the name of a host for hooks and snapshots.
func SafeName(s *host.State[rules.Resolved]) string {
	k := s.Key()
	if safe := redact.Host(k.Host); safe != k.Host {
		return k.Scheme + "://" + safe
	}
	return s.Name()
}

// HostName returns the name of the request's host, also if the request has no state of it.
func (r *Request) HostName() string {
	if r.State != nil {
		return SafeName(r.State)
	}
	k := host.KeyOf(r.Req.URL)
	return k.Scheme + "://" + redact.Host(k.Host)
}

// Scope returns the number of the request's scope, which is that of its credentials or of its ThrottleKey. It is computed once,
// and only if something is held or known of the host.
func (r *Request) Scope() uint64 {
	if !r.scoped {
		r.scoped = true
		own := r.Rule.Policy.ThrottleKey
		switch {
		case r.Registry.Fleet != nil:
			r.scope = r.Registry.Fleet.Scope(r.Req, own)
		case own != nil:
			r.scope = maphash.String(r.Registry.Seed, own(r.Req))
		default:
			r.scope = scope.Key(r.Registry.Seed, r.Req.Header)
		}
	}
	return r.scope
}

// RetryAfter returns how long an outcome asks to wait, or 0.
func (r *Request) RetryAfter(o *attempt.Outcome) time.Duration {
	if !TellsToWait(o.Status()) && (!o.Failed() || o.BodyBroke) {
		return 0
	}
	asked := r.OutcomeOf(o.Resp, o.Err)
	if proxy, ok := errors.AsType[*ProxyAnswer](o.Err); ok {
		asked.Response, asked.Err = proxy.Resp, nil // the proxy's wait binds this request alone
	}
	if wait, ok := r.Rule.Policy.RetryAfter(asked); ok {
		return max(wait, 0)
	}
	return 0
}

// A ProxyAnswer is the response of a proxy that did not connect. It may ask to wait.
type ProxyAnswer struct{ Resp *http.Response }

func (p *ProxyAnswer) Error() string { return p.Resp.Status }

// TellsToWait reports whether a response with this status holds its scope if it
// names a wait.
func TellsToWait(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// OutcomeOf returns the outcome that classifiers and RetryAfter functions judge. They see the request as it is
// sent, so that a second 417 is final. It is small enough for the compiler to put it into the
// light path, which is 10 ns faster for it.
func (r *Request) OutcomeOf(resp *http.Response, err error) classify.Outcome {
	o := classify.Outcome{Request: r.Req, Response: resp, Err: err}
	switch {
	case r.Plain != nil:
		o.Request = r.Plain
	case r.Linked:
		o.Request = r.Req.WithContext(r.Ctx)
	}
	return o
}
