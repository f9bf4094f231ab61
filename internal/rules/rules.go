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
	"unicode"

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
	hosts    map[pattern]*hostRule
}

// An Owner tells the rulesets of a Transport from those of others. It keeps nothing
// else in memory.
type Owner struct{ _ byte }

// A hostRule is the rule of the hosts that a pattern means.
type hostRule struct {
	pattern
	own   *hostEntry   // the entry without a path; nil: none
	paths []*hostEntry // the entries with paths
	wrong bool         // the rule has faults, or a rule from which it inherits has some

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
	key string
	meaning
	rule policy.Rule
}

// A meaning says which requests a key means. Keys that mean the same have equal meanings.
type meaning struct {
	pattern
	method string // "": every method; GET means HEAD as well
	path   string // as appendSegments writes it; "": every path; with a slash at its end everything below it
}

// fault returns a fault of the key.
func (e *hostEntry) fault(why string) *policy.FieldError {
	return &policy.FieldError{Field: fieldOf(e.key), Err: fmt.Errorf("%q %s", e.key, why)}
}

// fieldOf returns the path of an entry in faults.
func fieldOf(key string) string { return "Hosts[" + strconv.Quote(key) + "]" }

// NewRuleset makes a ruleset, and returns all faults. With a fault the ruleset is of no use.
func NewRuleset(rule policy.Rule, hosts map[string]policy.Rule, owner *Owner) (*Ruleset, []*policy.FieldError) {
	set := &Ruleset{Owner: owner, hosts: map[pattern]*hostRule{}}
	set.standard = set.resolve(rule.Or(policy.Defaults()))
	c := config{set: set, known: map[meaning]*hostEntry{}, faults: FaultsOf(rule.Validate(), "Rule.")}
	wrong := len(c.faults) > 0
	for _, key := range slices.Sorted(maps.Keys(hosts)) {
		c.add(&hostEntry{key: key, rule: hosts[key]}, wrong)
	}
	for _, h := range c.all {
		for _, e := range h.paths {
			if other := c.conflict(e); other != nil {
				c.faults = append(c.faults, e.fault(fmt.Sprintf("conflicts with %q: both match %s %s, and neither is more specific", other.key, other.method, e.path)))
			}
		}
	}
	c.addPorts()
	// A rule comes after those from which it inherits, whose patterns are shorter.
	slices.SortStableFunc(c.all, func(a, b *hostRule) int { return len(a.name+a.port) - len(b.name+b.port) })
	for _, h := range c.all {
		c.complete(h)
	}
	return set, c.faults
}

// A config is a configuration of which a ruleset is made.
type config struct {
	set    *Ruleset
	all    []*hostRule // of set
	known  map[meaning]*hostEntry
	faults []*policy.FieldError
}

// someMethod stands for all methods in a meaning. It is no method, because it is a space.
const someMethod = " "

// at returns the rule of a pattern, and makes it if there is none.
func (c *config) at(p pattern) *hostRule {
	h := c.set.hosts[p]
	if h == nil {
		h = &hostRule{pattern: p}
		c.set.hosts[p], c.all = h, append(c.all, h)
	}
	return h
}

// add adds an entry. wrong says that the rule for all hosts has faults.
func (c *config) add(e *hostEntry, wrong bool) {
	why, validate := e.parse(), ValidatePart
	if why == "" && e.path != "" {
		validate = ValidateRequest
	}
	own := validate(e.rule, fieldOf(e.key)+".")
	c.faults = append(c.faults, own...)
	if same := c.known[e.meaning]; why == "" && same != nil {
		why = fmt.Sprintf("means the same requests as %q", same.key)
	}
	if why != "" {
		c.faults = append(c.faults, e.fault(why))
		return
	}
	c.known[e.meaning] = e
	h := c.at(e.pattern)
	if e.path == "" {
		h.own, h.wrong = e, wrong || len(own) > 0
		return
	}
	h.paths = append(h.paths, e)
	if m := e.meaning; m.method != "" {
		m.method = someMethod
		c.known[m] = e
	}
}

