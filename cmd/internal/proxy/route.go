// Which upstream gets a request.

package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A route sends requests to an upstream if their path begins with a prefix.
type route struct {
	prefix string   // escaped; begins and ends with a slash
	to     *url.URL // the path ends with a slash, or is empty
	plain  bool     // no upgrade passes
}

func (r route) String() string { return r.prefix + "=" + r.to.String() }

// routes has the longest prefix first.
type routes []route

func (rs routes) String() string {
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = r.String()
	}
	return strings.Join(texts, " ")
}

// add reads the value of a -to flag. The URL appears in logs and on the debug page,
// so it must not hold secrets.
func (rs *routes) add(value string) error {
	prefix, target := "/", value
	if before, after, ok := strings.Cut(value, "="); ok && strings.HasPrefix(value, "/") {
		prefix, target = before, after
	}
	to, err := url.Parse(target)
	switch {
	case err != nil:
		return errors.New("the URL cannot be read") // err would repeat a password
	case to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
		return errors.New("an upstream is http://HOST or https://HOST, perhaps with a path")
	case to.User != nil || to.RawQuery != "" || to.Fragment != "":
		return errors.New("the URL of an upstream has no user, no query and no fragment")
	case !strings.HasPrefix(prefix, "/") || !strings.HasSuffix(prefix, "/"):
		return fmt.Errorf("the prefix %s does not begin and end with a slash", prefix)
	case rs.has(prefix):
		return fmt.Errorf("the prefix %s is there twice", prefix)
	}
	if to.Path != "" && !strings.HasSuffix(to.Path, "/") {
		to = to.JoinPath("/")
	}
	*rs = append(*rs, route{prefix: prefix, to: to})
	slices.SortFunc(*rs, func(a, b route) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	return nil
}

func (rs routes) has(prefix string) bool {
	return slices.ContainsFunc(rs, func(r route) bool { return r.prefix == prefix })
}

// keepPlain lets no upgrade pass by the route of a prefix.
func (rs routes) keepPlain(prefix string) error {
	i := slices.IndexFunc(rs, func(r route) bool { return r.prefix == prefix })
	if i < 0 {
		return fmt.Errorf("no -to has the prefix %s", prefix)
	}
	rs[i].plain = true
	return nil
}

// find returns the route for a URL, and the path below the route's prefix.
func (rs routes) find(u *url.URL) (r route, rest string, ok bool) {
	path := u.EscapedPath()
	for _, r := range rs {
		if rest, ok := strings.CutPrefix(path, r.prefix); ok {
			return r, rest, true
		}
	}
	return route{}, "", false
}

// rounds is how often a path is unescaped at most. A path that is escaped more often than
// that is not forwarded.
const rounds = 4

// leaves reports whether dots in the path below the prefix lead out of the path of
// the upstream. It is asked only if the upstream has a path. Servers differ in how they
// read a path: some unescape it twice, some take a backslash for a slash, and some leave
// out the parameters behind a semicolon before they look for dots.
func (r route) leaves(rest string) bool {
	if r.to.Path == "" || r.to.Path == "/" {
		return false
	}
	for range rounds {
		if climbs(rest) {
			return true
		}
		path := unescaped(rest)
		if path == rest {
			return false
		}
		rest = path
	}
	return true
}

// climbs reports whether a segment of a path may mean the directory above.
func climbs(path string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(path, func(c rune) bool { return c == '/' || c == '\\' }), func(segment string) bool {
		name, _, _ := strings.Cut(segment, ";")
		name = strings.TrimFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f })
		return len(name) > 1 && strings.Trim(name, ".") == ""
	})
}

// unescaped returns a path without its escapes. It leaves wrong escapes as they are,
// unlike url.PathUnescape.
func unescaped(path string) string {
	var b strings.Builder
	for path != "" {
		before, after, ok := strings.Cut(path, "%")
		b.WriteString(before)
		if !ok {
			break
		}
		c, err := strconv.ParseUint(after[:min(len(after), 2)], 16, 8)
		if err != nil || len(after) < 2 {
			b.WriteByte('%')
			path = after
			continue
		}
		b.WriteByte(byte(c))
		path = after[2:]
	}
	return b.String()
}
