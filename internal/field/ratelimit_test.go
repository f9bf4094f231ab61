package field

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
)

// TestRateLimitReset is the table of the fields that name a used-up quota.
func TestRateLimitReset(t *testing.T) {
	epoch := strconv.FormatInt(sent.Add(90*time.Second).Unix(), 10)
	milli := strconv.FormatInt(sent.Add(90*time.Second).UnixMilli(), 10)
	for _, tt := range []struct {
		name   string
		code   int
		header []string
		want   time.Duration
		ok     bool
	}{
		{"the draft", 429, []string{"RateLimit", `"default";r=0;t=30`}, 30 * time.Second, true},
		{"parameters in any order, others beside", 429, []string{"RateLimit", `"a";pk=:Zm9v:;t=30;x;r=0`}, 30 * time.Second, true},
		{"the last of equal parameters", 429, []string{"RateLimit", `"a";r=5;r=0;t=1;t=30`}, 30 * time.Second, true},
		{"a token for a name", 429, []string{"RateLimit", `default;r=0;t=30`}, 30 * time.Second, true},
		{"the longest of several that are used up", 429, []string{"RateLimit", `"a";r=0;t=1, "b";r=0;t=60,"c";r=9;t=3600`}, time.Minute, true},
		{"several lines", 429, []string{"RateLimit", `"a";r=0;t=1`, "RateLimit", `"b";r=0;t=60`}, time.Minute, true},
		{"no quota is used up", 429, []string{"RateLimit", `"a";r=1;t=30`}, 0, false},
		{"no reset", 429, []string{"RateLimit", `"a";r=0`}, 0, false},
		{"reset now", 429, []string{"RateLimit", `"a";r=0;t=0`}, 0, true},
		{"the largest number", 429, []string{"RateLimit", `"a";r=0;t=999999999999999`}, 24 * time.Hour, true},
		{"403", 403, []string{"RateLimit", `"a";r=0;t=30`}, 30 * time.Second, true},
		{"another status names no wait", 503, []string{"RateLimit", `"a";r=0;t=30`}, 0, false},

		{"malformed: a decimal", 429, []string{"RateLimit", `"a";r=0;t=1.5`}, 0, false},
		{"malformed: negative", 429, []string{"RateLimit", `"a";r=0;t=-1`}, 0, false},
		{"malformed: too many digits", 429, []string{"RateLimit", `"a";r=0;t=9999999999999999`}, 0, false},
		{"malformed: nothing remains to be read", 429, []string{"RateLimit", `"a";t=30`}, 0, false},
		{"malformed: a comma at the end", 429, []string{"RateLimit", `"a";r=0;t=30,`}, 0, false},
		{"malformed: one item of two", 429, []string{"RateLimit", `"a";r=0;t=30, "b";r=x;t=30`}, 0, false},
		{"malformed: an open string", 429, []string{"RateLimit", `"a;r=0;t=30`}, 0, false},
		{"malformed: an upper-case key", 429, []string{"RateLimit", `"a";R=0;t=30`}, 0, false},
		{"malformed: a number for a name", 429, []string{"RateLimit", `5;r=0;t=30`}, 0, false},
		{"malformed: a list within", 429, []string{"RateLimit", `("a");r=0;t=30`}, 0, false},
		{"malformed: too long", 429, []string{"RateLimit", `"` + strings.Repeat("a", fieldLimit) + `";r=0;t=30`}, 0, false},
		{"malformed: too many", 429, []string{"RateLimit", strings.Repeat(`a;r=0;t=1,`, structuredLimit/10) + `a;r=0;t=1`}, 0, false},
		{"malformed, but an older field is not", 429, []string{"RateLimit", `"a`, "RateLimit-Remaining", "0", "RateLimit-Reset", "5"}, 5 * time.Second, true},

		{"the seventh draft", 429, []string{"RateLimit", `limit=100, remaining=0, reset=5`}, 5 * time.Second, true},
		{"the seventh draft, some left", 429, []string{"RateLimit", `limit=100, remaining=1, reset=5`}, 0, false},
		{"the seventh draft, no reset", 429, []string{"RateLimit", `limit=100, remaining=0`}, 0, false},
		{"the seventh draft, malformed", 429, []string{"RateLimit", `limit=100, remaining=0, reset=5, `}, 0, false},

		{"the older drafts", 429, []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "50"}, 50 * time.Second, true},
		{"the older drafts, some left", 429, []string{"RateLimit-Remaining", "3", "RateLimit-Reset", "50"}, 0, false},
		{"the older drafts, nothing about what is left", 429, []string{"RateLimit-Reset", "50"}, 0, false},
		{"the older drafts, malformed", 429, []string{"RateLimit-Remaining", "-0", "RateLimit-Reset", "50"}, 0, false},
		{"the least of several remains", 429, []string{"RateLimit-Remaining", "3", "RateLimit-Remaining", "0", "RateLimit-Reset", "50"}, 50 * time.Second, true},

		{"GitHub: epoch seconds", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", epoch}, 90 * time.Second, true},
		{"epoch seconds with a fraction", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", epoch + ".5"}, 90*time.Second + 500*time.Millisecond, true},
		{"seconds in the same field", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "50"}, 50 * time.Second, true},
		{"epoch milliseconds", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", milli}, 90 * time.Second, true},
		{"the least remains", 429, []string{"RateLimit-Remaining", "0", "RateLimit-Remaining", "3", "RateLimit-Reset", "50"}, 50 * time.Second, true},
		{"X: epoch seconds", 429, []string{"X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", epoch}, 90 * time.Second, true},
		{"epoch milliseconds in X's fields", 429, []string{"X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", milli}, 90 * time.Second, true},
		{"seconds or milliseconds in X's fields", 429, []string{"X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", "600000"}, 0, false},
		{"X's fields beside the usual ones", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "50", "X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", epoch}, 50 * time.Second, true},
		{"bytes are used up", 429, []string{"RateLimit", `"a";r=0;t=30`, "RateLimit-Policy", `"a";q=10;qu="content-bytes"`}, 30 * time.Second, true},
		{"some left", 403, []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", epoch}, 0, false},
		{"pitfall 2: not a number", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "NaN"}, 0, false},

		{"from a cache", 429, []string{"Age", "5", "RateLimit", `"a";r=0;t=30`}, 0, false},
		{"through a cache", 429, []string{"Age", "00", "RateLimit", `"a";r=0;t=30`}, 30 * time.Second, true},
	} {
		wait, ok := Wait(dated(tt.code, tt.header...))
		assert.Equal(t, tt.ok, ok, tt.name)
		assert.Equal(t, tt.want, wait, tt.name)
	}
}

