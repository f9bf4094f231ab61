// Single values: numbers, durations, sizes, texts, modes and names.

package rulejson

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// want notes that n is of the wrong kind.
func (d *document) want(n *node, wanted string) {
	d.fault(n, "%s where %s is wanted", n.kind(), wanted)
}

// items returns the items of a list, which must not be empty.
func (d *document) items(n *node) []*node {
	items := n.items()
	if n != nil && len(items) == 0 {
		d.fault(n, "the list is empty; leave the key out")
	}
	return items
}

// readNumber reads a number above zero into to, or "off" if that may stand there.
// Zero is a fault, because it would silently inherit.
func readNumber[T int | int64 | float64 | time.Duration](l *loader, n *node, to *T, off bool, read func(*node) (T, bool)) {
	hint := ""
	switch {
	case off && n.value == "off":
		*to = policy.Off
		return
	case off:
		hint = `; write "off" to turn it off`
	case n.key == "max_attempts" && n.value == "off":
		l.fault(n, `"off" is not a number of attempts; write 1 to turn retries off`)
		return
	case n.key == "max_attempts":
		hint = "; write 1 to turn retries off"
	}
	v, ok := read(n)
	switch {
	case !ok:
	case v == 0:
		l.fault(n, "zero means the default; leave the key out%s", hint)
	case v < 0:
		l.fault(n, "%s is negative%s", n.kind(), hint)
	default:
		*to = v
	}
}

// whole reads a whole number.
func whole[T int | int64](d *document, n *node) (v T, ok bool) {
	number, isNumber := n.value.(json.Number)
	long, err := strconv.ParseInt(number.String(), 10, 64)
	switch v = T(long); {
	case !isNumber:
		d.want(n, "a whole number")
	case errors.Is(err, strconv.ErrRange), int64(v) != long:
		d.fault(n, "%s is out of range", n.kind())
	case err != nil:
		d.fault(n, "%s is not a whole number; write it in digits only", n.kind())
	default:
		ok = true
	}
	return v, ok
}

// fraction reads a number that may have a fraction.
func (d *document) fraction(n *node) (float64, bool) {
	number, ok := n.value.(json.Number)
	v, err := number.Float64()
	switch {
	case !ok:
		d.want(n, "a number")
	case err != nil: // the exponent is too large
		d.fault(n, "%s is out of range", n.kind())
	}
	return v, err == nil
}

// duration reads a string such as "1m30s".
func (d *document) duration(n *node) (wait time.Duration, ok bool) {
	switch v := n.value.(type) {
	case json.Number:
		text := clip(v.String())
		d.fault(n, `the number %s has no unit; write "%[1]ss" for seconds or "%[1]sms" for milliseconds`, text)
	case string:
		wait, err := time.ParseDuration(v)
		if err == nil {
			return wait, true
		}
		d.fault(n, `%s is not a duration; write it like "250ms", "5s" or "1m30s"`, quote(v))
	default:
		d.want(n, `a duration such as "250ms"`)
	}
	return wait, ok
}

// size reads a number of bytes: a whole number, or a string with a unit.
func (d *document) size(n *node) (int64, bool) {
	text, ok := n.value.(string)
	if !ok {
		return whole[int64](d, n)
	}
	v, ok := parseSize(text)
	if !ok {
		d.fault(n, `%s is not a size; write it in bytes or like "64KiB" or "1MiB"`, quote(text))
	}
	return v, ok
}

// sizeUnits are the units of a size, those of sizeText first. B is a suffix of the others and
// comes last.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// parseSize reads a size such as "1MiB". It returns false if the text is no size
// or the size is too large.
func parseSize(text string) (size int64, ok bool) {
	for _, unit := range sizeUnits {
		if digits, found := strings.CutSuffix(text, unit.name); found {
			v, err := strconv.ParseUint(strings.TrimRight(digits, " "), 10, 63)
			return int64(v) * unit.bytes, err == nil && int64(v) <= math.MaxInt64/unit.bytes
		}
	}
	return size, ok
}

// text reads a string that is not empty. After a fault it returns "".
func (d *document) text(n *node, wanted string) string {
	v, ok := n.value.(string)
	switch {
	case !ok:
		d.want(n, wanted)
	case v == "":
		d.fault(n, "the string is empty")
	}
	return v
}

// mode reads the word of a Switch. Many formats have true and false for a switch, so
// the fault of these says which word to write.
func (d *document) mode(n *node, to *policy.Switch) {
	word, ok := n.value.(string)
	on, isFlag := n.value.(bool)
	switch {
	case word == "on":
		*to = policy.On
	case word == "off":
		*to = policy.Off
	case word == "inherit":
		d.fault(n, "leave the key out to inherit")
	case isFlag:
		d.fault(n, "%s is none of off and on; write %s", quote(n.kind()), quote(map[bool]string{false: "off", true: "on"}[on]))
	case !ok:
		d.fault(n, "%s is none of off and on", quote(n.kind()))
	default:
		d.fault(n, "%s is none of off and on", quote(clip(word)))
	}
}

// oneOf reads one of the words and returns its index. After a fault it returns
// false.
func (d *document) oneOf(n *node, wanted string, words []string) (int, bool) {
	text := d.text(n, wanted)
	i := slices.Index(words, text)
	if i < 0 && text != "" {
		d.fault(n, "%s is not %s; known are %s", quote(text), wanted, join(words))
	}
	return i, i >= 0
}

// named looks up a name, which is written "name" or {"name": "name"}. The names of
// the program come before the built-in ones. After a fault it returns the zero T.
func named[T any](l *loader, n *node, wanted string, given, builtin map[string]T) (none T) {
	if n.isObject() {
		name := n.member("name")
		if name == nil || len(n.kids) > 1 {
			l.fault(n, `there must be a "name" here, and nothing else`)
			return none
		}
		n = name
	}
	text := l.text(n, "the name of "+wanted)
	if text == "" {
		return none
	}
	found, ok := given[text]
	if !ok {
		found, ok = builtin[text]
	}
	switch {
	case !ok && max(len(given), len(builtin)) == 0:
		l.fault(n, "%s is not the name of %s; the program has given none", quote(text), wanted)
	case !ok:
		l.fault(n, "%s is not the name of %s; known are %s", quote(text), wanted, namesIn(given, builtin))
	case reflect.ValueOf(&found).Elem().IsZero() && reflect.TypeFor[T]().Kind() == reflect.Struct:
		l.fault(n, "%s is empty in the table of names", quote(text))
	case reflect.ValueOf(&found).Elem().IsZero():
		l.fault(n, "%s is nil in the table of names", quote(text))
	}
	return found
}

// namesIn lists the names in two tables.
func namesIn[T any](given, builtin map[string]T) string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(given)), maps.Keys(builtin))
	slices.Sort(names)
	return join(slices.Compact(names))
}

// join lists words. It leaves out all after the first 32.
func join(words []string) string {
	const most = 32
	if more := len(words) - most; more > 0 {
		return strings.Join(words[:most], ", ") + " and " + strconv.Itoa(more) + " more"
	}
	return strings.Join(words, ", ")
}
