// Where in the input does each JSON value stand? A small tree that remembers
// positions, and the faults that name them.

package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds on what is read, so that a wrong file costs little.
const (
	maxInput  = 1 << 20 // bytes
	maxDepth  = 16      // levels; rules need six
	maxFaults = 100     // shown; the rest is counted
	maxQuote  = 60      // bytes of the input repeated in a fault
)

// A LoadError is one thing wrong in what [Load] read.
type LoadError struct {
	// Line and Column say where, counted from 1; a column is a character.
	Line, Column int
	// Path says where in the structure: `hosts["*.example.com"].attempts`.
	// Empty for the input as a whole.
	Path string
	// Reason says what is wrong and, where that can be told, what to write.
	Reason string
	// Err is the *FieldError behind it where [Rule.Validate] found the fault,
	// the *json.SyntaxError where the input is not JSON; otherwise nil.
	Err error
}

// Error returns "line 7, column 15: path: reason".
func (e *LoadError) Error() string {
	at := fmt.Sprintf("line %d, column %d: ", e.Line, e.Column)
	if e.Path != "" {
		at += e.Path + ": "
	}
	return at + e.Reason
}

// Unwrap returns Err.
func (e *LoadError) Unwrap() error { return e.Err }

// LoadErrors is everything wrong in what [Load] read, in the input's order. It
// holds at most a hundred faults and then one that counts the others.
type LoadErrors []*LoadError

// Error returns one line per fault.
func (e LoadErrors) Error() string {
	lines := make([]string, len(e))
	for i, fault := range e {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults for errors.Is and errors.As.
func (e LoadErrors) Unwrap() []error {
	list := make([]error, len(e))
	for i, fault := range e {
		list[i] = fault
	}
	return list
}

// A node is one JSON value and where it stands.
type node struct {
	up     *node // nil at the root
	key    string
	index  int  // in a list
	keyPos int  // offset of the key; of the value where there is none
	pos    int  // offset of the value
	named  bool // the keys of this object are names, not fields
	value  any  // string, json.Number, bool, nil, or the opening json.Delim
	kids   []*node
}

func (n *node) isObject() bool { return n.value == json.Delim('{') }
func (n *node) isList() bool   { return n.value == json.Delim('[') }

// what names the kind of value.
func (n *node) what() string {
	switch v := n.value.(type) {
	case json.Number:
		return "the number " + clip(v.String())
	case string:
		return "the string " + quote(v)
	case bool:
		return strconv.FormatBool(v)
	case nil:
		return "null"
	}
	if n.isList() {
		return "a list"
	}
	return "an object"
}

// path is the way from the root, as one would write it in a program.
func (n *node) path() string {
	if n.up == nil {
		return ""
	}
	way := n.up.path()
	switch {
	case n.up.isList():
		return way + "[" + strconv.Itoa(n.index) + "]"
	case n.up.named, !isPlain(n.key):
		return way + "[" + quote(n.key) + "]"
	case way == "":
		return n.key
	}
	return way + "." + n.key
}

// member returns an object's member by its key, or nil.
func (n *node) member(key string) *node {
	for _, kid := range n.kids {
		if kid.key == key {
			return kid
		}
	}
	return nil
}

// field returns the member for the Go name of a field, or nil: a key is the
// name in snake case.
func (n *node) field(name string) *node {
	for _, kid := range n.kids {
		if n.isObject() && fold(kid.key) == fold(name) {
			return kid
		}
	}
	return nil
}

// fold makes AttemptTimeout, attempt_timeout and attempt-timeout the same.
func fold(name string) string {
	return strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(name, "_", ""), "-", ""))
}

// isPlain reports whether a key can stand in a path without quotes.
func isPlain(key string) bool {
	return key != "" && len(key) <= maxQuote && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// clip shortens what the input holds to what a fault can repeat.
func clip(s string) string {
	if len(s) <= maxQuote {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuote], "") + "…"
}

func quote(s string) string { return strconv.Quote(clip(s)) }

// A fault is a LoadError in the making: line, path and words are worked out when
// all faults are known, and for those only that are shown. A megabyte of faults
// would else keep the reader waiting.
type fault struct {
	pos    int
	at     *node // nil for the input as a whole
	reason string
	args   []any // for the reason
	err    error
}

// later is a part of a reason that takes some work.
type later func() string

func (l later) String() string { return l() }

// A document is the input and what is wrong with it.
type document struct {
	data   []byte
	faults []fault
}

