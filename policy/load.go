// What does a file of rules say? JSON in, rules out, with every fault at its
// line and column.

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
)

// Names are the things that a file cannot hold, by the names under which it
// refers to them. All tables may be nil. A name of the caller's wins over a
// built-in one; the built-in ones are listed at [Load].
type Names struct {
	Classify   map[string]classify.Func
	Hints      map[string]classify.Hint
	Idempotent map[string]func(*http.Request) bool
	Backoffs   map[string]Backoff
	Scopes     map[string]func(*http.Request) string
}

// Load reads a default rule and the rules of hosts:
//
//	{
//	  "rule": {
//	    "attempts": 4,
//	    "backoff": {"type": "exponential", "max": "32s"},
//	    "classify": ["refusals", {"status": [500, 502], "verdict": "final"}],
//	    "max_retry_after": "2m",
//	    "excess": "cap"
//	  },
//	  "hosts": {
//	    "*.example.com": {"attempt_timeout": "5s", "rate": 10, "burst": 5}
//	  }
//	}
//
// Both keys may be missing; {} gives a zero Rule and no hosts. The host
// patterns are given back as they are; whoever uses them checks them.
//
// A field of [Rule] has its name in snake case as its key: attempt_timeout for
// AttemptTimeout. A missing key inherits, as a zero field does.
//
//   - Durations are strings with units, "250ms" or "1m30s".
//   - Sizes are a number of bytes or a string such as "64KiB" or "1MiB".
//   - "off" turns off what a negative number, or "-", turns off in a Rule.
//     Zero and negative numbers are refused, since the one would inherit.
//   - excess is "stop", "cap" or "wait".
//   - backoff has a "type" (exponential, full_jitter, equal_jitter, decorrelated,
//     randomized, normal, geometric, constant) and that type's fields in
//     snake case; constant has "delay". Or it is a name.
//   - classify is a list, of which the first item with an opinion decides. An
//     item has a "verdict" (final, refused, ambiguous) and says what it is
//     about: "status", codes; "body", a text in the body of an answer with
//     status 400 or above, or with one of the codes in "status"; or "error",
//     kinds of error (canceled, timeout, dns, dial, tls, reset, protocol,
//     other). Or it is a name, without a verdict. "default" decides everything,
//     so it comes last.
//   - hint is a name, or a list of them, of which the first with an answer
//     counts.
//   - idempotent is a list of methods that may be sent again although the server
//     may have acted, such as ["GET", "PUT", "POST"], in capitals, and of names;
//     a request is idempotent if any of them says so. Methods that the list does
//     not name are not: ["default", "POST"] adds POST to the standard ones. "all"
//     is for a service to which no repetition does harm.
//   - A name is written "refusals" or {"name": "refusals"}; a list of one needs
//     no brackets.
//
// These names are built in. For classify: default, none, refusals, signals. For
// hint: default, none, retry_after, retry_after_millis, rate_limit_reset,
// retry_info, reset_after, body_retry_after, reset_durations, reset_times,
// pushback, secondary_limit. For idempotent: default, none (no request is) and all.
// For backoff: none (no wait), and each type but constant for its zero value.
// For scope: host (nothing is told apart).
//
// budget, gate and hedge are objects of their fields, or "off"; cooldown and
// pacing are "on" or "off".
//
// Unknown keys, keys that are there twice, values of the wrong type, unknown
// names and whatever [Rule.Validate] finds wrong are errors: [LoadErrors], all
// faults at once, with line, column and path. Where the input is not JSON, that
// is the only one. Input over 1 MiB, and an error from r, are errors of another
// type. With an error, there are no rules.
func Load(r io.Reader, names Names) (Rule, map[string]Rule, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	switch {
	case err != nil:
		return Rule{}, nil, fmt.Errorf("policy: reading rules: %w", err)
	case len(data) > maxInput:
		return Rule{}, nil, errors.New("policy: rules are longer than 1 MiB")
	}
	l := &loader{document: document{data: data}, names: names}
	var all file
	if root := l.parse(); root != nil {
		object(l, root, &all, fileKeys)
	}
	if err := l.err(); err != nil {
		return Rule{}, nil, err
	}
	return all.rule, all.hosts, nil
}

