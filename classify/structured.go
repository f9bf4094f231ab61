// How is a structured field read (RFC 9651)?
//
// Only what the RateLimit fields need is kept: lists of items with parameters,
// and dictionaries of items. The whole grammar of items is checked, though, for
// a field with any mistake in it must be ignored as a whole (§4.2).

package classify

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// fieldLimit and memberLimit bound what a field may cost to read. A server
	// with honest intentions needs a hundredth of it.
	fieldLimit  = 4 << 10
	memberLimit = 64
)

// A member is an item with its parameters. text is set for strings and tokens,
// num for whole numbers.
type member struct {
	text   string
	num    int64
	named  bool // it is a string or a token, so it can be a quota's name
	whole  bool // it is a whole number
	params []param
}

// A param is a parameter, or an entry of a dictionary.
type param struct {
	key   string
	value member
}

type params []param

func (m member) has(key string) bool {
	_, ok := params(m.params).get(key)
	return ok
}

func (m member) natural(key string) (int64, bool) { return params(m.params).natural(key) }

// get finds the value of a key; the last one counts (§4.2.3.2).
func (p params) get(key string) (member, bool) {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i].key == key {
			return p[i].value, true
		}
	}
	return member{}, false
}

// natural finds the value of a key that is a whole number, not negative.
func (p params) natural(key string) (int64, bool) {
	v, ok := p.get(key)
	if !ok || !v.whole || v.num < 0 {
		return 0, false
	}
	return v.num, true
}

// parseList reads a list of items (§4.2.1). The lines of a field are one list.
// Lists within lists are not accepted.
func parseList(lines []string) ([]member, bool) {
	s, ok := joined(lines)
	if !ok {
		return nil, false
	}
	var list []member
	for s.rest != "" {
		m, ok := s.item()
		if !ok || len(list) == memberLimit || !s.comma() {
			return nil, false
		}
		list = append(list, m)
	}
	return list, true
}

// parseDictionary reads a dictionary of items (§4.2.2).
func parseDictionary(lines []string) (params, bool) {
	s, ok := joined(lines)
	if !ok {
		return nil, false
	}
	var dict params
	for s.rest != "" {
		p, ok := s.param()
		if !ok || len(dict) == memberLimit {
			return nil, false
		}
		if p.value.params, ok = s.params(); !ok || !s.comma() {
			return nil, false
		}
		dict = append(dict, p)
	}
	return dict, true
}

// A scanner holds what of a field is still to be read.
type scanner struct{ rest string }

// inLimit reports whether the lines of a field, joined, are short enough to be
// read.
func inLimit(lines []string) bool {
	size := 0
	for _, line := range lines {
		size += len(line) + len(", ")
		if size > fieldLimit {
			return false
		}
	}
	return true
}

func joined(lines []string) (*scanner, bool) {
	if !inLimit(lines) {
		return nil, false
	}
	return &scanner{strings.Trim(strings.Join(lines, ", "), " ")}, true
}

