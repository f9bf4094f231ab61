// What a request has that is meant for one endpoint, and how it goes to another one.

package failover

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// ties returns the names of the header fields and query parameters that tie a request to its endpoint. If it is false,
// the request stays whatever an endpoint allows.
func ties(req *http.Request) (names []string, ok bool) {
	u := req.URL
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || req.Method == http.MethodConnect || u.Opaque != "" || u.Path != "" && u.Path[0] != '/' || climbs(u.Path) {
		return nil, false
	}
	if req.Host != "" && !strings.EqualFold(req.Host, u.Host) {
		names = append(names, "Host")
	}
	if u.User != nil {
		names = append(names, "Authorization")
	}
	for name, values := range req.Header {
		if len(values) > 0 && !travels(name) {
			names = append(names, name)
		}
	}
	return slices.AppendSeq(slices.AppendSeq(names, maps.Keys(req.Trailer)), maps.Keys(query)), true
}

// travels reports whether a header field means the same to every endpoint and never holds a secret.
func travels(name string) bool {
	switch name = http.CanonicalHeaderKey(name); name {
	case "Accept", "Cache-Control", "Traceparent", "User-Agent",
		"Content-Digest", "Content-Encoding", "Content-Language", "Content-Length", "Content-Type",
		"Idempotency-Key", "X-Idempotency-Key": // transport.MayGoElsewhere decides about keys
		return true
	}
	return strings.HasPrefix(name, "Accept-")
}

// missing returns the names that Allow lacks.
func (e *Endpoint) missing(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(e.Allow, func(allowed string) bool { return strings.EqualFold(allowed, name) })
	})
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
	case u.User != nil || strings.ContainsAny(text, "?#"):
		why = "has a user, a query or a fragment"
	case u.Scheme == "http" && strings.HasPrefix(strings.ToLower(first), "https:"):
		why = "is not https, as that of the first endpoint is"
	default:
		return u, text, ""
	}
	return nil, (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String(), why
}