// conflict returns an entry that http.ServeMux would refuse together with e, or nil if there is none. The path of e is
// more specific then, and its method less.
func (c *config) conflict(e *hostEntry) *hostEntry {
	m := e.meaning
	switch m.method {
	case "":
		m.method = someMethod
	case http.MethodGet:
		m.method = http.MethodHead
	default:
		return nil
	}
	for len(m.path) > 1 {
		m.path = m.path[:strings.LastIndexByte(m.path[:len(m.path)-1], '/')+1]
		if other := c.known[m]; other != nil {
			return other
		}
	}
	return nil
}

// addPorts adds the patterns that inherit more at a port for which there is a wider pattern, with this port.
func (c *config) addPorts() {
	all := c.all
	for _, wide := range all {
		if !wide.wildcard || wide.port == "" {
			continue
		}
		for _, h := range all {
			p := pattern{h.name, wide.port, h.wildcard}
			if h.port == "" && strings.HasSuffix(h.name, "."+wide.name) && c.set.hosts[p] == nil {
				c.at(p).paths = h.paths
			}
		}
	}
}

// complete makes the rule of a pattern, and notes the faults of rules that are wrong together. The rules of all wider
// patterns are in it, but not those of their paths, because the host is chosen before the path.
func (c *config) complete(h *hostRule) {
	var rule policy.Rule
	for _, p := range h.inherits() {
		if wide := c.set.hosts[p]; wide != nil {
			h.wrong = h.wrong || wide.wrong
			if wide.own != nil {
				rule, h.keys = rule.Or(wide.own.rule), append(h.keys, wide.own.key)
			}
		}
	}
	rule = rule.Or(c.set.standard.Policy)
	if !h.wrong && len(h.keys) > 0 {
		together := FaultsOf(rule.Validate(), fieldOf(h.keys[0])+".")
		c.faults, h.wrong = append(c.faults, together...), len(together) > 0
	}
	if h.rule = c.set.resolve(rule); len(h.paths) > 0 {
		h.rule.Paths = &paths{exact: map[string]pathRules{}, below: map[string]pathRules{}}
	}
	for _, e := range h.paths {
		h.rule.Paths.add(e, c.set.resolve(e.rule.Or(rule)))
	}
}

// parse parses the key. If the key is wrong, why says why, and the key is as Shown returns it.
func (e *hostEntry) parse() (why string) {
	hosts, path := e.key, ""
	if i := strings.IndexAny(hosts, " \t"); i >= 0 {
		e.method, hosts = hosts[:i], strings.TrimLeft(hosts[i:], " \t")
	}
	if i := strings.IndexByte(hosts, '/'); i >= 0 {
		hosts, path = hosts[:i], hosts[i:]
	}
	if why = cmp.Or(e.parseHosts(hosts), e.parsePath(path)); why != "" {
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
		Breaker:     rule.CircuitBreaker.Enabled == policy.On,
		Resumes:     rule.Resume != policy.Off && rule.MaxAttempts > 1,
		Timeouts:    attempt.TimeoutsOf(&rule),
		Settings:    settingsOf(&rule),
	}
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
	later := rule
	if later.AttemptTimeout <= 0 {
		later.AttemptTimeout = LaterTimeout
	}
	r.Retries, r.Later = r.Timeouts, attempt.TimeoutsOf(&later)
	r.Retries.BoundUpload(rule.AttemptTimeout)
	r.Later.BoundUpload(rule.AttemptTimeout)
	r.Timed = r.Timeouts.On()
	return r
}

