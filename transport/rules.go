// The rule of a host.

package transport

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/cooldown"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/policy"
)

// A ruleset is one configuration. New and Update each make a ruleset, and it never
// changes.
type ruleset struct {
	standard *resolved  // for every host that no pattern matches
	hosts    []hostRule // most specific first
}

type hostRule struct {
	name    string // the key of Config.Hosts
	pattern pattern
	rule    *resolved
}

// resolved is a complete rule, prepared for use. It holds no state, so every host
// of a pattern shares it.
type resolved struct {
	set      *ruleset
	policy   policy.Rule
	classify classify.Func // asks rule.Classify, then classify.Default
	settings settings

	// The limits that the rule turns on. If it turns none on, a request only looks
	// at the cooldown.
	rate    bool
	pacing  bool
	gate    bool
	hedge   bool
	limited bool // any of them
	vouches bool // Idempotent is not the default, so somebody has thought about this host
	peeks   bool // its classifier or hint may wait for the body of a response
	timed   bool // attempts have a context of their own
	lanes   bool // the host may have more than one lane
	resumes bool // the body of a response may be resumed

	timeouts  timeouts
	peekWait  time.Duration // how long a classifier waits for the body of a response
	reconnect *resolved     // the rule for the reconnects of a body, in which every attempt is timed
}

// settings are the settings of the limits of a host.
type settings struct {
	rate     rate.Config
	budget   budget.Config
	cooldown cooldown.Config
	pacing   pacing.Config
	gate     gate.Config
}

func newRuleset(rule policy.Rule, hosts map[string]policy.Rule) (*ruleset, error) {
	faults := faultsOf(rule, "Rule.")
	sound := len(faults) == 0
	rule = rule.Or(policy.Defaults())
	set := &ruleset{}
	set.standard = set.resolve(rule)
	names := map[pattern]string{}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		path := "Hosts[" + strconv.Quote(name) + "]"
		merged := hosts[name].Or(rule)
		own := faultsOf(hosts[name], path+".")
		if len(own) == 0 && sound {
			own = faultsOf(merged, path+".") // two valid rules can be wrong together
		}
		faults = append(faults, own...)
		p, why := parsePattern(name)
		if why == "" && names[p] != "" {
			why = fmt.Sprintf("means the same hosts as %q", names[p])
		}
		if why != "" {
			faults = append(faults, &policy.FieldError{Field: path, Value: name, Reason: why})
			continue
		}
		names[p] = name
		set.hosts = append(set.hosts, hostRule{name, p, set.resolve(merged)})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	slices.SortFunc(set.hosts, func(a, b hostRule) int { return a.pattern.compare(b.pattern) })
	return set, nil
}

// faultsOf validates a rule and puts path in front of the field of each fault.
func faultsOf(r policy.Rule, path string) policy.Errors {
	err := r.Validate()
	if err == nil {
		return nil
	}
	return err.(policy.Errors).At(path)
}

// ruleFor returns the rule for a host. It searches for the rule at the first request
// and at the first request after an Update. Otherwise it costs one atomic load.
func (t *Transport) ruleFor(s *host.State[resolved], set *ruleset) *resolved {
	if r := s.Resolved.Load(); r != nil && r.set == set {
		return r
	}
	r, _ := set.forHost(s.Key())
	if r.rate {
		// Used tokens of the rate stay used. An Update must not allow another burst.
		m := s.Machines()
		rate := m.Rate(r.settings.rate)
		rate.Set(t.now(), r.settings.rate)
		if t.fleet != nil {
			rate.Share(t.now(), t.members())
		}
		if gate, _ := m.Made(); gate != nil {
			gate.WakeFirst() // the first request in that queue may wait for the rate
		}
	}
	if t.fleet != nil && r.obeysMore(s.Resolved.Load()) {
		// A Fleet may answer at once. So no request goes before it, and that includes one that
		// comes meanwhile and asks as well.
		t.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: s.Name()})
	}
	s.Resolved.Store(r)
	return r
}

// obeysMore reports whether something that a fleet knows matters with the rule, and did
// not matter with the old rule. The old rule is nil for the first request to a host.
func (r *resolved) obeysMore(old *resolved) bool {
	on := func(r *resolved) bool { return r.policy.Cooldown == policy.On }
	return old == nil || on(r) && !on(old) || r.pacing && !old.pacing || r.gate && !old.gate
}

// RuleOf returns the complete rule for the host of a URL, and the key of Config.Hosts
// that chose it. The key is "" if no pattern matches, so that Config.Rule applies. In
// the complete rule a zero field is off, or has the default that its comment names.
func (t *Transport) RuleOf(u *url.URL) (rule policy.Rule, pattern string) {
	set := t.rules.Load()
	if set == nil || u == nil {
		return policy.Defaults(), ""
	}
	r, pattern := set.forHost(host.KeyOf(u))
	return r.policy, pattern
}

// forHost finds the most specific rule, and its key in Config.Hosts.
func (set *ruleset) forHost(k host.Key) (r *resolved, key string) {
	if len(set.hosts) == 0 {
		return set.standard, ""
	}
	name, port := host.SplitPort(k.Host)
	if port == "" {
		port = host.DefaultPort(k.Scheme)
	}
	for i := range set.hosts {
		if set.hosts[i].pattern.matches(name, port) {
			return set.hosts[i].rule, set.hosts[i].name
		}
	}
	return set.standard, ""
}

