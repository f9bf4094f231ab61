// Package redact has texts of URLs and errors without secrets, for logs and errors.
// It keeps no state.
package redact

import (
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
)

// Hidden stands for each part of a URL that may be a secret.
const Hidden = "xxxxx"

// longest is about the length of the longest text of an error. A server writes into it: net/http quotes
// a whole line of a malformed header.
const longest = 2 << 10

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
		safe.RawPath = raw
		safe.Path, _ = url.PathUnescape(raw) // safePath leaves every escape whole or hides it
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
		return "" // Split would allocate
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
// The end of a long text is left out.
func Text(err error, known ...string) string {
	text := err.Error()
	known = append(urlsIn(err), known...)
	// Replace the longest URL first, because a URL may be the beginning of another URL.
	slices.SortFunc(known, func(a, b string) int { return len(b) - len(a) })
	h := hider{}
	for _, u := range known {
		safe := h.known(u)
		if len(u) > 3 { // a shorter text could be a part of any word
			text = replaced(text, u, safe)
		}
		text = withoutAuthority(text, u)
	}
	text = shortened(text)
	for _, u := range known {
		text = withoutQuery(text, u)
	}
	return h.text(text)
}

// shortened leaves out the end of a long text, from the beginning of a word on. A part of
// a word may be a part of a URL, in which nobody finds the secrets.
func shortened(text string) string {
	if len(text) <= longest {
		return text
	}
	return text[:strings.LastIndexAny(text[:longest], " \t\r\n\"<>`")+1] + "…"
}

// withoutQuery hides the parameters of a known URL and their values where they stand alone, unless they are as
// short as a common word. A server may repeat them in a malformed header.
func withoutQuery(text, known string) string {
	known, _, _ = strings.Cut(known, "#")
	_, query, _ := strings.Cut(known, "?")
	for part := range strings.SplitSeq(query, "&") {
		_, value, _ := strings.Cut(part, "=")
		plain, _ := url.QueryUnescape(value)
		for _, s := range [...]string{value, plain, part} {
			if len(s) > 5 {
				text = replaced(text, s, Hidden)
			}
		}
	}
	return text
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

// Cause says in a few words what is wrong. It names the day on which a certificate
// expired, and leaves out what a log line says elsewhere: the method, the URL and the
// address. It hides the secrets of the URLs that are known. The text is a line that can be
// printed.
func Cause(err error, known ...string) string { return Printable(shortened(causeIn(err, known))) }

func causeIn(err error, known []string) string {
	if text := certificate(err); text != "" {
		return text
	}
	whole := Text(err, known...)
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return "no such host"
		case strings.Contains(whole, dns.Err):
			return "no address from the DNS: " + dns.Err
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		text := innermost(op.Err).Error()
		switch {
		case op.Timeout() && classify.ErrorTypeOf(err) == classify.ErrorDial && !strings.Contains(text, "connection"):
			return "no connection in time"
		case !strings.Contains(whole, text): // so it may have a secret
		case op.Op == "dial" && !strings.Contains(text, "connection"):
			return "dial: " + text
		default:
			return text
		}
	}
	if u, ok := err.(*url.Error); ok && strings.HasPrefix(whole, u.Op+" \"") {
		if _, inner, ok := strings.Cut(whole, "\": "); ok {
			whole = inner
		}
	}
	return strings.TrimPrefix(whole, "transport: ")
}

// certificate says why the certificate of a server was not accepted. It returns "" for
// another error.
func certificate(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && invalid.Cert != nil {
		if from := invalid.Cert.NotBefore; time.Now().Before(from) {
			return "certificate not valid before " + from.UTC().Format(time.DateOnly)
		}
		return "certificate expired on " + invalid.Cert.NotAfter.UTC().Format(time.DateOnly)
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		names := name.Certificate.DNSNames
		if len(names) == 0 {
			return "certificate not for " + Host(name.Host)
		}
		return "certificate for " + names[0] + ", not for " + Host(name.Host)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "certificate of an unknown authority"
	}
	return ""
}

// Printable replaces what cannot be printed: line breaks, escape sequences of terminals, and
// what changes the direction of a text. A server chooses the names in its certificate, and
// Go reports them before it has checked who signed it. So a server could write lines of its
// own into a log that prints messages as they are.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, s)
}

// innermost returns the error that others wrap.
func innermost(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

// A Sentence is a text of several parts.
type Sentence struct{ strings.Builder }

// Add adds a part if there is something to say.
func (s *Sentence) Add(said bool, format string, args ...any) {
	if said {
		fmt.Fprintf(s, format, args...)
	}
}

// Rough rounds a time for people.
func Rough(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return max(d, 0).Round(time.Millisecond)
}

// Addr returns the address to which a connection failed, if the error says it.
func Addr(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		return op.Addr.String()
	}
	return ""
}
