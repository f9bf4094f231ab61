// Taking secrets out of a text.

package redact

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

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
		case c > ' ' && (query || fragment) && n+1 < len(s) && !isBreak(s[n+1]) && strings.IndexByte(trailing, s[n+1]) < 0:
		default:
			return n
		}
	}
	return len(s)
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
	case inner != "" && slices.ContainsFunc(h.broken, func(u string) bool { return strings.Contains(u, inner) }):
		safe = Hidden // a piece of a URL that could not be parsed
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