// settingsOf returns the settings of the limits in the form that package host takes.
func settingsOf(r *policy.Rule) settings {
	shared := r.MaxRetryAfter // bounds what one response can do to the requests of others
	if shared < 0 {
		shared = time.Hour // its own request waits for as long as the server says
	}
	c := settings{
		Rate: rate.Config{
			PerSecond: r.RateLimit.PerSecond,
			Burst:     r.RateLimit.Burst,
		},
		Budget: budget.Config{
			Ratio:     r.RetryBudget.Ratio,
			PerSecond: r.RetryBudget.MinPerSecond,
		},
		Throttle:    throttle.Config{Max: shared},
		Pacing:      pacing.Config{MaxWait: shared},
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

// parseHosts parses the pattern of hosts in the key. If the text is no pattern, why says why.
func (e *hostEntry) parseHosts(s string) (why string) {
	known := redact.Alphanumerics + "-_.:*[]"
	if strings.HasPrefix(s, "[") {
		known += "%" // in front of the zone of an IPv6 address
	}
	switch _, err := netip.ParsePrefix(e.key); {
	case e.key == "":
		return "is empty; rules for every host go into Rule"
	case strings.Trim(e.key, " \t") != e.key:
		return "begins or ends with a space; leave it out"
	case s == "*":
		return "would match every host; rules for every host go into Rule"
	case strings.Contains(e.key, "://"):
		return "has a scheme; leave it out"
	case err == nil:
		return "looks like a range of addresses; give each address an entry of its own"
	case strings.ContainsAny(s, `~^$()|{}+\`), strings.LastIndexByte(s, '[') > 0:
		return `looks like a regular expression; write a name, or "*.example.com" for all names below one`
	case strings.ContainsAny(s, ",;"):
		return "names several hosts; give each of them an entry of its own"
	case strings.ContainsFunc(s, func(c rune) bool { return c > unicode.MaxASCII }):
		return "is not ASCII; write the name in its xn-- form, here and in the URLs of requests"
	case strings.Trim(s, known) != "":
		return "is not a host; write a name or an address, with or without a port"
	}
	s, e.wildcard = strings.CutPrefix(strings.ToLower(s), "*.")
	if addr, _ := netip.ParseAddr(s); addr.Is6() {
		return "is an IPv6 address without brackets; write [" + s + "]"
	}
	name, port := host.SplitPort(s)
	e.name = host.Canonical("", name)
	inner := strings.TrimSuffix(strings.TrimPrefix(e.name, "["), "]")
	addr, _ := netip.ParseAddr(inner)
	n, err := strconv.ParseUint(cmp.Or(port, "1"), 10, 16)
	switch {
	case strings.Contains(s, "*"):
		return `has a "*" elsewhere than in a leading "*."`
	case e.name == "" || e.name[0] == '.' || strings.Contains(e.name, ".."):
		return `has an empty name; "*.example.com" means all names below one`
	case strings.ContainsAny(e.name, "[]") && (e.name != "["+inner+"]" || !addr.Is6()):
		return "has brackets, but no IPv6 address in them; a pattern is no regular expression"
	case e.wildcard && addr.IsValid():
		return `has a "*." in front of an address, which has no names below it`
	case err != nil || n == 0 || strings.HasSuffix(s, ":") || e.name[0] != '[' && strings.Contains(e.name, ":"):
		return "has a port that is not a number from 1 to 65535"
	case port != "":
		e.port = strconv.FormatUint(n, 10) // without leading zeros, as in the key of a host
	}
	return ""
}

// inherits returns p and the patterns that mean all hosts of p, the most specific first.
func (p pattern) inherits() (all []pattern) {
	for more := true; more; p.wildcard = true {
		if p.port != "" {
			all = append(all, p)
		}
		all = append(all, pattern{p.name, "", p.wildcard})
		_, p.name, more = strings.Cut(p.name, ".")
	}
	return all
}

// LaterTimeout bounds an attempt after the first, up to the headers of its response, if there is neither
// a deadline nor an AttemptTimeout. Without the retry the caller would know of the failure by then, so it
// must not wait for ever for a server that accepts a request and does not answer.
const LaterTimeout = 2 * time.Minute
