// Taking secrets out of a text.

package redact

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A hider takes secrets out of a text. It has the URLs that could not be parsed. The text of
// an error about such a URL quotes pieces of the URL.
type hider []string

// known returns the safe text of a string that surely is a URL.
func (h *hider) known(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		*h = append(*h, s)
		return Hidden
	}
	return URL(u)
}

// text hides the secrets of the URLs in a text: in quoted strings, which may hold spaces,
// and in the words between them.
func (h *hider) text(s string) string {
	var b strings.Builder
	for n := 0; n < len(s); {
		token := s[n : n+tokenLength(s[n:])]
		b.WriteString(h.token(s[:n], token))
		n += len(token)
	}
	return b.String()
}

// isBreak reports whether a character ends a word.
func isBreak(c byte) bool { return c <= ' ' || c == '"' || c == '<' || c == '>' || c == '`' }

// tokenLength returns the length of the quoted string or of the word at the beginning of s, or else
// 1. A URL behind a quote without an end goes on to the end of s.
//
// A fragment or a query that was written as it came may hold the characters that end a word. So
// within them such a character ends the word only if nothing that looks like the rest follows. A
// blank ends a query, because most URLs stand in sentences. It ends a fragment only after
// the end of a sentence or before a cause. So some of the sentence behind a fragment may be
// hidden as well. A fragment may hold tabs and line feeds, which do not end it.
func tokenLength(s string) int {
	if quoted, err := strconv.QuotedPrefix(s); s[0] == '"' && err == nil {
		return len(quoted)
	} else if s[0] == '"' && isReference(s[1:]) {
		return len(s)
	}
	part := byte(0) // '?' in the query of a URL, '#' in its fragment
	for n := range len(s) {
		switch c := s[n]; {
		case (c == '#' || c == '?' && part == 0) && isURL(s[:n]):
			part = c
		case !isBreak(c):
		case c <= ' ' && part == '#' && (c < ' ' || s[n-1] == ',' || strings.IndexByte(trailing, s[n-1]) < 0):
		case c > ' ' && part != 0 && n+1 < len(s) && !isBreak(s[n+1]) && strings.IndexByte(trailing, s[n+1]) < 0:
		default:
			return max(n, 1)
		}
	}
	return len(s)
}

// token returns a word or a quoted string without the secrets of its content, and as it is if it
// has none. before is the text in front of it.
func (h *hider) token(before, whole string) string {
	if whole[0] != '"' || len(whole) == 1 {
		return h.word(whole)
	}
	inner, _ := strconv.Unquote(whole)
	inner = cmp.Or(inner, strings.TrimSuffix(whole[1:], `"`)) // it may have no end
	safe := h.text(inner)
	switch {
	case strings.HasSuffix(before, "parse "), strings.HasSuffix(before, " Location header "):
		safe = h.known(inner) // net/url, Error.Error, and net/http, Client.do
	case inner != "" && slices.ContainsFunc(*h, func(u string) bool { return strings.Contains(u, inner) }):
		safe = Hidden // a piece of a URL that could not be parsed
	case isReference(inner): // with all of its spaces
		safe = h.reference(inner)
	}
	if safe == inner {
		return whole
	}
	return strconv.Quote(safe)
}

// word hides the secrets in a word. The word may have brackets and a colon around the
// URL.
func (h *hider) word(s string) string {
	u := strings.TrimRight(strings.TrimLeft(s, leading), trailing)
	if !isURL(u) && !strings.Contains(s, "?") && !(strings.Contains(s, "@") && strings.Contains(s, ":")) {
		return s
	}
	return strings.Replace(s, u, h.reference(u), 1)
}

// isURL reports whether a URL or its path begins with s, or within s.
func isURL(s string) bool {
	return strings.Contains(s, ":/") || isReference(strings.TrimLeft(s, leading))
}

// isReference reports whether s begins as a URL or a relative reference does.
func isReference(s string) bool {
	scheme, rest, found := strings.Cut(s, ":")
	isHTTP := found && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
	absolute := strings.HasPrefix(rest, "//") && strings.Trim(scheme, schemeChars) == ""
	return isHTTP || absolute || strings.HasPrefix(s, "/") || strings.HasPrefix(s, "?")
}

// reference hides the secrets of a URL, which other characters may precede, or of a relative reference.
func (h *hider) reference(s string) string {
	before := ""
	head, _, absolute := strings.Cut(s, "://")
	if absolute && !strings.Contains(head, "?") {
		before = strings.TrimRight(head, schemeChars)
	}
	u, err := url.Parse(s[len(before):])
	switch user, name := cutUser(s); {
	case err != nil && absolute:
		return safe(before) + h.known(s[len(before):])
	case err == nil && (u.Scheme == "http" || u.Scheme == "https"):
		return safe(before) + URL(u)
	case strings.Contains(user, ":") && (err != nil || u.Opaque != ""): // "name:password@host" looks like an opaque URL
		s = Hidden + "@" + name
	}
	return safe(s)
}

// cutUser cuts around the last @. Without an @, all of s is the rest.
func cutUser(s string) (user, rest string) {
	i := strings.LastIndexByte(s, '@')
	return s[:max(i, 0)], s[i+1:]
}
