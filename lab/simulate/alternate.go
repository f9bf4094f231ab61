// Alternates: mirrors of a host, and requests that may go there or not. Costs, which a rate
// counts at each of them.

package simulate

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// A mirror says what a host has of another host's representations.
type mirror struct {
	of   *host
	path string        // before the paths of the other host
	late time.Duration // a change arrives so much later
	from int64         // the bytes from here on are others, in spite of the same tags; negative: none
	more int64         // then it has so many bytes more
}

// A load is what a request carries that may be a credential.
type load uint8

const (
	loaded  load = iota // a user in the URL, Authorization and sometimes a token in the query
	unladen             // nothing
	cookie
	apiKey
	signature // in the query
	userInURL
	loads
)

func (l load) String() string {
	return [...]string{"everything", "no credential", "a cookie", "a key", "a signature", "a user in the URL"}[l]
}

// add gives a request its load.
func (l load) add(req *http.Request, user, secret string) {
	switch l {
	case cookie:
		req.Header.Set("Cookie", "session="+secret)
	case apiKey:
		req.Header.Set("X-Api-Key", user)
	case signature:
		req.URL.RawQuery = "X-Amz-Signature=" + secret
	case userInURL:
		req.URL.User = url.UserPassword("user", secret)
	}
}

// addAlternates gives a host of some plans alternates and costs. It has dice of its own, so it
// does not change other plans.
func (p *plan) addAlternates() {
	d := roll(p.seed, ofAlternate)
	if !d.chance(20) || p.nested || p.fleet != nil {
		return
	}
	var open []*host
	for _, h := range p.hosts {
		if h.scene == nil {
			open = append(open, h)
		}
	}
	main := one(d, open...)
	main.reads = d.chance(15)
	shared := d.chance(35) // the tags
	if shared {
		main.spaceChanges()
	}
	all := []*host{main}
	for range 1 + d.IntN(2) {
		all = append(all, p.addMirror(d, main, shared))
	}
	for i, h := range all {
		if i == 0 || d.chance(30) {
			p.drawAlternates(d, h, all, shared)
		}
		h.drawOutages(d, 40-10*i)
	}
	for _, h := range p.hosts {
		if h.scene == nil {
			p.drawCosts(d, h)
		}
	}
	if d.chance(60) { // so that bodies are continued
		for _, r := range p.rulesOf(main) {
			r.Attempts, r.Resume, r.Stall = 4, policy.Resume{}, policy.Stall{}
		}
	}
	for range 10 + d.IntN(30) {
		p.calls = append(p.calls, &callPlan{
			id: len(p.calls), at: time.Duration(d.Int64N(int64(p.span()))).Truncate(time.Microsecond), host: main.id, method: one(d, "GET", "GET", "GET", "GET", "POST"),
			path: fmt.Sprintf("/doc/%d", d.IntN(4)),
		})
	}
	p.disperse(d, all)
}

// span returns the time in which the basic callers come.
func (p *plan) span() time.Duration { return (p.horizon - 5*time.Minute) / 3 }

// spaceChanges leaves out changes that follow another too soon. Their dates would be the same.
func (h *host) spaceChanges() {
	var changes []time.Duration
	for _, at := range h.changes {
		if n := len(changes); n == 0 || at > changes[n-1]+2*time.Second {
			changes = append(changes, at)
		}
	}
	h.changes = changes
}

// addMirror adds a host that has the representations of another. shared says that a tag always
// means the same bytes.
func (p *plan) addMirror(d dice, main *host, shared bool) *host {
	h := newHost(p.seed, len(p.hosts), p.span(), false)
	if d.chance(85) { // otherwise it may be unsafe
		scheme, _, _ := strings.Cut(main.origin, "://")
		_, authority, _ := strings.Cut(h.origin, "://")
		h.origin = scheme + "://" + authority
	}
	h.mirror = &mirror{of: main, path: one(d, "", "", "/pub"), late: one(d, 0, 0, time.Second, p.span()/4), from: -1}
	if !shared && d.chance(60) {
		h.mirror.from, h.mirror.more = one(d, 0, int64(d.between(8, 400<<10))&^7), one[int64](d, 0, 0, 5)
	}
	p.hosts = append(p.hosts, h)
	for i := range p.updates {
		r := newRule(d, false)
		r.Budget = h.rule.Budget
		p.updates[i].rules = append(p.updates[i].rules, r)
	}
	if main.wires != nil && d.chance(60) {
		h.wires = newWiring(d)
		p.drawWireRules(d, h)
	}
	return h
}

// rulesOf returns all rules of a host.
func (p *plan) rulesOf(h *host) []*policy.Rule {
	rules := []*policy.Rule{&h.rule}
	for i := range p.updates {
		rules = append(rules, &p.updates[i].rules[h.id])
	}
	return rules
}

