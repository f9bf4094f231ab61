// The judge of a pair: the same plan over net/http alone, and over aplomb.

package paired

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// What aplomb may take longer than net/http.
const (
	lateOne   = 1100 * time.Millisecond // for one request
	lateMost  = 50 * time.Millisecond   // at a quantile, or a tenth
	lateBody  = 10 * time.Second        // for a body after a cut
	lateShare = 2500 * time.Millisecond // after a wait that a profile shares
	lateTry   = 2 * time.Minute         // for each attempt after the first, until its headers
	manyGood  = 500                     // so many good answers have a p99
	tolerance = 20 * time.Millisecond   // of what is compared with a sum of documented times
	fewGood   = 5                       // so many good answers have a p50
)

// The clauses of the judge.
const (
	asGood    = 1 + iota // a good answer stays one, and comes as early
	soon                 // a failure is told soon
	oneAnswer            // what is delivered is one response
	asked                // extra arrivals are retries within the budget
	actsOnce             // a POST is acted upon no more often
	connects             // a host that is well gets no more connections
	clauses
)

// A violation is a broken clause.
type violation struct {
	clause int
	kind   string // the client
	what   string // without figures, so that violations of the same cause have the same text
	call   int    // -1: nobody's
	text   string // with figures
	soft   bool   // chance may explain it: other starts change what arrivals do to each other
	again  int    // how many replays show it
}

// same reports whether two violations have the same cause.
func (v *violation) same(other violation) bool {
	return v.clause == other.clause && v.what == other.what
}

// A tally says how many requests a clause has judged.
type tally struct{ judged, healed, excused int }

// A judgement is what the judge says about one play of aplomb.
type judgement struct {
	plan    *plan
	kind    kind
	refs    []*result // of net/http
	r       *result
	of      map[int][]*arrival // of calls
	tallies [clauses]tally
	found   []violation
}

// judge compares a play with those of net/http alone. The first of these has no extra arrivals,
// and the starts of the plan.
func judge(p *plan, refs []*result, r *result) *judgement {
	j := &judgement{plan: p, kind: r.kind, refs: refs, r: r, of: r.byCall()}
	if p.coupled {
		j.byGroup()
	} else {
		j.byRequest()
	}
	for _, c := range p.calls {
		j.oneResponse(c)
		j.extras(c)
	}
	j.ends()
	j.budget()
	j.useful()
	j.acts()
	j.dials()
	return j
}

// byCall returns the arrivals of each call.
func (r *result) byCall() map[int][]*arrival {
	if r.calls == nil {
		r.calls = map[int][]*arrival{}
		for _, a := range r.arrivals {
			if !a.ghost {
				r.calls[a.call.id] = append(r.calls[a.call.id], a)
			}
		}
	}
	return r.calls
}

func (j *judgement) violate(clause int, c *call, soft bool, what, text string, args ...any) {
	v := violation{clause: clause, kind: j.kind.name, what: what, call: -1, text: fmt.Sprintf(text, args...), soft: soft}
	if c != nil {
		v.call = c.id
	}
	j.found = append(j.found, v)
}

// retried reports whether README's table retries a status.
func retried(status int, waits bool) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusMisdirectedRequest, http.StatusTooEarly:
		return true
	case http.StatusRequestEntityTooLarge:
		return waits
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusNetworkAuthenticationRequired:
		return false
	}
	return status >= 500
}

// good reports whether the caller has a good answer.
func (o *outcome) good() bool {
	return o.err == nil && !retried(o.status, o.header.Get("Retry-After") != "")
}

// same describes an outcome without figures but its status.
func (o *outcome) same() string {
	switch {
	case o.endless:
		return "no end"
	case o.late:
		return "deadline"
	case o.source:
		return "error of the source"
	case o.ofBody:
		return fmt.Sprint(o.status, " and an error of its body")
	case o.err != nil:
		return "error"
	}
	return strconv.Itoa(o.status)
}

