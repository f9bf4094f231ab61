// Package rules finds the complete rule of a host, of a path and of a request. It keeps no state but rules that it has completed.
package rules

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/pacing"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/policy"
)

// A Ruleset is one configuration. New and Update each make a ruleset, and it never
// changes.
type Ruleset struct {
	Owner    *Owner
	standard *Resolved // for every host that no pattern matches
	hosts    map[pattern]hostRule
}

// An Owner tells the rulesets of a Transport from those of others. It keeps nothing
// else in memory.
type Owner struct{ _ byte }

type hostRule struct {
	keys []string // of Config.Hosts, whose rules are in it, the most specific first
	rule *Resolved
}

// Resolved is a complete rule, prepared for use. It holds no state, so every host
// of a pattern shares it.
type Resolved struct {
	Set      *Ruleset
	Policy   policy.Rule
	Classify classify.Func // that of the rule; if the rule has an IdempotencyKey, it also knows a 409 for a key in progress
	KeyInUse classify.Func // in its place if an earlier attempt may be in progress under a key that IdempotencyKey made
	Settings settings

	// What the rule turns on.
	RateLimit   bool
	QuotaPacing bool
	Concurrency bool
	Limited     bool // any of them
	Gated       bool // any of them, or shared waits, so that each attempt needs a permit
	Breaker     bool // first attempts wait while the host is down
	FailsFast   bool // requests fail meanwhile
	Hedge       bool
	Loops       bool // its requests may need the loop before their first attempt has ended
	Peeks       bool // its classifier or RetryAfter may wait for the body of a response
	Timed       bool // attempts have a context of their own
	Resumes     bool // the body of a response may be resumed

	Paths *paths // the rules of the paths of the host; nil: none

	Timeouts attempt.Timeouts
	Retries  attempt.Timeouts // of attempts after the first
	Later    attempt.Timeouts // the same if there is no deadline
}

// settings are the settings of the limits of a host.
type settings struct {
	Rate        rate.Config
	Budget      budget.Config
	Throttle    throttle.Config
	Pacing      pacing.Config
	Concurrency concurrency.Config
}

// A hostEntry is an entry of Config.Hosts.
type hostEntry struct {
	key     string
	pattern pattern
	route
	rule policy.Rule
}

// fault returns a fault of the key.
func (e *hostEntry) fault(why string) *policy.FieldError {
	return &policy.FieldError{Field: e.field(), Err: fmt.Errorf("%q %s", e.key, why)}
}

// field returns the path of the entry in faults.
func (e *hostEntry) field() string { return "Hosts[" + strconv.Quote(e.key) + "]" }

