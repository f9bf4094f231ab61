// How is one JSON value read into one field? Numbers, durations, sizes, words
// and names, each with a fault that says what to write instead.

package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A loader reads the tree of one document into rules.
type loader struct {
	document
	names Names
}

// A key maps a JSON key to the field that it sets.
type key[T any] struct {
	name string
	set  func(l *loader, n *node, to *T)
}

// object reads the object n into to. A struct within a struct is one more
// table and one more call of object.
func object[T any](l *loader, n *node, to *T, keys []key[T]) {
	if !n.isObject() {
		l.want(n, "an object")
		return
	}
	for _, kid := range l.members(n) {
		i := slices.IndexFunc(keys, func(k key[T]) bool { return k.name == kid.key })
		if i < 0 {
			l.unknownKey(kid, keyNames(keys))
			continue
		}
		keys[i].set(l, kid, to)
	}
}

// keyNames lists the keys of a table.
func keyNames[T any](keys []key[T]) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return names
}

// members returns the members of n, each key once. encoding/json would let the
// last one win without a word.
func (l *loader) members(n *node) []*node {
	first := make(map[string]*node, len(n.kids))
	return slices.DeleteFunc(slices.Clone(n.kids), func(kid *node) bool {
		other, twice := first[kid.key]
		if twice {
			l.faultKey(kid, "is there twice, first at %v", later(func() string {
				line, column := l.position(other.keyPos)
				return fmt.Sprintf("line %d, column %d", line, column)
			}))
			return true
		}
		first[kid.key] = kid
		return false
	})
}

// unknownKey notes that nothing reads n.
func (l *loader) unknownKey(n *node, known []string) {
	l.faultKey(n, "unknown field; %v", later(func() string {
		const inside = `it belongs inside "rule" or inside a host of "hosts"`
		if n.up.up == nil && isRuleField(n.key) {
			return inside
		}
		if other := otherName(n, known); other != "" {
			return other
		}
		if other := otherName(n, fieldsOf(Rule{})); n.up.up == nil && other != "" {
			return other + "; " + inside
		}
		return suggest(n.key, known)
	}))
}

// isRuleField reports whether a key would be known inside a rule.
func isRuleField(key string) bool {
	_, ok := reflect.TypeFor[Rule]().FieldByNameFunc(func(name string) bool { return fold(name) == fold(key) })
	return ok
}

// want notes that n is of the wrong kind.
func (l *loader) want(n *node, wanted string) {
	l.fault(n, "%s where %s is wanted", n.what(), wanted)
}

// items returns the items of a list; a list of one needs no brackets.
func (l *loader) items(n *node) []*node {
	if !n.isList() {
		return []*node{n}
	}
	if len(n.kids) == 0 {
		l.fault(n, "the list is empty; leave the key out")
	}
	return n.kids
}

// A besides says what a field takes besides numbers above zero.
type besides uint8

const (
	nothing besides = iota // zero would stand for nothing said
	orOff                  // "off", which is -1 in Go
	orZero                 // zero, which has a meaning of its own
)

// off reports whether n says "off" and may.
func (or besides) off(n *node) bool { return or == orOff && n.value == "off" }

// allows reports whether a number of the given sign may stand at n, and notes
// it where not. A zero that silently inherits would surprise its writer.
func (l *loader) allows(n *node, sign int, or besides) bool {
	hint := ""
	if or == orOff {
		hint = `; write "off" to turn it off`
	}
	switch {
	case sign > 0, sign == 0 && or == orZero:
		return true
	case sign == 0:
		l.fault(n, "zero stands for the default; leave the key out%s", hint)
	default:
		l.fault(n, "%s is negative%s", n.what(), hint)
	}
	return false
}

// whole reads a whole number.
func (l *loader) whole(n *node, bits int) (int64, bool) {
	number, ok := n.value.(json.Number)
	if !ok {
		l.want(n, "a whole number")
		return 0, false
	}
	v, err := strconv.ParseInt(number.String(), 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		l.fault(n, "%s is out of range", n.what())
	case err != nil:
		l.fault(n, "%s is not a whole number; write it in digits only", n.what())
	}
	return v, err == nil
}

// count reads a number of things.
func (l *loader) count(n *node, to *int, or besides) {
	if or.off(n) {
		*to = -1
		return
	}
	if v, ok := l.whole(n, strconv.IntSize); ok && l.allows(n, cmp.Compare(v, 0), or) {
		*to = int(v)
	}
}

// number reads a number with a fraction.
func (l *loader) number(n *node, to *float64, or besides) {
	if or.off(n) {
		*to = -1
		return
	}
	number, ok := n.value.(json.Number)
	if !ok {
		l.want(n, "a number")
		return
	}
	v, err := number.Float64()
	if err != nil { // it is a number, so the exponent is too large
		l.fault(n, "%s is out of range", n.what())
		return
	}
	if l.allows(n, cmp.Compare(v, 0), or) {
		*to = v
	}
}

