// How is a Switch written?

package policy

import (
	"fmt"
	"slices"
	"strconv"
)

// switchWords are the text forms of a Switch. The word of a value v is at index v+1.
var switchWords = [...]string{"off", "inherit", "on"}

// String returns "on", "off", or "inherit" for the zero value.
func (s Switch) String() string {
	if s < Off || s > On {
		return "Switch(" + strconv.Itoa(int(s)) + ")"
	}
	return switchWords[s+1]
}

// MarshalText returns the text of String, or an error for an unknown value.
func (s Switch) MarshalText() ([]byte, error) {
	if s < Off || s > On {
		return nil, fmt.Errorf("policy: %v is none of off and on", s)
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads the text that MarshalText writes. Any other text is an
// error and leaves s as it is.
func (s *Switch) UnmarshalText(text []byte) error {
	i := slices.Index(switchWords[:], string(text))
	if i < 0 {
		return fmt.Errorf("policy: %q is none of off and on", text)
	}
	*s = Switch(i - 1)
	return nil
}
