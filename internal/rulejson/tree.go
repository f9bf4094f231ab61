// A tree of JSON values that knows the place of each value in the input.

package rulejson

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds on the input, so that a wrong file costs little.
const (
	MaxInput  = 1 << 20 // bytes
	maxDepth  = 16      // levels; a rule needs six
	maxFaults = 100     // reported; the others are only counted
	maxQuote  = 60      // bytes of the input repeated in a fault
)

// A node is one JSON value.
type node struct {
	up     *node // nil at the root
	key    string
	index  int  // in a list
	keyPos int  // offset of the key; the same as pos if there is no key
	pos    int  // offset of the value
	named  bool // the keys of this object are names of hosts
	value  any  // string, json.Number, bool, nil, or the opening json.Delim
	kids   []*node
	byKey  map[string]*node // the members of an object; if a key is there twice, the first of them
}

func (n *node) isObject() bool { return n.value == json.Delim('{') }
func (n *node) isList() bool   { return n.value == json.Delim('[') }

// kind describes the value in a fault.
func (n *node) kind() string {
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

// path returns the way from the root, as a program would write it.
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

// isPlain reports whether a key can stand in a path without quotes.
func isPlain(key string) bool {
	return key != "" && len(key) <= maxQuote && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// member returns the member of an object with this key, or nil. A file may have tens of
// thousands of hosts with a fault each, and each fault looks up its host.
func (n *node) member(key string) *node { return n.byKey[key] }

// items returns the items of a list. A list of one item needs no brackets. If n is
// nil, there are no items.
func (n *node) items() []*node {
	switch {
	case n == nil:
		return nil
	case n.isList():
		return n.kids
	}
	return []*node{n}
}

// clip shortens a part of the input for a fault.
func clip(s string) string {
	if len(s) <= maxQuote {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuote], "") + "…"
}

func quote(s string) string { return strconv.Quote(clip(s)) }

// parse reads the whole input into a tree. If the input is not one JSON value,
// parse notes the fault and returns nil.
func (d *document) parse() *node {
	// RFC 8259 §8.1 allows a reader to skip the mark that some editors write.
	d.data = bytes.TrimPrefix(d.data, []byte("\ufeff"))
	if len(bytes.TrimSpace(d.data)) == 0 {
		d.note(0, nil, nil, "the input is empty; write at least {}")
		return nil
	}
	if i := invalidUTF8(d.data); i >= 0 {
		// encoding/json would silently put U+FFFD in its place.
		d.note(i, nil, nil, "this byte is not UTF-8")
		return nil
	}
	// The check of the whole text comes first. It also finds text after the value,
	// and the decoder below need not expect errors.
	var raw json.RawMessage
	if err := json.Unmarshal(d.data, &raw); err != nil {
		d.syntax(err)
		return nil
	}
	p := parser{document: d, dec: json.NewDecoder(bytes.NewReader(d.data))}
	p.dec.UseNumber()
	root := &node{}
	if !p.read(root, 1) {
		return nil
	}
	return root
}

// syntax notes that the input is not JSON. Other formats allow comments and
// trailing commas, so the fault says that JSON does not.
func (d *document) syntax(err error) {
	pos, help := len(d.data), ""
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		pos = int(at.Offset) - 1 // Offset counts the wrong byte, too
	}
	if pos < len(d.data) {
		switch before := bytes.TrimRight(d.data[:pos], " \t\r\n"); d.data[pos] {
		case '/', '#':
			help = "; JSON has no comments"
		case '}', ']':
			if bytes.HasSuffix(before, []byte(",")) {
				help = "; JSON has no trailing commas"
			}
		}
	}
	d.note(pos, nil, err, "not JSON: %v%s", err, help)
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

// A parser builds the tree from the tokens of a valid input.
type parser struct {
	*document
	dec *json.Decoder
}

// next returns the offset of the next token. The decoder's own offset is the end
// of the last token, before commas and colons.
func (p *parser) next() int {
	pos := int(p.dec.InputOffset())
	for pos < len(p.data) && strings.IndexByte(" \t\r\n,:", p.data[pos]) >= 0 {
		pos++
	}
	return pos
}

// token reads the next token. It cannot fail, because the input is valid.
func (p *parser) token() json.Token {
	token, _ := p.dec.Token()
	return token
}

// read reads one value into n, with everything inside it. It returns false if the
// value is nested too deep.
func (p *parser) read(n *node, depth int) bool {
	n.pos = p.next()
	if depth > maxDepth {
		p.fault(n, "nested more than %d levels deep", maxDepth)
		return false
	}
	if n.value = p.token(); !n.isObject() && !n.isList() {
		return true
	}
	n.byKey = map[string]*node{}
	for p.dec.More() {
		kid := &node{up: n, index: len(n.kids), keyPos: p.next()}
		if n.isObject() {
			kid.key, _ = p.token().(string)
			n.byKey[kid.key] = cmp.Or(n.byKey[kid.key], kid)
		}
		if !p.read(kid, depth+1) {
			return false
		}
		n.kids = append(n.kids, kid)
	}
	p.token() // the closing bracket
	return true
}
