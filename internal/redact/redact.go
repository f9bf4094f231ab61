// Package redact has texts of URLs and errors without secrets, for logs and errors.
// It keeps no state.
package redact

import (
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aplomb-go/aplomb/internal/host"
)

// Hidden stands for each part of a URL that may be a secret.
const Hidden = "xxxxx"

// longestName is the length of the longest name of a query parameter. A longer name is
// taken for a token.
const longestName = 40

const (
	Alphanumerics = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	schemeChars   = Alphanumerics + "+-."
)

// URL returns the text of a URL for logs and errors. The text has no
// userinfo, no query values and no fragment. The name of a query parameter is
// shown only if the parameter surely is a name with a value.
func URL(u *url.URL) string {
	if u == nil {
		return "<nil>"
	}
	if u.Opaque != "" {
		return safeOpaque(u)
	}
	safe := *u
	safe.Host, safe.RawQuery = Host(u.Host), safeQuery(u.RawQuery)
	safe.Fragment, safe.RawFragment = "", ""
	if u.User != nil {
		safe.User = url.User(Hidden)
	}
	escaped := u.EscapedPath()
	if raw := safePath(escaped); raw != escaped {
		if path, err := url.PathUnescape(raw); err == nil {
			safe.Path, safe.RawPath = path, raw
		} else {
			safe.Path, safe.RawPath = "/"+Hidden, ""
		}
	}
	return safe.String()
}

// safeOpaque is URL for a URL that net/url has not split. It can split only an
// opaque part that begins with a slash, as net/http documents it.
func safeOpaque(u *url.URL) string {
	scheme := u.Scheme
	if scheme != "" {
		scheme += ":"
	}
	inner, err := url.Parse(u.Opaque)
	if u.Opaque[0] != '/' || err != nil {
		return scheme + Hidden
	}
	query := ""
	if u.RawQuery != "" {
		query = "?" + safeQuery(u.RawQuery)
	}
	return scheme + URL(inner) + query
}

// Host returns a host without userinfo in front of it and without a path or a query
// behind it. A caller that fills in a URL by hand may leave such parts in its Host.
func Host(s string) string {
	if isHost(s) {
		return s
	}
	at := strings.LastIndex(s, "@")
	name := s[at+1:]
	if i := strings.IndexAny(name, "/?#\\ "); i >= 0 {
		name = name[:i]
	}
	if at > 0 {
		name = Hidden + "@" + name
	}
	return name
}

// isHost reports whether s has nothing before or behind the host. It is called for every
// event, and strings.ContainsAny would take several times as long.
func isHost(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case '@', '/', '?', '#', '\\', ' ':
			return false
		}
	}
	return true
}

// safePath hides the parts of an escaped path that may be secret. They are an escaped
// query or fragment, userinfo of a URL within the path, and the values of parameters
// such as ;jsessionid=.
func safePath(path string) string {
	if !strings.ContainsAny(path, ";@%") {
		return path
	}
	for i := 0; i+2 < len(path); i++ {
		if c := path[i : i+3]; strings.EqualFold(c, "%3f") || c == "%23" {
			path = path[:i+3] + Hidden
			break
		}
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i] = safeSegment(s, i > 1 && segments[i-1] == "")
	}
	return strings.Join(segments, "/")
}

// safeSegment is safePath for a segment of a path. authority is set if the segment
// follows two slashes.
func safeSegment(s string, authority bool) string {
	if lower := strings.ToLower(s); strings.Contains(lower, "%40") && (strings.Contains(lower, "%3a") || strings.Contains(lower, ":")) {
		return Hidden
	}
	if user, name, ok := cutUser(s); ok && (authority || strings.Contains(user, ":")) {
		s = Hidden + "@" + name
	}
	parts := strings.Split(s, ";")
	for i, part := range parts[1:] {
		if name, _, ok := strings.Cut(part, "="); ok {
			parts[1+i] = name + "=" + Hidden
		}
	}
	return strings.Join(parts, ";")
}

// safeQuery returns a query with the names but not the values of its
// parameters. A parameter without a value may be a secret itself, such as
// "c2VjcmV0==". A name with an escaped "=" may hide a value. Both are hidden whole.
func safeQuery(query string) string {
	if query == "" {
		return ""
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case part == "":
		case strings.Trim(value, "=") == "" || !isName(name):
			parts[i] = Hidden
		default:
			parts[i] = name + "=" + Hidden
		}
	}
	return strings.Join(parts, "&")
}

// isName reports whether s can be shown as the name of a query's parameter.
func isName(s string) bool {
	return s != "" && len(s) <= longestName && strings.Trim(s, Alphanumerics+"_-.[]$") == ""
}

