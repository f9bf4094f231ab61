// How are the modes written? The text forms of all enumerations.

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nameOf returns the name of an enumeration's value.
func nameOf(typ string, i int, names []string) string {
	if i < len(names) {
		return names[i]
	}
	return typ + "(" + strconv.Itoa(i) + ")"
}

// marshal returns the text of a value, an error where it is unknown.
func marshal(typ string, i int, names []string) ([]byte, error) {
	if i < len(names) {
		return []byte(names[i]), nil
	}
	return nil, fmt.Errorf("policy: %s is none of %s", nameOf(typ, i, names), wordsOf(names))
}

// unmarshal sets to from its text; where that is unknown to stays as it is.
func unmarshal[T ~uint8](text []byte, names []string, to *T) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("policy: %q is none of %s", text, wordsOf(names))
	}
	*to = T(i)
	return nil
}

// wordsOf lists the words that somebody would write: the first one inherits.
func wordsOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[1:last], ", ") + " and " + names[last]
}

// MarshalText writes the mode as String does; an unknown one is an error.
func (e Excess) MarshalText() ([]byte, error) { return marshal("Excess", int(e), excessNames) }

// UnmarshalText reads what MarshalText writes; anything else is an error and
// leaves e as it is.
func (e *Excess) UnmarshalText(text []byte) error { return unmarshal(text, excessNames, e) }

// MarshalText writes the setting as String does; an unknown one is an error.
func (s Switch) MarshalText() ([]byte, error) { return marshal("Switch", int(s), switchNames) }

// UnmarshalText reads what MarshalText writes; anything else is an error and
// leaves s as it is.
func (s *Switch) UnmarshalText(text []byte) error { return unmarshal(text, switchNames, s) }

// MarshalText writes the mode as String does; an unknown one is an error.
func (m RateMode) MarshalText() ([]byte, error) { return marshal("RateMode", int(m), rateModeNames) }

// UnmarshalText reads what MarshalText writes; anything else is an error and
// leaves m as it is.
func (m *RateMode) UnmarshalText(text []byte) error { return unmarshal(text, rateModeNames, m) }

// MarshalText writes the mode as String does; an unknown one is an error.
func (m GateMode) MarshalText() ([]byte, error) { return marshal("GateMode", int(m), gateModeNames) }

// UnmarshalText reads what MarshalText writes; anything else is an error and
// leaves m as it is.
func (m *GateMode) UnmarshalText(text []byte) error { return unmarshal(text, gateModeNames, m) }
