package terminal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/terminal"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"plain ü 漢 …━":           "plain ü 漢 …━",
		"a\x1b[2K\rdone":         "a?[2K?done",
		"bell\a tab\t\x7f":       "bell? tab??",
		"two\nlines\r\n":         "two?lines??",
		"C1 \u009b31m":           "C1 ?31m",
		"\u202egnp.exe\u2066":    "?gnp.exe?",
		"separators\u2028\u0085": "separators??",
		"not UTF-8 \x9b31m":      "not UTF-8 \ufffd31m",
		"a tag \U000e0041":       "a tag ?",
	} {
		assert.Equal(t, want, terminal.Printable(text), "%q", text)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b[31m\u009b\u202e\U000e0041\n\x7f\u2028")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "")
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(map[string]string{"key": text}))
		out := terminal.JSON(b.Bytes())
		var back map[string]string
		require.NoError(t, json.Unmarshal(out, &back))
		assert.Equal(t, text, back["key"])
		for _, r := range strings.TrimSuffix(string(out), "\n") {
			assert.True(t, unicode.IsPrint(r), "%q", out)
		}
	})
}

const secret = "s3cret"

func TestError(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "h.test", RawQuery: secret}
	err := errors.Join(fmt.Errorf("open %s: no such file", u), errors.New("a\x1b[31m"))
	assert.Equal(t, "open http://h.test?xxxxx: no such file\na?[31m", terminal.Error(err))
}

func TestURL(t *testing.T) {
	for text, want := range map[string]string{
		"ftp://u:" + secret + "@h.test/a?key=" + secret + "#" + secret: `"ftp://xxxxx@h.test/a?key=xxxxx"`,
		"u:" + secret + "@h.test/":                                     `"u:xxxxx"`,
		secret + "@h.test/a":                                           `"xxxxx@h.test/a"`,
		"h.test/a?" + secret:                                           `"h.test/a?xxxxx"`,
		"h.test/a#" + secret:                                           `"h.test/a"`,
		"/a?key=" + secret:                                             `"/a?key=xxxxx"`,
		"http://h.test:" + secret:                                      `"xxxxx"`,
		"http://u:" + secret + "/@h.test":                              `"xxxxx"`,
		"1u:" + secret + "@h.test":                                     `"xxxxx"`,
		"h%C2%9B31m.test":                                              `"h%C2%9B31m.test"`,
	} {
		assert.Equal(t, want, terminal.URL(text), text)
	}
}

func TestMisused(t *testing.T) {
	var out bytes.Buffer
	assert.Equal(t, 0, terminal.Misused(&out, "aplomb rules", fmt.Errorf("rules: %w", flag.ErrHelp)))
	assert.Empty(t, out.String())
	assert.Equal(t, 2, terminal.Misused(&out, "aplomb rules", errors.New("no URL \x1b[2K")))
	assert.Equal(t, "aplomb rules: no URL ?[2K\naplomb rules -h explains.\n", out.String())
}
