// How is a classifier read from a file? A list of clauses, of which the first
// with an opinion decides.

package policy

import (
	"fmt"

	"github.com/aplomb-go/aplomb/classify"
)

var builtinClassify = map[string]classify.Func{
	"default":  classify.Default,
	"refusals": classify.Refusals,
	"signals":  classify.Signals,
}

// The verdicts and kinds of error that a clause may name, and their wordsOf.
var (
	verdicts     = []classify.Verdict{classify.Final, classify.Refused, classify.Ambiguous}
	verdictNames = wordsOf(verdicts)

	kinds = []classify.Kind{
		classify.Canceled, classify.Timeout, classify.DNS, classify.Dial,
		classify.TLS, classify.Reset, classify.Protocol, classify.Other,
	}
	kindNames = wordsOf(kinds)
)

// wordsOf lists what the values are called.
func wordsOf[T fmt.Stringer](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = v.String()
	}
	return list
}

// A clause is one item of the list, as far as it has been read. The nodes tell
// what is there.
type clause struct {
	status, body, error, name, verdict *node

	codes []int
	text  string
	kinds []classify.Kind
	then  classify.Verdict
}

var clauseKeys = []key[clause]{
	{"status", func(l *loader, n *node, c *clause) { c.status, c.codes = n, l.codes(n) }},
	{"body", func(l *loader, n *node, c *clause) { c.body = n; c.text, _ = l.text(n, "a text to look for") }},
	{"error", func(l *loader, n *node, c *clause) { c.error, c.kinds = n, l.kinds(n) }},
	{"name", func(l *loader, n *node, c *clause) { c.name = n }},
	{"verdict", func(l *loader, n *node, c *clause) {
		c.verdict = n
		if i, ok := l.word(n, "a verdict", verdictNames); ok {
			c.then = verdicts[i]
		}
	}},
}

// classify reads a list of classifiers into one.
func (l *loader) classify(n *node) classify.Func {
	var list []classify.Func
	var all *node // what leaves nothing to those behind it
	for _, item := range l.items(n) {
		if all != nil {
			l.fault(item, `this is never asked: "default" before it decides everything; put that last`)
			break
		}
		list = append(list, l.clause(item))
		if l.decidesAll(item) {
			all = item
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	return classify.First(list...)
}

// decidesAll reports whether an item is the standard classifier, which leaves no
// question open.
func (l *loader) decidesAll(n *node) bool {
	const name = "default"
	if n.isObject() {
		n = n.field("name")
	}
	_, own := l.names.Classify[name]
	return n != nil && n.value == name && !own
}

// clause reads one item of the list.
func (l *loader) clause(n *node) classify.Func {
	if !n.isObject() {
		return named(l, n, "a classifier", l.names.Classify, builtinClassify)
	}
	var c clause
	before := len(l.faults)
	object(l, n, &c, clauseKeys)
	if len(l.faults) == before {
		l.checkClause(n, c)
	}
	switch {
	case len(l.faults) > before:
		return nil
	case c.name != nil:
		return named(l, c.name, "a classifier", l.names.Classify, builtinClassify)
	case c.error != nil:
		return classify.OnError(c.then, c.kinds...)
	case c.body == nil:
		return classify.OnStatus(c.then, c.codes...)
	}
	return classify.OnBodyText(c.then, c.text, c.codes...)
}

// checkClause notes what does not go together: a clause is about one thing, and
// only a body may be narrowed down by status.
func (l *loader) checkClause(n *node, c clause) {
	about := 0
	for _, part := range []*node{c.status, c.body, c.error, c.name} {
		if part != nil && (part != c.status || c.body == nil) {
			about++
		}
	}
	switch {
	case about == 0:
		l.fault(n, "the item says nothing about status, body, error or name")
	case about > 1:
		l.fault(n, "the item is about several things; give each an item of its own (only body and status go together)")
	case c.name != nil && c.verdict != nil:
		l.fault(c.verdict, "a classifier by name has verdicts of its own")
	case c.name == nil && c.verdict == nil:
		l.fault(n, `there is no "verdict" here; it is one of %s`, join(verdictNames))
	}
}

// codes reads status codes.
func (l *loader) codes(n *node) []int {
	var codes []int
	for _, item := range l.items(n) {
		code, ok := l.whole(item, 32)
		if ok && (code < 100 || code > 999) {
			l.fault(item, "%s is not a status code", item.what())
		}
		codes = append(codes, int(code))
	}
	return codes
}

// kinds reads kinds of error.
func (l *loader) kinds(n *node) []classify.Kind {
	var list []classify.Kind
	for _, item := range l.items(n) {
		if i, ok := l.word(item, "a kind of error", kindNames); ok {
			list = append(list, kinds[i])
		}
	}
	return list
}
