// The kinds of worlds.

package paired

import (
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

// A theme makes a plan.
type theme struct {
	name string
	make func(*plan, dice.Dice)
}

var themes = []theme{
	{"refused", (*plan).refused}, {"refused", (*plan).refused},
	{"quota", (*plan).quota},
	{"provider", (*plan).provider},
	{"beside", (*plan).beside}, {"beside", (*plan).beside},
	{"queue", (*plan).queue},
	{"faults", (*plan).faults}, {"faults", (*plan).faults},
	{"documents", (*plan).documents}, {"documents", (*plan).documents},
	{"streams", (*plan).streams},
	{"uploads", (*plan).uploads},
	{"bursts", (*plan).bursts},
	{"crowd", (*plan).crowd},
	{"strikes", (*plan).struck},
	{"addresses", (*plan).addresses},
	{"forgetful", (*plan).forgetful},
	{"keepalive", (*plan).keepalive},
	{"prefork", (*plan).prefork},
	{"quiet", (*plan).quiet},
	{"strangers", (*plan).strangers},
	{"distant", (*plan).distant},
}

// newPlan draws the plan of a seed.
func newPlan(seed uint64) *plan {
	d := dice.Roll(seed, ofPlan)
	p := &plan{seed: seed, http2: d.Chance(50), tls: d.Chance(8), wrapped: d.Chance(10)}
	t := themes[d.IntN(len(themes))]
	p.theme = t.name
	t.make(p, d)
	return p
}

const ms = time.Millisecond

// longestDeaf is how long a server computes that answers no PING meanwhile. With the longest silence
// before a PING this is less than the time after which the default base closes a connection.
const longestDeaf = 58 * time.Second

// deadlines returns a deadline that callers may have.
func deadlines(d dice.Dice) time.Duration {
	return dice.One(d, 0, 0, 2*time.Second, 5*time.Second, 10*time.Second, time.Minute)
}

// refused has routes, tenants and tokens with limits of their own that refuse always, beside
// others that are well.
func (p *plan) refused(d dice.Dice) {
	h := p.ofHost(d)
	status, wait := dice.One(d, 429, 429, 503), dice.One(d, 0, 1, 1, 5, 30, 30, 120, 3600)
	takes := d.Between(2*ms, 50*ms)
	deadline := deadlines(d)
	method := dice.One(d, "GET", "GET", "POST", "PUT")
	goodPart, r := dice.One(d, "checkout", "api/v1/checkout", "graphql", "users/7/orders"), (*route)(nil)
	inn := p.ofRoute(h, method, goodPart, takes, takes)
	inn.tenant = dice.One(d, "token", "body", "query")
	limit := &limit{status: status, wait: wait}
	n, rate := d.Among(30, 60), dice.One(d, 0.3, 1, 5, 20, 100)
	bad := n * d.Among(10, 100) / 100
	perTenant, each := d.Chance(40), func(c *call) { c.deadline = deadline }
	if perTenant {
		r, inn.limit = inn, limit
	} else {
		r = p.ofRoute(h, dice.One(d, method, "GET", "POST"), dice.One(d, "search", "api/v1/search", "export"), takes, takes)
		r.limit = limit
	}
	guilty := func(c *call) {
		each(c)
		c.guilty = true
		if perTenant {
			c.tenant = 1
		}
	}
	switch {
	case d.Chance(30): // a line that renews a lease, beside loops that are refused
		lease := p.ofRoute(h, "PUT", "lease", takes, takes)
		p.closed(d, lease, 1, 20, time.Second, 0, func(c *call) { c.deadline = 5 * time.Second })
		p.closed(d, r, d.Among(2, 5), 4, 300*ms, 0, guilty)
		fallthrough
	case d.Chance(50):
		p.open(d, inn, n, rate, 0, each)
		p.open(d, r, bad/2+1, rate*float64(bad)/float64(2*n)+0.01, 0, guilty)
	default:
		p.closed(d, inn, d.Among(1, 10), max(n/10, 1), time.Duration(float64(5*time.Second)/rate), 0, each)
		p.closed(d, r, d.Among(1, 5), max(bad/10, 1), time.Duration(float64(5*time.Second)/rate), 0, guilty)
	}
}

// load adds 60 to 100 calls in closed or open loops.
func (p *plan) load(d dice.Dice, r *route, n int, perSecond float64, each func(*call)) {
	if d.Chance(50) {
		callers := d.Among(2, 20)
		p.closed(d, r, callers, max(n/callers, 1), time.Duration(float64(callers)/perSecond*float64(time.Second)), 0, each)
		return
	}
	p.open(d, r, n, perSecond, 0, each)
}

// quota has limits that are really used up.
func (p *plan) quota(d dice.Dice) {
	p.coupled = true
	h := p.ofHost(d)
	rate := dice.One(d, 0.5, 2, 10, 50)
	deadline := deadlines(d)
	by := dice.One(d, "host", "route", "tenant")
	routes := d.Among(1, 3)
	for i := range routes {
		r := p.ofRoute(h, dice.One(d, "GET", "GET", "POST"), string(rune('a'+i)), 5*ms, 40*ms)
		r.tenant = dice.One(d, "token", "body", "query")
		window := d.Between(2*time.Second, 90*time.Second)
		asked := rate / 2 * window.Seconds() * map[string]float64{"host": float64(routes), "route": 1, "tenant": float64(routes) / 2}[by]
		r.limit = &limit{by: by, window: window, n: int(asked*(0.4+d.Float64())) + 1, bucket: d.Chance(40), status: dice.One(d, 429, 429, 503), silent: d.Chance(20)}
		if !r.limit.bucket && d.Chance(25) { // most are refused, and are told the same time
			r.limit.n = r.limit.n/5 + 1
		}
		if i > 0 && by != "route" {
			r.limit = p.routes[0].limit
		}
		p.load(d, r, 30, rate/2, func(c *call) {
			c.deadline = deadline
			c.tenant = c.id % 2
		})
	}
}

// provider has the documented limits of a provider, and other requests with the same token.
func (p *plan) provider(d dice.Dice) {
	p.coupled = true
	p.profile = dice.One(d, "GitHub", "Slack", "Discord", "OpenAI", "Anthropic", "Stripe")
	h := p.ofHost(d)
	rate := dice.One(d, 1.0, 5, 20)
	window := dice.One(d, 2*time.Second, 10*time.Second, 60*time.Second)
	n := max(2, int(rate*window.Seconds()*d.Float64()))
	limited := func(method, path, by string) *route {
		r := p.ofRoute(h, method, path, 20*ms, 300*ms)
		r.limit = &limit{by: by, n: n, window: window, status: 429}
		return r
	}
	var free, bound []*route
	switch p.profile {
	case "GitHub": // the quota of search is not that of the rest
		bound = []*route{limited("GET", "search/issues", "route")}
		free = []*route{p.ofRoute(h, "GET", "repos/a/b", 20*ms, 100*ms)}
	case "Slack": // per method
		bound = []*route{limited("POST", "api/chat.postMessage", "route")}
		free = []*route{p.ofRoute(h, "POST", "api/users.list", 20*ms, 100*ms)}
	case "Discord":
		bound = []*route{limited("POST", "api/v10/channels/77/messages", "route")}
		free = []*route{p.ofRoute(h, "GET", "api/v10/guilds/5", 20*ms, 100*ms)}
	case "OpenAI":
		bound = []*route{limited("POST", "v1/chat/completions", "tenant")}
	case "Anthropic":
		bound = []*route{limited("POST", "v1/messages", "tenant")}
	case "Stripe":
		bound = []*route{limited("POST", "v1/charges", "tenant")}
		bound[0].limit.silent = true
	}
	deadline := dice.One(d, 0, 0, 30*time.Second, 2*time.Minute)
	for _, r := range bound {
		p.load(d, r, 50, rate, func(c *call) { c.deadline, c.tenant = deadline, c.id%2 })
	}
	for _, r := range free {
		p.load(d, r, 30, rate/2, func(c *call) { c.deadline, c.tenant = deadline, c.id%2 })
	}
}

// beside has reports and polls that exclude each other, beside quick requests.
func (p *plan) beside(d dice.Dice) {
	h := p.ofHost(d)
	h.drops = d.Chance(50)
	quick := d.Between(2*ms, 30*ms)
	fast := p.ofRoute(h, "GET", "quick", quick, quick*2)
	from := p.open(d, fast, d.Among(105, 125), dice.One(d, 20.0, 100), 0, nil)
	report := p.ofRoute(h, dice.One(d, "GET", "GET", "GET", "POST", "PUT", "DELETE"), "report", 300*ms, d.Between(500*ms, 25*time.Second))
	report.alone = &alone{replaces: d.Chance(40), status: dice.One(d, 409, 423, 403, 404, 429, 503)}
	if report.alone.status == 429 || report.alone.status == 503 {
		report.alone.wait = dice.One(d, 0, 1, 20, 100)
	}
	if report.alone.replaces { // a long poll
		report.lo = dice.One(d, 2*time.Second, 25*time.Second)
		report.hi, report.alone.status = report.lo, 409
	}
	think := d.Between(50*ms, 3*time.Second)
	if !h.drops { // a server that works on for a client that has given up is free again by the next call
		think += report.hi * 2
	}
	p.closed(d, report, 1, d.Among(3, 8), think, from, nil)
	beside := d.Among(5, 20)
	p.open(d, fast, beside, dice.One(d, 0.5, 2, 10), from, nil)
	if d.Chance(30) {
		p.closed(d, report, 1, 3, think, from, func(c *call) { c.tenant = 1 })
	}
}

// queue has workers that are nearly all busy, a freeze, a cold start.
func (p *plan) queue(d dice.Dice) {
	p.coupled = true
	h := p.ofHost(d)
	h.workers, h.drops = d.Among(1, 6), d.Chance(50)
	load := float64(d.Among(30, 95)) / 100
	quick := d.Between(2*ms, 100*ms)
	fast := p.ofRoute(h, dice.One(d, "GET", "GET", "POST"), "quick", quick, quick)
	from := time.Duration(0)
	rate := min(max(load*float64(h.workers)/quick.Seconds(), 0.05), 500)
	deadline := deadlines(d)
	if deadline > 0 {
		deadline = max(deadline, 20*quick)
	}
	each := func(c *call) { c.deadline = deadline }
	switch {
	case d.Chance(50): // reports are the load, and quick requests come between them
		from = p.open(d, fast, 105, rate/2, 0, each)
		slow := d.Between(max(300*ms, 3*quick), max(8*time.Second, 20*quick))
		report, count, often := p.ofRoute(h, "GET", "report", slow, slow), d.Among(10, 25), load*float64(h.workers)/slow.Seconds()
		p.open(d, report, count, often, from, each)
		p.open(d, fast, 25, 25/float64(count)*often, from, each)
	case d.Chance(50):
		p.open(d, fast, 60, rate, 0, each)
	default:
		callers := h.workers * d.Among(1, 3)
		p.closed(d, fast, callers, max(60/callers, 2), quick, 0, each)
	}
	if d.Chance(40) {
		at := from + d.Between(100*ms, 5*time.Second)
		h.freezes = []span{{at, at + d.Between(300*ms, 20*time.Second)}}
	}
	if d.Chance(20) {
		h.cold = from + d.Between(100*ms, 10*time.Second)
	}
}

// faults has requests that fail before their headers, and fail again.
func (p *plan) faults(d dice.Dice) {
	for range d.Among(1, 2) {
		p.ofHost(d).deaf = d.Chance(30)
	}
	for _, h := range p.hosts {
		for i := range d.Among(1, 3) {
			r := p.ofRoute(h, dice.One(d, "GET", "GET", "POST", "PUT", "DELETE"), string(rune('a'+i)), 2*ms, d.Between(10*ms, 2*time.Second))
			if h.deaf && d.Chance(40) {
				r.lo, r.hi = 40*time.Second, longestDeaf
			}
			deadline := deadlines(d)
			failures := []fateKind{says500, says502, says503, says504, saysBusy, says429, resets, closes, halves, refuses, goesAway, wants11, says404}
			if !p.http2 {
				failures = slices.DeleteFunc(failures, func(f fateKind) bool { return f >= refuses })
			}
			r.fail, r.firsts = d.Among(5, 60), some(d, failures...)
			if deadline > 0 && d.Chance(30) {
				r.firsts = append(r.firsts, hangs)
			}
			r.again, r.seconds = d.Among(0, 100), append(some(d, failures...), dice.One(d, hangs, hangs, isSlow, says503))
			p.load(d, r, d.Among(8, 16), dice.One(d, 0.05, 1, 10), func(c *call) { c.deadline = deadline })
		}
	}
}

// documents has bodies that are cut in each place, and what follows.
func (p *plan) documents(d dice.Dice) {
	h := p.ofHost(d)
	for i := range d.Among(1, 3) {
		r := p.ofRoute(h, "GET", string(rune('a'+i)), 2*ms, d.Between(10*ms, 500*ms))
		size := dice.One(d, 30, 300, 3000, 40_000)
		if d.Chance(5) {
			size = 300_000
		}
		r.doc = &document{media: dice.One(d, "application/json", "application/octet-stream", "text/html"), size: size, tagged: d.Chance(50), chunked: d.Chance(50), marked: d.Chance(60), late: d.Chance(50)}
		r.doc.coded = r.doc.size < 4000 && d.Chance(20)
		if d.Chance(30) {
			r.doc.piece, r.doc.every = max(r.doc.size/d.Among(2, 20), 1), d.Between(ms, 300*ms)
		}
		deadline := deadlines(d)
		r.fail, r.firsts = d.Among(20, 80), some(d, cutClosed, cutReset, cutClosed, unended)
		if deadline > 0 && d.Chance(30) {
			r.firsts = append(r.firsts, cutSilent)
		}
		r.again, r.seconds = d.Among(20, 100), some(d, hangs, hangs, cutSilent, says503, says404, saysBusy, changes, changes, codes, lies, cutClosed, cutReset, resets, isSlow)
		if slices.Contains(r.firsts, unended) {
			r.doc.chunked, r.again, r.seconds = true, 100, append(r.seconds, unended, unended)
		}
		reads := dice.One(d, readsAll, readsAll, readsSlowly, decodes, leaves)
		p.load(d, r, d.Among(6, 14), dice.One(d, 0.2, 2, 10), func(c *call) { c.deadline, c.reads = deadline, reads })
	}
}

// streams has streams of events and of lines, some with a heartbeat.
func (p *plan) streams(d dice.Dice) {
	h := p.ofHost(d)
	for i := range d.Among(1, 3) {
		r := p.ofRoute(h, "GET", string(rune('a'+i)), 2*ms, 50*ms)
		piece := dice.One(d, 45, 45, 100, 600)
		r.doc = &document{media: dice.One(d, "text/event-stream", "application/json", "application/json", "application/x-ndjson", "text/plain"), piece: piece,
			size: piece * d.Among(3, 20), every: d.Between(10*ms, 5*time.Second), chunked: true, stream: true, beats: d.Chance(60)}
		r.fail, r.firsts = d.Among(20, 90), some(d, cutClosed, cutReset, unended)
		r.again, r.seconds = d.Among(0, 60), some(d, cutClosed, cutReset, says503, hangs)
		p.load(d, r, d.Among(5, 10), dice.One(d, 0.2, 2), nil)
	}
}

// uploads has requests whose own bodies fail, and others that need a retry.
func (p *plan) uploads(d dice.Dice) {
	h := p.ofHost(d)
	size := dice.One(d, 100, 5000, 100_000)
	r := p.ofRoute(h, dice.One(d, "PUT", "PUT", "POST"), "up", 5*ms, 50*ms)
	r.size = size
	r.broken = d.Among(20, 100)
	deadline := deadlines(d)
	r.fail, r.firsts = d.Among(0, 30), some(d, says503, says500, says429)
	p.load(d, r, d.Among(10, 40), dice.One(d, 1.0, 10), func(c *call) {
		if c.deadline = deadline; d.Chance(r.broken) {
			c.fails = d.Among(1, size-1)
		}
	})
	other := p.ofRoute(h, "GET", "other", 5*ms, 50*ms)
	other.fail, other.firsts = d.Among(0, 50), []fateKind{says503}
	p.load(d, other, d.Among(10, 40), dice.One(d, 1.0, 10), func(c *call) { c.deadline = deadline })
}

// bursts has a busy host whose callers come together, and a route that takes longer than its
// callers wait.
func (p *plan) bursts(d dice.Dice) {
	h := p.ofHost(d)
	h.dial = d.Between(30*ms, 200*ms)
	takes := d.Between(5*ms, 50*ms)
	r := p.ofRoute(h, "GET", "quick", takes, takes)
	if d.Chance(30) {
		r.fail, r.firsts = d.Among(3, 15), []fateKind{dice.One(d, says503, says502, says500)}
	}
	slow := p.ofRoute(h, dice.One(d, "GET", "GET", "POST"), "slow", 5*time.Second, 5*time.Second)
	size, rounds := d.Among(5, 12), d.Among(4, 8)
	every := d.Between(3*time.Second, 15*time.Second)
	deadline := dice.One(d, 300*ms, 800*ms, 2*time.Second)
	for i := range rounds {
		at := time.Duration(i) * every
		for range size {
			p.later(at+time.Duration(d.IntN(int(5*ms))), r)
		}
		for range d.Among(1, 3) {
			p.later(at+500*ms+time.Duration(d.IntN(int(every/4))), slow).deadline = deadline
		}
	}
	if d.Chance(30) { // an innocent host
		other := p.ofRoute(p.ofHost(d), "GET", "other", takes, takes)
		p.open(d, other, 20, 20/(time.Duration(rounds)*every).Seconds(), 0, nil)
	}
}

// crowd has so many calls that there is a p99.
func (p *plan) crowd(d dice.Dice) {
	p.only = 1
	h := p.ofHost(d)
	takes := d.Between(2*ms, 30*ms)
	r := p.ofRoute(h, "GET", "quick", takes, takes)
	n, rate := 520, dice.One(d, 20.0, 100)
	callers := d.Among(10, 26)
	p.closed(d, r, callers, n/callers+1, time.Duration(float64(callers)/rate*float64(time.Second)), 0, nil)
	slow := p.ofRoute(h, "GET", "slow", 5*time.Second, 5*time.Second)
	for i := range d.Among(1, 5) {
		p.later(time.Duration(i+1)*time.Duration(float64(n)/rate/6*float64(time.Second)), slow).deadline = dice.One(d, 300*ms, 800*ms)
	}
	if d.Chance(30) {
		r.fail, r.firsts = 1, []fateKind{dice.One(d, says503, says502)}
	}
}

// struck has faults of connections.
func (p *plan) struck(d dice.Dice) {
	p.coupled = true
	h := p.ofHost(d)
	h.deaf = d.Chance(20)
	p.most = dice.One(d, 0, 0, 0, 5, 10)
	takes := d.Between(5*ms, 300*ms)
	r := p.ofRoute(h, dice.One(d, "GET", "GET", "POST"), "a", takes, takes*2)
	deadline := dice.One(d, time.Second, 2*time.Second, 5*time.Second, time.Minute)
	each := func(c *call) { c.deadline = deadline }
	p.load(d, r, 50, dice.One(d, 1.0, 5, 20), each)
	if d.Chance(40) {
		p.load(d, p.ofRoute(h, "GET", "b", takes, takes), 25, 2, each)
	}
	for range d.Among(1, 3) {
		kinds := []strikeKind{silences, mutes, resetsAll, restarts}
		if p.http2 {
			kinds = append(kinds, poisons, poisons)
		}
		s := &strike{host: h, kind: dice.One(d, kinds...), lasts: d.Between(500*ms, 20*time.Second), at: never}
		if l := p.lines[d.IntN(len(p.lines))]; d.Chance(50) {
			l.calls[0].strike = s
		} else {
			s.at = time.Duration(d.Float64() * float64(p.horizon()-2*time.Hour))
		}
		p.strikes = append(p.strikes, s)
	}
	if slices.ContainsFunc(p.strikes, func(s *strike) bool { return s.kind.outlasts() }) {
		p.unchain()
	}
}

// addresses has a name with three addresses, one of which is bad.
func (p *plan) addresses(d dice.Dice) {
	p.coupled = true
	h := p.ofHost(d)
	h.ips = append(h.ips, ipOf(h.id, 1), ipOf(h.id, 2))
	h.bad = dice.One(d, refusing, unreachable, unwell, unwell, resetting, silent)
	h.lookup = dice.One(d, 0, 5*ms, 200*ms)
	h.turns = dice.One(d, 0, time.Second, 10*time.Second)
	p.most = dice.One(d, 0, 0, 5)
	takes := d.Between(5*ms, 100*ms)
	deadline := dice.One(d, 2*time.Second, 5*time.Second, time.Minute)
	p.load(d, p.ofRoute(h, dice.One(d, "GET", "GET", "POST"), "a", takes, takes*2), 60, dice.One(d, 0.2, 2, 10), func(c *call) { c.deadline = deadline })
}

// together adds n calls that begin within 2 ms.
func (p *plan) together(d dice.Dice, r *route, n int, at, deadline time.Duration) {
	for range n {
		p.later(at+time.Duration(d.IntN(int(2*ms))), r).deadline = deadline
	}
}

// forgetful has a NAT that forgets idle connections without a word, and bursts that meet them.
func (p *plan) forgetful(d dice.Dice) {
	p.coupled = true
	h := p.ofHost(d)
	h.dial, h.forgets = d.Between(ms, 50*ms), d.Between(time.Second, 30*time.Second)
	takes := d.Between(10*ms, 100*ms)
	r := p.ofRoute(h, dice.One(d, "GET", "GET", "POST"), "a", takes, takes)
	size := d.Among(20, 50)
	for i := range d.Among(2, 4) {
		p.together(d, r, size, time.Duration(i)*(3*time.Second+h.forgets*3/2), 3*time.Second)
	}
}

// keepalive has a distant server that closes idle connections, while bursts of orders are on the way.
func (p *plan) keepalive(d dice.Dice) {
	p.coupled, p.http2, p.only = true, false, 1
	h := p.ofHost(d)
	h.distance = d.Between(10*ms, 80*ms)
	h.dial, h.keeps = 2*h.distance, time.Second
	takes := d.Between(ms, 20*ms)
	r := p.ofRoute(h, "POST", "a", takes, takes)
	every := h.dial + takes + h.keeps + time.Duration(float64(h.dial)*(0.1+0.8*d.Float64()))
	size := d.Among(30, 50)
	for i := range d.Among(4, 6) {
		p.together(d, r, size, time.Duration(i)*every, 0)
	}
}

// prefork has a server with a worker for each connection, and two names for it.
func (p *plan) prefork(d dice.Dice) {
	p.http2 = false
	h, other := p.ofHost(d), p.ofHost(d)
	h.places, h.keeps = 10, 15*time.Second
	other.like, other.ips = h, h.ips
	takes := d.Between(20*ms, 200*ms)
	r, after := p.ofRoute(h, "GET", "a", takes, takes), p.ofRoute(other, dice.One(d, "GET", "POST"), "b", takes, takes)
	for i := range d.Among(1, 3) {
		at := time.Duration(i) * time.Minute
		p.together(d, r, h.places, at, 5*time.Second)
		p.later(at+h.dial+takes+d.Between(50*ms, 5*time.Second), after).deadline = 4 * time.Second
	}
}

// quiet has a host with bursts, and many that are asked once between them.
func (p *plan) quiet(d dice.Dice) {
	p.http2, p.tls, p.only = false, d.Chance(20), 1
	takes := d.Between(20*ms, 200*ms)
	busy := p.ofRoute(p.ofHost(d), "GET", "busy", takes, takes)
	var others []*route
	for range 40 {
		others = append(others, p.ofRoute(p.ofHost(d), "GET", "quiet", 5*ms, 5*ms))
	}
	for i := range d.Among(2, 3) {
		at := time.Duration(i) * 10 * time.Second
		for n, r := range others {
			p.later(at+time.Duration(n)*50*ms, r)
		}
		p.together(d, busy, 100, at+5*time.Second, 0)
	}
}

// strangers has hosts that reset their first connections, beside others that are well.
func (p *plan) strangers(d dice.Dice) {
	p.http2 = d.Chance(20)
	for i := range 35 {
		h := p.ofHost(d)
		r := p.ofRoute(h, "GET", "a", 5*ms, 50*ms)
		if i < 15 {
			h.resets = 2
			p.closed(d, r, 1, 5, 2*time.Second, time.Duration(i)*2*time.Second, nil)
			continue
		}
		l := p.later(d.Between(ms, time.Second), r).line
		for range 8 {
			p.then(l, r, d.Between(2*time.Second, 6*time.Second))
		}
	}
}

// distant has a name with six addresses that are well, and far away. Each request needs a connection.
func (p *plan) distant(d dice.Dice) {
	p.http2 = false
	h := p.ofHost(d)
	h.dial, h.keeps = d.Between(150*ms, 650*ms), time.Second
	for n := range 5 {
		h.ips = append(h.ips, ipOf(h.id, n+1))
	}
	h.turns = dice.One(d, 0, time.Second)
	r := p.ofRoute(h, "GET", "a", 5*ms, 50*ms)
	if d.Chance(50) {
		p.together(d, r, 10, 0, 0)
		return
	}
	for i := range 10 {
		p.later(time.Duration(i)*dice.One(d, 3*time.Second, 80*time.Second), r)
	}
}
