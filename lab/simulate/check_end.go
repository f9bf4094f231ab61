// Checks at the end of a story, when all callers have left.

package simulate

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// These are the limits for reading a response that nobody gets.
const (
	drainBytes = 256 << 10
	drainTime  = 5 * time.Second
)

// finish checks the promises about the end of a story.
func (w *world) finish() {
	synctest.Wait()
	calls := slices.Clone(w.calls)
	for _, c := range calls {
		if isClosed(c.done) {
			w.checkCall(c)
		} else {
			w.violate(Leak, c, "still under way a minute after the end")
		}
	}
	if !w.plan.nested {
		for _, h := range w.plan.hosts {
			w.mu.Lock()
			for member := range w.clients {
				w.checkBudget(h, member)
			}
			w.checkHolds(h)
			w.checkCosts(h)
			w.checkIdle(h)
			if w.plan.fleet != nil {
				w.checkFleet(h)
			}
			w.mu.Unlock()
		}
	}
	w.checkSlots(calls)
	time.Sleep(2 * time.Hour) // every wait is over
	for member := range w.clients {
		if f := w.plan.fleet; f != nil && f.members[member].dies < never {
			continue
		}
		for _, h := range w.plan.hosts {
			w.checkFresh(h, member)
		}
		if w.plan.fleet != nil {
			time.Sleep(time.Minute) // the members return one after the other
		}
	}
	time.Sleep(time.Minute)
	w.checkGoroutines()
}

// checkCall judges a call by the server's records.
func (w *world) checkCall(c *call) {
	c.checkRequest()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(c.acts) > 1 && !c.idempotent() {
		w.complain(ActedOnce, c, "the server acted %d times on a %s", len(c.acts), c.plan.method)
	}
	w.checkAsked(c)
	for _, b := range c.bodies {
		if b.closes.Load() == 0 {
			w.complain(Closed, c, "a body of the request was never closed")
		}
	}
	for _, e := range c.events {
		due := min(e.at, w.timeOf(e.Start.Add(e.Duration))) + e.Delay
		if e.Reason == transport.ReasonRetry && c.plan.deadline > 0 && due >= c.plan.at+c.plan.deadline {
			w.complain(Futile, c, "a retry at %v, after the deadline", due)
		}
	}
	for _, s := range c.attempts {
		w.checkDiscarded(s)
	}
	if n := len(c.attempts); w.plan.traced && !w.plan.nested && (c.begun != n || c.ended != n) {
		w.complain(Told, c, "the server got %d attempts; the Trace was told %d beginnings and %d ends", n, c.begun, c.ended)
	}
}

