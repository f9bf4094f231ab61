// Parse, and the fields of rules. A field of a Go struct is the key of its name in
// snake case, and the type of the field says how the value is read.

package rulejson

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/formula"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// Names are those of package rulefile.
type Names struct {
	Classify       map[string]classify.Func              // for the key classify
	RetryAfter     map[string]classify.RetryAfterFunc    // for the key retry_after
	Idempotent     map[string]func(*http.Request) bool   // for the key idempotent
	Backoff        map[string]backoff.Backoff            // for the key backoff
	ThrottleKey    map[string]func(*http.Request) string // for the key throttle_key
	IdempotencyKey map[string]func(*http.Request) string // for the key idempotency_key
	Cost           map[string]func(*http.Request) int    // for the key cost
	Profile        map[string]policy.Rule                // for the key profile
}

// Rules returns the rules of the file as rulefile.Load does.
func (f *File) Rules() (rule policy.Rule, hosts map[string]policy.Rule) {
	if f.Hosts != nil {
		hosts = make(map[string]policy.Rule, len(f.Hosts))
	}
	for pattern, part := range f.Hosts {
		hosts[pattern] = part.Rule
	}
	return f.Rule.Rule, hosts
}

// Parse reads rules as rulefile.Load does. It also tells the parts of each rule, for tools
// that explain a file. If the input has faults, the error is Errors.
func Parse(r io.Reader, names Names) (*File, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("rulefile: reading rules: %w", err)
	case len(data) > MaxInput:
		return nil, errors.New("rulefile: rules are longer than 1 MiB")
	}
	l := &loader{document: document{data: data}, names: names}
	var all file
	root := l.parse()
	if root != nil {
		l.object(root, reflect.ValueOf(&all).Elem())
	}
	f := &File{Rule: all.Rule, Hosts: all.Hosts, data: l.data, root: root}
	if len(l.faults) > 0 && root != nil {
		l.compile(f)
	}
	if err := l.err(); err != nil {
		return nil, err
	}
	return f, nil
}

// compile notes the faults that a Transport would find in a file that has others: wrong patterns,
// and rules that are wrong together. In a file without other faults the Transport finds them.
func (l *loader) compile(f *File) {
	rule, hosts := f.Rules()
	_, faults := rules.NewRuleset(rule, hosts, nil)
	for _, fault := range faults {
		known := l.faults
		l.locate(f.root, fault)
		if n := len(known); len(l.faults) > n && slices.ContainsFunc(known, func(e *Error) bool { return e.Error() == l.faults[n].Error() }) {
			l.faults = known
		}
	}
}

// A file is the whole input.
type file struct {
	Rule  Part
	Hosts map[string]Part
}

// A loader reads the tree of one input into rules.
type loader struct {
	document
	names Names
}

// object reads the members of n into the fields of a struct.
func (l *loader) object(n *node, to reflect.Value) {
	if !n.isObject() {
		l.want(n, "an object")
		return
	}
	keys := keysOf(to.Type())
	for _, kid := range l.members(n) {
		switch i := slices.Index(keys, kid.key); {
		case i >= 0:
			l.field(kid, to.Field(i), canBeOff(to.Type(), i))
		case kid.key == "type" && isBackoff(to.Type()), kid.key == "profile" && to.Type() == reflect.TypeFor[policy.Rule]():
		case kid.key == "$schema" && to.Type() == reflect.TypeFor[file]():
			l.text(kid, "the address of a JSON Schema") // for editors
		default:
			l.unknown(kid, to.Type())
		}
	}
}

// keysOf lists the keys of a struct's fields.
func keysOf(t reflect.Type) []string {
	var keys []string
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() {
			keys = append(keys, snake(f.Name))
		}
	}
	return keys
}

// snake returns the key of a field.
func snake(field string) string {
	var key strings.Builder
	for i, c := range field {
		if i > 0 && unicode.IsUpper(c) {
			key.WriteByte('_')
		}
		key.WriteRune(unicode.ToLower(c))
	}
	return key.String()
}

// field reads the value n into a field. off says whether "off" may stand there.
func (l *loader) field(n *node, to reflect.Value, off bool) {
	switch to := to.Addr().Interface().(type) {
	case *Part:
		l.rule(n, to)
	case *map[string]Part:
		*to = l.hosts(n)
	case *backoff.Backoff:
		*to = l.backoff(n)
	case *classify.Func:
		*to = l.classify(n)
	case *classify.RetryAfterFunc:
		*to = l.hint(n)
	case *func(*http.Request) bool:
		*to = l.idempotent(n)
	case *func(*http.Request) string:
		if n.key == "idempotency_key" {
			*to = named(l, n, "an idempotency key", l.names.IdempotencyKey, keys)
		} else {
			*to = named(l, n, "a throttle key", l.names.ThrottleKey, scopes)
		}
	case *func(*http.Request) int:
		*to = named(l, n, "a cost", l.names.Cost, costs)
	case *policy.Switch:
		l.mode(n, to)
	case *backoff.Jitter:
		if i, ok := l.oneOf(n, "a jitter", formula.Jitters); ok {
			*to = backoff.Jitter(formula.Jitters[i])
		}
	case *time.Duration:
		readNumber(l, n, to, off, l.duration)
	case *int:
		readNumber(l, n, to, off, func(n *node) (int, bool) { return whole[int](&l.document, n) })
	case *int64:
		readNumber(l, n, to, off, l.size)
	case *float64:
		readNumber(l, n, to, off, l.fraction)
	default:
		l.group(n, reflect.ValueOf(to).Elem())
	}
}