// Text returns the text of an error without the secrets of URLs. The caller knows
// that the text may contain the URLs in known. Text adds the URLs of errors of
// net/url in the tree of err. It also searches the text itself, because net/http writes
// the Location of a response into a text, and other packages write the URL of a request.
func Text(err error, known ...string) string {
	text := err.Error()
	known = append(urlsIn(err), known...)
	// Replace the longest URL first, because a URL may be the beginning of another URL.
	slices.SortFunc(known, func(a, b string) int { return len(b) - len(a) })
	h := hider{}
	for _, u := range known {
		safe := h.known(u)
		if u == "" || safe == u {
			continue
		}
		// *url.Error prints its URL quoted.
		text = strings.ReplaceAll(text, strconv.Quote(u), strconv.Quote(safe))
		if len(u) > 3 { // a shorter text could be a part of any word
			text = strings.ReplaceAll(text, u, safe)
		}
		text = withoutAuthority(text, u)
	}
	return h.text(text)
}

// withoutAuthority hides what stands before and behind the host of a known URL. The error
// of a dial or of a lookup names the host alone, as the field Host of the URL has it. A
// caller that fills in a URL by hand may leave a secret there.
func withoutAuthority(text, known string) string {
	_, rest, _ := strings.Cut(known, "//")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	whole, err := url.PathUnescape(rest) // url.URL.String escapes what no host has
	if err != nil || isHost(whole) {
		return text
	}
	if user, _, ok := cutUser(whole); ok && user != "" {
		text = replaced(text, user+"@", Hidden+"@")
	}
	_, whole, _ = cutUser("@" + whole)
	name, _ := host.SplitPort(whole) // a lookup is about the name alone
	for _, s := range []string{whole, name} {
		if safe := Host(s); safe != "" && safe != s {
			text = replaced(text, s, safe)
		}
	}
	return text
}

// replaced replaces s in a text, also if s is quoted there.
func replaced(text, s, safe string) string {
	quoted := strconv.Quote(s)
	text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], safe)
	return strings.ReplaceAll(text, s, safe)
}

// urlsIn returns the URLs of all errors in the tree of err that have one.
func urlsIn(err error) (all []string) {
	for e := range Tree(err) {
		if e, ok := e.(*url.Error); ok {
			all = append(all, e.URL)
		}
	}
	return all
}

// Tree returns err and all errors that it wraps. err may be nil.
func Tree(err error) iter.Seq[error] {
	return func(yield func(error) bool) { walk(err, yield) }
}

func walk(err error, yield func(error) bool) bool {
	if err != nil && !yield(err) {
		return false
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), yield)
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(inner error) bool { return !walk(inner, yield) })
	}
	return true
}

// A hider takes secrets out of a text.
type hider struct {
	// broken are URLs that could not be parsed. The text of an error about such a
	// URL quotes pieces of the URL.
	broken []string
}

// known returns the safe text of a string that surely is a URL.
func (h *hider) known(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		h.broken = append(h.broken, s)
		return Hidden
	}
	return URL(u)
}

// text hides the secrets of the URLs in a text. It reads the text once: quoted
// strings, which may hold spaces, and the words between them.
func (h *hider) text(s string) string {
	if !strings.ContainsAny(s, "@?#") && !strings.Contains(s, ":/") && len(h.broken) == 0 {
		return s
	}
	var b strings.Builder
	whole, open := s, false // open: there is a quote without an end
	for s != "" {
		n, before := 1, whole[:len(whole)-len(s)]
		switch {
		case s[0] == '"' && !open:
			inner, length := quoted(s)
			if length == 0 {
				open = true // no later search for the end can succeed
				inner, length = s[1:], len(s)
				if !isReference(inner) {
					inner, length = "", 1
				}
			}
			b.WriteString(h.requote(before, s[:length], inner))
			n = length
		case isBreak(s[0]):
			b.WriteByte(s[0])
		default:
			n = wordLength(s)
			b.WriteString(h.word(s[:n]))
		}
		s = s[n:]
	}
	return b.String()
}

// isBreak reports whether a character ends a word.
func isBreak(c byte) bool { return c <= ' ' || c == '"' || c == '<' || c == '>' || c == '`' }