// A file is all that Load reads.
type file struct {
	rule  Rule
	hosts map[string]Rule
}

var fileKeys = []key[file]{
	{"rule", func(l *loader, n *node, f *file) { f.rule = l.rule(n) }},
	{"hosts", func(l *loader, n *node, f *file) { f.hosts = l.hosts(n) }},
}

// ruleKeys has a line for every field of Rule.
var ruleKeys = []key[Rule]{
	{"attempts", func(l *loader, n *node, r *Rule) { l.count(n, &r.Attempts, orOff) }},
	{"backoff", func(l *loader, n *node, r *Rule) { r.Backoff = l.backoff(n) }},
	{"classify", func(l *loader, n *node, r *Rule) { r.Classify = l.classify(n) }},
	{"hint", func(l *loader, n *node, r *Rule) { r.Hint = l.hint(n) }},
	{"idempotent", func(l *loader, n *node, r *Rule) { r.Idempotent = l.idempotent(n) }},
	{"attempt_timeout", func(l *loader, n *node, r *Rule) { l.duration(n, &r.AttemptTimeout, orOff) }},
	{"max_elapsed", func(l *loader, n *node, r *Rule) { l.duration(n, &r.MaxElapsed, orOff) }},
	{"retry_after", func(l *loader, n *node, r *Rule) { object(l, n, &r.RetryAfter, retryAfterKeys) }},
	{"stall", func(l *loader, n *node, r *Rule) {
		orElse(l, n, &r.Stall, Stall{Off, Off}, stallKeys, `{"timeout": "30s"}`)
	}},
	{"rate", func(l *loader, n *node, r *Rule) {
		orElse(l, n, &r.Rate, Rate{PerSecond: Off}, rateKeys, `{"per_second": 10}`)
	}},
	{"budget", func(l *loader, n *node, r *Rule) {
		orElse(l, n, &r.Budget, Budget{Burst: Off}, budgetKeys, `{"ratio": 0.2}`)
	}},
	{"cooldown", func(l *loader, n *node, r *Rule) { enum(l, n, "a switch", switchWords, &r.Cooldown) }},
	{"scope", func(l *loader, n *node, r *Rule) { r.Scope = named(l, n, "a scope", l.names.Scopes, builtinScopes) }},
	{"pacing", func(l *loader, n *node, r *Rule) { enum(l, n, "a switch", switchWords, &r.Pacing) }},
	{"gate", func(l *loader, n *node, r *Rule) {
		orElse(l, n, &r.Gate, Gate{Mode: Off}, gateKeys, `{"mode": "wait"}`)
	}},
	{"hedge", func(l *loader, n *node, r *Rule) {
		orElse(l, n, &r.Hedge, Hedge{After: Off}, hedgeKeys, `{"percentile": 98}`)
	}},
	{"upload", func(l *loader, n *node, r *Rule) {
		orElse(l, n, &r.Upload, Upload{Off, Off}, uploadKeys, `{"memory": "16MiB"}`)
	}},
	{"resume", func(l *loader, n *node, r *Rule) { orElse(l, n, &r.Resume, Resume{Off}, resumeKeys, `{"max": 5}`) }},
	{"attempt_header", func(l *loader, n *node, r *Rule) { l.header(n, &r.AttemptHeader) }},
}

var builtinHints = map[string]classify.Hint{
	"default":            classify.DefaultHint,
	"none":               classify.NoHint,
	"retry_after":        classify.RetryAfter,
	"retry_after_millis": classify.RetryAfterMillis,
	"rate_limit_reset":   classify.RateLimitReset,
	"retry_info":         classify.RetryInfo,
	"reset_after":        classify.ResetAfter,
	"body_retry_after":   classify.BodyRetryAfter,
	"reset_durations":    classify.ResetDurations,
	"reset_times":        classify.ResetTimes,
	"pushback":           classify.Pushback,
	"secondary_limit":    classify.SecondaryLimit,
}