// canBeOff reports whether "off" may stand in field i of t. The fields below have
// no meaning for it, because another field turns the whole group off, or 1 the retries.
func canBeOff(t reflect.Type, i int) bool {
	name := t.Field(i).Name
	return !isBackoff(t) && !slices.Contains([]string{
		"Rule.MaxAttempts", "RateLimit.PerSecond", "RateLimit.Burst", "Concurrency.Max", "Hedge.Delay", "Hedge.Percentile",
	}, t.Name()+"."+name)
}

// groups has an example of each group of a rule's fields, for the fault of a value that is no
// object.
var groups = map[reflect.Type]string{
	reflect.TypeFor[policy.RateLimit]():      `{"per_second": 10}`,
	reflect.TypeFor[policy.RetryBudget]():    `{"ratio": 0.2}`,
	reflect.TypeFor[policy.CircuitBreaker](): `{"enabled": "on", "fail_fast": "on"}`,
	reflect.TypeFor[policy.Concurrency]():    `{"max": 100}`,
	reflect.TypeFor[policy.Hedge]():          `{"percentile": 98}`,
}

// group reads a group of fields, or "on" or "off", which stand for its field Enabled. An empty object
// would look like a setting and silently inherit, so it is a fault.
func (l *loader) group(n *node, to reflect.Value) {
	example := groups[to.Type()]
	switch {
	case n.value == "on" || n.value == "off":
		l.mode(n, to.FieldByName("Enabled").Addr().Interface().(*policy.Switch))
	case n.isObject() && len(n.kids) > 0:
		l.object(n, to)
	case n.isObject():
		l.fault(n, `the object is empty; leave the key out to inherit, or write fields, as in %s, or "on" or "off"`, example)
	default:
		l.fault(n, `%s where an object is wanted; write fields, as in %s, or "on" or "off"`, n.kind(), example)
	}
}

// rule reads one rule, lays it over its profile, and checks the result.
func (l *loader) rule(n *node, to *Part) {
	l.object(n, reflect.ValueOf(&to.Keys).Elem())
	to.node, to.Rule = n, to.Keys
	if p := n.member("profile"); p != nil {
		to.Base = named(l, p, "a profile", l.names.Profile, builtinProfiles())
		to.Profile, _ = nameOf(p).value.(string)
		l.contradictions(n, to.Base)
		to.Rule = to.Keys.Or(to.Base)
	}
	faults := rules.ValidatePart(to.Rule, "")
	if n.up.named && strings.Contains(n.key, "/") && !strings.Contains(n.key, "://") { // the rule of a path
		faults = rules.ValidateRequest(to.Rule, "")
	}
	for _, fault := range faults {
		l.invalid(n, fault)
	}
}

// invalid notes a fault that Validate found in the rule n. The fault stands at the
// value of the field. A back-off that is given by name has no such value, so the
// rest of the field's path is in the reason.
func (l *loader) invalid(n *node, fault *policy.FieldError) {
	rest := strings.Split(fault.Field, ".")
	for len(rest) > 0 {
		member := n.member(snake(rest[0]))
		if member == nil {
			break
		}
		n, rest = member, rest[1:]
	}
	text := inJSON(fault.Err.Error())
	if len(rest) > 0 {
		text = strings.Join(rest, ".") + ": " + text
	}
	l.note(n.pos, n, fault, "%s", text)
}

// hosts reads the rules of hosts and paths by their patterns.
func (l *loader) hosts(n *node) map[string]Part {
	if !n.isObject() {
		l.want(n, "an object of hosts and their rules")
		return nil
	}
	n.named = true
	hosts := make(map[string]Part, len(n.kids))
	for _, kid := range l.members(n) {
		var rule Part
		pattern := kid.key
		kid.key = rules.Shown(pattern)
		n.byKey[kid.key] = kid // for locate
		l.rule(kid, &rule)
		hosts[pattern] = rule
	}
	return hosts
}

// members returns the members of n, each key once. encoding/json would silently
// take the last one.
func (l *loader) members(n *node) []*node {
	return slices.DeleteFunc(slices.Clone(n.kids), func(kid *node) bool {
		twice := n.member(kid.key) != kid
		if twice {
			l.faultKey(kid, "the key is there twice")
		}
		return twice
	})
}

