// Fields that are functions or back-offs: names, lists, and descriptions of
// classifiers and back-offs.

package rulejson

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// The built-in names.
var (
	classifiers = map[string]classify.Func{
		"default":  classify.Default,
		"refusals": classify.Refusals,
		"signals":  classify.Signals,
	}
	idempotent = map[string]func(*http.Request) bool{
		"default": classify.Idempotent,
		"none":    func(*http.Request) bool { return false },
		"all":     func(*http.Request) bool { return true },
	}
	scopes = map[string]func(*http.Request) string{
		"credentials": policy.KeyByCredentials,
		"host":        policy.KeyByHost,
		"route":       policy.KeyByRoute,
	}
	keys = map[string]func(*http.Request) string{
		"none": func(*http.Request) string { return "" },
		"uuid": policy.UUIDKey,
	}
	costs = map[string]func(*http.Request) int{
		"one": func(*http.Request) int { return 1 },
	}
	// formulas are also the types of a back-off that is described by its fields.
	formulas = map[string]backoff.Backoff{
		"exponential": backoff.Exponential{},
		"google":      backoff.Google{},
		"geometric":   backoff.Geometric{},
		"normal":      backoff.Normal{},
		"randomized":  backoff.Randomized{},
	}
	formulaNames = []string{"exponential", "google", "geometric", "normal", "randomized", "constant"}
)

// isBackoff reports whether t is a formula of package backoff.
func isBackoff(t reflect.Type) bool {
	return t.PkgPath() == reflect.TypeFor[backoff.Constant]().PkgPath()
}

// backoff reads a back-off: a name, or an object with a type and its fields. If
// the object has a fault, backoff returns nil, because Validate would find faults
// in the rest of it that are not in the file.
func (l *loader) backoff(n *node) backoff.Backoff {
	const help = `write a name, or an object such as {"type": "constant", "delay": "0s"} for no wait`
	kind := n.member("type")
	text, isText := n.value.(string)
	_, given := l.names.Backoff[text]
	switch {
	case isText && !given && formulas[text] == nil:
		l.fault(n, "%s is not the name of a back-off; %s; the names are %s", quote(text), help, namesIn(l.names.Backoff, formulas))
		return nil
	case isText, kind == nil && n.member("name") != nil:
		return named(l, n, "a back-off", l.names.Backoff, formulas)
	case !n.isObject():
		l.fault(n, "%s where a back-off is wanted; %s", n.kind(), help)
		return nil
	case kind == nil:
		l.fault(n, `there is neither a "type" nor a "name" here; write "type": "exponential", or another type: %s`, join(formulaNames[1:]))
		return nil
	}
	before := l.count()
	i, ok := l.oneOf(kind, "a type of back-off", formulaNames)
	if !ok {
		return nil
	}
	if formulaNames[i] == "constant" {
		return l.constant(n)
	}
	b := reflect.New(reflect.TypeOf(formulas[formulaNames[i]])).Elem()
	l.object(n, b)
	if l.count() > before {
		return nil
	}
	return b.Interface().(backoff.Backoff)
}

// constant reads a back-off of type constant. Its delay may be zero.
func (l *loader) constant(n *node) backoff.Backoff {
	var wait time.Duration
	for _, kid := range l.members(n) {
		switch kid.key {
		case "delay":
			if wait, _ = l.duration(kid); wait < 0 {
				l.fault(kid, "%s is negative", kid.kind())
			}
		case "type":
		default:
			l.noKey(kid, []string{"type", "delay"})
		}
	}
	if n.member("delay") == nil {
		l.fault(n, `there is no "delay" here`)
	}
	return backoff.Constant(max(wait, 0))
}

