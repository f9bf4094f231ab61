// Package terminal has the texts of the command-line tools. Many of these texts come from
// others: a server chooses the names in its certificate and its header fields, and the
// author of a link chooses a URL. A terminal would obey the escape sequences in them, and a
// line break would let them write a line of their own.
package terminal

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/transport"
)

// Printable returns a text as one line of printable characters. Each other character is
// replaced by a question mark. These are the control characters, among them those of C1,
// line breaks, and the characters that change the direction of a text.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// JSON returns JSON in which each character that cannot be printed is escaped. Package
// encoding/json escapes some of them only. Line breaks stay, because in JSON they can only
// stand between values.
func JSON(text []byte) []byte {
	var b []byte
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff: // JSON writes it as two halves
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}

// Error returns the text of an error without the secrets of the URLs in it. Each of its
// lines is printable.
func Error(err error) string {
	lines := strings.Split(transport.SafeError(err, nil), "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
	}
	return strings.Join(lines, "\n")
}

// Misused prints why a command line is wrong, and returns the exit status 2. It prints nothing
// and returns 0 if the command line asked for help.
func Misused(stderr io.Writer, command string, err error) (status int) {
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "%s: %s\n%s -h explains.\n", command, Error(err), command)
	return 2
}

// URL returns an argument of the command line without secrets, for the error that says that
// the argument is no URL as it is wanted. If the scheme is missing, package url takes the
// userinfo and the host for a path.
func URL(text string) string {
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "" && u.Host == "" {
		u, err = url.Parse("//" + text)
	}
	if err != nil {
		return `"xxxxx"`
	}
	return strconv.Quote(Printable(strings.TrimPrefix(redact.URL(u), "//")))
}