func (set *ruleset) resolve(rule policy.Rule) *resolved {
	r := &resolved{
		set:      set,
		policy:   rule,
		classify: classify.Default,
		rate:     rule.Rate.PerSecond > 0,
		pacing:   rule.Pacing == policy.On,
		gate:     rule.Gate.Enabled(),
		hedge:    rule.Hedge.Enabled(),
		settings: settingsOf(&rule),
	}
	r.vouches = !sameFunc(rule.Idempotent, classify.Idempotent)
	r.limited = r.rate || r.pacing || r.gate || r.hedge
	own := !sameFunc[classify.Func](rule.Classify, classify.Default)
	r.peeks = own || !sameFunc[classify.Hint](rule.Hint, classify.DefaultHint)
	if own {
		r.classify = classify.First(rule.Classify, classify.Default)
	}
	r.timeouts = timeoutsOf(&rule)
	r.timed = r.timeouts.on()
	r.lanes = rule.Lanes == policy.On
	r.peekWait = min(max(rule.AttemptTimeout, 0), time.Second)
	r.resumes = rule.Resume.Max >= 0 && rule.Attempts > 1
	r.reconnect = r
	if rule.AttemptTimeout <= 0 && rule.Stall.Timeout <= 0 && r.resumes {
		bounded := *r
		bounded.policy.AttemptTimeout = reconnectTimeout
		bounded.timeouts, bounded.timed = timeoutsOf(&bounded.policy), true
		bounded.peekWait = time.Second
		bounded.reconnect = &bounded
		r.reconnect = &bounded
	}
	return r
}

// settingsOf returns the settings of the limits in the form that package host takes.
func settingsOf(r *policy.Rule) settings {
	c := settings{
		rate: rate.Config{
			PerSecond: r.Rate.PerSecond,
			Burst:     r.Rate.Burst,
			Adaptive:  r.Rate.Mode == policy.RateAdaptive,
		},
		budget: budget.Config{
			Ratio:     r.Budget.Ratio,
			PerSecond: r.Budget.PerSecond,
			Window:    r.Budget.Window,
			Burst:     r.Budget.Burst,
		},
		cooldown: cooldown.Config{Max: r.RetryAfter.Max, Stop: r.RetryAfter.Beyond == policy.BeyondStop},
		pacing:   pacing.Config{MaxWait: r.RetryAfter.Max},
		gate:     gate.Config{Start: r.Gate.Start, Max: r.Gate.Max},
	}
	if r.Budget.Burst < 0 {
		c.budget = budget.Config{Ratio: -1, PerSecond: -1} // off
	}
	c.budget = c.budget.Complete()
	return c
}

// sameFunc reports whether two functions without captured variables are the same.
// With it a rule that names the default costs no more than a rule that leaves it
// out.
func sameFunc[F any](a, b F) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// A pattern is a host pattern in canonical form. Equal patterns mean the same hosts.
type pattern struct {
	name     string // without the "*."
	port     string // "": every port
	wildcard bool
}

// parsePattern parses a host pattern. If the text is no pattern, why says why.
func parsePattern(s string) (p pattern, why string) {
	if why = notPattern(s); why != "" {
		return p, why
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
		if name := strings.Trim(s, "."); strings.HasPrefix(s, ".") && name != "" {
			return p, `has an empty name; did you mean "*.` + name + `"?`
		}
		return p, "has an empty name"
	case strings.HasPrefix(p.name, "[") != strings.HasSuffix(p.name, "]"):
		return p, "has an unpaired bracket"
	case p.name[0] == '[' && !isIPv6(p.name[1:len(p.name)-1]):
		return p, "has no IPv6 address in its brackets; a pattern is no regular expression"
	case err != nil || n == 0 || strings.HasSuffix(s, ":"):
		return p, "has a port that is not a number from 1 to 65535"
	}
	if p.port != "" {
		p.port = strconv.FormatUint(n, 10) // without leading zeros, as in the key of a host
	}
	return p, ""
}

// notPattern returns why the characters of a text rule it out as a pattern, and ""
// if they do not.
func notPattern(s string) string {
	switch {
	case s == "":
		return "is empty; rules for every host go into Rule"
	case s == "*":
		return "would match every host; rules for every host go into Rule"
	case strings.ContainsAny(s, `~^$()|{}+\`) || strings.LastIndexByte(s, '[') > 0:
		return `looks like a regular expression; write a name, or "*.example.com" for all names below one`
	case strings.Contains(s, "://"):
		return "has a scheme; write the host alone"
	case strings.ContainsAny(s, ",;"):
		return "names several hosts; give each of them an entry of its own"
	}
	for _, c := range s {
		switch {
		case c >= 0x80:
			return "is not ASCII; write the name in its xn-- form"
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.ContainsRune("-_.:*[]", c):
		case c == '%' && s[0] == '[': // the zone of an IPv6 address
		default:
			return "is not a host; write a name or an address, with or without a port"
		}
	}
	return ""
}

func isIPv6(s string) bool {
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is6()
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

// compare orders patterns. The most specific comes first.
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