// idempotent reads a name, a method, or a list of these. A request is idempotent
// if any of them says so.
func (l *loader) idempotent(n *node) func(*http.Request) bool {
	if all, ok := n.value.(bool); ok {
		word := map[bool]string{true: "all", false: "none"}[all]
		l.fault(n, `%v where a list of methods or a name is wanted; write %q, or methods such as ["GET", "PUT", "POST"]`, all, word)
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

// repeatable reads one item of idempotent. Capitals without a name are a method.
func (l *loader) repeatable(n *node) func(*http.Request) bool {
	text, _ := n.value.(string)
	upper := strings.ToUpper(text)
	_, given := l.names.Idempotent[text]
	switch {
	case text == "", given, idempotent[text] != nil:
	case text == upper && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == "":
		return func(req *http.Request) bool { return cmp.Or(req.Method, http.MethodGet) == text }
	case slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, upper):
		l.fault(n, "methods are in capitals; write %s", quote(upper))
		return nil
	}
	return named(l, n, "a test for idempotent requests", l.names.Idempotent, idempotent)
}

// hint reads a name of the program or a list of such names.
func (l *loader) hint(n *node) classify.RetryAfterFunc {
	var list []classify.RetryAfterFunc
	for _, item := range l.items(n) {
		list = append(list, named(l, item, "a RetryAfter function", l.names.RetryAfter, nil))
	}
	return chain.FirstRetryAfter(list...)
}

// classify reads a list of classifiers. The first classifier with an opinion decides.
func (l *loader) classify(n *node) classify.Func {
	var list []classify.Func
	items := l.items(n)
	for i, item := range items {
		if i > 0 && l.decidesAll(items[i-1]) {
			l.fault(item, `this is never asked, because "default" before it decides everything; put "default" last`)
		}
		list = append(list, l.clause(item))
	}
	if len(list) == 1 {
		return list[0]
	}
	return classify.First(list...)
}

// decidesAll reports whether an item is the standard classifier, which leaves no
// question to the next item.
func (l *loader) decidesAll(n *node) bool {
	if n.isObject() {
		n = n.member("name")
	}
	_, given := l.names.Classify["default"]
	return n != nil && n.value == "default" && !given
}

var (
	classes    = []classify.Class{classify.Final, classify.Refused, classify.Ambiguous}
	errorTypes = []classify.ErrorType{
		classify.ErrorCanceled, classify.ErrorTimeout, classify.ErrorDNS, classify.ErrorDial,
		classify.ErrorTLS, classify.ErrorReset, classify.ErrorProtocol, classify.ErrorOther,
	}
)

// wordsOf lists the texts of values.
func wordsOf[T ~string](values []T) []string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return words
}

// clause reads one item of classify. An item is about one thing. Only a text in
// the body can be restricted by status.
func (l *loader) clause(n *node) classify.Func {
	if !n.isObject() || n.member("name") != nil {
		return named(l, n, "a classifier", l.names.Classify, classifiers)
	}
	before := l.count()
	for _, kid := range l.members(n) {
		if known := []string{"status", "body", "error", "name", "class"}; !slices.Contains(known, kid.key) {
			l.noKey(kid, known)
		}
	}
	status, body, kind, class := n.member("status"), n.member("body"), n.member("error"), n.member("class")
	switch {
	case l.count() > before:
		return nil
	case status == nil && body == nil && kind == nil:
		l.fault(n, "the item needs a status, a body, an error or a name")
		return nil
	case kind != nil && (status != nil || body != nil):
		l.fault(n, "the item is about several things; give each an item of its own")
		return nil
	case class == nil:
		l.fault(n, `there is no "class" here; it is one of %s`, join(wordsOf(classes)))
		return nil
	}
	i, _ := l.oneOf(class, "a class", wordsOf(classes))
	then, codes, types, text := classes[max(i, 0)], l.codes(status), l.types(kind), ""
	if body != nil {
		text = l.text(body, "a text to look for")
	}
	switch {
	case l.count() > before:
		return nil
	case kind != nil:
		return classify.OnError(then, types...)
	case body != nil:
		return classify.OnBody(then, text, codes...)
	}
	return classify.OnStatus(then, codes...)
}

// codes reads status codes. n is nil if the item has none.
func (l *loader) codes(n *node) (codes []int) {
	for _, item := range l.items(n) {
		code, ok := whole[int](&l.document, item)
		if ok && (code < 100 || code > 999) {
			l.fault(item, "%s is not a status code", item.kind())
		}
		codes = append(codes, code)
	}
	return codes
}

// types reads types of errors. n is nil if the item has none.
func (l *loader) types(n *node) (types []classify.ErrorType) {
	for _, item := range l.items(n) {
		if i, ok := l.oneOf(item, "a type of error", wordsOf(errorTypes)); ok {
			types = append(types, errorTypes[i])
		}
	}
	return types
}
