// The rules of the paths of a host.

package rules

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/aplomb-go/aplomb/internal/redact"
)

// parsePath parses the path of the key, whose method is known. If the key is wrong, why says why. Some paths are
// legal for http.ServeMux but can only be mistakes here.
func (e *hostEntry) parsePath(path string) (why string) {
	upper := strings.ToUpper(e.method)
	plain, err := url.PathUnescape(path)
	switch {
	case strings.ContainsAny(e.method, "/?@"), strings.Contains(path, " "):
		return "has a space in its path; write %20"
	case e.method != "" && path == "":
		return fmt.Sprintf(`names the method %q and no path; write "%s/" for all paths`, e.method, e.key)
	case strings.Trim(e.method, "!#$%&'*+-.^_`|~"+redact.Alphanumerics) != "":
		return fmt.Sprintf("names the method %q, which is no token (RFC 9110 §9.1)", e.method)
	case e.method != upper && slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT"}, upper):
		return fmt.Sprintf("names the method %q; methods are case-sensitive, so write %s", e.method, upper)
	case strings.ContainsAny(path, "{}"):
		return "has braces in its path, which has no wildcards; a slash at its end means everything below it"
	case strings.Contains(path, "*"):
		return `has a "*" in its path; a slash at its end means everything below it, and %2A is the character`
	case strings.ContainsAny(path, "?#"):
		return "has a query or a fragment, which make no difference; leave it out"
	case strings.ContainsFunc(path, unicode.IsControl):
		return "has a control character in its path"
	case !isClean(path):
		return `has a path with an empty segment, "." or "..", which matches no request`
	case err != nil:
		return `has a "%" in its path that begins no escape; write %25`
	}
	segments, _ := appendSegments(nil, plain, path)
	e.path = string(segments)
	return ""
}

// isClean reports whether http.ServeMux would leave a path as it is. It may be escaped. A "." that is escaped
// counts as any other character.
func isClean(p string) bool {
	return !strings.Contains(p, "//") && (!strings.Contains(p, "/.") || path.Clean(p) == strings.TrimSuffix(p, "/"))
}

// paths are the rules of the paths of a host. They never change once they are in a ruleset.
type paths struct {
	exact   map[string]pathRules // by paths without a slash at their end
	below   map[string]pathRules // of everything below a path, by the path without the slash at its end
	lengths []int                // of the keys of below, the shortest first
}

// pathRules are the rules of a path, by method.
type pathRules []pathRule

// A pathRule is the rule of a path and of a method.
type pathRule struct {
	method string
	Key    string // of Config.Hosts
	Rule   *Resolved
}

// forMethod returns the rule for requests with a method, or nil. The rule of GET is for HEAD as well.
func (all pathRules) forMethod(method string) (best *pathRule) {
	for i := range all {
		switch r := &all[i]; {
		case r.method == method:
			return r
		case r.method == http.MethodGet && method == http.MethodHead, r.method == "" && best == nil:
			best = r
		}
	}
	return best
}

// Find returns the rule of a request, or nil if no path matches. It finds the rule whose
// pattern http.ServeMux would choose, and none where http.ServeMux would redirect the
// client. It allocates only if a path with an escape is longer than a buffer.
func (p *paths) Find(method string, u *url.URL) *pathRule {
	path := u.Path
	if path == "" && method != http.MethodConnect {
		path = "/" // as it is sent
	}
	if u.Opaque != "" || !strings.HasPrefix(path, "/") {
		return nil
	}
	if u.RawPath != "" {
		var buf [256]byte
		if segments, ok := appendSegments(buf[:0], path, u.RawPath); ok {
			return findPath(p, method, segments, u.RawPath)
		}
	}
	return findPath(p, method, strings.ReplaceAll(path, "%", "%25"), path)
}

// findPath is Find for a path as appendSegments makes it, and as it is sent. It only looks up the beginnings that have the
// length of a pattern.
func findPath[P string | []byte](p *paths, method string, path P, sent string) *pathRule {
	redirects := method != http.MethodConnect // http.ServeMux neither cleans nor redirects a CONNECT
	if redirects && !isClean(sent) {
		return nil
	}
	if r := p.exact[string(path)].forMethod(method); r != nil {
		return r
	}
	for _, n := range slices.Backward(p.lengths) {
		if n > len(path) || n < len(path) && path[n] != '/' {
			continue
		}
		r := p.below[string(path[:n])].forMethod(method)
		switch {
		case r == nil, n == len(path) && !redirects:
		case n == len(path):
			return nil // http.ServeMux would redirect to the path with a slash at its end
		default:
			return r
		}
	}
	return nil
}

// appendSegments appends a path to buf. A slash and a "%" within a segment are written as %2F and %25, so that a slash
// always ends a segment. escaped must be the path with its escapes. ok says that package url would take it for that.
func appendSegments(buf []byte, path, escaped string) (_ []byte, ok bool) {
	at := 0 // in escaped
	ok = true
	for i := range len(path) {
		c := path[i]
		escape := at < len(escaped) && escaped[at] == '%'
		switch {
		case escape && at+2 < len(escaped):
			n, err := strconv.ParseUint(escaped[at+1:at+3], 16, 8)
			if err != nil || byte(n) != c {
				return nil, false
			}
			at += 2
		case escape, at == len(escaped), escaped[at] != c:
			return nil, false
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		default:
			ok = ok && strings.IndexByte("-._~!$&'()*+,;=:@/[]", c) >= 0 // package url takes no other without an escape
		}
		at++
		switch {
		case c == '%':
			buf = append(buf, "%25"...)
		case c == '/' && escape:
			buf = append(buf, "%2F"...)
		default:
			buf = append(buf, c)
		}
	}
	return buf, ok && at == len(escaped)
}

// add adds the rule of an entry.
func (p *paths) add(e *hostEntry, r *Resolved) {
	rule := pathRule{e.method, e.key, r}
	path, below := strings.CutSuffix(e.path, "/")
	if !below {
		p.exact[path] = append(p.exact[path], rule)
		return
	}
	p.below[path] = append(p.below[path], rule)
	if i, found := slices.BinarySearch(p.lengths, len(path)); !found {
		p.lengths = slices.Insert(p.lengths, i, len(path))
	}
}