// FuzzRateLimit checks that no field causes a panic or a negative result, and
// that there is a hint only if the quota says the same.
func FuzzRateLimit(f *testing.F) {
	f.Add(`"a";r=0;t=30, "b";r=5;t=9`, `"a";q=5;w=60`, "0", "1935823777")
	f.Add(`limit=100, remaining=0, reset=5`, `100;w=60`, "0", "5")
	f.Add(`"\"";pk=:Zm9v:;r=0;t=999999999999999`, `%"%c3";q=@1`, "00", "1.5")
	f.Fuzz(func(t *testing.T, limit, policy, remaining, reset string) {
		o := dated(429)
		h := o.Header
		h["Ratelimit"] = []string{limit}
		h["Ratelimit-Policy"] = []string{policy}
		h["X-Ratelimit-Remaining"] = []string{remaining}
		h["X-Ratelimit-Reset"] = []string{reset}
		h["X-Ratelimit-Limit"] = []string{policy}
		wait, ok := Wait(o)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		quotas := Quotas(o.Header)
		for _, q := range quotas {
			require.GreaterOrEqual(t, min(q.Remaining, q.Limit, int64(q.Reset)), int64(0))
		}
		require.True(t, !ok || slices.ContainsFunc(quotas, func(q Quota) bool { return q.Remaining == 0 && q.Reset == wait }))
	})
}

// Somebody has to keep each unit, so an overlong one is not read.
func TestOverlongUnits(t *testing.T) {
	for n, want := range map[int]int{64: 1, 65: 0, 900: 0} {
		unit := strings.Repeat("u", n)
		o := response(200, "RateLimit", `"a";r=1;t=30`, "RateLimit-Policy", `"a";q=10;w=60;qu="`+unit+`"`)
		assert.Len(t, Quotas(o.Header), want, "a unit of %d bytes", n)
	}
}

