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
	Retries  uint64 `json:"retries"`
	Failed   uint64 `json:"failed"`
}

// A host is the state of a host, its counts, and its rule.
type host struct {
	transport.HostState
	counts
	Rule []section `json:"rule"`
}

// trouble reports whether a person should look at the host.
func (h *host) trouble() bool {
	return h.ThrottledKeys > 0 || h.CircuitOpen || h.ConcurrencyWaiting+h.QuotaWaiting+h.RateLimitWaiting > 0 || h.Requests > 0 && h.RetryBudget >= 0 && h.RetryBudget < 1
}

// state returns the state of everything now.
func (p *Page) state(t *transport.Transport, began time.Time) state {
	s := state{Now: time.Now(), Began: began, Hosts: []host{}}
	s.Changes, s.Recent = p.recent.all()
	all, now := p.counts.all(), t.Snapshot()
	s.Fleet = now.Fleet
	for _, h := range now.Hosts {
		s.Hosts = append(s.Hosts, host{HostState: h, counts: all[h.Host]})
		s.Total.Requests += h.Requests
		s.Total.InFlight += h.InFlight
	}
	for _, c := range all {
		s.Total.Retries += c.retries()
		s.Total.Failed += c.Failed
	}
	s.choose()
	for i := range s.Hosts {
		s.Hosts[i].Rule = ruleOf(t, s.Hosts[i].Host)
	}
	return s
}

// choose leaves out the hosts that are too many, and sorts the others by name.
func (s *state) choose() {
	if s.More = max(0, len(s.Hosts)-maxHosts); s.More > 0 {
		last := map[bool]int{true: 1}
		slices.SortFunc(s.Hosts, func(a, b host) int {
			return cmp.Or(last[!a.trouble()]-last[!b.trouble()], cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Host, b.Host))
		})
		s.Hosts = s.Hosts[:maxHosts]
	}
	slices.SortFunc(s.Hosts, func(a, b host) int { return cmp.Compare(a.Host, b.Host) })
}