// skip takes c off the front, if it is there.
func (s *scanner) skip(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// span takes off the longest beginning of characters that f accepts.
func (s *scanner) span(f func(c byte) bool) string {
	n := 0
	for n < len(s.rest) && f(s.rest[n]) {
		n++
	}
	head := s.rest[:n]
	s.rest = s.rest[n:]
	return head
}

// comma takes off what stands between two members; at the end, nothing. A comma
// at the end is a mistake.
func (s *scanner) comma() bool {
	s.rest = strings.TrimLeft(s.rest, " \t")
	if s.rest == "" {
		return true
	}
	if !s.skip(',') {
		return false
	}
	s.rest = strings.TrimLeft(s.rest, " \t")
	return s.rest != ""
}

func (s *scanner) item() (member, bool) {
	m, ok := s.bare()
	if ok {
		m.params, ok = s.params()
	}
	return m, ok
}

func (s *scanner) params() (all []param, ok bool) {
	for s.skip(';') {
		s.rest = strings.TrimLeft(s.rest, " ")
		p, ok := s.param()
		if !ok || len(all) == memberLimit {
			return nil, false
		}
		all = append(all, p)
	}
	return all, true
}

// param reads a key and its value; a key alone is true.
func (s *scanner) param() (param, bool) {
	if s.rest == "" || !isLower(s.rest[0]) && s.rest[0] != '*' {
		return param{}, false
	}
	p := param{key: s.span(func(c byte) bool {
		return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
	})}
	if !s.skip('=') {
		return p, true
	}
	var ok bool
	p.value, ok = s.bare()
	return p, ok
}

// bare reads an item without its parameters (§4.2.3.1).
func (s *scanner) bare() (member, bool) {
	if s.rest == "" {
		return member{}, false
	}
	switch c := s.rest[0]; {
	case isDigit(c), c == '-':
		return s.number()
	case c == '"':
		text, ok := s.quoted()
		return member{text: text, named: true}, ok
	case isAlpha(c), c == '*':
		text := s.span(func(c byte) bool { return isToken(c) || c == ':' || c == '/' })
		return member{text: text, named: true}, true
	case c == ':':
		return member{}, s.bytes()
	case c == '?':
		s.skip('?')
		return member{}, s.skip('0') || s.skip('1')
	case c == '@':
		s.skip('@')
		m, ok := s.number()
		return member{}, ok && m.whole
	case c == '%':
		return member{}, s.display()
	}
	return member{}, false
}

// number reads an integer of up to 15 digits or a decimal of up to 12 and 3
// (§4.2.4).
func (s *scanner) number() (member, bool) {
	negative := s.skip('-')
	head := s.span(isDigit)
	if s.skip('.') {
		tail := s.span(isDigit)
		return member{}, head != "" && len(head) <= 12 && tail != "" && len(tail) <= 3
	}
	if head == "" || len(head) > 15 {
		return member{}, false
	}
	n, err := strconv.ParseInt(head, 10, 64)
	if negative {
		n = -n
	}
	return member{num: n, whole: true}, err == nil
}

// quoted reads a string (§4.2.5): printable ASCII, with a backslash before a
// quote or a backslash.
func (s *scanner) quoted() (string, bool) {
	var text strings.Builder
	for i := 1; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case c == '"':
			s.rest = s.rest[i+1:]
			return text.String(), true
		case c == '\\':
			i++
			if i == len(s.rest) || s.rest[i] != '"' && s.rest[i] != '\\' {
				return "", false
			}
			text.WriteByte(s.rest[i])
		case c < 0x20 || c > 0x7e:
			return "", false
		default:
			text.WriteByte(c)
		}
	}
	return "", false
}

// bytes checks a byte sequence (§4.2.7).
func (s *scanner) bytes() bool {
	body, rest, ok := strings.Cut(s.rest[1:], ":")
	s.rest = rest
	if strings.ContainsAny(body, "\r\n") {
		return false // Go's decoder would skip them
	}
	_, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(body, "="))
	return ok && err == nil
}

// display checks a display string (§4.2.10): printable ASCII and bytes in
// hexadecimal, which together are UTF-8.
func (s *scanner) display() bool {
	if !s.skip('%') || !s.skip('"') {
		return false
	}
	var text []byte
	for {
		text = append(text, s.span(func(c byte) bool { return c >= 0x20 && c <= 0x7e && c != '"' && c != '%' })...)
		switch {
		case s.skip('"'):
			return utf8.Valid(text)
		case !s.skip('%') || len(s.rest) < 2 || !isHex(s.rest[0]) || !isHex(s.rest[1]):
			return false
		}
		text = append(text, unhex(s.rest[0])<<4|unhex(s.rest[1]))
		s.rest = s.rest[2:]
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c) || c >= 'A' && c <= 'Z' }
func isHex(c byte) bool   { return isDigit(c) || c >= 'a' && c <= 'f' }

// unhex is the value of a digit that isHex accepts.
func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c - 'a' + 10
}

// isToken knows the characters of RFC 9110 §5.6.2.
func isToken(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