// fault notes what is wrong with a value.
func (d *document) fault(n *node, reason string, args ...any) {
	d.faults = append(d.faults, fault{pos: n.pos, at: n, reason: reason, args: args})
}

// faultKey notes what is wrong with a value's key.
func (d *document) faultKey(n *node, reason string, args ...any) {
	d.faults = append(d.faults, fault{pos: n.keyPos, at: n, reason: reason, args: args})
}

// err returns the faults in the order of their positions, or nil.
func (d *document) err() error {
	if len(d.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(d.faults, func(a, b fault) int { return cmp.Compare(a.pos, b.pos) })
	var list LoadErrors
	for i, f := range d.faults {
		if more := len(d.faults) - i; i == maxFaults && more > 1 {
			f = fault{pos: f.pos, reason: "%d more faults from here on", args: []any{more}}
		}
		at := &LoadError{Reason: fmt.Sprintf(f.reason, f.args...), Err: f.err}
		at.Line, at.Column = d.position(f.pos)
		if f.at != nil {
			at.Path = f.at.path()
		}
		list = append(list, at)
		if i == maxFaults {
			break
		}
	}
	return list
}

// position turns an offset into a line and a column, both from 1.
func (d *document) position(pos int) (line, column int) {
	before := d.data[:min(pos, len(d.data))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1
}

// parse reads the whole input into a tree. It returns nil where the input is
// not one JSON value, having noted why.
func (d *document) parse() *node {
	// RFC 8259 §8.1 allows a reader to skip the mark that some editors write.
	d.data = bytes.TrimPrefix(d.data, []byte("\ufeff"))
	if len(bytes.TrimSpace(d.data)) == 0 {
		d.faults = append(d.faults, fault{reason: "the input is empty; {} is the least there can be"})
		return nil
	}
	if i := invalidUTF8(d.data); i >= 0 {
		// encoding/json would put U+FFFD there without a word.
		d.faults = append(d.faults, fault{pos: i, reason: "this byte is not UTF-8"})
		return nil
	}
	// One look at the whole text first: it finds what follows the value, too,
	// and spares the tree all questions of syntax.
	var raw json.RawMessage
	if err := json.Unmarshal(d.data, &raw); err != nil {
		d.syntax(err, len(d.data))
		return nil
	}
	p := parser{document: d, dec: json.NewDecoder(bytes.NewReader(d.data))}
	p.dec.UseNumber()
	root := &node{}
	if !p.value(root, 1) {
		return nil
	}
	return root
}

// syntax notes that the input is not JSON.
func (d *document) syntax(err error, pos int) {
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		pos = max(int(at.Offset)-1, 0) // Offset counts the wrong byte, too
	}
	reason := "not JSON: %v"
	if help := helpSyntax(d.data, pos); help != "" {
		reason += "; " + help
	}
	d.faults = append(d.faults, fault{pos: pos, reason: reason, args: []any{err}, err: err})
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// A parser builds the tree from tokens.
type parser struct {
	*document
	dec *json.Decoder
}

// next is the offset at which the next token begins. The decoder stands at the
// end of the last one and skips commas and colons by itself.
func (p *parser) next() int {
	pos := int(p.dec.InputOffset())
	for pos < len(p.data) && strings.IndexByte(" \t\r\n,:", p.data[pos]) >= 0 {
		pos++
	}
	return pos
}

// token reads the next token; false ends the reading.
func (p *parser) token() (json.Token, bool) {
	pos := p.next()
	token, err := p.dec.Token()
	if err != nil {
		p.syntax(err, pos)
	}
	return token, err == nil
}

// value reads one value with all it holds into n; false ends the reading.
func (p *parser) value(n *node, depth int) (ok bool) {
	n.pos = p.next()
	if n.up == nil || n.up.isList() {
		n.keyPos = n.pos
	}
	if depth > maxDepth {
		p.fault(n, "nested more than %d levels deep", maxDepth)
		return false
	}
	if n.value, ok = p.token(); !ok || !n.isObject() && !n.isList() {
		return ok
	}
	for p.dec.More() {
		kid := &node{up: n, index: len(n.kids)}
		if n.isObject() && !p.key(kid) || !p.value(kid, depth+1) {
			return false
		}
		n.kids = append(n.kids, kid)
	}
	_, ok = p.token() // the closing bracket
	return ok
}

// key reads the key of the member kid.
func (p *parser) key(kid *node) bool {
	kid.keyPos = p.next()
	token, ok := p.token()
	kid.key, _ = token.(string)
	return ok
}