// NewRuleset makes a ruleset, and returns all faults. With a fault the ruleset is of no use.
func NewRuleset(rule policy.Rule, hosts map[string]policy.Rule, owner *Owner) (*Ruleset, []*policy.FieldError) {
	faults := FaultsOf(rule.Validate(), "Rule.")
	set := &Ruleset{Owner: owner, hosts: map[pattern]hostRule{}}
	set.standard = set.resolve(rule.Or(policy.Defaults()))
	c := config{wrong: len(faults) > 0, hosts: map[pattern]*hostEntry{}, paths: map[pattern][]*hostEntry{}, faulty: map[pattern]bool{}}
	for _, key := range slices.Sorted(maps.Keys(hosts)) {
		e := &hostEntry{key: key, rule: hosts[key]}
		why, own := e.parse(), ValidatePart(e.rule, e.field()+".")
		if e.path != "" && !strings.Contains(e.key, "://") { // a scheme is a fault, but no path
			own = ValidateRequest(e.rule, e.field()+".")
		}
		faults = append(faults, own...)
		switch same := c.hosts[e.pattern]; {
		case why != "":
		case e.path != "":
			c.paths[e.pattern] = append(c.paths[e.pattern], e)
		case same != nil:
			why = fmt.Sprintf("means the same hosts as %q", same.key)
		default:
			c.hosts[e.pattern], c.faulty[e.pattern] = e, len(own) > 0
		}
		if why != "" {
			faults = append(faults, e.fault(why))
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(c.paths), pattern.compare) {
		faults = append(faults, checkPaths(c.paths[p])...)
	}
	withPaths := len(faults) == 0
	for _, p := range slices.Backward(c.patterns()) { // after those from which p inherits
		faults = append(faults, set.add(p, &c, withPaths)...)
	}
	return set, faults
}

// A config has the meaning of the keys of Config.Hosts.
type config struct {
	wrong  bool                     // Config.Rule has faults
	hosts  map[pattern]*hostEntry   // entries without paths
	paths  map[pattern][]*hostEntry // entries with paths, by the patterns of their hosts
	faulty map[pattern]bool         // rules of hosts with faults
}

// patterns returns all patterns of hosts whose rules differ, the most specific first. A pattern for all ports
// inherits more at a port for which there is a wider pattern, so it is there with this port, too.
func (c *config) patterns() []pattern {
	ports := map[pattern][]string{}
	for p := range c.hosts {
		if p.wildcard {
			of := pattern{name: p.name, wildcard: true}
			ports[of] = append(ports[of], p.port)
		}
	}
	all := slices.AppendSeq(slices.Collect(maps.Keys(c.hosts)), maps.Keys(c.paths))
	for _, p := range all[:len(all):len(all)] {
		if p.port != "" {
			continue
		}
		for _, q := range p.wider() {
			for _, port := range ports[q] {
				all = append(all, pattern{p.name, port, p.wildcard})
			}
		}
	}
	slices.SortFunc(all, pattern.compare)
	return slices.Compact(all)
}

// parse parses the key. If the key is wrong, why says why, and the key is as Shown returns it.
func (e *hostEntry) parse() (why string) {
	hosts, r := cutPattern(e.key)
	e.route = r
	if why = cmp.Or(notPattern(e.key, hosts), r.fault(e.key, hosts)); why == "" {
		e.pattern, why = parsePattern(hosts)
	}
	if why != "" {
		e.key = withoutSecrets(e.key)
	}
	return why
}

// Shown returns a key of Config.Hosts as faults show it. A key that is wrong may be a URL with a
// password or a token.
func Shown(key string) string {
	e := hostEntry{key: key}
	e.parse()
	return e.key
}

// withoutSecrets hides the text before an "@", and any text that may be a query or a fragment.
func withoutSecrets(key string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	scheme := key[:len(key)-len(rest)]
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = redact.Hidden + rest[i:]
	}
	if i := strings.IndexAny(rest, "?#&="); i >= 0 { // a query may have an "@"
		rest = rest[:i+1] + redact.Hidden
	}
	return scheme + rest
}

// add adds the rule of the hosts that p means, and returns the faults of rules that are wrong together. The
// rules of p and of all wider patterns are in it. The paths are only those of the most specific of these
// patterns, because the host is chosen before the path.
func (set *Ruleset) add(p pattern, c *config, withPaths bool) (faults []*policy.FieldError) {
	var rule policy.Rule
	var keys []string
	var paths []*hostEntry
	faulty, chosen := c.wrong, ""
	for _, q := range p.inherits() {
		e, own := c.hosts[q], c.paths[q]
		if chosen == "" && own != nil {
			chosen, paths = own[0].key, own
		}
		if e != nil {
			chosen = cmp.Or(chosen, e.key)
			rule, keys = rule.Or(e.rule), append(keys, e.key)
		}
		faulty = faulty || c.faulty[q]
	}
	rule = rule.Or(set.standard.Policy)
	if !faulty && len(keys) > 0 {
		faults = FaultsOf(rule.Validate(), (&hostEntry{key: keys[0]}).field()+".") // two valid rules can be wrong together
		c.faulty[p] = len(faults) > 0
	}
	h := hostRule{keys, set.resolve(rule)}
	set.hosts[p] = h
	if !withPaths || len(paths) == 0 {
		return faults
	}
	h.rule.Paths = newPaths()
	for _, e := range paths {
		h.rule.Paths.add(e, set.resolve(e.rule.Or(rule)))
	}
	h.rule.Paths.sort()
	return faults
}

