package debug

import (
	"cmp"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

// maxHosts is how many hosts the page has.
const maxHosts = 100

// A state is everything that the page shows.
type state struct {
	Now     time.Time             `json:"now"`
	Began   time.Time             `json:"began"`
	Fleet   *transport.FleetState `json:"fleet,omitempty"`
	Total   total                 `json:"total"`
	Hosts   []host                `json:"hosts"` // by name
	More    int                   `json:"more"`  // hosts that are left out
	Changes []change              `json:"changes"`
	Recent  []decision            `json:"recent"`
}

// A total is about all hosts together.
type total struct {
	Requests uint64 `json:"requests"`
	InFlight int    `json:"in_flight"`
	Waiting  int    `json:"waiting"` // for limits
	Retries  uint64 `json:"retries"`
	Failed   uint64 `json:"failed"`
}

// A host is the state of a host, its counts, and its rule.
type host struct {
	transport.HostState
	counts
	Rule []section `json:"rule"`
}

// waiting returns how many requests wait for the limits of a host. Those that the server asked to wait are not counted.
func waiting(h *transport.HostState) int {
	return h.RetriesWaiting + h.ConcurrencyWaiting + h.QuotaWaiting + h.RateLimitWaiting
}

// trouble reports whether a person should look at the host.
func trouble(h *transport.HostState) bool {
	return h.ThrottledKeys > 0 || h.Down || waiting(h) > 0 || h.Requests > 0 && h.RetryBudget >= 0 && h.RetryBudget < 1
}

// state returns the state of everything now.
func (p *Page) state(t *transport.Transport, began time.Time) state {
	s := state{Now: time.Now(), Began: began, Hosts: []host{}}
	s.Changes, s.Recent = p.recent.all()
	all, now := p.counts.all(), t.Snapshot()
	s.Fleet = now.Fleet
	for i := range now.Hosts {
		s.Total.Requests += now.Hosts[i].Requests
		s.Total.InFlight += now.Hosts[i].InFlight
		s.Total.Waiting += waiting(&now.Hosts[i])
	}
	for _, c := range all {
		s.Total.Retries += c.retries()
		s.Total.Failed += c.Failed
	}
	for _, h := range busiest(now.Hosts) {
		s.Hosts = append(s.Hosts, host{HostState: *h, counts: all[h.Host], Rule: ruleOf(t, h.Host)})
	}
	s.More = len(now.Hosts) - len(s.Hosts)
	return s
}

// busiest returns the hosts for the page by name: those in trouble first, and then those with the most
// requests. There may be 100,000 hosts, so the others are not sorted. all are sorted by name.
func busiest(all []transport.HostState) (best []*transport.HostState) {
	last := map[bool]int{true: 1}
	before := func(a, b *transport.HostState) int {
		return cmp.Or(last[!trouble(a)]-last[!trouble(b)], cmp.Compare(b.Requests, a.Requests), 1) // a is the new
	}
	for i := range all {
		h := &all[i]
		if len(best) == maxHosts && before(h, best[maxHosts-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, h, func(old, h *transport.HostState) int { return -before(h, old) })
		best = slices.Insert(best[:min(len(best), maxHosts-1)], at, h)
	}
	slices.SortFunc(best, func(a, b *transport.HostState) int { return cmp.Compare(a.Host, b.Host) })
	return best
}