// duration reads a time.Duration from a string with units.
func (l *loader) duration(n *node, to *time.Duration, or besides) {
	if or.off(n) {
		*to = -1
		return
	}
	if number, ok := n.value.(json.Number); ok {
		text := clip(number.String())
		l.fault(n, `%s has no unit; write "%ss" for seconds or "%sms" for milliseconds`, n.what(), text, text)
		return
	}
	text, ok := n.value.(string)
	if !ok {
		l.want(n, `a duration such as "250ms"`)
		return
	}
	v, ok := parseDuration(text)
	if !ok {
		l.fault(n, `%s is not a duration; write it like "250ms", "5s" or "1m30s"`, quote(text))
		return
	}
	if l.allows(n, cmp.Compare(v, 0), or) {
		*to = v
	}
}

// parseDuration reads "1m30s" and its like.
func parseDuration(text string) (time.Duration, bool) {
	v, err := time.ParseDuration(text)
	return v, err == nil
}

// sizeUnits are the units of a size, the longer names first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// size reads a number of bytes: a whole number, or a string with a unit.
func (l *loader) size(n *node, to *int64, or besides) {
	if or.off(n) {
		*to = -1
		return
	}
	text, ok := n.value.(string)
	if !ok {
		if v, ok := l.whole(n, 64); ok && l.allows(n, cmp.Compare(v, 0), or) {
			*to = v
		}
		return
	}
	v, ok := parseSize(text)
	if !ok {
		l.fault(n, `%s is not a size; write it in bytes or like "64KiB" or "1MiB"`, quote(text))
		return
	}
	if l.allows(n, cmp.Compare(v, 0), or) {
		*to = v
	}
}

// parseSize reads "1MiB" and its like; false where it is none or too large.
func parseSize(text string) (int64, bool) {
	for _, unit := range sizeUnits {
		if digits, ok := strings.CutSuffix(text, unit.name); ok {
			v, err := strconv.ParseUint(strings.TrimRight(digits, " "), 10, 63)
			if err != nil || int64(v) > math.MaxInt64/unit.bytes {
				return 0, false
			}
			return int64(v) * unit.bytes, true
		}
	}
	return 0, false
}

// flag reads true or false.
func (l *loader) flag(n *node, to *bool) {
	v, ok := n.value.(bool)
	if !ok {
		l.want(n, "true or false")
		return
	}
	*to = v
}

// text reads a string that is not empty.
func (l *loader) text(n *node, wanted string) (string, bool) {
	v, ok := n.value.(string)
	switch {
	case !ok:
		l.want(n, wanted)
	case v == "":
		l.fault(n, "the string is empty")
	}
	return v, v != ""
}

// word reads one of the words known, as its index.
func (l *loader) word(n *node, wanted string, known []string) (int, bool) {
	if _, ok := n.value.(string); !ok {
		l.fault(n, "%s where %s is wanted; %s", n.what(), wanted, helpSwitch(n, known))
		return 0, false
	}
	text, ok := l.text(n, wanted)
	if !ok {
		return 0, false
	}
	i := slices.Index(known, text)
	if i < 0 {
		l.fault(n, "%s is not %s; %v", quote(text), wanted, later(func() string { return suggest(text, known) }))
	}
	return i, i >= 0
}

// nameKeys is the form {"name": "…"} of what may also be written "…".
var nameKeys = []key[*node]{
	{"name", func(_ *loader, n *node, to **node) { *to = n }},
}

// named looks up the name that n gives: "…" or {"name": "…"}. The caller's
// table comes first. It returns the zero T, having noted why, where there is
// nothing of this name.
func named[T any](l *loader, n *node, wanted string, given, builtin map[string]T) (none T) {
	if n.isObject() {
		var name *node
		before := len(l.faults)
		object(l, n, &name, nameKeys)
		if name == nil && len(l.faults) == before {
			l.fault(n, `there is no "name" here`)
		}
		if name == nil {
			return none
		}
		n = name
	}
	text, ok := l.text(n, "the name of "+wanted)
	if !ok {
		return none
	}
	found, ok := given[text]
	if !ok {
		found, ok = builtin[text]
	}
	switch {
	case !ok:
		l.fault(n, "%s is not the name of %s; %v", quote(text), wanted, later(func() string {
			return suggest(text, sortedNames(given, builtin))
		}))
	case reflect.ValueOf(&found).Elem().IsZero():
		l.fault(n, "%s is nil in the table of names", quote(text))
	}
	return found
}

// sortedNames lists the names in some tables, each once.
func sortedNames[T any](tables ...map[string]T) []string {
	var list []string
	for _, table := range tables {
		list = slices.AppendSeq(list, maps.Keys(table))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// suggest ends a fault about an unknown word with what could have been meant.
func suggest(text string, known []string) string {
	if like := nearest(text, known); like != "" {
		return "did you mean " + quote(like) + "?"
	}
	return "known are " + join(known)
}

// join lists words, not too many of them.
func join(words []string) string {
	const most = 24
	if more := len(words) - most; more > 0 {
		return strings.Join(words[:most], ", ") + " and " + strconv.Itoa(more) + " more"
	}
	return strings.Join(words, ", ")
}

// nearest returns the known word that was probably meant, or "".
func nearest(text string, known []string) string {
	if len(text) > maxQuote {
		return ""
	}
	like, least := "", max(1, len(text)/3)+1
	for _, word := range known {
		if d := distance(fold(text), fold(word)); d < least {
			like, least = word, d
		}
	}
	return like
}

// distance counts the letters to insert, delete or replace between two words
// (Levenshtein).
func distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
