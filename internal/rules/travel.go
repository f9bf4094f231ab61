// Which requests may go to an alternate, and how they do.

package rules

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/policy"
)

// MayTravel reports whether a request may go to an alternate. In doubt it stays.
func MayTravel(req *http.Request, a *policy.Alternates) bool {
	u := req.URL
	switch {
	case flight.Upgrades(req), u.Opaque != "", u.Path != "" && u.Path[0] != '/':
		return false
	case strings.Contains(u.Path+"/", "/../"), strings.Contains(u.Path, "/..;"):
		return false // it could leave the path of a base; some servers drop what begins with a semicolon
	case req.Host != "" && !strings.EqualFold(req.Host, u.Host):
		return false // it means another host than the URL
	case a.Validators != policy.On && isConditional(req.Header):
		return false
	}
	return a.Credentials == policy.On || !carriesKey(req)
}

// isConditional reports whether a request depends on what its host sent before.
func isConditional(h http.Header) bool {
	for name, values := range h {
		if len(values) > 0 && (name == "Range" || name == "Last-Event-Id" || strings.HasPrefix(name, "If-") || strings.HasPrefix(strings.ToLower(name), "x-ms-if-")) {
			return true
		}
	}
	return false
}

// carriesKey reports whether a request has something that looks like a credential.
func carriesKey(req *http.Request) bool {
	if req.URL.User != nil || queryHasKey(req.URL.RawQuery) || host.ScopeText(req.Header) != "" {
		return true
	}
	for name := range req.Trailer {
		if namesKey(name) {
			return true
		}
	}
	for name, values := range req.Header {
		for _, v := range values {
			_, query, _ := strings.Cut(v, "?") // of a Referer, for instance
			if namesKey(name) || isScheme64(v) || queryHasKey(query) || strings.Contains(v, "@") && strings.Contains(v, "://") {
				return true
			}
		}
	}
	return false
}

// isScheme64 reports whether a value begins with a scheme of Authorization.
func isScheme64(v string) bool {
	scheme, _, ok := strings.Cut(v, " ")
	return ok && (strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "Basic"))
}

// queryHasKey reports whether the name of a parameter looks like that of a credential, such
// as that of a signature.
func queryHasKey(query string) bool {
	for query != "" {
		var part string
		part, query, _ = strings.Cut(query, "&")
		name, _, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || strings.Contains(part, ";") || strings.EqualFold(plain, "sig") || strings.EqualFold(plain, "pwd") || namesKey(plain) {
			return true
		}
	}
	return false
}

// keyWords are parts of the names of credentials.
var keyWords = [...]string{"auth", "cookie", "token", "secret", "passw", "sign", "session", "credential", "jwt", "bearer", "cert"}

// namesKey reports whether the name of a header or of a parameter looks like that of a
// credential. It takes some other names for one as well, and their requests stay.
func namesKey(name string) bool {
	name = strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
	if name == "idempotencykey" || name == "xidempotencykey" {
		return false
	}
	return strings.HasSuffix(name, "key") || strings.HasSuffix(name, "keyid") ||
		slices.ContainsFunc(keyWords[:], func(word string) bool { return strings.Contains(name, word) })
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