// unknown notes that the struct t has no field for the member n.
func (l *loader) unknown(n *node, t reflect.Type) {
	atRoot, rule := t == reflect.TypeFor[file](), reflect.TypeFor[policy.Rule]()
	help, foreign := foreignKeys[fold(n.key)]
	switch {
	case atRoot && slices.Contains(keysOf(rule), n.key):
		l.faultKey(n, `unknown key; it belongs inside "rule" or inside a host of "hosts"`)
	case foreign && atRoot:
		l.faultKey(n, `unknown key; %s, inside "rule" or inside a host of "hosts"`, help)
	case foreign && t == rule:
		l.faultKey(n, "unknown key; %s", help)
	case isBackoff(t):
		l.noKey(n, append([]string{"type"}, keysOf(t)...))
	case t == rule:
		l.noKey(n, append([]string{"profile"}, keysOf(t)...))
	default:
		l.noKey(n, keysOf(t))
	}
}

// few is how many keys a fault may list.
const few = 8

// noKey notes that a key is none of the known. It names the nearest of them, or else all if they are few.
func (l *loader) noKey(n *node, known []string) {
	if len(l.faults) == maxFaults { // nobody reads it
		known = nil
	}
	near := nearest(n.key, known)
	if near == "" && len(known) > few {
		near = nearest(n.key, slices.Sorted(maps.Keys(foreignKeys)))
	}
	help, foreign := foreignKeys[near]
	switch {
	case foreign:
		l.faultKey(n, "unknown key; %s", help)
	case near != "":
		l.faultKey(n, "unknown key; did you mean %s?", quote(near))
	case len(known) > few:
		l.faultKey(n, "unknown key; no key of a rule is like it")
	default:
		l.faultKey(n, "unknown key; the keys here are %s", join(known))
	}
}

// nearest returns the known key that differs least from a key: in two letters at most, and in one if it is short. It
// returns "" if there is none.
func nearest(key string, known []string) (near string) {
	key = fold(key)
	if len(key) > 64 {
		return ""
	}
	least := min(3, len(key)/3+1)
	for _, k := range known {
		if d := distance(key, fold(k)); d < least {
			near, least = k, d
		}
	}
	return near
}

// distance returns how many bytes have to be changed, left out or added to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, one to the left
		row[0] = i + 1
		for j := range len(b) {
			d := before
			if a[i] != b[j] {
				d = min(before, row[j], row[j+1]) + 1
			}
			before, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// goWords are the Go names in the reasons of package policy.
var goWords = regexp.MustCompile(`policy\.(On|Off)\b|\b[A-Z][A-Za-z]+\b`)

// inJSON returns a reason in the words of a file.
func inJSON(reason string) string {
	return goWords.ReplaceAllStringFunc(reason, func(word string) string {
		if value, ok := strings.CutPrefix(word, "policy."); ok {
			return quote(strings.ToLower(value))
		}
		if isField(reflect.TypeFor[policy.Rule](), word) {
			return quote(snake(word))
		}
		return word
	})
}

// isField reports whether a rule or any of its groups has a field of this name.
func isField(t reflect.Type, name string) bool {
	return slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		_, group := groups[f.Type]
		return f.Name == name || group && isField(f.Type, name)
	})
}

// fold makes max_retries, maxRetries and max-retries the same.
func fold(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}

// foreignKeys are keys that other libraries have for fields of a rule, folded by
// fold, and the text to write instead.
var foreignKeys = func() map[string]string {
	keys := map[string]string{}
	for list, text := range map[string]string{
		"retries maxretries retrymax retrycount attempts maxtries": `write "max_attempts", which counts the first attempt, too`,
		"timeout":                          `write "attempt_timeout", which bounds one attempt; the Timeout of an http.Client bounds the whole call`,
		"pertrytimeout":                    `write "attempt_timeout"`,
		"deadline maxelapsed totaltimeout": `write "max_elapsed_time", after which no retry starts`,
		"jitter delay initialinterval multiplier retrywaitmax": `write "backoff", as in {"type": "exponential", "base": "1s", "max": "32s"}`,
		"retryon statuscodes statusforcelist":                  `write "classify", as in [{"status": [500, 502], "class": "ambiguous"}]`,
		"methods allowedmethods":                               `write "idempotent", as in ["GET", "PUT", "POST"], or "all"`,
		"circuitbreaker breaker":                               `write "circuit_breaker", as in {"enabled": "on", "fail_fast": "on"}`,
		"bulkhead maxconcurrency":                              `write "concurrency", as in {"max": 100}`,
		"rate rps qps":                                         `write "rate_limit", as in {"per_second": 10}`,
		"provider preset profiles":                             `write "profile", as in "github"`,
	} {
		for key := range strings.FieldsSeq(list) {
			keys[key] = text
		}
	}
	return keys
}()
