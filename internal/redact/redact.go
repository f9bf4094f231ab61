// Package redact has texts of URLs and errors without secrets, for logs and errors.
// It keeps no state.
package redact

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/trait"
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
	nameChars     = Alphanumerics + "_-.[]$" // of a query parameter

	// leading and trailing characters may surround a URL in a sentence.
	leading  = "([{'"
	trailing = ".,:;!?)]}'"
)

// URL returns the text of a URL for logs and errors. The text has no
// userinfo, no query values and no fragment. The name of a query parameter is
// shown only if the parameter surely is a name with a value.
func URL(u *url.URL) string {
	if u == nil {
		return "<nil>"
	}
	// net/url has not split an opaque part. It can split only a part that begins with a slash, as
	// net/http documents it.
	if _, err := url.Parse(u.Opaque); u.Opaque != "" && (u.Opaque[0] != '/' || err != nil) {
		return strings.TrimPrefix(u.Scheme+":", ":") + Hidden
	}
	return safe(u.String())
}

// Host returns a host without userinfo in front of it and without a path or a query
// behind it. A caller that fills in a URL by hand may leave such parts in its Host.
func Host(s string) string {
	user, name := cutUser(s)
	if name = name[:hostLength(name)]; user != "" {
		return Hidden + "@" + name
	}
	return name
}

// hostLength returns how much of s is a host alone. It is called for every event, and
// strings.IndexAny would take several times as long.
func hostLength(s string) int {
	for i := range len(s) {
		switch s[i] {
		case '@', '/', '?', '#', '\\', ' ':
			return i
		}
	}
	return len(s)
}

// safe hides the secrets of a URL or of a relative reference, and leaves the rest as it is.
func safe(s string) string {
	s, _, _ = strings.Cut(s, "#")
	path, query, ok := strings.Cut(s, "?")
	if ok {
		query = "?" + safeQuery(query)
	}
	return safePath(path) + query
}

// safePath hides the parts of an escaped path that may be secret. They are an escaped
// query or fragment, userinfo of a URL within the path, and the values of parameters
// such as ;jsessionid=. The path may begin with a scheme and a host.
func safePath(path string) string {
	if !strings.ContainsAny(path, ";@%") {
		return path // Split would allocate
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		plain, _ := url.PathUnescape(s)
		plain = cmp.Or(plain, s) // it may have bad escapes
		authority := i > 1 && segments[i-1] == ""
		switch user, _ := cutUser(plain); {
		case !authority && strings.ContainsAny(plain, "?#"): // the rest belongs to it, slashes included
			return strings.Join(append(segments[:i], Hidden), "/")
		case authority && hostLength(plain) < len(plain), strings.Contains(user, ":"),
			user != "" && plain != s && strings.Contains(plain, ":"):
			s = Printable(Host(plain)) // the escapes may hide codes that a terminal obeys
		}
		parameters := strings.Split(s, ";")
		for j, p := range parameters[1:] {
			if name, _, ok := strings.Cut(p, "="); ok {
				parameters[1+j] = name + "=" + Hidden
			}
		}
		segments[i] = strings.Join(parameters, ";")
	}
	return strings.Join(segments, "/")
}

// safeQuery returns a query with the names but not the values of its
// parameters. A parameter without a value may be a secret itself, such as
// "c2VjcmV0==". A name with an escaped "=" may hide a value. Both are hidden whole.
func safeQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case part == "":
		case name == "", len(name) > longestName, strings.Trim(name, nameChars) != "", strings.Trim(value, "=") == "":
			parts[i] = Hidden
		default:
			parts[i] = name + "=" + Hidden
		}
	}
	return strings.Join(parts, "&")
}

