package resume

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/testkit"
)

func headHash(resp *http.Response) uint64 { return fingerprintOf(resp, true).header }

// A second response has to agree in all that the caller has seen of the first.
func TestHeadersAgree(t *testing.T) {
	first := func() *http.Response {
		return &http.Response{StatusCode: 200, ContentLength: 100, Header: http.Header{
			"Content-Type": {"a/b"}, "Content-Encoding": {"br"}, "Content-Range": {"bytes 0-99/200"}, "Repr-Digest": {"a"},
			"Digest": {"c"}, "Content-Md5": {"d"}, "Etag": {"W/e"}, "Last-Modified": {"f"}, "X-Amz-Checksum-Sha256": {"g"},
			"Link": {"h"}, "X-Next-Cursor": {"i"}, "X-Total-Count": {"j"}, "X-Rates": {"k"}, "X-Amz-Version-Id": {"l"}, "": {"m"},
			"Date": {"n"}, "X-Request-Id": {"o"}, "X-Ratelimit-Remaining": {"p"}, "Set-Cookie": {"q"},
		}}
	}
	head := headHash(first())
	assert.Equal(t, head, headHash(first()))
	for name := range first().Header {
		mayDiffer := name == "Date" || name == "X-Request-Id" || name == "X-Ratelimit-Remaining" || name == "Set-Cookie"
		for change, values := range map[string][]string{"another": {"x"}, "absent": nil, "two": {first().Header[name][0], "x"}} {
			second := first()
			if values == nil {
				delete(second.Header, name)
			} else {
				second.Header[name] = values
			}
			assert.Equal(t, mayDiffer, head == headHash(second), "%s: %s", name, change)
		}
	}
	for name, change := range map[string]func(*http.Response){
		"status":       func(r *http.Response) { r.StatusCode = 203 },
		"length":       func(r *http.Response) { r.ContentLength = 101 },
		"no length":    func(r *http.Response) { r.ContentLength = -1 },
		"decompressed": func(r *http.Response) { r.Uncompressed = true },
		"swapped":      func(r *http.Response) { r.Header["Digest"], r.Header["Content-Md5"] = []string{"d"}, []string{"c"} },
		"a new field":  func(r *http.Response) { r.Header["X-New"] = []string{""} },
		"one for two":  func(r *http.Response) { r.Header["Link"] = []string{"h", ""} },
	} {
		second := first()
		change(second)
		assert.NotEqual(t, head, headHash(second), name)
	}
	second := first()
	second.Header["Link"] = []string{"x", "h"}
	third := first()
	third.Header["Link"] = []string{"h", "x"}
	assert.NotEqual(t, headHash(second), headHash(third), "the order of values")
}

