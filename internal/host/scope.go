// To whom does a server's "try later" apply?

package host

import (
	"hash/maphash"
	"net/http"
	"strings"
)

// Scope returns a number for the credentials in a request's header: rate limits
// are kept per host and per client, so that is what one answer's wait applies
// to. Credentials are not stored, only hashed with the owner's seed; it
// allocates nothing. The rules:
//
//   - Authorization: Basic and Bearer count whole, of AWS's signatures (AWS4-…)
//     the access key id, of Digest the user name, since their other parts
//     change with every request; of any other scheme its name only, since it is
//     not known what of the rest changes;
//   - else X-Api-Key, else Api-Key, whole;
//   - else it is zero.
//
// What a layer below adds to the request is not seen here.
func Scope(seed maphash.Seed, h http.Header) uint64 {
	if v := first(h, "Authorization"); v != "" {
		return scopeOf(seed, v)
	}
	if v := first(h, "X-Api-Key"); v != "" {
		return hash(seed, "x-api-key", v)
	}
	if v := first(h, "Api-Key"); v != "" {
		return hash(seed, "api-key", v)
	}
	return 0
}

// first returns a header's first value; name is in canonical form.
func first(h http.Header, name string) string {
	if vs := h[name]; len(vs) > 0 {
		return vs[0]
	}
	return ""
}

func scopeOf(seed maphash.Seed, authorization string) uint64 {
	scheme, rest, _ := strings.Cut(authorization, " ")
	rest = strings.TrimLeft(rest, " ")
	switch {
	case strings.EqualFold(scheme, "Basic"):
		return hash(seed, "basic", rest)
	case strings.EqualFold(scheme, "Bearer"):
		return hash(seed, "bearer", rest)
	case len(scheme) >= 5 && strings.EqualFold(scheme[:5], "AWS4-"):
		id, _, _ := strings.Cut(param(rest, "Credential"), "/")
		return hash(seed, "aws4", id)
	case strings.EqualFold(scheme, "Digest"):
		return hash(seed, "digest", param(rest, "username"))
	}
	return hashFold(seed, scheme)
}

// param returns the value of a parameter in a list like name=value,
// name="value", without quotes, "" where there is none (RFC 9110 §11.2). What
// it makes of a malformed list does not matter as long as it is always the
// same.
func param(list, name string) string {
	for list != "" {
		var key string
		key, list, _ = strings.Cut(list, "=")
		key = strings.Trim(key, " \t,")
		list = strings.TrimLeft(list, " \t")
		var value string
		if strings.HasPrefix(list, `"`) {
			value, list = quoted(list[1:])
		} else {
			value, list, _ = strings.Cut(list, ",")
		}
		if strings.EqualFold(key, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// quoted splits a quoted string, its opening quote removed, from what follows.
// Escapes stay as they are written.
func quoted(s string) (value, rest string) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// hash keeps kinds of credentials apart by a separator that none contains.
func hash(seed maphash.Seed, kind, value string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(kind)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(value)
	return h.Sum64()
}

// hashFold hashes a scheme's name alone, in lower case.
func hashFold(seed maphash.Seed, scheme string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for i := range len(scheme) {
		c := scheme[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		_ = h.WriteByte(c)
	}
	return h.Sum64()
}