// drawAlternates names the others in the rules of a host.
func (p *plan) drawAlternates(d dice, h *host, all []*host, shared bool) {
	for i, r := range p.rulesOf(h) {
		if i > 0 && d.chance(30) {
			continue
		}
		a := policy.Alternates{Credentials: one(d, 0, 0, policy.Off, policy.On)}
		if shared {
			a.Validators = one(d, policy.On, policy.On, policy.On, 0)
		}
		for _, other := range all {
			if other != h {
				a.Bases = append(a.Bases, other.base()+one(d, "", "/"))
			}
		}
		r.Alternates = a
	}
}

// base returns the base URL of a host, as the rules of others name it.
func (h *host) base() string {
	if h.mirror == nil {
		return h.origin
	}
	return h.origin + h.mirror.path
}

// drawOutages makes some phases of a host outages, or times in which bodies are cut.
func (h *host) drawOutages(d dice, percent int) {
	for i := range h.weather {
		if d.chance(percent) {
			h.weather[i].mood = one(d, gone, torn)
		}
	}
}

// tear changes the script of an attempt in a time in which bodies are cut. again says that the
// attempt is for the rest of one.
func (s *script) tear(d dice, again bool) {
	if s.outcome = responds; again && d.chance(80) {
		s.outcome = cannotDial
	}
	s.status, s.told, s.lie, s.tagged = 200, told{}, truth, one(d, 0, 0, 0, 2)
	if s.end = whole; d.chance(80) {
		s.end, s.cutAt = cut, int64(d.between(1, 16<<10))-1
	}
}

// drawCosts gives some rules of a host a rate that counts costs.
func (p *plan) drawCosts(d dice, h *host) {
	for _, r := range p.rulesOf(h) {
		if d.chance(30) {
			r.Rate = policy.Rate{PerSecond: float64(d.between(1, 200)), Burst: one(d, 0, 1, 5, 50)}
		}
		if d.chance(40) {
			r.Cost = func(req *http.Request) int {
				c := callOf(req.Context())
				c.hook("cost")
				return c.plan.cost
			}
		}
	}
}

// disperse gives most callers to the host with the alternates, and takes what they carry away
// from most of them.
func (p *plan) disperse(d dice, all []*host) {
	for _, c := range p.calls {
		if p.hosts[c.host].scene != nil {
			continue
		}
		switch {
		case d.chance(60):
			c.host = all[0].id
		case d.chance(20):
			c.host = one(d, all...).id
		}
		if c.load = unladen; d.chance(30) {
			c.load = load(d.IntN(int(loads)))
		}
		c.key = c.key || d.chance(25)
		if c.cost = one(d, 0, 1, d.IntN(10), d.IntN(100)); d.chance(2) {
			c.hook, c.hookAt = "cost", 1
		}
	}
}

// narrow returns a rule as it is in force for a request.
func (h *host) narrow(r policy.Rule, method string) policy.Rule {
	if h.reads && method != "" && method != http.MethodGet && method != http.MethodHead {
		r.Alternates = policy.Alternates{}
	}
	return r
}

// hostOf returns the host to which a URL leads, or nil.
func (p *plan) hostOf(u *url.URL) *host {
	for _, h := range p.hosts {
		if u.Scheme+"://"+u.Host == h.origin {
			return h
		}
	}
	return nil
}

// mirrored reports whether a host has alternates.
func (p *plan) mirrored() bool {
	for _, h := range p.hosts {
		if h.mirror != nil {
			return true
		}
	}
	return false
}

// differs reports whether a mirror has other bytes under the same tags.
func (p *plan) differs() bool {
	return slices.ContainsFunc(p.hosts, func(h *host) bool { return h.mirror != nil && h.mirror.from >= 0 })
}

// places returns the hosts to which the attempts of a call may go. The first is its own.
func (c *call) places() []*host {
	p := c.world.plan
	all := []*host{p.hosts[c.plan.host]}
	for _, h := range p.hosts {
		if h != all[0] && c.mayVisit(h) == "" {
			all = append(all, h)
		}
	}
	return all
}

// mayVisit returns why no attempt of a call may go to a host other than its own. It is empty
// if one may.
func (c *call) mayVisit(h *host) string {
	a, own := c.rule.Alternates, c.world.plan.hosts[c.plan.host]
	named := false
	for _, base := range a.Bases {
		named = named || strings.TrimSuffix(base, "/") == h.base()
	}
	switch {
	case !named:
		return "is no alternate"
	case strings.HasPrefix(own.origin, "https:") && strings.HasPrefix(h.origin, "http:"):
		return "is not safe"
	case c.plan.upgrade:
		return "must not upgrade"
	case c.plan.key && !c.bare():
		return "need not know the key"
	case c.plan.rng != "" && a.Validators != policy.On:
		return "has other validators"
	case c.plan.load != unladen && a.Credentials != policy.On:
		return "must not see " + c.plan.load.String()
	}
	return ""
}