// Each provider of a profile marks its responses in its own way. Two responses to the same GET
// agree, and they don't if they tell of other contents. Each line has a name, the value of the first response, and
// that of the second if it is another.
func TestHeadersOfProvidersAgree(t *testing.T) {
	for provider, lines := range map[string]string{
		"github": `
Server|github.com
Date|Mon, 06 Jan 2025 10:00:00 GMT|Mon, 06 Jan 2025 10:00:07 GMT
Content-Type|application/json; charset=utf-8
Cache-Control|private, max-age=60, s-maxage=60
Vary|Accept, Authorization, Cookie, X-GitHub-OTP, Accept-Encoding, Accept, X-Requested-With
ETag|W/"33d63b8f6d9e"
Last-Modified|Sun, 05 Jan 2025 21:12:40 GMT
X-OAuth-Scopes|repo
X-Accepted-OAuth-Scopes|
Github-Authentication-Token-Expiration|2025-03-01 00:00:00 UTC
X-GitHub-Media-Type|github.v3; format=json
X-GitHub-Api-Version-Selected|2022-11-28
Link|<https://api.github.com/repositories/1/issues?page=2>; rel="next"
X-RateLimit-Limit|5000|7
X-RateLimit-Remaining|4987|4986
X-RateLimit-Reset|1736160000|1736163600
X-RateLimit-Used|13|14
X-RateLimit-Resource|core|core0
X-GitHub-Request-Id|C0DE:1F2A:3B4C5D|C0DE:2A1F:5D4C3B
Strict-Transport-Security|max-age=31536000; includeSubdomains; preload
Content-Security-Policy|default-src 'none'`,
		"aws": `
x-amzn-RequestId|4KBNVRGD25RG1KEO9UT4V3FQDJVV4KQNSO5AEMVJF66Q9ASUAAJG|9C6G8SCR0R5VHQ2GJ8KQ2AO2UVVV4KQNSO5AEMVJF66Q9ASUAAJG
x-amz-request-id|79104EXAMPLEB723|318BC8BC148832E5
x-amz-id-2|IOWQ4fDEXAMPLEQM+ey7N9WgVhSnQ6JEXAMPLEZb7hSQDASK+Jd1vEXAMPLEa3Km|eftixk72aD6Ap51TnqcoF8eFidJG9Z/2mkiDFu8yU9AS1ed4OpIszj7UDNEHGran
X-Amzn-Trace-Id|Root=1-5f84c7a1-1|Root=1-5f84c7a9-2
x-amz-apigw-id|UXEXAMPLE1=|UXEXAMPLE2=
X-Amz-Cf-Id|_1R3XAmPlE==|_2R3XAmPlE==
X-Amz-Cf-Pop|FRA56-P4|FRA60-P1
X-Cache|Miss from cloudfront|Hit from cloudfront
Via|1.1 8f22423015641505b8c857a37450d6c0.cloudfront.net (CloudFront)|1.1 2b14bfcd.cloudfront.net (CloudFront)
Date|Mon, 06 Jan 2025 10:00:00 GMT|Mon, 06 Jan 2025 10:00:02 GMT
x-amz-crc32|2745614147
x-amz-version-id|3HL4kqtJlcpXroDTDmJ+rmSpXd3dIbrHY+MTRCxf3vjVBH40Nr8X8gdRQBpUMLUo
x-amz-server-side-encryption|AES256
x-amz-bucket-region|us-east-1
Content-Type|application/x-amz-json-1.0
Server|Server`,
		"azure": `
Cache-Control|no-cache
Pragma|no-cache
Content-Type|application/json; charset=utf-8
Expires|-1|0
x-ms-ratelimit-remaining-subscription-reads|11999|11998
x-ms-ratelimit-remaining-subscription-global-reads|3749|3748
x-ms-request-id|5c3a1b8e-7f2d-4a0c-9d8e-000000000001|5c3a1b8e-7f2d-4a0c-9d8e-000000000002
x-ms-correlation-request-id|5c3a1b8e-7f2d-4a0c-9d8e-000000000001|5c3a1b8e-7f2d-4a0c-9d8e-000000000002
x-ms-routing-request-id|WESTEUROPE:20250106T100000Z:5c3a1b8e|WESTEUROPE:20250106T100003Z:6d3a1b8e
x-ms-operation-identifier|tenantId=1,objectId=2/westeurope/5c3a|tenantId=1,objectId=2/westeurope/6d3a
X-MSEdge-Ref|Ref A: 1 Ref B: AMS231020512021 Ref C: 2025-01-06T10:00:00Z|Ref A: 2 Ref B: AMS231020512021 Ref C: 2025-01-06T10:00:03Z
X-Cache|CONFIG_NOCACHE|TCP_HIT
x-ms-activity-id|00000000-0000-0000-0000-000000000003|00000000-0000-0000-0000-000000000004
x-ms-request-duration-ms|1.318|2.004
x-ms-request-charge|2.83
x-ms-session-token|0:-1#12
x-ms-continuation|+RID:~abc
Strict-Transport-Security|max-age=31536000; includeSubDomains
Date|Mon, 06 Jan 2025 10:00:00 GMT|Mon, 06 Jan 2025 10:00:03 GMT`,
		"google_cloud": `
X-GUploader-UploadID|ABg5-UxcEyzU5lPixHuyElJO|ADPycdtmn2NkzHCjlqVAEthS
Expires|Mon, 06 Jan 2025 11:00:00 GMT|Mon, 06 Jan 2025 11:00:05 GMT
Date|Mon, 06 Jan 2025 10:00:00 GMT|Mon, 06 Jan 2025 10:00:05 GMT
Age|2815|2820
Cache-Control|public, max-age=3600
x-goog-generation|1602862696015592
x-goog-metageneration|1
x-goog-stored-content-length|895744
x-goog-hash|crc32c=YtwUCg==
X-Cloud-Trace-Context|105445aa7843bc8bf206b120001000/1;o=1|205445aa7843bc8bf206b120001000/1;o=1
X-Goog-Correlation-Id|FGN7H2Vxp5I|GGN7H2Vxp5I
Server-Timing|gfet4t7; dur=123|gfet4t7; dur=98
Vary|Origin
Alt-Svc|h3=":443"; ma=2592000,h3-29=":443"; ma=2592000
Server|ESF
Content-Type|application/json; charset=UTF-8`,
		"openai": `
Date|Wed, 08 Oct 2025 16:08:59 GMT|Wed, 08 Oct 2025 16:09:01 GMT
Content-Type|application/json
access-control-expose-headers|X-Request-ID
openai-organization|acme
openai-processing-ms|26|41
openai-project|proj_1
openai-version|2020-10-01
x-envoy-upstream-service-time|187|203
x-openai-proxy-wasm|v0.1
x-ratelimit-limit-requests|5000|7
x-ratelimit-limit-tokens|2000000|7
x-ratelimit-remaining-requests|4999|4998
x-ratelimit-remaining-tokens|1999956|1999912
x-ratelimit-reset-requests|12ms|24ms
x-ratelimit-reset-tokens|1ms|2ms
x-request-id|req_4e1cf3c0de2a49838af9b7e8959d366d|req_5e1cf3c0de2a49838af9b7e8959d366d
CF-Cache-Status|DYNAMIC|MISS
Set-Cookie|__cf_bm=1; path=/; HttpOnly|__cf_bm=2; path=/; HttpOnly
CF-RAY|98b6c1d2ae1f3c5d-FRA|98b6c1deef203c5d-FRA
Server|cloudflare
alt-svc|h3=":443"; ma=86400`,
		"anthropic": `
Date|Mon, 06 Jan 2025 10:00:00 GMT|Mon, 06 Jan 2025 10:00:09 GMT
Content-Type|application/json
anthropic-ratelimit-requests-limit|1000|7
anthropic-ratelimit-requests-remaining|999|998
anthropic-ratelimit-requests-reset|2025-01-06T10:00:01Z|2025-01-06T10:00:10Z
anthropic-ratelimit-input-tokens-remaining|80000|79000
anthropic-ratelimit-unified-5h-reset|1736164800|7
anthropic-organization-id|org_1
request-id|req_018EeWyXxfu5pfWkrYcMdjWG|req_019EeWyXxfu5pfWkrYcMdjWG
via|1.1 google|1.1 google, 1.1 varnish
x-envoy-upstream-service-time|1187|903
X-Robots-Tag|none
CF-Cache-Status|DYNAMIC|MISS
CF-RAY|8fdb1c2a3b4c5d6e-AMS|8fdb1c9f3b4c5d6e-AMS
Server|cloudflare`,
		"stripe": `
Server|nginx
Date|Thu, 12 Mar 2026 15:43:19 GMT|Thu, 12 Mar 2026 15:43:27 GMT
Content-Type|application/json
Connection|keep-alive|close
Access-Control-Max-Age|300
Cache-Control|no-cache, no-store
Content-Security-Policy|default-src 'none'; report-uri https://q.stripe.com/csp-violation?q=XbpkE0Obtc
Request-Id|req_oO90bjpncihdQ5|req_QwaBsD8UhMEK4K
Reporting-Endpoints|coop="https://q.stripe.com/coop-report?s=payins-bapi-srv"|coop="https://q.stripe.com/coop-report?s=mono"
Stripe-Version|2022-11-15
Vary|Origin
X-Stripe-Priority-Routing-Enabled|true
X-Stripe-Routing-Context-Priority-Tier|api-testmode
X-Wc|ABGHIJ`,
		"slack": `
date|Fri, 31 May 2024 23:43:47 GMT|Fri, 31 May 2024 23:43:49 GMT
server|Apache
vary|Accept-Encoding
x-slack-req-id|SOOT8UH76NVEXFJ6W9X4E965MNA9KB7I|b3f60fde24ceb69efb54a7cfc5ee45df
x-slack-unique-id|Zlpgs49S2iDdn326GsSrpAAAABs|Y9J5KoBkKzTEvpb7iFXfygAAEAg
x-slack-backend|r
x-oauth-scopes|chat:write,channels:read
expires|Sat, 26 Jul 1997 05:00:00 GMT|0
cache-control|private, no-cache, no-store, must-revalidate
content-type|application/json; charset=utf-8
via|1.1 slack-prod.tinyspeck.com, envoy-www-iad-nvkphqdz, envoy-edge-canary-bom-hymqoqzd|1.1 slack-prod.tinyspeck.com, envoy-www-iad-zvarbqif,envoy-edge-pdx-xmeobdtx
x-envoy-attempt-count|1|2
x-envoy-upstream-service-time|168|235
x-backend|main_normal main_canary_with_overflow main_control_with_overflow|main_normal
x-server|slack-www-hhvm-main-iad-iysm|slack-www-hhvm-main-iad-kgmh
x-edge-backend|envoy-www
x-slack-shared-secret-outcome|no-match`,
		"discord": `
Date|Mon, 06 Jan 2025 10:00:00 GMT|Mon, 06 Jan 2025 10:00:01 GMT
Content-Type|application/json
Set-Cookie|__dcfduid=1; Path=/|__dcfduid=2; Path=/
x-ratelimit-bucket|80c17d2f203122d936070c88c8d10f33|80c17d2f203122d936070c88c8d10f330
x-ratelimit-limit|5|7
x-ratelimit-remaining|4|3
x-ratelimit-reset|1736157605.123|1736157605.456
x-ratelimit-reset-after|5.000|4.333
via|1.1 google|1.1 google, 1.1 varnish
CF-Cache-Status|DYNAMIC|MISS
Report-To|{"endpoints":[{"url":"https://a.nel.cloudflare.com/report/v4?s=abc"}]}|{"endpoints":[{"url":"https://a.nel.cloudflare.com/report/v4?s=def"}]}
NEL|{"success_fraction":0,"report_to":"cf-nel","max_age":604800}|{"success_fraction":0,"report_to":"cf-nel","max_age":604800}0
CF-RAY|8fdb1c2a3b4c5d6e-AMS|8fdb1c9f3b4c5d6e-AMS
Server|cloudflare`,
		"cloudflare": `
date|Fri, 31 Jul 2026 12:23:38 GMT|Fri, 31 Jul 2026 12:23:41 GMT
content-type|application/json
cf-ray|a23c92d51bc8a952-DTW|a23c92e71bc8a952-DTW
cf-auditlog-id|019fb821-013d-742a-adc7-a2926cd04f33|019fb821-113d-742a-adc7-a2926cd04f33
api-version|2026-09-26.epoch
ratelimit|"default";r=1199;t=1|"default";r=1198;t=1
ratelimit-policy|"default";q=1200;w=300|"default";q=1200;w=3000
set-cookie|__cf_bm=1; HttpOnly|__cf_bm=2; HttpOnly
cf-cache-status|DYNAMIC|MISS
vary|accept-encoding
server|cloudflare`,
		"docker_hub": `
content-type|application/vnd.oci.image.index.v1+json
docker-content-digest|sha256:e6bdf1b4
docker-distribution-api-version|registry/2.0
etag|"sha256:e6bdf1b4"
date|Mon, 06 Jan 2025 10:00:00 GMT|Mon, 06 Jan 2025 10:00:01 GMT
strict-transport-security|max-age=31536000
ratelimit-limit|100;w=21600|100;w=216000
ratelimit-remaining|99;w=21600|98;w=21600
docker-ratelimit-source|192.0.2.7`,
		"registry": `
Content-Type|application/vnd.oci.image.manifest.v1+json
Docker-Content-Digest|sha256:e6bdf1b4
Docker-Distribution-Api-Version|registry/2.0
Etag|"sha256:e6bdf1b4"
X-GitHub-Request-Id|D1A2:3E4F:1|D1A2:3E4F:2
X-Request-Id|6c1c|7d2d
X-Served-By|cache-fra-eddf8230123-FRA|cache-fra-eddf8230045-FRA
X-Cache-Hits|0|1
X-Timer|S1736157600.1,VS0,VE12|S1736157601.2,VS0,VE9
Date|Mon, 06 Jan 2025 10:00:00 GMT|Mon, 06 Jan 2025 10:00:01 GMT`,
	} {
		first, second := http.Header{}, http.Header{}
		for line := range strings.Lines(strings.TrimSpace(lines)) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), "|")
			value, other, differs := strings.Cut(rest, "|")
			first.Set(name, value)
			second.Set(name, value)
			if differs {
				second.Set(name, other)
			}
		}
		response := func(h http.Header) *http.Response {
			return &http.Response{StatusCode: 200, Header: h, ContentLength: -1}
		}
		assert.Equal(t, headHash(response(first)), headHash(response(second)), provider)
		for name := range first {
			if first.Get(name) == second.Get(name) {
				changed := maps.Clone(second)
				changed[name] = []string{"another"}
				assert.NotEqual(t, headHash(response(first)), headHash(response(changed)), "%s: %s", provider, name)
			}
		}
	}
}

