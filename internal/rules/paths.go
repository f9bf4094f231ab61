// The rules of the paths of a host.

package rules

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/policy"
)

// A route is the part of a key of Config.Hosts that says which requests to a host it
// means. Its path is as http.ServeMux reads it, but has no wildcards.
type route struct {
	method string // "": every method; GET means HEAD as well
	path   string // escaped; "": every path; with a slash at its end everything below it
}

// cutPattern cuts a key of Config.Hosts, which is [METHOD ]HOST[/PATH].
func cutPattern(key string) (hosts string, r route) {
	hosts = key
	if i := strings.IndexAny(key, " \t"); i >= 0 {
		r.method, hosts = key[:i], strings.TrimLeft(key[i:], " \t")
	}
	if i := strings.IndexByte(hosts, '/'); i >= 0 {
		hosts, r.path = hosts[:i], hosts[i:]
	}
	return hosts, r
}

// fault returns why the route is none, and "" if nothing is wrong with it. Some paths are
// legal for http.ServeMux but can only be mistakes here.
func (r route) fault(key, hosts string) string {
	upper := strings.ToUpper(r.method)
	switch {
	case strings.Trim(key, " \t") != key:
		return "begins or ends with a space; leave it out"
	case strings.ContainsAny(r.method, "/?@"), strings.Contains(r.path, " "):
		return "has a space in its path; write %20"
	case r.method != "" && r.path == "":
		return fmt.Sprintf(`names the method %q and no path; write "%s/" for all paths`, r.method, key)
	case strings.Trim(r.method, "!#$%&'*+-.^_`|~"+redact.Alphanumerics) != "":
		return fmt.Sprintf("names the method %q, which is no token (RFC 9110 §9.1)", r.method)
	case r.method != upper && slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT"}, upper):
		return fmt.Sprintf("names the method %q; methods are case-sensitive, so write %s", r.method, upper)
	case r.path == "":
		return ""
	case hosts == "":
		return `has no host in front of its path; write a name, or "*.example.com/path"`
	case strings.ContainsAny(r.path, "{}"):
		return "has braces in its path, which has no wildcards; a slash at its end means everything below it"
	case strings.Contains(r.path, "*"):
		return `has a "*" in its path; a slash at its end means everything below it, and %2A is the character`
	case strings.ContainsAny(r.path, "?#"):
		return "has a query or a fragment, which make no difference; leave it out"
	case strings.ContainsFunc(r.path, unicode.IsControl):
		return "has a control character in its path"
	case !isClean(r.path):
		return `has a path with an empty segment, "." or "..", which matches no request`
	}
	if _, err := url.PathUnescape(r.path); err != nil {
		return `has a "%" in its path that begins no escape; write %25`
	}
	return ""
}

// isClean reports whether http.ServeMux would leave a path, or the end of one, as it is. It
// may be escaped. A "." that is escaped counts as any other character.
func isClean(path string) bool {
	if !strings.Contains(path, "//") && !strings.Contains(path, "/.") {
		return true
	}
	for segment, rest := "", path[1:]; rest != ""; {
		if segment, rest, _ = strings.Cut(rest, "/"); segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// paths are the rules of the paths of a host. They never change once they are in a ruleset.
type paths struct {
	nodes   map[string]*pathNode // by path, without a slash at its end, see appendUnescaped
	lengths []int                // of the keys of nodes, longest first
}

func newPaths() *paths { return &paths{nodes: map[string]*pathNode{}} }

// A pathNode has the rules of a path. The lists have HEAD before GET, and the rule of every
// method last.
type pathNode struct {
	exact []pathRule // of the path without a slash at its end
	below []pathRule // of the path with a slash at its end, and of everything below it
}

// A pathRule is the rule of a path and of a method.
type pathRule struct {
	method string
	Key    string // of Config.Hosts
	Rule   *Resolved
}

// isForMethod reports whether the rule is for requests with this method.
func (r *pathRule) isForMethod(method string) bool {
	return r.method == method || r.method == "" || r.method == http.MethodGet && method == http.MethodHead
}

// ruleForMethod returns the most specific rule of a list that is for a method, or nil.
func ruleForMethod(list []pathRule, method string) *pathRule {
	for i := range list {
		if list[i].isForMethod(method) {
			return &list[i]
		}
	}
	return nil
}

// Find returns the rule of a request, or nil if no path matches. It finds the rule whose
// pattern http.ServeMux would choose, and none where http.ServeMux would redirect the
// client. It allocates only if a path with an escape is longer than a buffer.
func (p *paths) Find(method string, u *url.URL) *pathRule {
	if u.Opaque != "" {
		return nil
	}
	path, escaped := u.Path, false
	switch {
	case path == "" && method != http.MethodConnect:
		path = "/" // as it is sent
	case u.RawPath != "" && Encodes(u.RawPath, u.Path):
		path, escaped = u.RawPath, true
	}
	switch {
	case path == "" || path[0] != '/':
		return nil
	case method != http.MethodConnect && !isClean(path): // http.ServeMux neither cleans nor redirects a CONNECT
		return nil
	case escaped || strings.Contains(path, "%"):
		var buf [256]byte
		return findPath(p, method, appendUnescaped(buf[:0], path, escaped))
	}
	return findPath(p, method, path)
}

// findPath is Find for a path as appendUnescaped makes it. It only looks up the beginnings that have the length
// of a pattern.
func findPath[P string | []byte](p *paths, method string, path P) *pathRule {
	for _, n := range p.lengths {
		if n > len(path) || n < len(path) && path[n] != '/' {
			continue
		}
		node := p.nodes[string(path[:n])]
		switch {
		case node == nil:
		case n < len(path):
			if r := ruleForMethod(node.below, method); r != nil {
				return r
			}
		default:
			if r := ruleForMethod(node.exact, method); r != nil {
				return r
			}
			if method != http.MethodConnect && ruleForMethod(node.below, method) != nil {
				return nil // http.ServeMux would redirect to the path with a slash at its end
			}
		}
	}
	return nil
}

// appendUnescaped appends a path to buf, without its escapes if it is escaped. A slash and a "%" within
// a segment are written as %2F and %25, so that a slash always ends a segment. Most paths
// that are not escaped thus stay as they are.
func appendUnescaped(buf []byte, path string, escaped bool) []byte {
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' && escaped { // two hexadecimal digits follow
			c = unhex(path[i+1])<<4 | unhex(path[i+2])
			i += 2
			if c == '/' {
				buf = append(buf, "%2F"...)
				continue
			}
		}
		if c == '%' {
			buf = append(buf, "%25"...)
			continue
		}
		buf = append(buf, c)
	}
	return buf
}

