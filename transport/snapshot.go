// Reports of a Transport, its hosts and its fleet.

package transport

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/rules"
)

// A HostState reports the state of a host at a moment, as a Transport knows it. It
// holds plain values. If the host's rule turns a limit off, the fields of that limit are zero.
type HostState struct {
	// Host is the scheme and host, for example https://api.example.com.
	Host string `json:"host"`
	// Requests counts the calls of RoundTrip that began. It does not count
	// requests that were refused before anything was sent.
	Requests uint64 `json:"requests"`
	// InFlight is the number of these calls that have not returned.
	InFlight int `json:"in_flight"`
	// RetryBudget is the number of retries that could be sent at once. It is -1 if
	// the rule turns the budget off.
	RetryBudget float64 `json:"retry_budget"`
	// ThrottledKeys is the number of throttle keys that the server asked to wait. ThrottledUntil
	// is the end of the longest such wait.
	ThrottledKeys  int       `json:"throttled_keys"`
	ThrottledUntil time.Time `json:"throttled_until,omitzero"`
	// ConcurrencyLimit is Rule.Concurrency.Max, once a request has asked for a place. It is 0 without
	// Rule.Concurrency.
	ConcurrencyLimit int `json:"concurrency_limit"`
	// ConcurrencyInUse is the number of attempts that count against the limit. A failed attempt
	// counts until its response is classified or it has an error. A success counts until
	// its body has been read or closed, or the request's context has ended.
	// A body that nobody reads stays in ConcurrencyInUse for as long, although it no longer
	// counts against the limit after ten seconds. So does a body without a length that
	// turned out to be a stream, and an attempt that waits for the caller's body.
	ConcurrencyInUse int `json:"concurrency_in_use"`
	// ConcurrencyWaiting is the number of attempts that wait for the limit.
	ConcurrencyWaiting int `json:"concurrency_waiting"`
	// Down reports that the host is down: ten attempts in a row or more have failed.
	Down bool `json:"down"`
	// RetriesWaiting is the number of requests that wait for a retry of the budget, or for the end of an outage.
	RetriesWaiting int `json:"retries_waiting"`
	// CircuitOpen reports that Rule.CircuitBreaker withholds requests, because the host is down.
	CircuitOpen bool `json:"circuit_open"`
	// Pool is the number of the pool of connections over which attempts go. It is 0 while
	// that is the base transport itself.
	Pool int `json:"pool,omitzero"`
	// QuotaWaiting is the number of requests that wait because a quota is nearly used up.
	QuotaWaiting int `json:"quota_waiting,omitzero"`
	// RateLimit is the limit of attempts per second. With Config.Fleet it is
	// that of all members together. RateLimitWaiting is the number of requests that wait for it.
	RateLimit        float64 `json:"rate_limit"`
	RateLimitWaiting int     `json:"rate_limit_waiting,omitzero"`
}

// A Snapshot reports the state of a Transport at a moment. Its JSON has the names of the fields
// in snake case, as in the rules of package rulefile.
type Snapshot struct {
	// Hosts are the states of all known hosts, sorted by name.
	Hosts []HostState `json:"hosts"`
	// Fleet is the state of Config.Fleet, or nil if there is none.
	Fleet *FleetState `json:"fleet,omitempty"`
}

// Snapshot reports the present state of the Transport. It is meant for debugging and for metrics,
// because it visits all hosts in turn.
func (t *Transport) Snapshot() Snapshot {
	if t.registry.Hosts == nil {
		return Snapshot{} // a zero Transport
	}
	var all []*host.State[rules.Resolved] // are sorted sooner than the reports, which are large
	t.registry.Hosts.All(func(h *host.State[rules.Resolved]) { all = append(all, h) })
	slices.SortFunc(all, func(a, b *host.State[rules.Resolved]) int {
		return strings.Compare(exchange.SafeName(a), exchange.SafeName(b))
	})
	s := Snapshot{Hosts: make([]HostState, len(all))}
	for i, h := range all {
		s.Hosts[i] = t.snapshot(h)
	}
	if t.registry.Fleet != nil {
		s.Fleet = new(FleetState(t.registry.Fleet.State()))
	}
	return s
}

// snapshot returns the report on a host.
func (t *Transport) snapshot(s *host.State[rules.Resolved]) HostState {
	m := cmp.Or(s.MachinesMade(), new(host.Machines)) // or no request has needed a machine yet
	now, at := t.registry.Now(), m.Line.State()
	h := HostState{
		Host:           exchange.SafeName(s),
		Requests:       s.Requests(),
		InFlight:       s.InFlight(),
		Down:           at.Down,
		RetriesWaiting: at.Waiting,
	}
	r := s.Resolved.Load()
	if r == nil {
		return h // its first request begins at this moment
	}
	h.CircuitOpen = at.Down && r.Breaker
	conf := line.Config{Budget: r.Settings.Budget}
	conf.Budget.Requests = h.Requests
	if h.RetryBudget = m.Line.Left(now, &conf); math.IsInf(h.RetryBudget, 1) {
		h.RetryBudget = -1
	}
	if l := m.LimitsMade(); l != nil {
		if n, until := l.Throttle.Holds(now); n > 0 {
			h.ThrottledKeys, h.ThrottledUntil = n, t.registry.TimeOf(until)
		}
		if r.QuotaPacing {
			h.QuotaWaiting = l.PacingMade().Waiting()
		}
	}
	if pools := s.PoolsMade(); pools != nil {
		h.Pool = pools.Current().Number
	}
	limiter := m.LimiterMade()
	g := limiter.State()
	if limiter != nil && r.Concurrency {
		h.ConcurrencyLimit, h.ConcurrencyInUse, h.ConcurrencyWaiting = g.Limit, g.InFlight, g.Waiting
	}
	if limiter != nil && r.RateLimit {
		h.RateLimit, h.RateLimitWaiting = r.Settings.Rate.PerSecond, g.ForRate
	}
	return h
}

// A FleetState is a report of how a [Fleet] is at a moment. It holds plain values, for
// debugging and for metrics.
type FleetState struct {
	// Connected reports that the backend answers. A Transport whose Fleet is not connected
	// goes on with its own knowledge.
	Connected bool `json:"connected"`
	// Members is how many members the fleet has, as far as is known. It is 0 before the
	// first heartbeat.
	Members int `json:"members"`
	// Commands counts the commands sent to the backend.
	Commands uint64 `json:"commands"`
	// Dropped counts the news and questions that were not sent or not answered in time, and the
	// scopes of a host that made room for later scopes.
	Dropped uint64 `json:"dropped"`
	// LastHeartbeat is when the last heartbeat succeeded. It is zero before the first. The
	// heartbeats tell the members how many they are.
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
}