// ForHost finds the rule of a host, and the keys in Config.Hosts whose rules are in it, the most specific first.
// The rule has the rules of the host's paths.
func (set *Ruleset) ForHost(k host.Key) (r *Resolved, keys []string) {
	if len(set.hosts) == 0 {
		return set.standard, nil
	}
	name, port := host.SplitPort(k.Host)
	for _, p := range (pattern{name: name, port: cmp.Or(port, host.DefaultPort(k.Scheme))}).inherits() {
		if h, ok := set.hosts[p]; ok {
			return h.rule, h.keys
		}
	}
	return set.standard, nil
}

func (set *Ruleset) resolve(rule policy.Rule) *Resolved {
	r := &Resolved{
		Set:         set,
		Policy:      rule,
		Classify:    rule.Classify,
		RateLimit:   rule.RateLimit.Enabled != policy.Off && rule.RateLimit.PerSecond > 0,
		QuotaPacing: rule.QuotaPacing == policy.On,
		Concurrency: rule.Concurrency.Enabled != policy.Off && rule.Concurrency.Max > 0,
		Hedge:       rule.Hedge.Enabled != policy.Off && (rule.Hedge.Delay > 0 || rule.Hedge.Percentile > 0),
		Settings:    settingsOf(&rule),
	}
	r.Breaker = rule.CircuitBreaker.Enabled == policy.On
	r.FailsFast = r.Breaker && rule.CircuitBreaker.FailFast == policy.On
	r.Limited = r.RateLimit || r.QuotaPacing || r.Concurrency
	r.Gated = r.Limited || rule.ShareRetryAfter == policy.On
	r.Loops = r.Hedge || r.Limited && rule.Cost != nil
	own := chain.WithoutDefault(rule.Classify)
	r.Peeks = own != nil || !chain.SameCode(rule.RetryAfter, classify.RetryAfter)
	if rule.IdempotencyKey != nil {
		r.Classify = classify.First(own, inProgress, classify.Default)
		r.KeyInUse = classify.First(own, classify.OnStatus(classify.Ambiguous, http.StatusConflict), classify.Default)
	}
	r.Timeouts = attempt.TimeoutsOf(&rule)
	later := rule
	if later.AttemptTimeout <= 0 {
		later.AttemptTimeout = LaterTimeout
	}
	r.Retries, r.Later = r.Timeouts, attempt.TimeoutsOf(&later)
	r.Retries.BoundUpload(rule.AttemptTimeout)
	r.Later.BoundUpload(rule.AttemptTimeout)
	r.Timed = r.Timeouts.On()
	r.Resumes = rule.Resume != policy.Off && rule.MaxAttempts > 1
	return r
}

// sharedMost bounds what one response can do to the requests of others, if its own request waits
// for as long as the server says.
func sharedMost(most time.Duration) time.Duration {
	if most < 0 {
		return time.Hour
	}
	return most
}

// settingsOf returns the settings of the limits in the form that package host takes.
func settingsOf(r *policy.Rule) settings {
	c := settings{
		Rate: rate.Config{
			PerSecond: r.RateLimit.PerSecond,
			Burst:     r.RateLimit.Burst,
		},
		Budget: budget.Config{
			Ratio:     r.RetryBudget.Ratio,
			PerSecond: r.RetryBudget.MinPerSecond,
		},
		Throttle:    throttle.Config{Max: sharedMost(r.MaxRetryAfter)},
		Pacing:      pacing.Config{MaxWait: sharedMost(r.MaxRetryAfter)},
		Concurrency: concurrency.Config{Max: r.Concurrency.Max},
	}
	if r.RetryBudget.Enabled == policy.Off {
		c.Budget = budget.Config{Ratio: -1, PerSecond: -1} // off
	}
	c.Budget = c.Budget.Complete()
	return c
}

// A pattern is a host pattern in canonical form. Equal patterns mean the same hosts.
type pattern struct {
	name     string // without the "*."
	port     string // "": every port
	wildcard bool
}

