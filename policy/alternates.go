// Alternates: other base URLs that serve the same as a host.

package policy

import (
	"net/url"
	"slices"
	"strings"
)

// maxAlternates is more than any service has regions.
const maxAlternates = 8

// Alternates are other base URLs that serve the same as a host, such as a second region or
// a mirror. If an attempt at the host fails, the next attempt goes to an alternate. If the
// host is down, first attempts go there as well, and one request per second that may be
// repeated tries the host. When that succeeds, all first attempts are back at the host.
//
// Path, query, header and body travel to the alternate, so it has to be trusted like the host.
// An https request never goes to an http alternate. A request stays at its host if it has
// something that is meant for that host alone:
//
//   - a credential, unless Credentials is on
//   - a Range or a validator, unless Validators is on
//   - an Idempotency-Key that the caller made, unless the request may be repeated without it
//   - a Host other than that of the URL
//
// An alternate that cannot be reached, or that answers 401, 403, 404, 405, 410 or 501, is left
// out, because that proves nothing. If no other has the answer, the caller gets the outcome of
// the host.
//
// The limits are those of the host that an attempt goes to, so its rule counts for Rate,
// Budget, Cooldown, Scope, Pacing, Gate, Lanes, Hedge.Percentile and for the longest hold.
// Everything else is as the rule with the Alternates says. docs/network.md says more.
//
// The rule of a host may have Alternates, and so may that of its paths or of a single request.
// Neither the rule of all hosts nor that of a pattern with a wildcard may, because other hosts
// serve something else.
type Alternates struct {
	// Bases are the base URLs, such as "https://eu.example.com" or
	// "https://mirror.example.com/pub", in the order in which they are tried. The path
	// of a request follows that of the base. At most 8. Default none. An empty list that
	// is not nil turns inherited bases off.
	Bases []string

	// Validators says that the host and its alternates give the same ETag, and the same
	// Last-Modified, to the same bytes only. Then a request with a Range or a validator
	// (If-None-Match and the like) may go to an alternate, and a cut body may continue
	// there. Otherwise a cut body continues there only if a digest of the whole
	// representation agrees, or if it is fetched again and compared (RFC 9110 §8.8.1).
	// Default Off.
	Validators Switch

	// Credentials lets requests with credentials go to the alternates, which learn them.
	// Credentials are Authorization, Cookie, Proxy-Authorization, a user in the URL, and a
	// header or query parameter that is named like a key or looks like one. Default Off.
	Credentials Switch
}

// Enabled reports whether there are alternates.
func (a Alternates) Enabled() bool { return len(a.Bases) > 0 }

func (a Alternates) check(bad *Errors) {
	if len(a.Bases) > maxAlternates {
		bad.add("Alternates.Bases", nil, "are more than %d", maxAlternates)
	}
	for i, text := range a.Bases {
		if why := badBase(text); why != "" {
			bad.add("Alternates.Bases", safeBase(text), "%s", why)
		} else if slices.Contains(a.Bases[:i], text) {
			bad.add("Alternates.Bases", text, "is there twice")
		}
	}
	checkMode(bad, "Alternates.Validators", a.Validators, switchWords)
	checkMode(bad, "Alternates.Credentials", a.Credentials, switchWords)
}

// badBase returns the reason why a text is no base URL, and "" if it is one.
func badBase(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "does not begin with http:// or https://"
	case u.Hostname() == "":
		return "has no host"
	case u.User != nil:
		return "has a user; a credential does not belong in a rule"
	case u.RawQuery != "" || u.ForceQuery:
		return "has a query; the query of the request travels"
	case u.Fragment != "" || strings.Contains(text, "#"):
		return "has a fragment"
	}
	return ""
}

// safeBase returns a text for an error. A user or a query may be a secret.
func safeBase(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "":
		return "xxxxx"
	case u.User == nil && u.RawQuery == "" && u.Fragment == "":
		return text
	}
	safe := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return safe.String()
}