func TestQuotas(t *testing.T) {
	const date = "Sun, 22 Nov 2026 08:00:00 GMT"
	for _, tt := range []struct {
		name   string
		header []string
		want   []Quota
	}{
		{"nothing", nil, nil},
		{
			"OpenAI",
			[]string{
				"X-Ratelimit-Limit-Requests", "60", "X-Ratelimit-Remaining-Requests", "59", "X-Ratelimit-Reset-Requests", "12ms",
				"X-Ratelimit-Limit-Tokens", "150000", "X-Ratelimit-Remaining-Tokens", "149984", "X-Ratelimit-Reset-Tokens", "6m0s",
			},
			[]Quota{{Remaining: 59, Limit: 60, Reset: 12 * time.Millisecond}, {Unit: "tokens", Remaining: 149984, Limit: 150000, Reset: 6 * time.Minute}},
		},
		{
			"Azure, in seconds",
			[]string{"X-Ratelimit-Remaining-Tokens", "5", "X-Ratelimit-Reset-Tokens", "10"},
			[]Quota{{Unit: "tokens", Remaining: 5, Reset: 10 * time.Second}},
		},
		{
			"Azure, no limit",
			[]string{"X-Ratelimit-Limit-Tokens", "-1", "X-Ratelimit-Remaining-Tokens", "-1", "X-Ratelimit-Reset-Tokens", "0"},
			nil,
		},
		{
			"Anthropic",
			[]string{
				"Date", date,
				"Anthropic-Ratelimit-Requests-Limit", "1000", "Anthropic-Ratelimit-Requests-Remaining", "999", "Anthropic-Ratelimit-Requests-Reset", "2026-11-22T08:00:01Z",
				"Anthropic-Ratelimit-Tokens-Limit", "96000", "Anthropic-Ratelimit-Tokens-Remaining", "9000", "Anthropic-Ratelimit-Tokens-Reset", "2026-11-22T08:00:30Z",
				"Anthropic-Ratelimit-Input-Tokens-Limit", "80000", "Anthropic-Ratelimit-Input-Tokens-Remaining", "80000", "Anthropic-Ratelimit-Input-Tokens-Reset", "2026-11-22T07:59:59Z",
				"Anthropic-Ratelimit-Output-Tokens-Limit", "16000", "Anthropic-Ratelimit-Output-Tokens-Remaining", "1000", "Anthropic-Ratelimit-Output-Tokens-Reset", "2026-11-22T08:01:00Z",
			},
			[]Quota{
				{Remaining: 999, Limit: 1000, Reset: time.Second},
				{Unit: "tokens", Remaining: 9000, Limit: 96000, Reset: 30 * time.Second},
				{Unit: "output-tokens", Remaining: 1000, Limit: 16000, Reset: time.Minute},
			},
		},
		{
			"Linear",
			[]string{
				"Date", date,
				"X-Ratelimit-Requests-Limit", "5000", "X-Ratelimit-Requests-Remaining", "4999", "X-Ratelimit-Requests-Reset", "1795338000000",
				"X-Ratelimit-Complexity-Limit", "250000", "X-Ratelimit-Complexity-Remaining", "7", "X-Ratelimit-Complexity-Reset", "1795334460500",
			},
			[]Quota{{Remaining: 4999, Limit: 5000, Reset: time.Hour}, {Unit: "complexity", Remaining: 7, Limit: 250000, Reset: time.Minute + 500*time.Millisecond}},
		},
		{
			"HubSpot",
			[]string{"X-Hubspot-Ratelimit-Max", "190", "X-Hubspot-Ratelimit-Remaining", "189", "X-Hubspot-Ratelimit-Interval-Milliseconds", "10000", "X-Hubspot-Ratelimit-Daily-Remaining", "1"},
			[]Quota{{Remaining: 189, Limit: 190, Reset: 10 * time.Second}},
		},
		{"Shopify", []string{"X-Shopify-Shop-Api-Call-Limit", "32/40"}, []Quota{{Remaining: 8, Limit: 40, Reset: 16 * time.Second}}},
		{"Shopify, used up", []string{"X-Shopify-Shop-Api-Call-Limit", "40/40"}, []Quota{{Remaining: 0, Limit: 40, Reset: 20 * time.Second}}},
		{"Shopify, malformed", []string{"X-Shopify-Shop-Api-Call-Limit", "41/40"}, nil},
		{"Shopify, one", []string{"X-Shopify-Shop-Api-Call-Limit", "1/40"}, []Quota{{Remaining: 39, Limit: 40, Reset: 500 * time.Millisecond}}},
		{"Shopify, none", []string{"X-Shopify-Shop-Api-Call-Limit", "0/40"}, nil},
		{"OpenAI, a unit without its rest", []string{"X-Ratelimit-Remaining-Requests", "5", "X-Ratelimit-Reset-Requests", "1s", "X-Ratelimit-Reset-Tokens", "1s"},
			[]Quota{{Remaining: 5, Reset: time.Second}}},
		{"Shopify, no size", []string{"X-Shopify-Shop-Api-Call-Limit", "0/0"}, nil},
		{
			"GitHub's points",
			[]string{"Date", date, "X-Ratelimit-Limit", "5000", "X-Ratelimit-Remaining", "12", "X-Ratelimit-Reset", "1795334460", "X-Ratelimit-Resource", "graphql"},
			[]Quota{{Unit: "points", Remaining: 12, Limit: 5000, Reset: time.Minute}},
		},
		{
			"GitHub's requests",
			[]string{"Date", date, "X-Ratelimit-Remaining", "12", "X-Ratelimit-Reset", "1795334460", "X-Ratelimit-Resource", "core"},
			[]Quota{{Remaining: 12, Reset: time.Minute}},
		},
		{
			"the draft with its policy",
			[]string{"RateLimit", `"hour";r=50;t=1800`, "RateLimit-Policy", `"minute";q=10;w=60,"hour";q=100;w=3600`},
			[]Quota{{Remaining: 50, Reset: 30 * time.Minute, Limit: 100}},
		},
		{"a malformed policy", []string{"RateLimit", `"hour";r=50;t=1800`, "RateLimit-Policy", `"hour";q=`}, []Quota{{Remaining: 50, Reset: 30 * time.Minute}}},
		{"the slowest pace of several", []string{"RateLimit", `"day";r=1000;t=3600, "minute";r=2;t=30, "second";r=1;t=1`}, []Quota{{Remaining: 2, Reset: 30 * time.Second}}},
		{"a used-up one is the slowest", []string{"RateLimit", `"a";r=1;t=9999, "b";r=0;t=5, "c";r=0;t=7, "d";r=0;t=0`}, []Quota{{Remaining: 0, Reset: 7 * time.Second}}},
		{"requests by name", []string{"RateLimit", `"a";r=5;t=9`, "RateLimit-Policy", `"a";q=10;qu="requests"`}, []Quota{{Remaining: 5, Reset: 9 * time.Second, Limit: 10}}},
		{"bytes are not counted", []string{"RateLimit", `"a";r=0;t=9`, "RateLimit-Policy", `"a";q=10;qu="content-bytes"`}, nil},
		{
			"requests beside concurrent ones",
			[]string{"RateLimit", `"a";r=0;t=9, "b";r=7;t=9`, "RateLimit-Policy", `"a";q=10;qu="concurrent-requests", "b";q=20;w=60`},
			[]Quota{{Remaining: 7, Reset: 9 * time.Second, Limit: 20}},
		},
		{"another unit", []string{"RateLimit", `"a";r=5;t=9`, "RateLimit-Policy", `"a";q=10;qu="tokens"`}, []Quota{{Unit: "tokens", Remaining: 5, Reset: 9 * time.Second, Limit: 10}}},
		{"a unit that is no string", []string{"RateLimit", `"a";r=5;t=9`, "RateLimit-Policy", `"a";q=10;qu=7`}, []Quota{{Remaining: 5, Reset: 9 * time.Second, Limit: 10}}},
		{"no reset", []string{"RateLimit", `"a";r=5`}, nil},
		{"full at once", []string{"RateLimit", `"a";r=5;t=0`}, []Quota{{Remaining: 5}}},
		{"the seventh draft", []string{"RateLimit", `limit=100, remaining=50, reset=5`}, []Quota{{Remaining: 50, Reset: 5 * time.Second, Limit: 100}}},
		{"the older drafts", []string{"RateLimit-Limit", "10, 10;w=1, 50;w=60", "RateLimit-Remaining", "9", "RateLimit-Reset", "1"}, []Quota{{Remaining: 9, Reset: time.Second, Limit: 10}}},
		{"with X- in front", []string{"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", "60"}, []Quota{{Remaining: 4999, Reset: time.Minute, Limit: 5000}}},
		{"a malformed limit", []string{"X-RateLimit-Limit", "-5", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "60"}, []Quota{{Remaining: 1, Reset: time.Minute}}},
		{"no reset of the older kind", []string{"X-RateLimit-Remaining", "1"}, nil},
		{"from a cache", []string{"X-Ratelimit-Remaining-Tokens", "5", "X-Ratelimit-Reset-Tokens", "10s", "Age", "3"}, nil},
	} {
		got := Quotas(response(200, tt.header...).Header)
		assert.Equal(t, append([]Quota{}, tt.want...), append([]Quota{}, got...), tt.name)
	}
	assert.Nil(t, Quotas(nil))
}