var builtinIdempotent = map[string]func(*http.Request) bool{
	"default": classify.Idempotent,
	"none":    func(*http.Request) bool { return false },
	"all":     func(*http.Request) bool { return true },
}

// rule reads one rule and checks it.
func (l *loader) rule(n *node) Rule {
	var r Rule
	object(l, n, &r, ruleKeys)
	if bad, ok := errors.AsType[Errors](r.Validate()); ok {
		for _, fault := range bad {
			l.invalid(n, fault)
		}
	}
	return r
}

// invalid notes what Validate said about a field of the rule at n, as near to
// the field as the tree knows it: a back-off given by name has no members here.
func (l *loader) invalid(n *node, bad *FieldError) {
	rest := strings.Split(bad.Field, ".")
	for len(rest) > 0 {
		member := n.field(rest[0])
		if member == nil {
			break
		}
		n, rest = member, rest[1:]
	}
	here := *bad
	here.Field = strings.Join(rest, ".")
	l.fault(n, "%s", strings.TrimPrefix(here.Error(), ": "))
	l.faults[len(l.faults)-1].err = bad
}

// hosts reads the rules of hosts by their patterns.
func (l *loader) hosts(n *node) map[string]Rule {
	if !n.isObject() {
		l.want(n, "an object of hosts and their rules")
		return nil
	}
	n.named = true
	hosts := make(map[string]Rule, len(n.kids))
	for _, kid := range l.members(n) {
		hosts[kid.key] = l.rule(kid)
	}
	return hosts
}

var retryAfterKeys = []key[RetryAfter]{
	{"max", func(l *loader, n *node, r *RetryAfter) { l.duration(n, &r.Max, orOff) }},
	{"beyond", func(l *loader, n *node, r *RetryAfter) { enum(l, n, "a mode", beyondWords, &r.Beyond) }},
}

var stallKeys = []key[Stall]{
	{"timeout", func(l *loader, n *node, s *Stall) { l.duration(n, &s.Timeout, orOff) }},
	{"min_bytes_per_second", func(l *loader, n *node, s *Stall) { l.size(n, &s.MinBytesPerSecond, orOff) }},
}

var rateKeys = []key[Rate]{
	{"per_second", func(l *loader, n *node, r *Rate) { l.number(n, &r.PerSecond, orOff) }},
	{"burst", func(l *loader, n *node, r *Rate) { l.count(n, &r.Burst, nothing) }},
	{"mode", func(l *loader, n *node, r *Rate) { enum(l, n, "a rate mode", rateModeWords, &r.Mode) }},
}

var uploadKeys = []key[Upload]{
	{"memory", func(l *loader, n *node, u *Upload) { l.size(n, &u.Memory, orOff) }},
	{"disk", func(l *loader, n *node, u *Upload) { l.size(n, &u.Disk, orOff) }},
}

var resumeKeys = []key[Resume]{
	{"max", func(l *loader, n *node, r *Resume) { l.count(n, &r.Max, orOff) }},
}

var budgetKeys = []key[Budget]{
	{"ratio", func(l *loader, n *node, b *Budget) { l.number(n, &b.Ratio, orOff) }},
	{"per_second", func(l *loader, n *node, b *Budget) { l.number(n, &b.PerSecond, orOff) }},
	{"window", func(l *loader, n *node, b *Budget) { l.duration(n, &b.Window, nothing) }},
	{"burst", func(l *loader, n *node, b *Budget) { l.number(n, &b.Burst, orOff) }},
}

var gateKeys = []key[Gate]{
	{"mode", func(l *loader, n *node, g *Gate) { enum(l, n, "a mode", gateModeWords, &g.Mode) }},
	{"start", func(l *loader, n *node, g *Gate) { l.count(n, &g.Start, nothing) }},
	{"max", func(l *loader, n *node, g *Gate) { l.count(n, &g.Max, nothing) }},
}