// parsePattern parses a host pattern, of which notPattern has seen the characters. If the
// text is no pattern, why says why.
func parsePattern(s string) (p pattern, why string) {
	s, p.wildcard = strings.CutPrefix(strings.ToLower(s), "*.")
	if strings.Contains(s, "*") {
		return p, `has a "*" elsewhere than in a leading "*."`
	}
	if addr, _ := netip.ParseAddr(s); addr.Is6() {
		return p, "is an IPv6 address without brackets; write [" + s + "]"
	}
	p.name, p.port = host.SplitPort(s)
	p.name = host.Canonical("", p.name)
	addr, _ := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(p.name, "["), "]"))
	n, err := strconv.ParseUint(cmp.Or(p.port, "1"), 10, 16)
	switch {
	case p.name == "" || strings.HasPrefix(p.name, ".") || strings.Contains(p.name, ".."):
		if name := strings.Trim(s, "."); strings.HasPrefix(s, ".") && name != "" {
			return p, `has an empty name; did you mean "*.` + name + `"?`
		}
		return p, "has an empty name"
	case strings.HasPrefix(p.name, "[") != strings.HasSuffix(p.name, "]"):
		return p, "has an unpaired bracket"
	case p.name[0] == '[' && !addr.Is6():
		return p, "has no IPv6 address in its brackets; a pattern is no regular expression"
	case p.wildcard && addr.IsValid():
		return p, `has a "*." in front of an address, which has no names below it`
	case err != nil || n == 0 || strings.HasSuffix(s, ":") || p.name[0] != '[' && strings.Contains(p.name, ":"):
		return p, "has a port that is not a number from 1 to 65535"
	}
	if p.port != "" {
		p.port = strconv.FormatUint(n, 10) // without leading zeros, as in the key of a host
	}
	return p, ""
}

// notPattern returns why the characters of the host in a key of Config.Hosts rule it out as
// a pattern, and "" if they do not.
func notPattern(key, s string) string {
	const expression = `~^$()|{}+\`
	schemed := strings.Contains(key, "://")
	_, prefixErr := netip.ParsePrefix(key)
	switch {
	case key == "":
		return "is empty; rules for every host go into Rule"
	case s == "*":
		return "would match every host; rules for every host go into Rule"
	case strings.ContainsAny(s, expression), strings.LastIndexByte(s, '[') > 0, schemed && strings.ContainsAny(key, expression):
		return `looks like a regular expression; write a name, or "*.example.com" for all names below one`
	case schemed:
		return "has a scheme; leave it out"
	case prefixErr == nil:
		return "looks like a range of addresses; give each address an entry of its own"
	case strings.ContainsAny(s, ",;"):
		return "names several hosts; give each of them an entry of its own"
	}
	for _, c := range s {
		switch {
		case c >= 0x80:
			return "is not ASCII; write the name in its xn-- form, here and in the URLs of requests"
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.ContainsRune("-_.:*[]", c):
		case c == '%' && s[0] == '[': // the zone of an IPv6 address
		default:
			return "is not a host; write a name or an address, with or without a port"
		}
	}
	return ""
}

// inherits returns p and the patterns that mean all hosts of p, the most specific first.
func (p pattern) inherits() (all []pattern) {
	for _, q := range append([]pattern{{p.name, "", p.wildcard}}, p.wider()...) {
		if p.port != "" {
			all = append(all, pattern{q.name, p.port, q.wildcard})
		}
		all = append(all, q)
	}
	return all
}

// wider returns the patterns with a wildcard and without a port that mean all hosts of p and
// more, the most specific first.
func (p pattern) wider() (all []pattern) {
	for _, rest, ok := strings.Cut(p.name, "."); ok; _, rest, ok = strings.Cut(rest, ".") {
		if len(p.name)-len(rest) > 1 { // a label stands in front of it
			all = append(all, pattern{name: rest, wildcard: true})
		}
	}
	return all
}

// compare orders patterns. The most specific comes first.
func (p pattern) compare(q pattern) int {
	number := map[bool]int{true: 1}
	return cmp.Or(
		cmp.Compare(number[p.wildcard], number[q.wildcard]),
		cmp.Compare(len(q.name), len(p.name)),
		cmp.Compare(number[p.port == ""], number[q.port == ""]),
		cmp.Compare(p.name, q.name),
		cmp.Compare(p.port, q.port),
	)
}

// LaterTimeout bounds an attempt after the first, up to the headers of its response, if there is neither
// a deadline nor an AttemptTimeout. Without the retry the caller would know of the failure by then, so it
// must not wait for ever for a server that accepts a request and does not answer.
const LaterTimeout = 2 * time.Minute