// The look at the fields finds each group of the table by each of its units, and no group in a
// header that names no quota.
func TestQuotaGroupsAreFound(t *testing.T) {
	none := http.Header{"Age": {"0"}, "Content-Type": {"text/plain"}, "X-Ratelimit": {"1"}, "X-Ratelimit-Resource": {"graphql"}}
	for i, group := range quotaGroups {
		require.NotEmpty(t, group.units)
		for _, unit := range group.units {
			assert.Equal(t, http.CanonicalHeaderKey(unit.remaining), unit.remaining)
			assert.Equal(t, uint(1)<<i, quotaGroupsIn(http.Header{"Date": {""}, unit.remaining: {"5"}}), unit.remaining)
			none[unit.reset], none[unit.limit] = []string{"5"}, []string{"5"}
		}
	}
	assert.Zero(t, quotaGroupsIn(none))
	assert.Zero(t, testing.AllocsPerRun(100, func() { Quotas(none) }))
}

// FuzzUnitQuotas checks that no field causes a panic or a negative result.
func FuzzUnitQuotas(f *testing.F) {
	f.Add("5", "6m0s", "32/40", "10")
	f.Add("99999999999999999999", "2026-11-22T08:00:00Z", "1/9223372036854775807", "1e9")
	f.Add("0", "1795338000000", "/", "-1")
	f.Fuzz(func(t *testing.T, remaining, reset, bucket, limit string) {
		o := dated(200)
		h := o.Header
		h["X-Shopify-Shop-Api-Call-Limit"] = []string{bucket}
		for _, group := range quotaGroups {
			for _, unit := range group.units {
				h[unit.remaining], h[unit.reset], h[unit.limit] = []string{remaining}, []string{reset}, []string{limit}
			}
			units := map[string]bool{}
			for _, q := range Quotas(o.Header) {
				require.False(t, units[q.Unit])
				units[q.Unit] = true
				require.GreaterOrEqual(t, min(q.Remaining, q.Limit, int64(q.Reset)), int64(0))
			}
			for _, unit := range group.units {
				delete(h, unit.remaining)
			}
		}
		for _, q := range Quotas(o.Header) {
			require.GreaterOrEqual(t, min(q.Remaining, q.Limit, int64(q.Reset)), int64(0))
		}
	})
}