// checkDiscarded checks that a response that the caller did not get is closed
// soon, with few bytes read. The same holds for a segment of a body that the
// caller closed.
func (w *world) checkDiscarded(s *attempt) {
	b, c := s.body, s.call
	if b == nil || s.exited {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delivered := c.served == s || slices.Contains(c.replaced, s)
	open := b.closedAt == never && !b.ended
	part := c.served != nil && s.began >= c.returned // belongs to the body that the caller has
	switch {
	case (delivered || part) && !c.closed: // by the caller
	case delivered || part:
		if open {
			w.complain(Discarded, c, "the body of attempt %d was not closed although the caller closed it", s.number)
		}
	case open:
		w.complain(Discarded, c, "the response of attempt %d was never closed", s.number)
	case b.read > drainBytes:
		w.complain(Discarded, c, "%d bytes were read of the response of attempt %d, which nobody got", b.read, s.number)
	case b.closedAt < never && b.closedAt-s.needed() > drainTime:
		w.complain(Discarded, c, "the response of attempt %d was closed after %v", s.number, b.closedAt-s.ended)
	}
}

// needed returns until when a response may be of use. It may be of use while
// another attempt of the same request runs, because that response may be worse.
func (s *attempt) needed() time.Duration {
	until := s.ended
	for _, other := range s.call.attempts {
		if other.began < s.ended && other.ended < never {
			until = max(until, other.ended)
		}
	}
	return until
}

// checkBudget checks that retries and hedges keep to the budget in every window of time. A retry takes its
// token between its due time and its beginning. Without a Trace its due time is unknown, so only the windows
// from the beginning are checked. Two kinds do not count: probes of a host that is down, and those who come back after that.
func (w *world) checkBudget(h *host, member int) {
	rule := h.rule.Or(policy.Defaults())
	b := rule.RetryBudget
	if b.Enabled == policy.Off || b.Ratio < 0 && b.MinPerSecond < 0 {
		return
	}
	for _, m := range w.said {
		if m.heard && m.member == member && m.Kind == fleetmsg.Down && m.Host == h.origin {
			return // others know when the host is down
		}
	}
	b = budgetOf(b)
	var requests, attempts, paid []time.Duration
	var takes []span
	for _, c := range w.calls {
		if c.plan.member != member || c.plan.host != h.id {
			continue
		}
		requests = append(requests, c.plan.at)
		takes = append(takes, c.takenAt()...)
		for _, s := range c.attempts {
			if s.number > 1 && s.ended < never && s.err == nil && s.status < 500 {
				paid = append(paid, s.ended)
			}
			switch {
			case s.began > c.returned: // a reconnect
				requests = append(requests, s.began)
			case s.number > 1 && !s.isProbe():
				attempts = append(attempts, s.began)
			}
		}
	}
	slices.Sort(requests)
	slices.Sort(paid)
	slices.SortFunc(takes, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	slices.Sort(attempts)
	count := func(all []time.Duration, from, to time.Duration) float64 {
		first, _ := slices.BinarySearch(all, from)
		last, _ := slices.BinarySearch(all, to+1)
		return float64(last - first)
	}
	within := func(from, to time.Duration) float64 {
		return b.Ratio*count(requests, from, to) + 3*count(paid, from, to) + b.MinPerSecond*(to-from).Seconds() + max(10*b.MinPerSecond, 1) + 1e-6
	}
	for n, at := range attempts {
		if most := within(0, at); float64(n+1) > most {
			w.complain(Budget, nil, "%d retries up to %v; the budget has %.1f", n+1, at, most)
			return
		}
	}
	for i := range takes {
		from, to := takes[i].from, takes[i].until
		for j := i; j < len(takes); j++ {
			to = max(to, takes[j].until)
			if most := within(from, to); float64(j-i+1) > most {
				w.complain(Budget, nil, "%d retries from %v to %v; the budget has %.1f", j-i+1, from, to, most)
				return
			}
		}
	}
}

// takenAt returns the times in which the retries and hedges of a call take from the budget.
func (c *call) takenAt() (all []span) {
	for _, e := range c.events {
		if e.Offset > 0 || e.Reason != transport.ReasonRetry {
			continue
		}
		for _, s := range c.attempts {
			if s.began >= e.at && s.number > e.Number && s.began <= c.returned {
				if !s.isProbe() {
					all = append(all, span{min(e.at, c.world.timeOf(e.Start.Add(e.Duration))) + e.Delay, s.began})
				}
				break
			}
		}
	}
	for _, s := range c.attempts {
		if slices.Contains(c.hedged, s.began) && !s.isProbe() {
			all = append(all, span{s.began, s.began})
		}
	}
	return all
}

// downAfter is how many failures in a row mean that a host is down, for all requests to it or for those with a path or a scope.
const downAfter = 10

// isProbe reports whether the budget may not count a retry: since its last attempt began, the host was down, or was
// down until then.
func (s *attempt) isProbe() bool {
	since := time.Duration(0)
	for _, other := range s.call.attempts {
		if other.ended <= s.began && other.number < s.number {
			since = max(since, other.began)
		}
	}
	var runs [3]int // of failures, by host, path and scope
	var ends []*attempt
	for _, other := range s.call.world.attempts {
		if other.host == s.host && other.call.plan.member == s.call.plan.member && other.ended <= s.began {
			ends = append(ends, other)
		}
	}
	slices.SortStableFunc(ends, func(a, b *attempt) int { return cmp.Compare(a.ended, b.ended) })
	for _, other := range ends {
		for i, same := range [...]bool{true, other.call.plan.path == s.call.plan.path, other.call.scope() == s.call.scope()} {
			switch {
			case !same:
			case !other.succeeded():
				runs[i]++
			case other.ended < since:
				runs[i] = 0
			}
			if runs[i] >= downAfter && other.ended >= since {
				return true
			}
		}
	}
	return slices.Max(runs[:]) >= downAfter
}

// A who is the requests of a member with a scope.
type who struct {
	member int
	scope  string
}

// checkHolds checks that the first request that is told of a used-up quota
// holds the other requests of its scope. It judges only hosts that keep their
// rule.
func (w *world) checkHolds(h *host) {
	rule := h.rule.Or(policy.Defaults())
	if rule.ShareRetryAfter != policy.On || len(w.plan.updates) > 0 || w.plan.fleet.lied() {
		return
	}
	told, arrived := make(map[who][]span), make(map[who][]time.Duration)
	for _, s := range w.attempts {
		if mood, _ := h.moodAt(s.began); s.host != h || mood != exhausted {
			continue
		}
		scope, wait := s.who(), s.told
		if most := rule.MaxRetryAfter; most < 0 {
			arrived[scope] = append(arrived[scope], s.began)
		} else {
			wait = min(wait, most)
			if s.began-s.call.plan.at < most { // else its patience may be over
				arrived[scope] = append(arrived[scope], s.began)
			}
		}
		if wait > 0 && !s.dead && s.call.plan.hook == "" {
			told[scope] = append(told[scope], span{s.ended, s.ended + wait})
		}
	}
	for scope := range told {
		for _, hold := range merged(told[scope]) {
			n := 0
			for _, at := range arrived[scope] {
				if hold.from < at && at < hold.until {
					n++
				}
			}
			if n > 0 {
				w.complain(Hold, nil, "%d requests of scope %v at %s from %v to %v, when all were to wait", n, scope, h.name, hold.from, hold.until)
			}
		}
	}
}

// A span is an interval of time.
type span struct{ from, until time.Duration }

// merged joins spans that overlap.
func merged(all []span) (joined []span) {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range all {
		if n := len(joined); n > 0 && s.from <= joined[n-1].until {
			joined[n-1].until = max(joined[n-1].until, s.until)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// who returns whose request an attempt is. It judges only hosts that keep their rule.
func (s *attempt) who() who {
	if s.host.rule.ThrottleKey != nil {
		return who{s.call.plan.member, s.req.URL.Path}
	}
	return who{s.call.plan.member, strconv.Itoa(s.call.plan.user)}
}

// scope returns the scope of a call.
func (c *call) scope() string {
	if c.rule.ThrottleKey != nil {
		return c.plan.path
	}
	return strconv.Itoa(c.plan.user)
}

// underWay returns how many attempts to a host have no outcome.
func (w *world) underWay(h *host) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.attempts {
		if s.host == h && s.ended == never {
			n++
		}
	}
	return n
}

// checkBack checks that an open circuit lets a request pass within a minute if
// its host is well again but probes hang.
func (w *world) checkBack() {
	for _, state := range w.states() {
		if f := w.plan.fleet; f != nil && !f.members[state.member].alive(w.now()) {
			continue
		}
		for _, h := range w.plan.hosts {
			rule := w.plan.ruleOf(h.id, w.now())
			if state.Host != h.origin || !state.CircuitOpen || rule.Concurrency.FailFast == policy.On || rule.CircuitBreaker.FailFast == policy.On || rule.RateLimit.PerSecond > 0 || rule.QuotaPacing == policy.On || w.plan.nested {
				continue
			}
			if rule.MaxRetryAfter < 0 {
				continue // a hold may be endless
			}
			if rule.Concurrency.Max > 0 && w.underWay(h) >= rule.Concurrency.Max {
				continue // attempts without a timeout hang in all slots
			}
			plan := &callPlan{id: w.lastID(), at: w.now(), host: h.id, member: state.member, method: "GET", path: "/doc/0", deadline: time.Minute - 1}
			c := w.beginLast(plan)
			<-c.done
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(c.attempts) == 0 {
				w.complain(Leak, c, "the circuit stays open: %v", state.HostState)
			}
			return
		}
	}
}

// budgetOf fills in the defaults of a budget.
func budgetOf(b policy.RetryBudget) policy.RetryBudget {
	if b.Ratio == 0 {
		b.Ratio = 0.2
	}
	if b.MinPerSecond == 0 {
		b.MinPerSecond = 3
	}
	b.Ratio, b.MinPerSecond = max(b.Ratio, 0), max(b.MinPerSecond, 0)
	return b
}

// forgot reports whether a caller that has gone left a successful response open.
func (c *call) forgot() bool {
	return isClosed(c.done) && c.resp != nil && !c.closed && c.resp.StatusCode < 400
}

// checkSlots checks that no request waits and no slot is taken at the end. A
// successful response that a caller forgot to close keeps its slot.
func (w *world) checkSlots(calls []*call) {
	forgotten := make(map[string]int)
	for _, c := range calls {
		if c.forgot() {
			forgotten[w.plan.hosts[c.plan.host].origin]++
		}
	}
	for _, h := range w.states() {
		if h.InFlight != 0 || h.ConcurrencyWaiting != 0 || h.ConcurrencyInUse > forgotten[h.Host] {
			w.violate(Leak, nil, "when all have gone, with %d bodies forgotten: %v", forgotten[h.Host], h.HostState)
		}
	}
	for _, c := range calls {
		if c.forgot() {
			_ = c.resp.Body.Close()
			c.closed = true
		}
	}
	synctest.Wait()
	for _, h := range w.states() {
		if h.ConcurrencyInUse != 0 {
			w.violate(Leak, nil, "when all bodies are closed: %v", h.HostState)
		}
	}
}

// checkFresh sends requests two hours later, when nothing should hold them.
func (w *world) checkFresh(h *host, member int) {
	n := 3
	if w.plan.fleet != nil {
		n = 1 // the others send requests as well
	}
	mayWait := time.Duration(0)
	for at := range 1 + len(w.plan.updates) {
		rule := h.rule
		if at > 0 {
			rule = w.plan.updates[at-1].rules[h.id]
		}
		if rule = rule.Or(policy.Defaults()); rule.MaxRetryAfter < 0 {
			return // a hold may be endless
		}
		if rule.RateLimit.PerSecond > 0 || rule.QuotaPacing == policy.On {
			n = 1
		}
		if f := w.plan.fleet; f != nil && rule.RateLimit.PerSecond > 0 {
			mayWait = max(mayWait, firstAnswer+w.holdsOn(h, rule))
		} else if f != nil {
			mayWait = max(mayWait, w.holdsOn(h, rule))
		}
	}
	for range n {
		plan := &callPlan{id: w.lastID(), at: w.now(), host: h.id, member: member, method: "GET", path: "/doc/0", deadline: time.Minute}
		w.tell(plan.id, "%v", w.client(member).Snapshot())
		c := w.beginLast(plan)
		<-c.done
		for asks := 0; asks < 2 && w.asksFirst(c); asks++ { // for tokens
			time.Sleep(time.Second)
			plan.at = w.now()
			c = w.beginLast(plan)
			<-c.done
		}
		w.mu.Lock()
		switch {
		case c.resp == nil || c.resp.StatusCode != 200:
			w.complain(Leak, c, "two hours later a request fails: %s", c.outcome())
		case c.attempts[0].began > plan.at+mayWait:
			w.complain(Leak, c, "two hours later a request waits for %v", c.attempts[0].began-plan.at)
		}
		w.mu.Unlock()
	}
}

// holdsOn returns for how long a member obeys a hold or a quota of hours that another was told, or
// one that was made up.
func (w *world) holdsOn(h *host, rule policy.Rule) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	long := func(s *attempt) bool { return s.host == h && s.ended+s.script.told.wait > w.now() }
	if slices.ContainsFunc(w.attempts, long) || w.plan.fleet.lied() && rule.ShareRetryAfter == policy.On || rule.QuotaPacing == policy.On {
		return rule.MaxRetryAfter + holdJitter
	}
	return 0
}

// asksFirst reports whether the call was refused because the member has to ask the fleet. That
// is so if a concurrency limit without waiters is closed, or if somebody said that there are many members,
// so that the member's own part of a rate is small. The next request goes.
func (w *world) asksFirst(c *call) bool {
	var own *transport.Error
	if w.plan.fleet == nil || !errors.As(c.err, &own) {
		return false
	}
	return own.Reason == transport.ReasonCircuitOpen || own.Reason == transport.ReasonConcurrency || w.plan.fleet.lied() && own.Reason == transport.ReasonRateLimit
}

// lastID returns a number that no call has.
func (w *world) lastID() int { return len(w.plan.calls) + len(w.calls) }

// beginLast starts a call to a host that is well.
func (w *world) beginLast(plan *callPlan) *call {
	c := w.newCall(plan)
	c.last = true
	go func() {
		defer close(c.done)
		c.live(context.Background(), plan.at+time.Hour)
	}()
	return c
}

var bubble = regexp.MustCompile(`^goroutine \d+ \[.*(synctest bubble \d+)`)

// checkGoroutines looks for goroutines that still run in this bubble.
func (w *world) checkGoroutines() {
	synctest.Wait()
	buf := make([]byte, 16<<10)
	n := runtime.Stack(buf, true)
	for n == len(buf) && n < 1<<20 { // the goroutines of other stories run, too
		buf = make([]byte, 4*n)
		n = runtime.Stack(buf, true)
	}
	all := strings.Split(string(buf[:n]), "\n\n")
	mine := bubble.FindStringSubmatch(all[0])
	if mine == nil {
		w.violate(Leak, nil, "not in a bubble: %s", all[0])
		return
	}
	for _, stack := range all[1:] {
		if other := bubble.FindStringSubmatch(stack); other == nil || other[1] != mine[1] {
			continue
		}
		if strings.Contains(stack, "internal/synctest.Run") || strings.Contains(stack, "testing.(*T).Run") || strings.Contains(stack, "testing/synctest.Test") {
			continue // the goroutine that started the bubble
		}
		w.violate(Leak, nil, "a goroutine is left:\n%s", stack)
	}
}