// ref returns the outcome of a call in a play of net/http, as a timeout until the headers would have
// made it.
func (j *judgement) ref(r *result, c *call) outcome {
	o := r.outcomes[c.id]
	limit := j.kind.rule.AttemptTimeout
	if limit <= 0 || r.kind.timeout > 0 || o.head != never && o.head-o.began < limit || o.head == never && o.took() < limit {
		return o
	}
	return outcome{began: o.began, head: never, first: never, ended: o.began + limit, err: errTime}
}

// byRequest compares each call with itself.
func (j *judgement) byRequest() {
	var theirs, ours, theirFirst, ourFirst []time.Duration
	for _, c := range j.plan.calls {
		b, o := j.ref(j.refs[0], c), j.r.outcomes[c.id]
		if !b.good() {
			continue
		}
		if o.skipped {
			j.tallies[asGood].excused++ // the caller's last call had not ended, which another clause tells
			continue
		}
		late := o.took() - b.took()
		if worse := !o.good() || o.status != b.status || late > lateOne; worse && j.isExcused(c, b) {
			j.tallies[asGood].excused++
			continue
		}
		j.tallies[asGood].judged++
		where := fmt.Sprintf("%s %s", c.route.method, c.route.path)
		switch {
		case !o.good() || o.status != b.status:
			j.violate(asGood, c, false, fmt.Sprintf("%d became %s", b.status, o.same()), where+": %d after %v became %s after %v: %v", b.status, b.took(), o.same(), o.took(), o.err)
			continue
		case late > lateOne:
			j.violate(asGood, c, false, "late", where+": %v instead of %v", o.took(), b.took())
		}
		most := b.took() // also if the extra arrivals take idle connections
		for _, r := range j.refs[1:] {
			if x := j.ref(r, c); x.good() {
				most = max(most, x.took())
			}
		}
		theirs, ours = append(theirs, most), append(ours, o.took())
		if c.route.doc.stream && b.first < never && o.first < never {
			theirFirst, ourFirst = append(theirFirst, b.first-b.began), append(ourFirst, o.first-o.began)
		}
	}
	for _, c := range j.plan.calls { // the first bytes of streams that break later
		if b, o := j.refs[0].outcomes[c.id], j.r.outcomes[c.id]; c.route.doc.stream && !b.good() && b.first < never && o.first < never {
			theirFirst, ourFirst = append(theirFirst, b.first-b.began), append(ourFirst, o.first-o.began)
		}
	}
	j.half("p50", theirs, ours)
	j.half("p50 of the first byte", theirFirst, ourFirst)
	if len(theirs) >= manyGood {
		j.quantile("p99", .99, [][]time.Duration{theirs}, ours)
	}
}

// isExcused reports whether a call of net/http had luck. net/http sends again at once, by itself, if the
// connection was an old one. With a connection to make, its attempt would end with its timeout, too.
func (j *judgement) isExcused(c *call, b outcome) bool {
	limit := j.kind.rule.AttemptTimeout
	return len(j.refs[0].byCall()[c.id]) > 1 || limit > 0 && b.head-b.began > limit-2*c.route.host.dial
}

// half checks that no more than half of the answers are later than those to the same calls.
func (j *judgement) half(name string, theirs, ours []time.Duration) {
	late := 0
	for i, x := range ours {
		if x > theirs[i]+max(lateMost, theirs[i]/10) {
			late++
		}
	}
	if len(ours) >= fewGood && late > len(ours)/2 {
		j.violate(asGood, nil, true, name, "%s: %d of %d are later", name, late, len(ours))
	}
}

// quantile compares a quantile with the worst of the references.
func (j *judgement) quantile(name string, q float64, refs [][]time.Duration, ours []time.Duration) {
	if len(ours) < fewGood {
		return
	}
	most := time.Duration(0)
	for _, r := range refs {
		if len(r) > 0 {
			slices.Sort(r)
			most = max(most, r[int(float64(len(r)-1)*q)])
		}
	}
	slices.Sort(ours)
	chance := 0 // a few requests more that find no idle connection, because a retry has it, move a median
	if q < .9 {
		chance = (len(ours) + 9) / 10
	}
	if x := ours[int(float64(len(ours)-1)*q)-chance]; most > 0 && x > most+max(lateMost, most/10) {
		j.violate(asGood, nil, true, name, "%s is %v instead of %v of %d", name, x, most, len(ours))
	}
}