// The transport asks for the quota and the hint of every response, so a response
// without such fields must cost nothing.
func TestNoAllocationWithoutRateLimitFields(t *testing.T) {
	ok, limited := response(200, "Content-Type", "text/plain"), response(429, "Content-Type", "text/plain")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		Quotas(ok.Header)
		Quotas(limited.Header)
		Wait(limited)
	}))
}

// The parser allocates for each member and parameter, so a hostile field is
// refused before it is parsed.
func TestHostileFieldsAreNotParsed(t *testing.T) {
	for more, want := range []bool{true, false} {
		_, ok := parseList([]string{strings.Repeat("a", structuredLimit-2+more)})
		assert.Equal(t, want, ok, "bytes, with those between lines")
	}
	for _, text := range []string{
		strings.Repeat("a,", structuredLimit/2-1) + "a",
		"a" + strings.Repeat(";b", structuredLimit/2-1),
		strings.Repeat(",", structuredLimit),
	} {
		lines := []string{text}
		assert.Zero(t, testing.AllocsPerRun(10, func() { parseList(lines) }), "%.20s…", text)
		assert.Zero(t, testing.AllocsPerRun(10, func() { seventhDraft(lines) }), "%.20s…", text)
	}
}

// A field of megabytes is not read. No honest server sends such a field, and a
// hostile server would take a second of CPU time per response. A field of a few
// KiB is still read.
func TestLongFieldsAreNotRead(t *testing.T) {
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
			o.Header[key] = []string{long}
			o.Header["Date"], o.Header["Age"] = []string{long}, []string{long}
			for _, h := range []func(*http.Response) (time.Duration, bool){Wait, ResetOpenAI, ResetAnthropic} {
				_, ok := h(o)
				assert.False(t, ok, "%s: %.20s…", key, long)
			}
			assert.Empty(t, Quotas(o.Header), "%s: %.20s…", key, long)
		}
	}
	many := response(503)
	for range 1 << 20 {
		many.Header["Retry-After"] = append(many.Header["Retry-After"], "1")
	}
	_, ok := RetryAfter(many)
	assert.False(t, ok, "a million lines")

	_, ok = RetryAfter(response(503, "Retry-After", strings.Repeat("1,", 1000)+"5"))
	assert.True(t, ok, "two thousand characters")
}
