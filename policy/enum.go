// How is a Switch printed?

package policy

import "strconv"

// String returns "on", "off", or "inherit" for the zero value.
func (s Switch) String() string {
	if s < Off || s > On {
		return "Switch(" + strconv.Itoa(int(s)) + ")"
	}
	return [...]string{"off", "inherit", "on"}[s-Off]
}