// byGroup compares the calls of each route and tenant by count and quantile.
func (j *judgement) byGroup() {
	type group struct {
		route  *route
		tenant int
	}
	groups := map[group][]*call{}
	var order []group
	for _, c := range j.plan.calls {
		g := group{c.route, c.tenant}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], c)
	}
	for _, g := range order {
		least, most, longest := math.MaxInt, 0, time.Duration(0)
		var theirs [][]time.Duration
		for _, r := range j.refs {
			good := 0
			var times []time.Duration
			for _, c := range groups[g] {
				if b := j.ref(r, c); b.good() {
					good++
					times = append(times, b.took())
					longest = max(longest, b.took())
				}
			}
			least, most = min(least, good), max(most, good)
			theirs = append(theirs, times)
		}
		var ours []time.Duration
		for _, c := range groups[g] {
			if o := j.r.outcomes[c.id]; o.good() {
				ours = append(ours, o.took())
			}
		}
		// A request that waits for its turn may take that of another. So as many as net/http
		// serves, less what chance changes there, are as early. The others would have failed.
		chance := len(groups[g]) / 10
		if g.route.limit != nil {
			chance *= 2 // which requests find something left of a quota changes with each of them
		}
		good, enough := len(ours), least-1-chance
		slices.Sort(ours)
		ours = ours[:max(min(good, enough), 0)]
		j.tallies[asGood].judged += most
		where := fmt.Sprintf("%s %s", g.route.method, g.route.path)
		if good < enough {
			j.violate(asGood, nil, true, "fewer good answers", "%s of tenant %d: %d good answers instead of %d to %d of %d", where, g.tenant, good, least, most, len(groups[g]))
		}
		shared := time.Duration(0) // how long the profile's documents let a request wait for what others were told
		if g.route.limit != nil && j.kind.name == j.plan.profile {
			shared = j.longestTold() + lateShare
		} else {
			j.quantile("p50", .5, theirs, ours)
		}
		if len(ours) > 0 && longest > 0 {
			if x := slices.Max(ours); x > longest+max(lateOne, longest/10)+shared {
				j.violate(asGood, nil, true, "late", "%s of tenant %d: the slowest takes %v instead of %v", where, g.tenant, x, longest)
			}
		}
	}
}

// longestTold returns the longest wait that a server has named and that the rule obeys.
func (j *judgement) longestTold() (longest time.Duration) {
	for _, a := range j.r.arrivals {
		if wait := time.Duration(a.wait) * time.Second; wait <= j.kind.rule.MaxRetryAfter {
			longest = max(longest, wait)
		}
	}
	return longest
}

// ends checks that failures are told soon, and that no body is waited for too long.
func (j *judgement) ends() {
	for _, c := range j.plan.calls {
		b, o := j.ref(j.refs[0], c), j.r.outcomes[c.id]
		if b.good() && o.good() || b.endless || o.skipped {
			continue
		}
		if o.endless && j.goesOn(c) {
			j.tallies[soon].excused++
			continue
		}
		if !b.good() {
			j.tallies[soon].judged++
			if o.good() {
				j.tallies[soon].healed++
			}
		}
		where := "after " + b.same()
		most, gap := j.latest(c, b)
		switch {
		case o.endless:
			j.violate(soon, c, false, "no end, "+where, "net/http failed after %v, and aplomb not within %v", b.took(), o.took())
		case o.took() > most:
			j.violate(soon, c, false, "ends late, "+where, "%s after %v, and at %v by the schedule; net/http %s after %v", o.same(), o.took(), most, b.same(), b.took())
		case o.gap > gap:
			j.violate(soon, c, false, "the reader waits, "+where, "a Read took %v, with net/http %v", o.gap, b.gap)
		}
	}
}

// goesOn reports whether the first attempt of a call still runs, because net/http itself has sent its
// request again after an idle connection turned out to be closed. Nothing bounds that over net/http alone, either.
func (j *judgement) goesOn(c *call) bool {
	all := j.of[c.id]
	for i, a := range all[min(1, len(all)):] {
		before := all[i]
		if before.http2 || !before.reused || before.fate != resets && before.fate != closes || a.at-before.failed > c.route.host.dial+c.route.host.lookup+tolerance {
			return false
		}
	}
	return len(all) > 1 && c.deadline == 0 && j.kind.rule.AttemptTimeout <= 0
}

