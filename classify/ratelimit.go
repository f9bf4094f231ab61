// What do the RateLimit fields and their older relatives say?

package classify

import (
	"math"
	"net/http"
	"time"
)

// A Quota is how much a server still allows, as it last said.
type Quota struct {
	// Remaining is how many requests (or other units) are left; 0 means none.
	Remaining int64
	// Reset is the time from the answer until the quota is full again.
	Reset time.Duration
	// Window is the time that the quota is for; 0 where the server does not
	// say.
	Window time.Duration
	// Limit is the whole quota; 0 where the server does not say.
	Limit int64
}

// QuotaOf reads what is left of the server's quota from any answer, successful
// ones included: from RateLimit and RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers), else from RateLimit-Remaining and
// RateLimit-Reset of its older versions, else from the same with X- or, as X
// itself has it, X-Rate-Limit- in front. ok is false where no complete and
// well-formed pair of remaining and reset is there, and for an answer from a
// cache (Age above 0), which speaks of an earlier request.
//
// Where a server names several quotas, the result is the one that asks for the
// slowest pace, Reset / Remaining.
func QuotaOf(o Outcome) (Quota, bool) {
	if o.Response == nil {
		return Quota{}, false
	}
	var tightest Quota
	all := quotas(o.Response.Header)
	for i, q := range all {
		if i == 0 || q.tighter(tightest) {
			tightest = q
		}
	}
	return tightest, len(all) > 0
}

// RateLimitReset takes the time until a used-up quota is full again for the
// wait, in answers of status 429 and 403: the longest among the quotas that have
// nothing left. The fields are those of [QuotaOf].
//
// X-RateLimit-Reset and RateLimit-Reset are a number of seconds or a Unix time,
// depending on the server; the two are told apart as in [RetryAfter]. With X- in
// front the Unix time may be in milliseconds, and X-Rate-Limit-Reset has to be
// one, since no two servers agree on anything else there.
//
// A 403 is Final by default: a classifier that knows the server has to say that
// it may be sent again, as [Signals] does for GitHub.
func RateLimitReset(o Outcome) (wait time.Duration, ok bool) {
	if !o.limited() {
		return 0, false
	}
	for _, q := range quotas(o.Response.Header) {
		if q.Remaining == 0 {
			wait, ok = max(wait, q.Reset), true
		}
	}
	return wait, ok
}

// limited reports whether the answer can mean that a quota is used up: 429, or
// 403, which GitHub sends for it.
func (o Outcome) limited() bool {
	return o.Response != nil && (o.Response.StatusCode == http.StatusTooManyRequests ||
		o.Response.StatusCode == http.StatusForbidden)
}

// quotas lists what the best of the three generations of fields says. All its
// entries know both Remaining and Reset.
func quotas(h http.Header) []Quota {
	if age(h) > 0 {
		return nil
	}
	if all := draftQuotas(h); len(all) > 0 {
		return all
	}
	for _, g := range plainQuotas {
		if q, ok := plainQuota(h, g.prefix, g.reset); ok {
			return []Quota{q}
		}
	}
	return nil
}

// plainQuotas are the fields that say one thing each, and how their reset is
// read: X-Rate-Limit-Reset is seconds here and milliseconds there, so only an
// instant is sure (X and Okta send one).
var plainQuotas = [...]struct {
	prefix string
	reset  func(s string, ref time.Time) (time.Duration, bool)
}{
	{"Ratelimit-", secondsOrInstant},
	{"X-Ratelimit-", reset},
	{"X-Rate-Limit-", instant},
}

// reset reads seconds from now, or a Unix time in seconds or milliseconds.
func reset(s string, ref time.Time) (time.Duration, bool) {
	if wait, ok := instant(s, ref); ok {
		return wait, true
	}
	return secondsOrInstant(s, ref)
}

// instant reads a Unix time in seconds or milliseconds.
func instant(s string, ref time.Time) (time.Duration, bool) {
	whole, nanos, ok := number(trim(s))
	if !ok {
		return 0, false
	}
	if whole >= oldestMilli && whole <= latestMilli {
		whole, nanos = whole/1000, whole%1000*1_000_000+nanos/1000
	}
	return untilInstant(whole, nanos, ref)
}