// Encodes reports whether url.URL.EscapedPath returns raw for this path, without an
// allocation. raw must then be an encoding of path, and may leave a few more characters
// unescaped than the default encoding.
func Encodes(raw, path string) bool {
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '%':
			if i+2 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2]) {
				return false
			}
			c = unhex(raw[i+1])<<4 | unhex(raw[i+2])
			i += 2
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~!$&'()*+,;=:@/[]", c) >= 0:
		default:
			return false
		}
		if path == "" || path[0] != c {
			return false
		}
		path = path[1:]
	}
	return path == ""
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// unhex returns the value of a hexadecimal digit.
func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&7 + 9
}

// meaning returns the path of an entry as a key of nodes, and whether it means the paths below.
func (e *hostEntry) meaning() (path string, below bool) {
	path, below = strings.CutSuffix(e.path, "/")
	return string(appendUnescaped(nil, path, true)), below
}

// add adds the rule of an entry. Call sort when all are added.
func (p *paths) add(e *hostEntry, r *Resolved) {
	key, below := e.meaning()
	n := p.nodes[key]
	if n == nil {
		n = new(pathNode)
		p.nodes[key] = n
	}
	list := &n.exact
	if below {
		list = &n.below
	}
	*list = append(*list, pathRule{e.method, e.key, r})
}

// sort puts the lists in order.
func (p *paths) sort() {
	for path, n := range p.nodes {
		p.lengths = append(p.lengths, len(path))
		for _, list := range [...][]pathRule{n.exact, n.below} {
			slices.SortFunc(list, func(a, b pathRule) int { return cmp.Compare(b.method, a.method) })
		}
	}
	slices.SortFunc(p.lengths, func(a, b int) int { return cmp.Compare(b, a) })
	p.lengths = slices.Compact(p.lengths)
}

// conflict returns why http.ServeMux would refuse an entry together with another entry, and
// "" if it would not. That is so if the path of e is more specific and its method less.
func (p *paths) conflict(e *hostEntry) string {
	if e.method != "" && e.method != http.MethodGet {
		return ""
	}
	path, _ := e.meaning()
	for _, n := range p.lengths {
		if n >= len(path) || path[n] != '/' || p.nodes[path[:n]] == nil {
			continue
		}
		list := p.nodes[path[:n]].below
		i, found := 0, len(list) > 0 && list[0].method != "" // the rule of every method is the last
		if e.method != "" {
			i, found = slices.BinarySearchFunc(list, http.MethodHead, func(q pathRule, head string) int { return cmp.Compare(head, q.method) })
		}
		if found {
			return fmt.Sprintf("conflicts with %q: both match %s %s, and neither is more specific", list[i].Key, list[i].method, e.path)
		}
	}
	return ""
}

// checkPaths returns the faults of the entries of a host pattern that are wrong together.
func checkPaths(entries []*hostEntry) (faults []*policy.FieldError) {
	all := newPaths()
	known := map[route]string{}
	for _, e := range entries {
		r := route{e.method, string(appendUnescaped(nil, e.path, true))}
		if same, ok := known[r]; ok {
			faults = append(faults, e.fault(fmt.Sprintf("means the same requests as %q", same)))
			continue
		}
		known[r] = e.key
		all.add(e, nil)
	}
	all.sort()
	for _, e := range entries {
		if why := all.conflict(e); why != "" {
			faults = append(faults, e.fault(why))
		}
	}
	return faults
}