// latest returns how long a call may take by the documents, and how long one of its Reads.
func (j *judgement) latest(c *call, b outcome) (all, gap time.Duration) {
	gap = b.gap + lateBody + tolerance
	longest := b.took()
	if j.plan.coupled {
		for _, r := range j.refs {
			for i := range r.outcomes {
				if o := &r.outcomes[i]; o.good() {
					longest, gap = max(longest, o.took()), max(gap, o.gap+lateBody+tolerance)
				}
			}
		}
	}
	doc := c.route.doc
	size := time.Duration(0)
	if doc.piece > 0 {
		size = time.Duration(doc.size/doc.piece+1) * doc.every
	}
	if j.kind.rule.ShareRetryAfter == policy.On {
		longest += j.kind.rule.MaxRetryAfter // for what others were told
	}
	all = max(longest, j.kind.rule.AttemptTimeout) + lateBody*time.Duration(1+doc.size/(64<<10)) + size
	try := lateTry
	if limit := j.kind.rule.AttemptTimeout; limit > 0 {
		try = limit
	}
	told := time.Duration(0)
	for _, a := range j.of[c.id] {
		if wait := time.Duration(a.wait) * time.Second; wait <= max(j.kind.rule.MaxRetryAfter, 0) {
			told += wait + time.Second
		}
	}
	schedule := time.Duration(0)
	for i, wait := range j.kind.waits {
		if schedule += wait + try; i == len(j.kind.waits)-1 {
			schedule += wait // the last attempt may wait once more in the line of its host
		}
	}
	if all += schedule; j.stood(c) {
		all += schedule // attempts that are left when a request leaves the line go as usual
	}
	reading := time.Duration(0) // of a slow reader, whose deadline passes meanwhile
	if c.reads == readsSlowly {
		reading = time.Duration(doc.size/4096+10) * pauseOfReader
	}
	if all += told; c.deadline > 0 {
		all = min(all, c.deadline)
	}
	return max(all, b.took()) + reading + tolerance, gap
}

// stood reports whether a call has waited for longer than its back-offs and the wait that its attempt was told, so in the
// line of its host.
func (j *judgement) stood(c *call) bool {
	all := j.of[c.id]
	for i, a := range all[min(1, len(all)):] {
		told := time.Duration(0)
		if before := all[i]; before.left == never {
			told = time.Duration(before.wait) * time.Second
		}
		if a.at-all[i].ended() > slices.Max(j.kind.waits)+told+tolerance {
			return true
		}
	}
	return false
}

// oneResponse checks that what was delivered is one response.
func (j *judgement) oneResponse(c *call) {
	o := j.r.outcomes[c.id]
	if o.status == 0 {
		return
	}
	j.tallies[oneAnswer].judged++
	if o.status != http.StatusOK {
		if o.header.Get("X-Status") != strconv.Itoa(o.status) || !bytes.HasPrefix([]byte(problem(o.status)), o.body) || o.err == nil && len(o.body) != len(problem(o.status)) {
			j.violate(oneAnswer, c, false, "no response of the server", "status %d, fields %v, body %q", o.status, o.header, o.body)
		}
		return
	}
	clean := o.err == nil && (c.reads == readsAll || c.reads == readsSlowly)
	var first *arrival
	fields := false
	for _, a := range j.of[c.id] {
		if a.rep == nil {
			continue
		}
		if first == nil {
			first = a
		}
		same := a.rep.etag == o.header.Get("ETag")
		for _, name := range []string{"Content-Type", "Content-Encoding", "X-Next-Cursor"} {
			same = same && a.rep.fields.Get(name) == o.header.Get(name)
		}
		fields = fields || same
		if !same || !bytes.HasPrefix(a.rep.body, o.body) || clean && len(o.body) != len(a.rep.body) {
			continue
		}
		if a.rep.from == nil || a == first && (!clean || a.failed == never) {
			return
		}
	}
	what := "spliced body"
	switch {
	case !fields:
		what = "header of no response"
	case c.route.doc.stream:
		what = "stream of two responses"
	}
	j.violate(oneAnswer, c, false, what, "%s of %s: header and body (%d bytes, error %v) are of no response of the server", what, c.route.doc.media, len(o.body), o.err)
}

