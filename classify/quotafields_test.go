package classify

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
			"several quotas of a unit",
			[]string{"Ratelimit", `"day";r=1000;t=3600, "minute";r=2;t=30`},
			[]Quota{{Remaining: 2, Reset: 30 * time.Second}},
		},
		{"from a cache", []string{"X-Ratelimit-Remaining-Tokens", "5", "X-Ratelimit-Reset-Tokens", "10s", "Age", "3"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := response(200, tt.header...)
			assert.Equal(t, len(tt.want), len(Quotas(o)))
			for i, q := range Quotas(o) {
				assert.Equal(t, tt.want[i], q)
			}
			_, ok := QuotaOf(o)
			assert.Equal(t, len(tt.want) > 0, ok)
		})
	}
	assert.Nil(t, Quotas(Outcome{}))
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
	assert.Zero(t, testing.AllocsPerRun(100, func() { Quotas(Outcome{Response: &http.Response{Header: none}}) }))
}

// A wait after a 429 is not read from the fields of units. The hints of single providers do
// that.
func TestUnitsAreNoHint(t *testing.T) {
	_, ok := RateLimitReset(response(429, "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "10s"))
	assert.False(t, ok)
}

// FuzzUnitQuotas checks that no field causes a panic or a negative result.
func FuzzUnitQuotas(f *testing.F) {
	f.Add("5", "6m0s", "32/40", "10")
	f.Add("99999999999999999999", "2026-11-22T08:00:00Z", "1/9223372036854775807", "1e9")
	f.Add("0", "1795338000000", "/", "-1")
	f.Fuzz(func(t *testing.T, remaining, reset, bucket, limit string) {
		o := dated(200)
		h := o.Response.Header
		h["X-Shopify-Shop-Api-Call-Limit"] = []string{bucket}
		for _, group := range quotaGroups {
			for _, unit := range group.units {
				h[unit.remaining], h[unit.reset], h[unit.limit] = []string{remaining}, []string{reset}, []string{limit}
			}
			units := map[string]bool{}
			for _, q := range Quotas(o) {
				require.False(t, units[q.Unit])
				units[q.Unit] = true
				require.GreaterOrEqual(t, min(q.Remaining, q.Limit, int64(q.Reset)), int64(0))
			}
			for _, unit := range group.units {
				delete(h, unit.remaining)
			}
		}
		for _, q := range Quotas(o) {
			require.GreaterOrEqual(t, min(q.Remaining, q.Limit, int64(q.Reset)), int64(0))
		}
	})
}