// wordLength returns the length of the word at the beginning of s. A fragment or a query
// that was written as it came may hold the characters that end a word. So within them
// such a character ends the word only if nothing that looks like the rest follows. A
// blank ends a query, because most URLs stand in sentences. It ends a fragment only after
// the end of a sentence or before a cause. So some of the sentence behind a fragment may be
// hidden as well. A fragment may hold tabs and line feeds, which do not end it.
func wordLength(s string) int {
	start := len(s) - len(strings.TrimLeft(s, leading))
	isURL := strings.HasPrefix(s[start:], "/") || isHTTP(s[start:min(len(s), start+len("https:"))])
	query, fragment := false, false
	for n := range len(s) {
		switch c := s[n]; {
		case c == '/':
			isURL = isURL || strings.HasSuffix(s[:n], ":/")
		case c == '?':
			query = query || isURL
		case c == '#':
			fragment = fragment || isURL
		case !isBreak(c):
		case c <= ' ' && fragment && (c < ' ' || s[n-1] == ',' || strings.IndexByte(trailing, s[n-1]) < 0):
		case c > ' ' && (query || fragment) && goesOn(s[n+1:]):
		default:
			return n
		}
	}
	return len(s)
}

// goesOn reports whether a text after a quote or a bracket may belong to the same word.
func goesOn(s string) bool {
	return s != "" && !isBreak(s[0]) && strings.IndexByte(trailing, s[0]) < 0
}

// quoted returns the content of the quoted string at the beginning of s, and its length
// with the quotes. The length is 0 if the quoted string has no end.
func quoted(s string) (inner string, length int) {
	for n := 1; n < len(s); n++ {
		switch s[n] {
		case '\\':
			n++
		case '"':
			inner, err := strconv.Unquote(s[:n+1])
			if err != nil {
				inner = s[1:n]
			}
			return inner, n + 1
		}
	}
	return "", 0
}

// requote returns a quoted string without the secrets of its content. It returns the
// string as it is if it has no secrets. before is the text in front of the string.
func (h *hider) requote(before, whole, inner string) string {
	safe := ""
	switch {
	case strings.HasSuffix(before, "parse "), strings.HasSuffix(before, " Location header "):
		safe = h.known(inner) // net/url, Error.Error, and net/http, Client.do
	case h.isPiece(inner):
		safe = Hidden
	case isReference(inner):
		safe = h.reference(inner)
	default:
		safe = h.text(inner)
	}
	if safe == inner {
		return whole
	}
	return strconv.Quote(safe)
}

// isPiece reports whether a quoted string is a piece of a URL that could not be
// parsed.
func (h *hider) isPiece(s string) bool {
	return s != "" && slices.ContainsFunc(h.broken, func(u string) bool { return strings.Contains(u, s) })
}

// isReference reports whether the whole of a quoted string is a URL or a relative
// reference. A space in the string then belongs to the reference.
func isReference(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "?") || ok && isScheme(scheme) || isHTTP(s)
}

// isHTTP reports whether s begins with a scheme of HTTP.
func isHTTP(s string) bool {
	scheme, _, ok := strings.Cut(s, ":")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

// word hides the secrets in a word. The word may have brackets and a colon around the
// URL.
func (h *hider) word(s string) string {
	head, _, ok := strings.Cut(s, "://")
	switch {
	case ok && !strings.Contains(head, "?"):
		start := len(strings.TrimRight(head, schemeChars))
		return s[:start] + h.trimmed(s[start:])
	case strings.Contains(s, "?"), strings.Contains(s, "@") && strings.Contains(s, ":"):
		return h.trimmed(s)
	}
	u := strings.TrimLeft(s, leading)
	if isHTTP(u) || strings.HasPrefix(u, "/") && strings.Contains(u, "#") {
		return s[:len(s)-len(u)] + h.trimmed(u)
	}
	return s
}

// leading and trailing are the characters that may surround a URL in a sentence.
const (
	leading  = "([{'"
	trailing = ".,:;!?)]}'"
)

// trimmed hides the secrets of a reference that trailing characters may follow.
func (h *hider) trimmed(s string) string {
	u := strings.TrimRight(s, trailing)
	return h.reference(u) + s[len(u):]
}

// reference hides the secrets of a URL or of a relative reference.
func (h *hider) reference(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil && strings.Contains(s, "://"):
		h.broken = append(h.broken, s)
		return Hidden
	case err != nil, u.Opaque != "" && !isHTTP(s): // "lookup:" and "name:password@host" look like opaque URLs
		return safeWord(s)
	}
	return URL(u)
}

// safeWord hides the secrets of a text that is not a whole URL.
func safeWord(s string) string {
	if user, name, ok := cutUser(s); ok && strings.Contains(user, ":") {
		s = Hidden + "@" + name
	}
	s, _, _ = strings.Cut(s, "#")
	if path, query, ok := strings.Cut(s, "?"); ok {
		return safePath(path) + "?" + safeQuery(query)
	}
	return safePath(s)
}

// isScheme reports whether s can stand before "://".
func isScheme(s string) bool { return s != "" && strings.Trim(s, schemeChars) == "" }

// cutUser is strings.Cut around the last @.
func cutUser(s string) (user, rest string, found bool) {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