// extras checks that each arrival after the first is a retry of a failure.
func (j *judgement) extras(c *call) {
	all := j.of[c.id]
	bare := len(j.refs[0].byCall()[c.id])
	for i, a := range all {
		if i == 0 {
			continue
		}
		j.tallies[asked].judged++
		if j.r.outcomes[c.id].source && len(all) > bare {
			j.violate(asked, c, false, "sent again after its own source failed", "%d arrivals, %d of net/http", len(all), bare)
			return
		}
		for _, b := range all[:i] {
			if b.failed <= a.at || b.left <= a.at {
				continue
			}
			what := "an attempt beside another that runs"
			if b.over <= a.at {
				what = "an attempt after a good answer"
			}
			j.violate(asked, c, false, what, "arrival %d at %v, %v after arrival %d, which the server has not failed (%v)", i+1, a.at, a.at-b.at, b.n, b.fate)
			return
		}
	}
}

// budget checks the documented bound of retries in every window. Retries do not count if ten attempts in a row had failed between
// the end of the attempt before them and their arrival: they are probes of a host that is down, or come back after that.
func (j *judgement) budget() {
	rule := j.kind.rule.RetryBudget
	for _, h := range j.plan.hosts {
		if h.bad != sound {
			continue // retries arrive when another address has been dialled, all at once
		}
		late := rule.MinPerSecond * (h.dial + h.lookup).Seconds() // what is earned from the departure of a retry to its arrival
		var requests, paid []time.Duration
		var takes [][2]time.Duration // from the end of the attempt before to the arrival
		var ends []*arrival
		for _, a := range j.r.arrivals {
			if a.call.route.host == h {
				ends = append(ends, a)
			}
		}
		slices.SortStableFunc(ends, func(a, b *arrival) int { return cmp.Compare(a.ended(), b.ended()) })
		for _, c := range j.plan.calls {
			if c.route.host != h {
				continue
			}
			requests = append(requests, j.r.outcomes[c.id].began)
			all, n := j.of[c.id], 1
			again := resent(all)
			for i, a := range all {
				if i == 0 || a.rest || again[i] {
					continue
				}
				if n++; n > j.kind.rule.MaxAttempts {
					j.violate(asked, c, false, "more attempts than the rule allows", "attempt %d of %d at %v", n, j.kind.rule.MaxAttempts, a.at)
					break
				}
				if a.good() {
					paid = append(paid, a.over)
				}
				if from := min(a.at, all[i-1].ended()); !wasDown(ends, from, a.at) {
					takes = append(takes, [2]time.Duration{from, a.at})
				}
			}
		}
		slices.Sort(requests)
		slices.Sort(paid)
		slices.SortFunc(takes, func(a, b [2]time.Duration) int { return cmp.Compare(a[0], b[0]) })
		count := func(all []time.Duration, from, to time.Duration) float64 {
			first, _ := slices.BinarySearch(all, from)
			last, _ := slices.BinarySearch(all, to+1)
			return float64(last - first)
		}
		for i := range takes {
			from, to := takes[i][0], takes[i][1]
			for n := i; n < len(takes); n++ {
				to = max(to, takes[n][1])
				most := rule.Ratio*count(requests, from, to) + 3*count(paid, from, to) + rule.MinPerSecond*(to-from).Seconds() + max(10*rule.MinPerSecond, 1)
				if float64(n-i+1) > most+late+2.001 {
					j.violate(asked, nil, false, "more retries than the budget has", "from %v to %v there are %d retries at %s, and the budget has %.1f", from, to, n-i+1, h.name, most)
					return
				}
			}
		}
	}
}

// ended returns when an attempt was over for its client.
func (a *arrival) ended() time.Duration { return min(a.left, a.failed, a.over) }

// good reports whether the server has answered an arrival well.
func (a *arrival) good() bool {
	return a.over <= min(a.left, a.failed) && !retried(a.status, a.wait > 0)
}

