// Reads the RateLimit fields and their older relatives.

package field

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// A Quota is how much a server still allows, as of its latest response.
type Quota struct {
	// Unit is the unit that the server counts: "" for requests, else the provider's own word,
	// such as "tokens".
	Unit string
	// Remaining is how many requests, or other units, are left. Zero means
	// none.
	Remaining int64
	// Reset is the time from the response until the quota is full again.
	Reset time.Duration
	// Limit is the whole quota. Zero means that the server did not say.
	Limit int64
}

// Quotas reads how much of the server's quotas is left from the header of any response, a success
// included. If several quotas have the same unit, the tightest of them is returned, which asks for
// the slowest pace: Reset divided by Remaining.
//
// It uses the first of these groups of fields that is there and well-formed:
//
//   - the fields of a provider that names its units, see below
//   - RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers),
//     also in the form of the seventh draft
//   - RateLimit-Remaining and RateLimit-Reset of the older drafts
//   - X-RateLimit-Remaining and X-RateLimit-Reset
//   - X-Rate-Limit-Remaining and X-Rate-Limit-Reset, as X sends them
//
// A quota of content-bytes or of concurrent-requests, which the parameter qu of RateLimit-Policy
// names, is left out. No client can count in advance how much a request takes of it. So is a
// quota whose unit has more than 64 bytes.
//
// There is none if no group has both a remaining quota and a reset, or if the response comes from a
// cache (its Age is above 0), because its fields are about an earlier request.
//
// These providers name their units:
//
//   - OpenAI: x-ratelimit-remaining-requests and -tokens, with resets such as "6m0s". A reset
//     without a unit is in seconds, as Azure sends it.
//   - Anthropic: anthropic-ratelimit-requests-remaining, -tokens-, -input-tokens- and
//     -output-tokens-, with resets in the form of RFC 3339.
//   - Linear: X-RateLimit-Requests-Remaining and X-RateLimit-Complexity-Remaining, with resets
//     as Unix times in milliseconds. Requests to an endpoint with a quota of its own have
//     X-RateLimit-Endpoint-Requests-Remaining as well, which is not read.
//   - HubSpot: X-HubSpot-RateLimit-Remaining of X-HubSpot-RateLimit-Max in
//     X-HubSpot-RateLimit-Interval-Milliseconds. The reset is the whole interval, because it
//     is not known when the interval began.
//   - Shopify: X-Shopify-Shop-Api-Call-Limit, such as "32/40". The bucket is taken to leak at
//     a 20th of its size per second, so "32/40" is empty in 16 s.
//   - GitHub: X-RateLimit-Remaining counts points if X-RateLimit-Resource is "graphql".
func Quotas(h http.Header) []Quota {
	found := readQuotas(h, true)
	all := found[:0]
	for _, q := range found {
		if q.Unit == "content-bytes" || q.Unit == "concurrent-requests" || len(q.Unit) > longestUnit {
			continue
		}
		switch i := slices.IndexFunc(all, func(other Quota) bool { return other.Unit == q.Unit }); {
		case i < 0:
			all = append(all, q)
		case q.tighter(all[i]):
			all[i] = q
		}
	}
	return all
}

// untilFull returns the time until every used-up quota is full again. ok is false if no quota is used up.
func untilFull(all []Quota) (wait time.Duration, ok bool) {
	for _, q := range all {
		if q.Remaining == 0 {
			wait, ok = max(wait, q.Reset), true
		}
	}
	return wait, ok
}

// longestUnit is the length of the longest unit that is read. Somebody has to keep
// each unit.
const longestUnit = 64

// longestReset bounds a reset that is no date, because a wrong number may be any number.
const longestReset = 24 * time.Hour

// reset reads a date, a Unix time, or a time from now. It tells them apart as [RetryAfter] does, but a
// time from now counts as a day at most.
func reset(s string, ref time.Time) (time.Duration, bool) {
	if wait, ok := instant(s, ref); ok {
		return wait, true
	}
	wait, ok := span(s)
	return min(wait, longestReset), ok
}

