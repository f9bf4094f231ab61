// Reports of what a Transport knows about its hosts and its fleet.

package transport

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/internal/rules"
)

// A HostState is a report of what a Transport knows about a host at a moment. It
// holds plain values, for debugging and for metrics. If the host's rule turns a
// limit off, the fields of that limit are zero.
type HostState struct {
	// Host is the scheme and host, for example https://api.example.com.
	Host string `json:"host"`
	// Requests counts the calls of RoundTrip that began. It does not count
	// requests that were refused before anything was sent.
	Requests uint64 `json:"requests"`
	// InFlight is the number of these calls that have not returned.
	InFlight int `json:"in_flight"`
	// BudgetLeft is the number of retries that could be sent at once. It is -1 if
	// the rule turns the budget off.
	RetryBudget float64 `json:"budget_left"`
	// HeldScopes is the number of scopes that the server asked to wait. HeldUntil
	// is the end of the longest such wait.
	ThrottledKeys  int       `json:"held_scopes"`
	ThrottledUntil time.Time `json:"held_until,omitzero"`
	// GateLimit is the number of attempts that the limiter lets be in flight at the
	// same time. It is 0 without a concurrency limit.
	ConcurrencyLimit int `json:"gate_limit"`
	// GateSlots is the number of slots in use. A failed attempt ends its slot with
	// the verdict on the response or with its error. A success ends its slot when
	// its body has been read or closed, or when the request's context has ended.
	// A body that nobody reads stays in GateSlots for as long, although it no longer
	// counts against the limit after ten seconds. So does a body without a length that
	// turned out to be a stream, and an attempt that waits for the caller's body.
	ConcurrencyInUse int `json:"gate_slots"`
	// GateQueue is the number of attempts that wait for a slot.
	ConcurrencyWaiting int `json:"gate_queue"`
	// GateClosed reports that the circuit is open. An open circuit lets a single
	// attempt at a time try whether the host is back.
	CircuitOpen bool `json:"gate_closed"`
	// Lane is the number of the pool of connections over which attempts go, and Lanes is
	// how many the host has opened besides the base transport. Lane is 0 while that is
	// the base transport itself (see policy.Rule.Lanes).
	Pool  int `json:"lane,omitzero"`
	Lanes int `json:"lanes,omitzero"`
	// Down reports that the last five attempts or more failed. It stops no request, unlike a concurrency limit
	// that is closed.
	Down bool `json:"down,omitzero"`
	// PacingQueue is the number of requests that wait because a quota is nearly used up.
	QuotaWaiting int `json:"pacing_queue,omitzero"`
	// RatePerSecond is the limit of attempts per second. With Config.Fleet it is
	// that of all members together. RateQueue is the number of requests that wait for it.
	RateLimit        float64 `json:"rate_per_second"`
	RateLimitWaiting int     `json:"rate_queue,omitzero"`
}

// String returns the state in a single line of text, without fields that are zero.
func (s HostState) String() string {
	gate := "open"
	if s.CircuitOpen {
		gate = "closed"
	}
	var b redact.Sentence
	fmt.Fprintf(&b, "%s: %d requests, %d under way", s.Host, s.Requests, s.InFlight)
	b.Add(s.RetryBudget >= 0, ", %.1f retries left", s.RetryBudget)
	b.Add(s.ThrottledKeys > 0, ", %d held until %s", s.ThrottledKeys, s.ThrottledUntil.UTC().Format(time.RFC3339))
	b.Add(s.ConcurrencyLimit > 0, ", gate %s at %d with %d slots in use and %d waiting", gate, s.ConcurrencyLimit, s.ConcurrencyInUse, s.ConcurrencyWaiting)
	b.Add(s.Lanes > 0, ", lane %d of %d", s.Pool, s.Lanes)
	b.Add(s.Down, ", down")
	b.Add(s.QuotaWaiting > 0, ", %d waiting for a quota", s.QuotaWaiting)
	b.Add(s.RateLimit > 0, ", %.1f attempts/s", s.RateLimit)
	b.Add(s.RateLimitWaiting > 0, " with %d waiting", s.RateLimitWaiting)
	return b.String()
}