// BenchmarkHeaderHash measures what each field costs, beyond what a response with one field costs.
func BenchmarkHeaderHash(b *testing.B) {
	header := http.Header{}
	for _, name := range strings.Fields("Access-Control-Allow-Origin Cache-Control Content-Length Content-Security-Policy Content-Type " +
		"Date Etag Link Referrer-Policy Server Strict-Transport-Security Vary X-Content-Type-Options X-Frame-Options X-Github-Media-Type " +
		"X-Github-Request-Id X-Oauth-Scopes X-Ratelimit-Limit X-Ratelimit-Remaining X-Ratelimit-Reset") {
		header[name] = []string{"a value of " + name}
	}
	one, all := &http.Response{Header: http.Header{"Etag": header["Etag"]}}, &http.Response{Header: header}
	var spent [2]time.Duration
	for b.Loop() {
		for i, resp := range []*http.Response{one, all} {
			start := testkit.CPU()
			for range 1000 {
				headHash(resp)
			}
			spent[i] += testkit.CPU() - start
		}
	}
	b.ReportMetric(float64(spent[1]-spent[0])/1000/float64(b.N)/float64(len(header)-1), "cpu-ns/field")
}

func TestParseContentRange(t *testing.T) {
	for s, want := range map[string]byteRange{
		"bytes 0-0/1":            {0, 0, 1},
		"bytes 400-999/1000":     {400, 999, 1000},
		"BYTES 400-999/1000":     {400, 999, 1000},
		"bytes 400-999/*":        {400, 999, unknown},
		"bytes 007-010/0000011":  {7, 10, 11},
		"bytes 1-2/" + maxOffset: {1, 2, unknown - 1},
	} {
		got, ok := parseContentRange(s)
		assert.True(t, ok, s)
		assert.Equal(t, want, got, s)
	}
	for _, s := range []string{
		"", "bytes", "bytes ", "bytes */1000", "bytes */*", "bytes 0-999", "bytes 0-999/", "bytes -999/1000",
		"bytes 0-/1000", "bytes=0-999/1000", "bytes: 0-999/1000", "bytes  0-999/1000", " bytes 0-999/1000",
		"bytes 0-999/1000 ", "bytes 0 - 999/1000", "bytes 0-999/1000, bytes 0-999/1000", "bytes +0-999/1000",
		"bytes 0-+999/1000", "bytes 0x0-999/1000", "bytes 0-999/999", "bytes 0-1000/1000", "bytes 5-4/1000",
		"bytes -1-4/1000", "bytes 0-9_9/1000", "bytes 0-1/99999999999999999999", "bytes 0-1/9223372036854775807",
		"bytes 0-9223372036854775807/*", "items 0-999/1000", "bytes 0.0-1/2", "bytes ٠-1/2",
	} {
		_, ok := parseContentRange(s)
		assert.False(t, ok, s)
	}
}