// age is how long ago the answer was made, where it comes from a cache (RFC 9111
// §5.1); 0 where it does not, and where the number is beyond the largest that the
// RFC knows (§1.2.2).
func age(h http.Header) time.Duration {
	s := trim(h.Get("Age"))
	if !digits(s) {
		return 0
	}
	age, _ := seconds(s)
	if age > 1<<31*time.Second {
		return 0
	}
	return age
}

// tighter orders quotas by the pace that they ask for.
func (q Quota) tighter(than Quota) bool {
	a, b := q.pace(), than.pace()
	return a > b || a == b && q.Reset > than.Reset
}

// pace is the time between requests that would use the quota up just at its
// reset.
func (q Quota) pace() float64 {
	switch {
	case q.Reset == 0:
		return 0
	case q.Remaining == 0:
		return math.Inf(1)
	}
	return float64(q.Reset) / float64(q.Remaining)
}

// draftQuotas reads RateLimit: a list of quotas by name, each with what remains
// (r) and the seconds until the reset (t); and the form of the seventh draft,
// which had one quota as limit, remaining and reset. A field with any member
// that is not as it should be is ignored as a whole.
func draftQuotas(h http.Header) []Quota {
	field := h.Values("RateLimit")
	if len(field) == 0 {
		return nil
	}
	members, ok := parseList(field)
	if !ok {
		return seventhDraft(field)
	}
	policies, _ := parseList(h.Values("RateLimit-Policy"))
	var all []Quota
	for _, m := range members {
		remaining, known := m.natural("r")
		reset, timed := m.natural("t")
		switch {
		case !m.named || !known || m.has("t") && !timed:
			return nil
		case timed:
			q := Quota{Remaining: remaining, Reset: scale(reset, 0, time.Second)}
			q.Limit, q.Window = policyOf(policies, m.text)
			all = append(all, q)
		}
	}
	return all
}

// policyOf finds the quota (q) and window (w) of the given name.
func policyOf(policies []member, name string) (limit int64, window time.Duration) {
	for _, p := range policies {
		if p.named && p.text == name {
			limit, _ = p.natural("q")
			w, _ := p.natural("w")
			return limit, scale(w, 0, time.Second)
		}
	}
	return 0, 0
}

// seventhDraft reads "limit=100, remaining=50, reset=5", which several servers
// still send.
func seventhDraft(field []string) []Quota {
	dict, ok := parseDictionary(field)
	if !ok {
		return nil
	}
	remaining, known := dict.natural("remaining")
	reset, timed := dict.natural("reset")
	if !known || !timed {
		return nil
	}
	limit, _ := dict.natural("limit")
	return []Quota{{Remaining: remaining, Reset: scale(reset, 0, time.Second), Limit: limit}}
}

// plainQuota reads one field each for what remains, the reset, and the limit.
// Of several values the least remains and the last reset counts.
func plainQuota(h http.Header, prefix string, reset func(string, time.Time) (time.Duration, bool)) (q Quota, ok bool) {
	for _, v := range h[prefix+"Remaining"] {
		n, _, valid := number(trim(v))
		if !valid {
			return Quota{}, false
		}
		if !ok || n < q.Remaining {
			q.Remaining = n
		}
		ok = true
	}
	if !ok || !has(h, prefix+"Reset") {
		return Quota{}, false
	}
	ref := received(h)
	q.Reset, ok = longest(h[prefix+"Reset"], func(v string) (time.Duration, bool) { return reset(v, ref) })
	q.Limit, q.Window = plainLimit(h[prefix+"Limit"])
	return q, ok
}

// plainLimit reads "100", and "100, 100;w=60" of the older drafts.
func plainLimit(field []string) (limit int64, window time.Duration) {
	members, ok := parseList(field)
	if !ok || len(members) == 0 || !members[0].whole || members[0].num < 0 {
		return 0, 0
	}
	limit = members[0].num
	for _, m := range members {
		if w, ok := m.natural("w"); ok && m.whole && m.num == limit {
			return limit, scale(w, 0, time.Second)
		}
	}
	return limit, 0
}
