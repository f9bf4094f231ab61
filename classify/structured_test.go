package classify

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/soak"
)

// A display string is UTF-8 (RFC 9651 §4.2.10). A field with any other display
// string is ignored as a whole.
func TestDisplayStrings(t *testing.T) {
	for text, want := range map[string]bool{
		`%"plain"`:                   true,
		`%""`:                        true,
		`%"f%c3%bc"`:                 true,
		`%"%f0%9f%99%82"`:            true,
		`%"%00%7f%22%25"`:            true,
		`%"%c3"`:                     false, // the first of two bytes
		`%"%c3 %bc"`:                 false,
		`%"%bc"`:                     false,
		`%"%ff"`:                     false,
		`%"%c0%80"`:                  false, // longer than needed
		`%"%ed%a0%80"`:               false, // half of a surrogate pair
		`%"%f4%90%80%80"`:            false, // beyond the last character
		`%"%C3%BC"`:                  false, // hexadecimal is lower case
		`%"%c"`:                      false,
		`%"` + "\xc3\xbc" + `"`:      false, // not ASCII
		`%"no end`:                   false,
		`%"` + "a\nb" + `"`:          false,
		`"a";q=5;name=%"f%c3%bc", 1`: true,
		`"a";q=5;name=%"%c3", 1`:     false,
	} {
		_, ok := parseList([]string{text})
		assert.Equal(t, want, ok, "%q", text)
	}
}

func TestByteSequencesHaveNoLineBreaks(t *testing.T) {
	_, ok := parseList([]string{":Zm9v:"})
	assert.True(t, ok)
	for _, text := range []string{":Zm\n9v:", ":Zm\r9v:", ":Zm9v\r\n:"} {
		_, ok = parseList([]string{text})
		assert.False(t, ok, "%q", text)
	}
}

// The transport asks for the quota and the hint of every response, so a response
// without such fields must cost nothing.
func TestNoAllocationWithoutRateLimitFields(t *testing.T) {
	ok, limited := response(200, "Content-Type", "text/plain"), response(429, "Content-Type", "text/plain")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		QuotaOf(ok)
		QuotaOf(limited)
		RateLimitReset(limited)
	}))
}

// The parser allocates for each member and parameter, so a hostile field is
// refused before it is parsed.
func TestHostileFieldsAreNotParsed(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("a,", fieldLimit/2-2) + "a",
		"a" + strings.Repeat(";b", fieldLimit/2-2),
		strings.Repeat("a;b,", fieldLimit/4-2) + "a",
		strings.Repeat(",", memberLimit),
	} {
		lines := []string{text}
		assert.Zero(t, testing.AllocsPerRun(10, func() { parseList(lines) }), "%.20s…", text)
		assert.Zero(t, testing.AllocsPerRun(10, func() { parseDictionary(lines) }), "%.20s…", text)
	}
}

// A field of megabytes is not read. No honest server sends such a field, and a
// hostile server would take a second of CPU time per response. A field of a few
// KiB is still read.
func TestLongFieldsAreNoHints(t *testing.T) {
	size := soak.Size(1<<20, 9<<20)
	for _, long := range []string{
		strings.Repeat("1,", size/2) + "1",
		strings.Repeat("0", size) + "1",
		"1." + strings.Repeat("0", size),
		strings.Repeat(" ", size) + "1",
		"Tue, 06 May 2031 08:49:37 GMT" + strings.Repeat(" ", size),
		strings.Repeat("1h", size/2),
	} {
		for _, key := range []string{
			"Retry-After", "Retry-After-Ms", "Ratelimit", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After",
			"X-Ratelimit-Reset-Requests", "Anthropic-Ratelimit-Tokens-Reset", "Grpc-Retry-Pushback-Ms",
		} {
			o := response(429, "X-Ratelimit-Remaining", "0", "X-Ratelimit-Remaining-Requests", "0", "Anthropic-Ratelimit-Tokens-Remaining", "0")
			o.Response.Header[key] = []string{long}
			o.Response.Header["Date"], o.Response.Header["Age"] = []string{long}, []string{long}
			for _, h := range []Hint{DefaultHint, RetryAfter, RetryAfterMillis, RateLimitReset, ResetAfter, ResetDurations, ResetTimes, Pushback} {
				_, ok := h(o)
				assert.False(t, ok, "%s: %.20s…", key, long)
			}
			_, ok := QuotaOf(o)
			assert.False(t, ok, "%s: %.20s…", key, long)
		}
	}
	many := response(503)
	for range 1 << 20 {
		many.Response.Header["Retry-After"] = append(many.Response.Header["Retry-After"], "1")
	}
	_, ok := RetryAfter(many)
	assert.False(t, ok, "a million lines")

	_, ok = RetryAfter(response(503, "Retry-After", strings.Repeat("1,", 1000)+"5"))
	assert.True(t, ok, "two thousand characters")
}