const maxOffset = "9223372036854775806"

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 400-999/1000")
	f.Add("bytes 400-999/*")
	f.Add("bytes */1000")
	f.Add("bytes 0-9223372036854775806/9223372036854775807")
	f.Fuzz(func(t *testing.T, s string) {
		r, ok := parseContentRange(s)
		if !ok {
			return
		}
		assert.True(t, 0 <= r.first && r.first <= r.last && r.last < r.total, "%+v", r)
		assert.Positive(t, r.length())
		total := "*"
		if r.total != unknown {
			total = strconv.FormatInt(r.total, 10)
		}
		again, ok := parseContentRange(fmt.Sprintf("bytes %d-%d/%s", r.first, r.last, total))
		assert.True(t, ok)
		assert.Equal(t, r, again)
		for _, c := range strings.ToLower(s) {
			assert.Contains(t, "0123456789bytes -/*", string(c))
		}
	})
}

func TestStrongValidator(t *testing.T) {
	const (
		old   = "Mon, 06 Jan 2025 10:00:00 GMT"
		fresh = "Mon, 06 Jan 2025 10:00:59 GMT"
		late  = "Mon, 06 Jan 2025 10:01:00 GMT"
	)
	for _, row := range []struct {
		name   string
		header http.Header
		want   string
	}{
		{"strong tag", http.Header{"Etag": {`"v1!~"`}}, `"v1!~"`},
		{"strong tag, any date", http.Header{"Etag": {`"v1"`}, "Last-Modified": {old}}, `"v1"`},
		{"no validator", http.Header{}, ""},
		{"weak tag", http.Header{"Etag": {`W/"v1"`}}, ""},
		{"weak tag, strong date", http.Header{"Etag": {`W/"v1"`}, "Last-Modified": {old}, "Date": {late}}, ""},
		{"empty tag", http.Header{"Etag": {`""`}}, ""},
		{"bare tag", http.Header{"Etag": {`v1`}}, ""},
		{"half a tag", http.Header{"Etag": {`"v1`}}, ""},
		{"a single quote as tag", http.Header{"Etag": {`"`}}, ""},
		{"two tags in one", http.Header{"Etag": {`"v1", "v2"`}}, ""},
		{"two tags", http.Header{"Etag": {`"v1"`, `"v1"`}}, ""},
		{"a space in the tag", http.Header{"Etag": {`"v 1"`}}, ""},
		{"control character", http.Header{"Etag": {"\"v\x7f1\""}}, ""},
		{"strong date", http.Header{"Last-Modified": {old}, "Date": {late}}, old},
		{"RFC 850 date", http.Header{"Last-Modified": {"Monday, 06-Jan-25 10:00:00 GMT"}, "Date": {late}}, "Monday, 06-Jan-25 10:00:00 GMT"},
		{"young date", http.Header{"Last-Modified": {old}, "Date": {fresh}}, ""},
		{"date from the future", http.Header{"Last-Modified": {late}, "Date": {old}}, ""},
		{"no Date", http.Header{"Last-Modified": {old}}, ""},
		{"no date", http.Header{"Last-Modified": {"yesterday"}, "Date": {late}}, ""},
		{"two dates", http.Header{"Last-Modified": {old, old}, "Date": {late}}, ""},
	} {
		resp := &http.Response{StatusCode: 200, ContentLength: 10, Header: row.header}
		plan, err := Check(&http.Request{}, resp, new(Terms))
		if row.want == "" {
			assert.Equal(t, ErrNoValidator, err, row.name)
			continue
		}
		assert.NoError(t, err, row.name)
		assert.Equal(t, row.want, plan.validator, row.name)
		assert.True(t, fields(row.header).has(row.want), row.name)
		assert.False(t, fields(nil).has(row.want), row.name)
		assert.False(t, fields{"Etag": {`"v2"`}, "Last-Modified": {old}}.has(row.want), "%s: another tag", row.name)
	}
}

