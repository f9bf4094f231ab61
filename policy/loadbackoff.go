// How is a back-off read from a file? One table for each type.

package policy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/policy/backoff"
)

// backoffTypes reads back-offs by type. Each type's table has a line for each
// of its fields.
var backoffTypes = map[string]func(*loader, *node) Backoff{
	"exponential": backoffType([]key[backoff.Exponential]{
		{"base", func(l *loader, n *node, b *backoff.Exponential) { l.duration(n, &b.Base, nothing) }},
		{"jitter", func(l *loader, n *node, b *backoff.Exponential) { l.duration(n, &b.Jitter, orOff) }},
		{"max", func(l *loader, n *node, b *backoff.Exponential) { l.duration(n, &b.Max, nothing) }},
		{"literal", func(l *loader, n *node, b *backoff.Exponential) { l.flag(n, &b.Literal) }},
	}),
	"full_jitter": backoffType([]key[backoff.FullJitter]{
		{"base", func(l *loader, n *node, b *backoff.FullJitter) { l.duration(n, &b.Base, nothing) }},
		{"max", func(l *loader, n *node, b *backoff.FullJitter) { l.duration(n, &b.Max, nothing) }},
	}),
	"equal_jitter": backoffType([]key[backoff.EqualJitter]{
		{"base", func(l *loader, n *node, b *backoff.EqualJitter) { l.duration(n, &b.Base, nothing) }},
		{"max", func(l *loader, n *node, b *backoff.EqualJitter) { l.duration(n, &b.Max, nothing) }},
	}),
	"decorrelated": backoffType([]key[backoff.Decorrelated]{
		{"base", func(l *loader, n *node, b *backoff.Decorrelated) { l.duration(n, &b.Base, nothing) }},
		{"max", func(l *loader, n *node, b *backoff.Decorrelated) { l.duration(n, &b.Max, nothing) }},
		{"literal", func(l *loader, n *node, b *backoff.Decorrelated) { l.flag(n, &b.Literal) }},
	}),
	"randomized": backoffType([]key[backoff.Randomized]{
		{"interval", func(l *loader, n *node, b *backoff.Randomized) { l.duration(n, &b.Interval, nothing) }},
		{"multiplier", func(l *loader, n *node, b *backoff.Randomized) { l.number(n, &b.Multiplier, nothing) }},
		{"max_interval", func(l *loader, n *node, b *backoff.Randomized) { l.duration(n, &b.MaxInterval, nothing) }},
		{"randomization_factor", func(l *loader, n *node, b *backoff.Randomized) { l.number(n, &b.RandomizationFactor, orOff) }},
		{"literal", func(l *loader, n *node, b *backoff.Randomized) { l.flag(n, &b.Literal) }},
	}),
	"normal": backoffType([]key[backoff.Normal]{
		{"min_delay", func(l *loader, n *node, b *backoff.Normal) { l.duration(n, &b.MinDelay, nothing) }},
		{"factor", func(l *loader, n *node, b *backoff.Normal) { l.number(n, &b.Factor, nothing) }},
		{"max_delay", func(l *loader, n *node, b *backoff.Normal) { l.duration(n, &b.MaxDelay, nothing) }},
		{"jitter", func(l *loader, n *node, b *backoff.Normal) { l.number(n, &b.Jitter, orOff) }},
		{"literal", func(l *loader, n *node, b *backoff.Normal) { l.flag(n, &b.Literal) }},
	}),
	"geometric": backoffType([]key[backoff.Geometric]{
		{"first", func(l *loader, n *node, b *backoff.Geometric) { l.duration(n, &b.First, nothing) }},
		{"rate", func(l *loader, n *node, b *backoff.Geometric) { l.number(n, &b.Rate, nothing) }},
		{"max", func(l *loader, n *node, b *backoff.Geometric) { l.duration(n, &b.Max, nothing) }},
		{"jitter", func(l *loader, n *node, b *backoff.Geometric) { l.number(n, &b.Jitter, orOff) }},
		{"literal", func(l *loader, n *node, b *backoff.Geometric) { l.flag(n, &b.Literal) }},
	}),
	"constant": func(l *loader, n *node) Backoff {
		if n.member("delay") == nil { // zero means no wait: nobody's default
			l.fault(n, `there is no "delay" here`)
		}
		return backoffType([]key[backoff.Constant]{
			{"delay", func(l *loader, n *node, b *backoff.Constant) { l.duration(n, (*time.Duration)(b), orZero) }},
		})(l, n)
	},
}

// backoffType returns what reads the fields of a type from its object.
func backoffType[B Backoff](keys []key[B]) func(*loader, *node) Backoff {
	read := key[B]{"type", func(*loader, *node, *B) {}}
	keys = slices.Insert(keys, 0, read)
	return func(l *loader, n *node) Backoff {
		var b B
		object(l, n, &b, keys)
		return b
	}
}

// backoffTypeNames lists the types in a fixed order, for faults.
var backoffTypeNames = slices.Sorted(maps.Keys(backoffTypes))

// backoffFields lists the keys of each type, for faults.
var backoffFields = map[string][]string{
	"exponential": fieldsOf(backoff.Exponential{}), "full_jitter": fieldsOf(backoff.FullJitter{}), "equal_jitter": fieldsOf(backoff.EqualJitter{}),
	"decorrelated": fieldsOf(backoff.Decorrelated{}), "randomized": fieldsOf(backoff.Randomized{}), "normal": fieldsOf(backoff.Normal{}),
	"geometric": fieldsOf(backoff.Geometric{}), "constant": {"delay"},
}

// builtinBackoffs are the back-offs without a word about their fields.
var builtinBackoffs = map[string]Backoff{
	"none":         backoff.Constant(0),
	"exponential":  backoff.Exponential{},
	"full_jitter":  backoff.FullJitter{},
	"equal_jitter": backoff.EqualJitter{},
	"decorrelated": backoff.Decorrelated{},
	"randomized":   backoff.Randomized{},
	"normal":       backoff.Normal{},
	"geometric":    backoff.Geometric{},
}

// backoff reads a back-off. One with a fault is given up as a whole: what
// remains of it could have other faults that are not the writer's.
func (l *loader) backoff(n *node) Backoff {
	kind := n.member("type")
	switch {
	case kind == nil && n.isObject() && n.member("name") == nil:
		l.fault(n, `there is neither a "type" nor a "name" here; %v`, later(func() string { return helpType(n) }))
		return nil
	case kind == nil && l.helpBackoff(n):
		return nil
	case kind == nil:
		return named(l, n, "a back-off", l.names.Backoffs, builtinBackoffs)
	}
	before := len(l.faults)
	if other := otherTypes[fold(fmt.Sprint(kind.value))]; other != "" {
		l.fault(kind, "%s is not a type of back-off; did you mean %s?", quote(fmt.Sprint(kind.value)), quote(other))
		return nil
	}
	i, ok := l.word(kind, "a type of back-off", backoffTypeNames)
	if !ok {
		return nil
	}
	b := backoffTypes[backoffTypeNames[i]](l, n)
	if len(l.faults) > before {
		return nil
	}
	return b
}
