// Which rule applies to this host?

package transport

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/policy"
)

// A ruleset is one configuration: New and Update each make one, and it never
// changes.
type ruleset struct {
	rule  policy.Rule // complete
	hosts []hostRule  // most specific first
	// standard is what every host shares that no pattern matches and whose
	// rule needs no state of its own.
	standard *resolved
}

type hostRule struct {
	pattern pattern
	rule    policy.Rule // complete
}

// resolved is a rule made ready for one host.
type resolved struct {
	set      *ruleset
	rule     policy.Rule
	classify classify.Func // asks rule.Classify, then classify.Default
	custom   bool          // classify is more than classify.Default
	limiter  *rate.Limiter // nil: no limit
}

func newRuleset(rule policy.Rule, hosts map[string]policy.Rule) (*ruleset, error) {
	var faults policy.Errors
	faults = append(faults, faultsOf(rule, "Rule.")...)
	set := &ruleset{rule: rule.Or(policy.Defaults())}
	names := map[pattern]string{}
	for _, name := range slices.Sorted(keys(hosts)) {
		path := "Hosts[" + strconv.Quote(name) + "]"
		faults = append(faults, faultsOf(hosts[name], path+".")...)
		p, why := parsePattern(name)
		if why == "" && names[p] != "" {
			why = fmt.Sprintf("means the same hosts as %q", names[p])
		}
		if why != "" {
			faults = append(faults, &policy.FieldError{Field: path, Value: name, Reason: why})
			continue
		}
		names[p] = name
		set.hosts = append(set.hosts, hostRule{p, hosts[name].Or(set.rule)})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	slices.SortFunc(set.hosts, func(a, b hostRule) int { return a.pattern.compare(b.pattern) })
	set.standard = set.resolve(set.rule, nil)
	return set, nil
}

func keys(m map[string]policy.Rule) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// faultsOf validates a rule and puts path before each fault's field.
func faultsOf(r policy.Rule, path string) policy.Errors {
	err := r.Validate()
	if err == nil {
		return nil
	}
	return err.(policy.Errors).At(path)
}

// ruleFor returns the rule for a host: resolved at its first request and at
// the first one after an Update, one atomic load otherwise.
func (t *Transport) ruleFor(s *host.State[resolved], set *ruleset) *resolved {
	old := s.Resolved.Load()
	if old != nil && old.set == set {
		return old
	}
	r := set.forHost(s.Key, old)
	if s.Resolved.CompareAndSwap(old, r) {
		return r
	}
	// Another request was first; its limiter is the host's.
	if now := s.Resolved.Load(); now.set == set {
		return now
	}
	return r // an Update in between: this request keeps the rules it began with
}

// forHost finds the most specific rule and makes it ready; old is what the
// host had before, whose state it keeps.
func (set *ruleset) forHost(k host.Key, old *resolved) *resolved {
	rule := set.rule
	found := false
	name, port := host.SplitPort(k.Host)
	if port == "" {
		port = host.DefaultPort(k.Scheme)
	}
	for i := range set.hosts {
		if set.hosts[i].pattern.matches(name, port) {
			rule, found = set.hosts[i].rule, true
			break
		}
	}
	if !found && !(rule.Rate > 0) {
		return set.standard
	}
	return set.resolve(rule, old)
}

func (set *ruleset) resolve(rule policy.Rule, old *resolved) *resolved {
	r := &resolved{set: set, rule: rule, classify: classify.Default}
	if own := rule.Classify; own != nil && !sameFunc(own, classify.Default) {
		r.classify, r.custom = classify.First(own, classify.Default), true
	}
	if rule.Rate > 0 {
		r.limiter = limiterFor(rule, old)
	}
	return r
}

// limiterFor keeps the host's old limiter, with its tokens spent, under a
// possibly new rate: an Update is no fresh burst.
func limiterFor(rule policy.Rule, old *resolved) *rate.Limiter {
	burst := rule.Burst
	if burst <= 0 {
		burst = int(min(max(math.Ceil(rule.Rate), 1), math.MaxInt32))
	}
	if old == nil || old.limiter == nil {
		return rate.NewLimiter(rate.Limit(rule.Rate), burst)
	}
	now := time.Now()
	old.limiter.SetLimitAt(now, rate.Limit(rule.Rate))
	old.limiter.SetBurstAt(now, burst)
	return old.limiter
}

// sameFunc reports whether two functions without captured variables are the
// same, so that naming the default costs no more than leaving it out.
func sameFunc(a, b classify.Func) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// A pattern is a host pattern in canonical form; equal patterns mean the same
// hosts.
type pattern struct {
	name     string // without the "*."
	port     string // "": every port
	wildcard bool
}

// parsePattern returns why a pattern is not one, "" where it is.
func parsePattern(s string) (p pattern, why string) {
	switch {
	case s == "":
		return p, "is empty; rules for every host go into Rule"
	case strings.Contains(s, "://"):
		return p, "has a scheme; write the host alone"
	case strings.ContainsAny(s, "/?#@ \t\r\n"):
		return p, "is not a host; write a name or an address, with or without a port"
	case s == "*":
		return p, "would match every host; rules for every host go into Rule"
	}
	for _, c := range s {
		if c >= 0x80 {
			return p, "is not ASCII; write the name in its xn-- form"
		}
	}
	s, p.wildcard = strings.CutPrefix(strings.ToLower(s), "*.")
	if strings.Contains(s, "*") {
		return p, `has a "*" elsewhere than in a leading "*."`
	}
	if strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") {
		return p, "is an IPv6 address without brackets; write [" + s + "]"
	}
	p.name, p.port = host.SplitPort(s)
	p.name = strings.TrimSuffix(p.name, ".")
	n, err := strconv.ParseUint(cmp.Or(p.port, "1"), 10, 16)
	switch {
	case p.name == "" || strings.HasPrefix(p.name, ".") || strings.Contains(p.name, ".."):
		return p, "has an empty name"
	case strings.HasPrefix(p.name, "[") != strings.HasSuffix(p.name, "]"):
		return p, "has an unpaired bracket"
	case err != nil || n == 0 || strings.HasSuffix(s, ":"):
		return p, "has a port that is not a number from 1 to 65535"
	}
	return p, ""
}

func (p pattern) matches(name, port string) bool {
	switch {
	case p.port != "" && p.port != port:
		return false
	case p.wildcard:
		rest, ok := strings.CutSuffix(name, p.name)
		return ok && len(rest) > 1 && rest[len(rest)-1] == '.'
	}
	return p.name == name
}

// compare orders patterns by how specific they are, most specific first.
func (p pattern) compare(q pattern) int {
	return cmp.Or(
		compareBool(!p.wildcard, !q.wildcard),
		cmp.Compare(len(q.name), len(p.name)),
		compareBool(p.port != "", q.port != ""),
		cmp.Compare(p.name, q.name),
		cmp.Compare(p.port, q.port),
	)
}

// compareBool puts true first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