// deliver tells the body of bytes that a Read delivered with err.
func (b *Body) deliver(p []byte, err error) {
	b.pos += int64(len(p))
	if b.keeps = b.keeps && !b.isWhole(); b.keeps {
		b.keep(p, err)
	}
}

// delivered returns a body that has delivered data in Reads of so many bytes.
func delivered(data []byte, read int, again int32) *Body {
	b := &Body{Plan: Plan{end: unknown, total: unknown, stop: unknown, left: again, keeps: true}}
	for len(data) > 0 {
		n := min(len(data), read)
		b.deliver(data[:n], nil)
		data = data[n:]
	}
	return b
}

// A prefix above the limit is of no use from then on.
func TestPrefixThatIsTooLong(t *testing.T) {
	b := delivered(make([]byte, 1000), 600, 1000)
	assert.True(t, b.unmatched() == nil)
	b.deliver(make([]byte, 1), nil)
	assert.False(t, b.unmatched() == nil)
	b.deliver(make([]byte, 1), nil)
	assert.False(t, b.unmatched() == nil)
	b = delivered(make([]byte, 1001), 1001, 1000)
	assert.Zero(t, b.prefix, "it is not kept")
	assert.False(t, b.unmatched() == nil)
}

// What nothing can follow, and what nobody compares, is not kept.
func TestPrefixIsKeptForWhatIsToCome(t *testing.T) {
	part := bytes.Repeat([]byte("x"), 1000)
	assert.NotZero(t, delivered(part, 1000, 1<<20).prefix)
	for name, b := range map[string]*Body{
		"the promised end":  {Plan: Plan{end: 1000, total: 1000, stop: 1000, left: 1 << 20, keeps: true, validator: `"v1"`}},
		"the announced end": {Plan: Plan{end: unknown, total: 1000, stop: unknown, left: 1 << 20, keeps: true}},
		"nobody compares":   {Plan: Plan{end: unknown, total: unknown, stop: unknown, left: 1 << 20}},
	} {
		b.deliver(part, nil)
		assert.Zero(t, b.prefix, name)
		assert.Error(t, b.unmatched(), name)
	}
	ended := &Body{Plan: Plan{end: unknown, total: unknown, stop: unknown, left: 1 << 20, keeps: true}}
	ended.deliver(part, io.EOF)
	assert.Zero(t, ended.prefix)
}