// wasDown reports whether ten attempts in a row had failed at some time between two times. ends are the attempts in the order of
// their ends.
func wasDown(ends []*arrival, from, to time.Duration) bool {
	row := 0
	for _, a := range ends {
		switch {
		case a.ended() > to:
			return row >= 10
		case !a.good():
			row++
		case a.ended() < from:
			row = 0
		}
		if row >= 10 && a.ended() >= from {
			return true
		}
	}
	return row >= 10
}

// resent reports which arrivals of a call net/http itself has sent again, which no budget knows. It does so at once. Over
// HTTP/2 it may wait before it sends a request again that was refused several times: 1 s, 2 s and so on, and up to a tenth more.
func resent(all []*arrival) []bool {
	again, row := make([]bool, len(all)), 0
	for i, a := range all[min(1, len(all)):] {
		before, gap := all[i], a.at-all[i].failed
		refused := before.fate == refuses || before.fate == goesAway
		slack := 5*time.Millisecond + 2*(a.site.host.dial+a.site.host.lookup) // the next connection may end before it, too
		soon := gap < slack
		for n := 0; refused && before.http2 && n < row; n++ { // it may not have counted all of them
			backoff := time.Second << n
			soon = soon || gap >= backoff && gap < backoff*11/10+slack
		}
		again[i+1] = soon && (refused || before.fate == resets || before.fate == closes)
		if row++; !again[i+1] {
			row = 0
		}
	}
	return again
}

// useful checks that the servers' work is not wasted.
func (j *judgement) useful() {
	count := func(of func(*call) outcome) (good int) {
		for _, c := range j.plan.calls {
			if o := of(c); o.good() {
				good++
			}
		}
		return good
	}
	least, ours := math.MaxInt, count(func(c *call) outcome { return j.r.outcomes[c.id] })
	for _, r := range j.refs {
		least = min(least, count(func(c *call) outcome { return j.ref(r, c) }))
	}
	most := 0.02*float64(least) + 2 // that may fail
	for _, h := range j.plan.hosts {
		if h.forgets+h.keeps > 0 { // twice as many may fail as over net/http, because there are more idle connections
			most = max(most, float64(len(j.plan.calls)-least))
		}
	}
	if float64(ours) < float64(least)-most {
		j.violate(asked, nil, true, "less useful work", "%d good answers instead of %d", ours, least)
	}
}

// acts checks that a POST is acted upon no more often than over net/http.
func (j *judgement) acts() {
	count := func(all []*arrival) (n int) {
		for _, a := range all {
			if a.acted {
				n++
			}
		}
		return n
	}
	for _, c := range j.plan.calls {
		if c.route.method != http.MethodPost {
			continue
		}
		j.tallies[actsOnce].judged++
		most := 1
		for _, r := range j.refs {
			most = max(most, count(r.byCall()[c.id]))
		}
		if n := count(j.of[c.id]); n > most {
			j.violate(actsOnce, c, false, "acted twice", "the server acted %d times", n)
		}
	}
}

// dials checks that the hosts that are well get no more connections than from net/http, but for two or a
// tenth.
func (j *judgement) dials() {
	well := map[*host]bool{}
	for _, h := range j.plan.hosts {
		well[h] = h.bad == sound && h.like == nil && h.resets == 0
	}
	for _, s := range j.plan.strikes {
		well[s.host] = false
	}
	for _, c := range j.plan.calls {
		if b, o := j.ref(j.refs[0], c), j.r.outcomes[c.id]; !b.good() || !o.good() || len(j.of[c.id]) != 1 {
			well[c.route.host] = false
		}
	}
	all, more := 0, 0
	for _, h := range j.plan.hosts {
		if !well[h] {
			continue
		}
		most := 0
		for _, r := range j.refs {
			most = max(most, r.dials[h])
		}
		all += most
		more += max(j.r.dials[h]-most, 0) // a host that gets fewer makes up for no other
	}
	if j.tallies[connects].judged += all; more > max(2, all/10) {
		j.violate(connects, nil, true, "more connections", "hosts that are well get %d connections more than %d", more, all)
	}
}