// Text returns the text of an error without the secrets of URLs. The caller knows
// that the text may contain the URLs in known. Text adds the URLs of errors of
// net/url in the tree of err. It also searches the text itself, because net/http writes
// the Location of a response into a text, and other packages write the URL of a request.
// The end of a long text is left out.
func Text(err error, known ...string) string {
	text, known := err.Error(), slices.Clone(known)
	for e := range trait.Tree(err) {
		if e, ok := e.(*url.Error); ok {
			known = append(known, e.URL)
		}
	}
	// Replace the longest URL first, because a URL may be the beginning of another URL.
	slices.SortFunc(known, func(a, b string) int { return len(b) - len(a) })
	var h hider
	for _, u := range known {
		text = withoutAuthority(replaced(text, u, h.known(u)), u)
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

// withoutQuery hides the parameters of a known URL and their values where they stand alone. A
// server may repeat them in a malformed header.
func withoutQuery(text, known string) string {
	_, query, _ := strings.Cut(known, "?")
	for part := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == '#' }) {
		_, value, _ := strings.Cut(part, "=")
		plain, _ := url.QueryUnescape(value)
		for _, s := range [...]string{value, plain, part} {
			text = replaced(text, s, Hidden)
		}
	}
	return text
}

// withoutAuthority hides the text before and behind the host of a known URL. The error
// of a dial or of a lookup names the host alone, as the field Host of the URL has it. A
// caller that fills in a URL by hand may leave a secret there.
func withoutAuthority(text, known string) string {
	_, rest, _ := strings.Cut(known, "//")
	whole, _ := url.PathUnescape(rest[:strings.IndexAny(rest+"/", "/?#")]) // url.URL.String escapes characters that no host has
	_, behind := cutUser(whole)
	for _, s := range [...]string{whole, behind} {
		name, _ := host.SplitPort(s) // a lookup is about the name alone
		text = replaced(replaced(text, s, Host(s)), name, Host(name))
	}
	return text
}

// replaced replaces s in a text, also if s is quoted there, unless it is as short as a common word.
func replaced(text, s, safe string) string {
	if len(s) <= 5 || s == safe {
		return text
	}
	quoted := strconv.Quote(s)
	text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], safe)
	return strings.ReplaceAll(text, s, safe)
}

// Cause tells the cause of err in a few words. It names the day on which a certificate
// expired. It leaves out the method, the URL and the address, because a log line has them
// elsewhere. It hides the secrets of the URLs that are known. The text is a line that can
// be printed.
func Cause(err error, known ...string) string { return Printable(shortened(causeIn(err, known))) }

func causeIn(err error, known []string) string {
	if u, ok := err.(*url.Error); ok {
		err, known = u.Err, append(slices.Clip(known), u.URL)
	}
	whole, inner := Text(err, known...), ""
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	expired := invalid.Reason == x509.Expired && invalid.Cert != nil
	name, misnamed := errors.AsType[x509.HostnameError](err)
	_, unsigned := errors.AsType[x509.UnknownAuthorityError](err)
	dns, ofDNS := errors.AsType[*net.DNSError](err)
	op, ofOp := errors.AsType[*net.OpError](err)
	if ofOp {
		for e := range trait.Tree(op.Err) { // the innermost says most
			inner = e.Error()
		}
	}
	switch connects := strings.Contains(inner, "connection"); {
	case expired && time.Now().Before(invalid.Cert.NotBefore):
		return "certificate not valid before " + invalid.Cert.NotBefore.UTC().Format(time.DateOnly)
	case expired:
		return "certificate expired on " + invalid.Cert.NotAfter.UTC().Format(time.DateOnly)
	case misnamed && len(name.Certificate.DNSNames) == 0:
		return "certificate not for " + Host(name.Host)
	case misnamed:
		return "certificate for " + name.Certificate.DNSNames[0] + ", not for " + Host(name.Host)
	case unsigned:
		return "certificate of an unknown authority"
	case ofDNS && dns.IsNotFound:
		return "no such host"
	case ofDNS && strings.Contains(whole, dns.Err):
		return "no address from the DNS: " + dns.Err
	case inner != "" && op.Timeout() && classify.ErrorTypeOf(err) == classify.ErrorDial && !connects:
		return "no connection in time"
	case inner == "", !strings.Contains(whole, inner): // so it may have a secret
		return strings.TrimPrefix(whole, "transport: ")
	case op.Op == "dial" && !connects:
		return "dial: " + inner
	}
	return inner
}

// Printable replaces characters that cannot be printed: line breaks, escape sequences of terminals,
// and marks that change the direction of a text. A server chooses the names in its certificate, and
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