// match reads just the prefix, and finds each difference, whatever the Reads were that brought the prefix.
func TestPrefixMatch(t *testing.T) {
	data := make([]byte, 100_000)
	for i := range data {
		data[i] = byte(i*7 ^ i>>8)
	}
	for _, read := range []int{1, 511, 5000, 32 << 10, len(data)} {
		for _, size := range []int{1, 511, 40_000, 99_999} {
			b := delivered(data[:size], read, 1<<20)
			match := func(r io.Reader) error {
				err := b.match(r)
				b.left = 1 << 20
				return err
			}
			r := bytes.NewReader(data)
			assert.NoError(t, b.match(r))
			assert.EqualValues(t, 1<<20-size, b.left)
			assert.Equal(t, len(data)-size, r.Len(), "the rest is for the reader")
			for _, at := range []int{0, size / 2, size - 1} {
				other := bytes.Clone(data)
				other[at]++
				assert.Equal(t, errDiffers, match(iotest.HalfReader(bytes.NewReader(other))), "size %d, at %d, Reads of %d", size, at, read)
				assert.Equal(t, errDiffers, match(bytes.NewReader(data[:at])), "a shorter body")
				assert.Equal(t, io.ErrUnexpectedEOF, match(io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(io.ErrUnexpectedEOF))), "it is cut as well")
			}
			assert.NoError(t, match(iotest.DataErrReader(bytes.NewReader(data[:size]))), "the end comes with the last byte")
			other := bytes.NewReader(bytes.Repeat([]byte("x"), len(data)))
			assert.Equal(t, errDiffers, match(other))
			assert.Equal(t, min(size, minCompared), len(data)-other.Len(), "the difference shows early")
		}
	}
}