// Snapshot returns the states of all known hosts, sorted by name. It is meant for
// debugging, because it visits all hosts in turn.
func (t *Transport) Snapshot() []HostState {
	if t.registry.Hosts == nil {
		return nil // a zero Transport
	}
	var all []HostState
	t.registry.Hosts.All(func(s *host.State[rules.Resolved]) { all = append(all, t.snapshot(s)) })
	slices.SortFunc(all, func(a, b HostState) int { return cmp.Compare(a.Host, b.Host) })
	return all
}

// SnapshotOf returns the state of the host of a URL. ok is false if the host is not
// known.
func (t *Transport) SnapshotOf(u *url.URL) (s HostState, ok bool) {
	if t.registry.Hosts == nil || u == nil {
		return HostState{}, false
	}
	state := t.registry.Hosts.Peek(u)
	if state == nil {
		return HostState{}, false
	}
	return t.snapshot(state), true
}

// snapshot returns the report on a host.
func (t *Transport) snapshot(s *host.State[rules.Resolved]) HostState {
	now, m := t.registry.Now(), s.MachinesMade()
	if m == nil {
		m = &host.Machines{} // no request has needed a machine yet
	}
	h := HostState{
		Host:     limit.SafeName(s),
		Requests: s.Requests(),
		InFlight: s.InFlight(),
	}
	_, h.Down = m.Failures.Down()
	r := s.Resolved.Load()
	if r != nil {
		m.Budget.CountTo(s.Requests())
		budget := r.Settings.Budget
		budget.Rests = m.Failures.Helpless()
		if h.RetryBudget = m.Budget.Left(now, budget); math.IsInf(h.RetryBudget, 1) {
			h.RetryBudget = -1
		}
	}
	if n, until := m.Cooldown.Holds(now); n > 0 {
		h.ThrottledKeys, h.ThrottledUntil = n, t.registry.TimeOf(until)
	}
	if pools := s.PoolsMade(); pools != nil {
		h.Pool, h.Lanes = pools.Current().Number, pools.Opened()
	}
	gate, rate := m.Made()
	if gate != nil && r != nil && r.Concurrency {
		g := gate.State()
		h.ConcurrencyLimit, h.ConcurrencyInUse, h.ConcurrencyWaiting, h.CircuitOpen = g.Limit, g.InFlight, g.Waiting, g.CircuitOpen
	}
	if rate != nil && r != nil && r.RateLimit {
		h.RateLimit, h.RateLimitWaiting = r.Settings.Rate.PerSecond, rate.Queue()
	}
	if r != nil && r.QuotaPacing {
		h.QuotaWaiting = m.PacingMade().Waiting()
	}
	return h
}

// A FleetState is a report of how a [Fleet] is at a moment. It holds plain values, for
// debugging and for metrics.
type FleetState struct {
	// Connected reports that the backend answers. A Transport whose Fleet is not connected
	// goes on with its own knowledge.
	Connected bool `json:"connected"`
	// Err says why the Fleet is not connected, without secrets.
	Err string `json:"err,omitempty"`
	// Members is how many members the fleet has, as far as is known. It is 0 before the
	// first heartbeat.
	Members int `json:"members"`
	// Commands counts what was sent to the backend.
	Commands uint64 `json:"commands"`
	// Dropped counts the news and questions that were not sent or not answered in time, and the
	// scopes of a host that made room for later ones.
	Dropped uint64 `json:"dropped"`
	// HeartbeatAge is the time since the last heartbeat that succeeded, in seconds. It is -1
	// before the first. The heartbeats tell the members how many they are.
	HeartbeatAge float64 `json:"heartbeat_age"`
}

// FleetState returns the state of Config.Fleet. ok is false if there is no Fleet.
func (t *Transport) FleetState() (s FleetState, ok bool) {
	if t.registry.Fleet == nil {
		return s, false
	}
	f := t.registry.Fleet.State()
	s = FleetState{Connected: f.Connected, Err: f.Err, Members: f.Members, Commands: f.Commands, Dropped: f.Dropped, HeartbeatAge: -1}
	if f.HeartbeatAge >= 0 {
		s.HeartbeatAge = f.HeartbeatAge.Seconds()
	}
	return s, true
}