// age returns the time that a response has spent in caches (RFC 9111 §5.1). It
// is 0 if the response does not come from a cache, or if the number is larger
// than the RFC allows (§1.2.2).
func age(h http.Header) time.Duration {
	seconds, _, ok := number(trim(h.Get("Age")))
	if !ok || seconds > 1<<31 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// tighter reports whether q asks for a slower pace than the other quota.
func (q Quota) tighter(than Quota) bool {
	a, b := q.pace(), than.pace()
	return a > b || a == b && q.Reset > than.Reset
}

// pace returns the time between requests that would use up the quota exactly at
// its reset.
func (q Quota) pace() float64 {
	if q.Reset == 0 {
		return 0
	}
	return float64(q.Reset) / float64(q.Remaining) // +Inf if nothing is left
}

// draftQuotas reads RateLimit. The field is a list of named quotas, each with
// the remaining quota (r) and the seconds until the reset (t). A field with any
// bad member is ignored as a whole.
func draftQuotas(h http.Header) []Quota {
	field := h["Ratelimit"]
	members, ok := parseList(field)
	if !ok {
		return seventhDraft(field)
	}
	policies, _ := parseList(h["Ratelimit-Policy"])
	var all []Quota
	for _, m := range members {
		item, name, ok := named(m)
		if !ok {
			return nil
		}
		remaining, known := param(item, "r")
		reset, timed := param(item, "t")
		_, hasReset := item.Params.Get("t")
		switch {
		case !known || hasReset && !timed:
			return nil
		case timed:
			q := Quota{Remaining: remaining, Reset: min(scale(reset, 0, time.Second), longestReset)}
			q.describe(policies, name)
			all = append(all, q)
		}
	}
	return all
}

// describe takes the limit (q) and the unit (qu) from the policy with the name of the quota.
func (q *Quota) describe(policies httpsfv.List, name string) {
	for _, m := range policies {
		if p, n, ok := named(m); ok && n == name {
			q.Limit, _ = param(p, "q")
			if unit, _ := p.Params.Get("qu"); unit != "requests" {
				q.Unit, _ = unit.(string)
			}
			return
		}
	}
}

// seventhDraft reads RateLimit in the form of the seventh draft, "limit=100,
// remaining=50, reset=5". Several servers still send it.
func seventhDraft(field []string) []Quota {
	if !within(structuredLimit, field) {
		return nil
	}
	dict, err := httpsfv.UnmarshalDictionary(field)
	if err != nil {
		return nil
	}
	remaining, known := entry(dict, "remaining")
	reset, timed := entry(dict, "reset")
	if !known || !timed {
		return nil
	}
	limit, _ := entry(dict, "limit")
	return []Quota{{Remaining: remaining, Reset: min(scale(reset, 0, time.Second), longestReset), Limit: limit}}
}

// read reads the quota from a header. Of several remaining quotas the smallest
// counts, and of several resets the latest.
func (f *unitFields) read(h http.Header) (q Quota, ok bool) {
	q.Unit, q.Remaining = f.unit, math.MaxInt64
	for _, v := range h[f.remaining] {
		n, _, valid := number(trim(v))
		if !valid {
			return Quota{}, false
		}
		q.Remaining = min(q.Remaining, n)
	}
	ref := received(h)
	q.Reset, ok = Longest(h[f.reset], func(v string) (time.Duration, bool) { return f.wait(v, ref) })
	q.Limit = plainLimit(h[f.limit])
	return q, ok && len(h[f.remaining]) > 0
}

// plainLimit reads a limit such as "100", or "100, 100;w=60" of the older
// drafts.
func plainLimit(field []string) int64 {
	if len(field) == 0 {
		return 0
	}
	first, _, _ := strings.Cut(trim(field[0]), ",")
	first, _, _ = strings.Cut(first, ";")
	limit, _, _ := number(first)
	return limit
}