var hedgeKeys = []key[Hedge]{
	{"after", func(l *loader, n *node, h *Hedge) { l.duration(n, &h.After, nothing) }},
	{"percentile", func(l *loader, n *node, h *Hedge) { l.number(n, &h.Percentile, nothing) }},
}

// builtinScopes holds the scope that does not tell requests apart.
var builtinScopes = map[string]func(*http.Request) string{
	"host": func(*http.Request) string { return "" },
}

// orElse reads an object, or the word "off" for the value that turns it off. An
// empty object would silently inherit, and is refused. sample is an object to
// write in the place of anything else.
func orElse[T any](l *loader, n *node, to *T, off T, keys []key[T], sample string) {
	switch {
	case n.value == "off":
		*to = off
	case n.isObject() && len(n.kids) == 0:
		l.fault(n, `there is nothing in it; leave the key out, or write "off"`)
	case n.value == false:
		l.fault(n, `false where an object is wanted; write "off"`)
	case n.isObject():
		object(l, n, to, keys)
	default:
		l.fault(n, `%s where an object is wanted; write its fields, as in %s, or "off"`, n.what(), sample)
	}
}

// enum reads one of the words of a mode. Nobody has to write the word of the zero
// value, which inherits.
func enum[T ~int8](l *loader, n *node, wanted string, w words, to *T) {
	if i, ok := l.word(n, wanted, w.known()); ok {
		*to = T(slices.Index(w, w.known()[i]) - 1)
	}
}

// idempotent reads a name, a method, or a list of them: a request is idempotent
// if one of them says so.
func (l *loader) idempotent(n *node) func(*http.Request) bool {
	if says, ok := n.value.(bool); ok {
		word := map[bool]string{true: "all", false: "none"}[says]
		l.fault(n, `%v where a test for idempotent requests is wanted; write %q, or a list of methods such as ["GET", "PUT", "POST"]`, says, word)
		return nil
	}
	var tests []func(*http.Request) bool
	for _, item := range l.items(n) {
		tests = append(tests, l.repeatable(item))
	}
	if len(tests) == 1 {
		return tests[0]
	}
	return func(req *http.Request) bool {
		return slices.ContainsFunc(tests, func(test func(*http.Request) bool) bool { return test(req) })
	}
}

// methods are those that a file may name without being asked whether it is a
// slip of the pen.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// repeatable reads one item of idempotent: the name of a test, or a method.
func (l *loader) repeatable(n *node) func(*http.Request) bool {
	method, ok := n.value.(string)
	_, given := l.names.Idempotent[method]
	upper := strings.ToUpper(method)
	switch {
	case !ok, method == "", given, builtinIdempotent[method] != nil:
	case slices.Contains(methods, method), method == upper && isToken(method) && nearest(method, methods) == "":
		return func(req *http.Request) bool { return cmp.Or(req.Method, http.MethodGet) == method }
	case slices.Contains(methods, upper):
		l.fault(n, "methods are in capitals; write %s", quote(upper))
		return nil
	case method == upper && isToken(method):
		l.fault(n, "%s is not a method; did you mean %s?", quote(method), quote(nearest(method, methods)))
		return nil
	}
	return named(l, n, "a test for idempotent requests", l.names.Idempotent, builtinIdempotent)
}

// hint reads a name or a list of names.
func (l *loader) hint(n *node) classify.Hint {
	var list []classify.Hint
	for _, item := range l.items(n) {
		list = append(list, named(l, item, "a hint", l.names.Hints, builtinHints))
	}
	if len(list) == 1 {
		return list[0]
	}
	return classify.FirstHint(list...)
}

// header reads a header's name, or "off" for none, which no header is called.
func (l *loader) header(n *node, to *string) {
	name, _ := l.text(n, "the name of a header")
	*to = name
}
