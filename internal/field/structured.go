// Reads structured fields (RFC 9651) for the RateLimit fields.
//
// A field with any mistake in it is ignored as a whole (RFC 9651 §4.2). So is a
// field that contains an inner list, because no RateLimit field has one.

package field

import (
	"strings"

	"github.com/dunglas/httpsfv"
)

const (
	// fieldLimit is how many bytes of a field are read, all its lines together.
	// An honest server needs a hundredth of that.
	fieldLimit = 4 << 10
	// memberLimit and paramLimit bound the members of a field and the
	// parameters of all its members. The parser allocates for each of them, so
	// both are checked before it runs.
	memberLimit = 64
	paramLimit  = 4 * memberLimit
)

// parseList reads a list of items (RFC 9651 §4.2.1). The lines of a field are
// one list.
func parseList(lines []string) ([]httpsfv.Item, bool) {
	if !parseable(lines) {
		return nil, false
	}
	members, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil, false
	}
	items := make([]httpsfv.Item, len(members))
	for i, m := range members {
		item, ok := m.(httpsfv.Item)
		if !ok {
			return nil, false
		}
		items[i] = item
	}
	return items, true
}

// parseDictionary reads a dictionary (RFC 9651 §4.2.2).
func parseDictionary(lines []string) (*httpsfv.Dictionary, bool) {
	if !parseable(lines) {
		return nil, false
	}
	dict, err := httpsfv.UnmarshalDictionary(lines)
	return dict, err == nil
}

// parseable reports whether the lines of a field are worth parsing: there are
// lines, and they are within the limits. It counts the commas and semicolons in
// strings as well, because no honest field comes near the limits.
func parseable(lines []string) bool {
	if len(lines) == 0 || !inLimit(lines) {
		return false
	}
	members, params := len(lines), 0
	for _, line := range lines {
		members += strings.Count(line, ",")
		params += strings.Count(line, ";")
	}
	return members <= memberLimit && params <= paramLimit
}

// quotaName returns the value of an item that can name a quota: a string or a
// token.
func quotaName(item httpsfv.Item) (name string, ok bool) {
	switch v := item.Value.(type) {
	case string:
		return v, true
	case httpsfv.Token:
		return string(v), true
	}
	return "", false
}

// param returns the parameter of an item that has the given key, if it is a
// whole number and not negative. The last parameter of a key counts
// (RFC 9651 §4.2.3.2).
func param(item httpsfv.Item, key string) (int64, bool) {
	v, _ := item.Params.Get(key)
	return natural(v)
}

// entry returns the item of a dictionary that has the given key, if it is a
// whole number and not negative.
func entry(dict *httpsfv.Dictionary, key string) (int64, bool) {
	m, _ := dict.Get(key)
	item, _ := m.(httpsfv.Item)
	return natural(item.Value)
}

// natural converts the value of an item. ok is false if the value is not a whole
// number or is negative.
func natural(value any) (n int64, ok bool) {
	n, ok = value.(int64)
	return max(n, 0), ok && n >= 0
}
