// Which requests may go to an alternate, and how they do.

package rules

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/policy"
)

// MayTravel reports whether a request may go to an alternate. In doubt it stays.
func MayTravel(req *http.Request, a *policy.Alternates) bool {
	u := req.URL
	switch {
	case flight.Upgrades(req), u.Opaque != "", u.Path != "" && u.Path[0] != '/', climbs(u.Path):
		return false
	case req.Host != "" && !strings.EqualFold(req.Host, u.Host):
		return false // it means another host than the URL
	case a.Credentials != policy.On && (u.User != nil || queryHasKey(u.RawQuery)):
		return false
	}
	for name, values := range req.Header {
		if len(values) > 0 && !fieldTravels(strings.ToLower(name), name, values, a) {
			return false
		}
	}
	for name := range req.Trailer {
		if a.Credentials != policy.On && namesKey(name) {
			return false
		}
	}
	return true
}

// fieldTravels reports whether a field may go to an alternate. net/http sends names as
// they are spelled, and servers do not care.
func fieldTravels(lower, name string, values []string, a *policy.Alternates) bool {
	switch {
	case lower == "upgrade", lower == "host":
		return false
	case a.Validators != policy.On && isConditional(lower):
		return false
	case a.Credentials == policy.On:
		return true
	}
	return !namesKey(name) && !slices.ContainsFunc(values, holdsKey)
}

// isConditional reports whether a field makes a request depend on what its host sent before.
func isConditional(lower string) bool {
	return lower == "last-event-id" || lower == "if" || strings.HasPrefix(lower, "if-") || strings.Contains(lower, "-if-") ||
		lower == "range" || strings.HasSuffix(lower, "-range")
}

// climbs reports whether a path could leave the path of a base. Some servers take a backslash
// for a slash, drop what stands behind a semicolon, drop control characters or unescape a
// path twice.
func climbs(path string) bool {
	if again, err := url.PathUnescape(path); err == nil && again != path && climbs(again) {
		return true
	}
	return strings.ContainsFunc(path, unicode.IsControl) || strings.Contains(strings.ReplaceAll(path, `\`, "/"), "/..")
}

// holdsKey reports whether a value looks like a credential or has one in it. That is a JSON
// Web Token, a scheme of Authorization with more behind it, or a URL with a user or with a
// parameter that is a credential.
func holdsKey(v string) bool {
	fields := strings.Fields(v)
	_, query, _ := strings.Cut(v, "?")
	return len(fields) > 1 && isScheme(strings.ToLower(fields[0])) || holdsToken(v) || queryHasKey(query) || strings.Contains(v, "@") && strings.Contains(v, "://")
}

// isScheme reports whether a word is a scheme of Authorization.
func isScheme(lower string) bool {
	return slices.Contains(schemes[:], lower) || strings.Contains(lower, "-hmac") || strings.HasSuffix(lower, "-sha256")
}

var schemes = [...]string{
	"apikey", "basic", "bearer", "digest", "dpop", "hawk", "kerberos", "negotiate", "ntlm", "oauth", "sharedkey", "sharedkeylite",
	"signature", "token",
}

// holdsToken reports whether a word of a value is a JSON Web Token (RFC 7519).
func holdsToken(v string) bool {
	for word := range strings.FieldsFuncSeq(v, func(c rune) bool {
		return !isLetter(c) && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}) {
		if strings.HasPrefix(word, "eyJ") && strings.Contains(word, ".") {
			return true
		}
	}
	return false
}

func isLetter(c rune) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// queryHasKey reports whether the name or the value of a parameter looks like a credential,
// such as a signature.
func queryHasKey(query string) bool {
	for query != "" {
		var part string
		part, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || strings.Contains(part, ";") || namesKey(plain) {
			return true
		}
		if plain, err = url.QueryUnescape(value); err != nil || holdsKey(plain) {
			return true
		}
	}
	return false
}

// keyParts are parts of the names of credentials, and keyWords are words of such names.
var (
	keyParts = [...]string{
		"auth", "cookie", "token", "secret", "pass", "sign", "session", "sessid", "credential", "jwt", "bearer", "cert", "hmac", "dpop",
		"ticket", "assertion", "saml", "hdne", "hdnt",
	}
	keyWords = [...]string{"code", "otp", "pin", "pwd", "sid", "sig"}
)

// namesKey reports whether the name of a header or of a parameter looks like that of a
// credential. It takes some other names for one as well, and their requests stay.
func namesKey(name string) bool {
	lower := strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
	if lower == "idempotencykey" || lower == "xidempotencykey" {
		return false
	}
	return slices.ContainsFunc(keyParts[:], func(part string) bool { return strings.Contains(lower, part) }) ||
		slices.ContainsFunc(words(name), func(word string) bool {
			return strings.HasSuffix(word, "key") || strings.HasSuffix(word, "keyid") || slices.Contains(keyWords[:], word)
		})
}

// words returns the words of a name, in lower case. Words end where there is no letter, and
// where a capital follows a small letter.
func words(name string) (all []string) {
	from, last := 0, byte(' ')
	add := func(to int) {
		if to > from {
			all = append(all, strings.ToLower(name[from:to]))
		}
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case !isLetter(rune(c)):
			add(i)
			from = i + 1
		case 'A' <= c && c <= 'Z' && 'a' <= last && last <= 'z':
			add(i)
			from = i
		}
		last = c
	}
	add(len(name))
	return all
}

// IsAway reports whether http.Client made the request because another host redirected it. The
// alternates in its context serve what the first host serves.
func IsAway(req *http.Request) bool {
	first := req
	for range 100 { // somebody may have made a ring
		if first == nil || first.URL == nil {
			break
		}
		if first.Response == nil {
			return host.KeyOf(first.URL) != host.KeyOf(req.URL)
		}
		first = first.Response.Request
	}
	return true // in doubt
}

// Joined returns the URL of a request at another base. What is escaped stays escaped.
func Joined(base, u *url.URL) *url.URL {
	to := *u
	to.Scheme, to.Host = base.Scheme, base.Host
	to.RawPath = strings.TrimSuffix(base.EscapedPath(), "/") + u.EscapedPath() // counts if it is another spelling of Path
	to.Path, _ = url.PathUnescape(to.RawPath)
	return &to
}

// LocalizeResponse makes a response of an alternate fit for a caller who thinks that it comes from the
// request's host. A Location stays what it means at the alternate, and a cookie of the
// alternate is not sent to the host.
func LocalizeResponse(resp *http.Response, at *url.URL) {
	location, cookies := resp.Header.Get("Location"), len(resp.Header["Set-Cookie"])+len(resp.Header["Set-Cookie2"])
	if location == "" && cookies == 0 {
		return
	}
	header := resp.Header.Clone() // the base may keep its own
	delete(header, "Set-Cookie")
	delete(header, "Set-Cookie2")
	if location != "" {
		if to, err := at.Parse(location); err == nil {
			header.Set("Location", to.String())
		}
	}
	resp.Header = header
}

// IsForeign reports whether a status may mean that an alternate does not have what the host
// has: its resources, its clients or its methods.
func IsForeign(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		return true
	}
	return false
}
