package rules

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// assertPrintable checks that no character of an output acts on a terminal.
func assertPrintable(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		assert.True(t, r == '\n' || unicode.IsPrint(r), "%q in %q", r, text)
	}
}

// failing is a base that fails every request.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// A server chooses the names in its certificate, and Go tells them before it checks who
// signed it.
func TestNothingActsOnTheTerminal(t *testing.T) {
	const evil = "\r\x1b[2Koutcome  200 OK\n\a\u009b31m\u202e\x7f"
	errs := []error{
		x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{evil}}, Host: "h.test"},
		fmt.Errorf("proxy says %s", evil),
	}
	rules := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(`{"hosts":{"h\u009b31m\u001b.test":{"max_attempts":2},"*\u009b31m":{}}}`), 0o600))
	for _, err := range errs {
		for _, args := range [][]string{
			{"-against", "https://h.test/"},
			{"-json", "-against", "https://h.test/"},
			{"-against", "https://h%C2%9B31m.test/"},
			{"-json", "-against", "https://h%C2%9B31m.test/"},
			{"-", "https://h%C2%9B31m.test/"},
			{"-method", "G\x1b[31mT", "-against", "https://h.test/"},
			{"-unknown\x1b[31m"},
			{rules},
			{"-json", rules},
			{"missing\x1b[31m\u009b"},
			{"-json", "missing\x1b[31m\u009b"},
		} {
			_, stdout, stderr := call(t, failing{err}, args...)
			assertPrintable(t, stdout)
			assertPrintable(t, stderr)
			assert.NotContains(t, stdout, "\noutcome  200 OK", "a line of the server's own")
		}
	}
}

// A secret may stand in any argument, also in one that stands in the wrong place.
func TestErrorsKeepSecrets(t *testing.T) {
	const secret = "s3cret"
	urls := []string{
		"https://h.test/?key=" + secret,
		"https://h.test/?" + secret,
		"https://h.test/#" + secret,
		"https://u:" + secret + "@h.test/",
		"https://" + secret + "@h.test/",
		"https://u:" + secret + "/@h.test/",
		"https://h.test:" + secret + "/",
		"https://h.test/;session=" + secret,
		"ftp://u:" + secret + "@h.test/?" + secret + "#" + secret,
		"u:" + secret + "@h.test/",
		"u:" + secret + "@h.test:80/?" + secret,
		"//u:" + secret + "@h.test/",
		"h.test/?key=" + secret,
		"https:u:" + secret + "@h.test",
		"https://%zz" + secret,
	}
	base := failing{errors.New("no luck")}
	for _, u := range urls {
		for _, args := range [][]string{
			{u}, {"-json", u}, {"-", u}, {"-json", "-", u}, {u, "-"}, {"-against", u}, {"-json", "-against", u}, {"-against", u, u},
			{"-deadline", u, "-"}, {"-deadline=" + u, "-"}, {"-json=" + u, "-"}, {"-" + u}, {"-unknown=" + u}, {"-", u, u},
			{"-method", u, "-against", "https://h.test/"},
		} {
			_, stdout, stderr := call(t, base, args...)
			assert.NotContains(t, stdout+stderr, secret, "%q", args)
		}
	}
	for _, header := range []string{secret, ":" + secret, "Authorization " + secret, "Author ization: " + secret, "Authorization: a\n" + secret, "Host: u:" + secret + "@h.test"} {
		_, stdout, stderr := call(t, base, "-header", header, "-against", "https://h.test/")
		assert.NotContains(t, stdout+stderr, secret, "%q", header)
	}
	_, _, stderr := call(t, base, "-", "h.test/v1?key="+secret)
	assert.Equal(t, "aplomb rules: \"h.test/v1?key=xxxxx\" is not a URL; write it like https://api.example.com/\naplomb rules -h explains.\n", strings.ReplaceAll(stderr, "\r", ""))
}

func TestBroken(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", []string{""}},
		{"short", []string{"short"}},
		{"just fits", []string{"just fits"}},
		{"two words more", []string{"two words", "more"}},
		{"a,b,c,d,e,f", []string{"a,b,c,d,", "e,f"}},
		{"indivisible", []string{"indivisib", "le"}},
		{"ää ööööööööö", []string{"ää", "ööööööööö"}},
		{"ööööööööööö", []string{"ööööööööö", "öö"}},
	} {
		assert.Equal(t, test.want, broken(test.text, 9), test.text)
	}
}

// The cost of a text grows with its length, not with its square.
func TestBrokenLongText(t *testing.T) {
	allocated := func(n int) uint64 {
		text := strings.Repeat("h.test, ", n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		broken(text, 80)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	assert.Less(t, allocated(8000), 16*allocated(1000))
}
