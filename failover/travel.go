// What a request has that is meant for one endpoint, and how it goes to another one.

package failover

import (
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// ties returns the names of what a request has for its endpoint alone. If it is false, the request stays
// whatever an endpoint allows.
func ties(req *http.Request) (names []string, ok bool) {
	u := req.URL
	if req.Method == http.MethodConnect || u.Opaque != "" || u.Path != "" && u.Path[0] != '/' || climbs(u.Path) {
		return nil, false
	}
	if req.Host != "" && !strings.EqualFold(req.Host, u.Host) {
		names = append(names, "Host")
	}
	if u.User != nil {
		names = append(names, "Authorization")
	}
	for name, values := range req.Header {
		if lower := strings.ToLower(name); len(values) > 0 && (lower == "upgrade" || lower == "host" || isConditional(lower) ||
			namesKey(name) || slices.ContainsFunc(values, holdsKey)) {
			names = append(names, name)
		}
	}
	for name := range req.Trailer {
		if namesKey(name) {
			names = append(names, name)
		}
	}
	keys, ok := queryKeys(u.RawQuery)
	return append(names, keys...), ok
}

// allows reports whether a request may come here instead of to the first endpoint. names are those of
// what it has for that one alone.
func (e *Endpoint) allows(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(e.Allow, func(allowed string) bool { return strings.EqualFold(allowed, name) })
	})
}

// isConditional reports whether a field makes a request depend on what its server sent before.
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
	scheme, more, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(v, "\t", " ")), " ")
	_, query, _ := strings.Cut(v, "?")
	keys, ok := queryKeys(query)
	return more != "" && isScheme(strings.ToLower(scheme)) || holdsToken(v) || len(keys) > 0 || !ok || strings.Contains(v, "@") && strings.Contains(v, "://")
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

// queryKeys returns the names of the parameters whose name or value looks like a credential, such as a
// signature. It is false if a parameter cannot be read, which may be one.
func queryKeys(query string) (names []string, ok bool) {
	for query != "" {
		var part string
		part, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		text, wrong := url.QueryUnescape(value)
		if err != nil || wrong != nil || strings.Contains(part, ";") {
			return nil, false
		}
		if namesKey(plain) || holdsKey(text) {
			names = append(names, plain)
		}
	}
	return names, true
}

// keyParts are parts of the names of credentials, and keyWords are words of such names. dashes are left out before.
var (
	keyParts = [...]string{
		"auth", "cookie", "token", "secret", "pass", "sign", "session", "sessid", "credential", "jwt", "bearer", "cert", "hmac", "dpop",
		"ticket", "assertion", "saml", "hdne", "hdnt",
	}
	keyWords = [...]string{"code", "otp", "pin", "pwd", "sid", "sig"}
	dashes   = strings.NewReplacer("-", "", "_", "", ".", "")
)

// namesKey reports whether the name of a header or of a parameter looks like that of a
// credential. It takes some other names for one as well, and their requests stay.
func namesKey(name string) bool {
	lower := dashes.Replace(strings.ToLower(name))
	if lower == "idempotencykey" || lower == "xidempotencykey" {
		return false
	}
	return slices.ContainsFunc(keyParts[:], func(part string) bool { return strings.Contains(lower, part) }) ||
		hasKeyWord(name)
}

// hasKeyWord reports whether a word of a name is one of a credential.
func hasKeyWord(name string) bool {
	for word := range words(name) {
		if lower := strings.ToLower(word); strings.HasSuffix(lower, "key") || strings.HasSuffix(lower, "keyid") || slices.Contains(keyWords[:], lower) {
			return true
		}
	}
	return false
}

// words returns the words of a name. Words end where there is no letter, and where a capital follows a small
// letter.
func words(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		from, last := 0, byte(' ')
		for i := range len(name) {
			c := name[i]
			switch {
			case !isLetter(rune(c)):
				if !yield(name[from:i]) {
					return
				}
				from = i + 1
			case c < 'a' && 'a' <= last:
				if !yield(name[from:i]) {
					return
				}
				from = i
			}
			last = c
		}
		yield(name[from:])
	}
}

// serves reports whether a URL is one of the endpoint.
func (e *endpoint) serves(u *url.URL) bool {
	rest, ok := strings.CutPrefix(u.EscapedPath(), e.path())
	return ok && (rest == "" || rest[0] == '/') && originOf(u) == originOf(e.base)
}

// path is the escaped path of the endpoint, without the slash at its end.
func (e *endpoint) path() string { return strings.TrimSuffix(e.base.EscapedPath(), "/") }

// originOf returns the scheme, the host and the port of a URL.
func originOf(u *url.URL) [2]string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if scheme == "https" {
		return [2]string{scheme, strings.TrimSuffix(host, ":443")}
	}
	return [2]string{scheme, strings.TrimSuffix(host, ":80")}
}

// at returns a request of the first endpoint, home, as it goes to this one. What is escaped stays escaped.
func (e *endpoint) at(req *http.Request, home *endpoint) *http.Request {
	if e == home {
		return req
	}
	to, u := req.WithContext(req.Context()), *req.URL
	u.Scheme, u.Host = e.base.Scheme, e.base.Host
	u.RawPath = e.path() + strings.TrimPrefix(u.EscapedPath(), home.path()) // counts if it is another spelling of Path
	u.Path, _ = url.PathUnescape(u.RawPath)
	if strings.EqualFold(req.Host, req.URL.Host) {
		to.Host = ""
	}
	to.URL = &u
	return to
}

// localize makes a response fit for a caller who thinks that it comes from the first endpoint. A Location
// stays what it means at the endpoint that answered, and a cookie of another origin is not for the first.
func localize(resp *http.Response, at, asked *url.URL) {
	header := resp.Header.Clone() // the base may keep its own
	if originOf(at) != originOf(asked) {
		delete(header, "Set-Cookie")
	}
	if location := header.Get("Location"); location != "" {
		if to, err := at.Parse(location); err == nil {
			header.Set("Location", to.String())
		}
	}
	resp.Header = header
}

// isForeign reports whether a status may mean that an endpoint does not have what the first has: its
// resources, its clients or its methods.
func isForeign(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		return true
	}
	return false
}

// parseBase returns a base URL, or why a text is none. safe is the text without what may be a secret. first is
// the text of the first base.
func parseBase(text, first string) (base *url.URL, safe, why string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "" || strings.Contains(text, " "):
		return nil, "xxxxx", "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		why = "does not begin with http:// or https://"
	case u.Hostname() == "":
		why = "has no host"
	case u.User != nil:
		why = "has a user"
	case u.RawQuery != "" || u.ForceQuery:
		why = "has a query"
	case u.Fragment != "" || strings.Contains(text, "#"):
		why = "has a fragment"
	case u.Scheme == "http" && strings.HasPrefix(strings.ToLower(first), "https:"):
		why = "is not https, as that of the first endpoint is"
	default:
		return u, text, ""
	}
	return nil, (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String(), why
}
