// How are the modes written? The text forms of all modes.

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// words are the text forms of a mode. The word of a value v is at index v+1: the
// first word belongs to [Off], the second to the zero value, which inherits. An
// empty word means that the mode has no such value.
type words []string

var (
	switchWords   = words{"off", "inherit", "on"}
	gateModeWords = words{"off", "inherit", "wait", "refuse"}
	beyondWords   = words{"", "inherit", "stop", "cap", "wait"}
)

// has reports whether v is a value of the mode.
func (w words) has(v int8) bool { return v >= Off && int(v)+1 < len(w) && w[v+1] != "" }

// text returns the word of a value. typ is the name of the mode's type.
func (w words) text(typ string, v int8) string {
	if w.has(v) {
		return w[v+1]
	}
	return typ + "(" + strconv.Itoa(int(v)) + ")"
}

// list returns the words that a user would write as a part of a sentence.
func (w words) list() string {
	known := slices.DeleteFunc(slices.Clone(w), func(word string) bool { return word == "" || word == "inherit" })
	last := len(known) - 1
	return strings.Join(known[:last], ", ") + " and " + known[last]
}

// marshal returns the text of a value, or an error if the mode has no such value.
func (w words) marshal(typ string, v int8) ([]byte, error) {
	if w.has(v) {
		return []byte(w[v+1]), nil
	}
	return nil, fmt.Errorf("policy: %s is none of %s", w.text(typ, v), w.list())
}

// unmarshal sets to from its text. If the text is unknown, to keeps its value.
func unmarshal[T ~int8](w words, text []byte, to *T) error {
	i := slices.Index(w, string(text))
	if i < 0 || len(text) == 0 {
		return fmt.Errorf("policy: %q is none of %s", text, w.list())
	}
	*to = T(i - 1)
	return nil
}

// String returns "stop", "cap", "wait", or "inherit" for the zero value.
func (b Beyond) String() string { return beyondWords.text("Beyond", int8(b)) }

// MarshalText returns the text of String, or an error for an unknown value.
func (b Beyond) MarshalText() ([]byte, error) { return beyondWords.marshal("Beyond", int8(b)) }

// UnmarshalText reads the text that MarshalText writes. Any other text is an
// error and leaves b as it is.
func (b *Beyond) UnmarshalText(text []byte) error { return unmarshal(beyondWords, text, b) }

// String returns "on", "off", or "inherit" for the zero value.
func (s Switch) String() string { return switchWords.text("Switch", int8(s)) }

// MarshalText returns the text of String, or an error for an unknown value.
func (s Switch) MarshalText() ([]byte, error) { return switchWords.marshal("Switch", int8(s)) }

// UnmarshalText reads the text that MarshalText writes. Any other text is an
// error and leaves s as it is.
func (s *Switch) UnmarshalText(text []byte) error { return unmarshal(switchWords, text, s) }

// String returns "off", "wait", "refuse", or "inherit" for the zero value.
func (m GateMode) String() string { return gateModeWords.text("GateMode", int8(m)) }

// MarshalText returns the text of String, or an error for an unknown value.
func (m GateMode) MarshalText() ([]byte, error) { return gateModeWords.marshal("GateMode", int8(m)) }

// UnmarshalText reads the text that MarshalText writes. Any other text is an
// error and leaves m as it is.
func (m *GateMode) UnmarshalText(text []byte) error { return unmarshal(gateModeWords, text, m) }
