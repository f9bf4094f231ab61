// What does the Transport know of its hosts?

package transport

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/internal/host"
)

// A HostState is what a Transport knows of one host at one moment, in plain
// values, for debugging and for metrics. Fields of what the host's rule does
// not turn on are zero.
type HostState struct {
	// Host is the scheme and host, as in https://api.example.com.
	Host string `json:"host"`
	// Requests is how many calls of RoundTrip began, without those that were
	// refused before anything was sent.
	Requests uint64 `json:"requests"`
	// InFlight is how many of them have not returned.
	InFlight int `json:"in_flight"`
	// BudgetLeft is how many retries could be sent at once; -1 where the rule
	// turns the budget off.
	BudgetLeft float64 `json:"budget_left"`
	// HeldScopes is how many scopes the server asked to wait, and HeldUntil the
	// end of the longest such wait.
	HeldScopes int       `json:"held_scopes"`
	HeldUntil  time.Time `json:"held_until,omitzero"`
	// Gate is the gate's limit, 0 without a gate; Flying how many sends have a
	// place in flight; Waiting how many wait for one. A failed send ends with
	// its headers or error, a success when its body has been read or closed, or
	// the request's context has ended. A body that nobody reads is in Flying for
	// as long, although after a minute it no longer counts against the limit.
	// Closed means that one probe at a time looks whether the host is back.
	Gate    int  `json:"gate"`
	Flying  int  `json:"flying"`
	Waiting int  `json:"waiting"`
	Closed  bool `json:"closed"`
	// Rate is the present limit of sends per second.
	Rate float64 `json:"rate"`
}

// String returns the state on one line, without what is zero.
func (s HostState) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d requests, %d under way", s.Host, s.Requests, s.InFlight)
	if s.BudgetLeft >= 0 {
		fmt.Fprintf(&b, ", %.1f retries left", s.BudgetLeft)
	}
	if s.HeldScopes > 0 {
		fmt.Fprintf(&b, ", %d held until %s", s.HeldScopes, s.HeldUntil.UTC().Format(time.RFC3339))
	}
	if s.Gate > 0 {
		state := "open"
		if s.Closed {
			state = "closed"
		}
		fmt.Fprintf(&b, ", gate %s at %d with %d places taken and %d waiting", state, s.Gate, s.Flying, s.Waiting)
	}
	if s.Rate > 0 {
		fmt.Fprintf(&b, ", %.1f sends/s", s.Rate)
	}
	return b.String()
}

// Snapshot returns what is known of every host, by name. It is for debugging:
// it looks at all hosts, one after the other.
func (t *Transport) Snapshot() []HostState {
	if t.hosts == nil {
		return nil // a Transport that New did not make
	}
	var all []HostState
	t.hosts.All(func(s *host.State[resolved]) { all = append(all, t.snapshot(s)) })
	slices.SortFunc(all, func(a, b HostState) int { return cmp.Compare(a.Host, b.Host) })
	return all
}

// SnapshotOf returns what is known of the host of a URL; ok is false where it
// is not known.
func (t *Transport) SnapshotOf(u *url.URL) (s HostState, ok bool) {
	if t.hosts == nil || u == nil {
		return HostState{}, false
	}
	state := t.hosts.Peek(u)
	if state == nil {
		return HostState{}, false
	}
	return t.snapshot(state), true
}

func (t *Transport) snapshot(s *host.State[resolved]) HostState {
	now, m := t.now(), s.MachinesMade()
	if m == nil {
		m = &host.Machines{} // all at rest
	}
	h := HostState{
		Host:     safeKey(s.Key()),
		Requests: s.Requests(),
		InFlight: s.InFlight(),
	}
	r := s.Resolved.Load()
	if r != nil {
		m.Budget.CountTo(s.Requests())
		if h.BudgetLeft = m.Budget.Left(now, r.budgetConfig()); math.IsInf(h.BudgetLeft, 1) {
			h.BudgetLeft = -1
		}
	}
	if n, until := m.Cooldown.Holds(now); n > 0 {
		h.HeldScopes, h.HeldUntil = n, t.epoch.Add(until)
	}
	gate, rate := m.Made()
	if gate != nil && r != nil && r.gate {
		g := gate.State()
		h.Gate, h.Flying, h.Waiting, h.Closed = g.Limit, g.InFlight, g.Waiting, g.Closed
	}
	if rate != nil && r != nil && r.rate {
		h.Rate = rate.PerSecond()
	}
	return h
}
