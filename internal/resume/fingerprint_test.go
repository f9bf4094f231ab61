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

// Fields that tell of the contents, and fields in which two responses to the same GET may differ: those of the profiles' providers,
// which are GitHub, AWS, Azure, Google, OpenAI, Anthropic, Stripe, Slack, Discord, Cloudflare and registries, and some more.
const (
	tell = "Server Content-Type Cache-Control Vary ETag Last-Modified X-OAuth-Scopes X-Accepted-OAuth-Scopes " +
		"Github-Authentication-Token-Expiration X-GitHub-Media-Type X-GitHub-Api-Version-Selected Link " +
		"Strict-Transport-Security Content-Security-Policy x-amz-crc32 x-amz-version-id x-amz-server-side-encryption " +
		"x-amz-bucket-region Pragma x-ms-request-charge x-ms-session-token x-ms-continuation x-goog-generation " +
		"x-goog-metageneration x-goog-stored-content-length x-goog-hash Alt-Svc access-control-expose-headers " +
		"openai-organization openai-project openai-version x-openai-proxy-wasm anthropic-organization-id X-Robots-Tag " +
		"Access-Control-Max-Age Stripe-Version X-Stripe-Priority-Routing-Enabled " +
		"X-Stripe-Routing-Context-Priority-Tier X-Wc x-slack-backend x-edge-backend x-slack-shared-secret-outcome " +
		"api-version docker-content-digest docker-distribution-api-version docker-ratelimit-source " +
		"Content-Encoding Content-Range Repr-Digest Digest Content-Md5 X-Amz-Checksum-Sha256 X-Next-Cursor X-Total-Count X-Rates"
	differ = "Date X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset X-RateLimit-Used X-RateLimit-Resource " +
		"X-GitHub-Request-Id x-amzn-RequestId x-amz-request-id x-amz-id-2 X-Amzn-Trace-Id x-amz-apigw-id X-Amz-Cf-Id " +
		"X-Amz-Cf-Pop X-Cache Via Expires x-ms-ratelimit-remaining-subscription-reads " +
		"x-ms-ratelimit-remaining-subscription-global-reads x-ms-request-id x-ms-correlation-request-id " +
		"x-ms-routing-request-id x-ms-operation-identifier X-MSEdge-Ref x-ms-activity-id x-ms-request-duration-ms " +
		"X-GUploader-UploadID Age X-Cloud-Trace-Context X-Goog-Correlation-Id Server-Timing openai-processing-ms " +
		"x-envoy-upstream-service-time x-ratelimit-limit-requests x-ratelimit-limit-tokens " +
		"x-ratelimit-remaining-requests x-ratelimit-remaining-tokens x-ratelimit-reset-requests " +
		"x-ratelimit-reset-tokens x-request-id CF-Cache-Status Set-Cookie CF-RAY anthropic-ratelimit-requests-limit " +
		"anthropic-ratelimit-requests-remaining anthropic-ratelimit-requests-reset " +
		"anthropic-ratelimit-input-tokens-remaining anthropic-ratelimit-unified-5h-reset request-id Connection " +
		"Reporting-Endpoints x-slack-req-id x-slack-unique-id x-envoy-attempt-count x-backend x-server " +
		"x-ratelimit-bucket x-ratelimit-reset-after Report-To NEL cf-auditlog-id ratelimit ratelimit-policy " +
		"ratelimit-limit ratelimit-remaining X-Served-By X-Cache-Hits X-Timer"
)

// A second response has to agree in all that the caller has seen of the first.
func TestHeadersAgree(t *testing.T) {
	mayDiffer := http.Header{}
	for name := range strings.FieldsSeq(differ) {
		mayDiffer.Set(name, name)
	}
	first := func() *http.Response {
		h := maps.Clone(mayDiffer)
		for name := range strings.FieldsSeq(tell) {
			h.Set(name, http.CanonicalHeaderKey(name))
		}
		h[""] = []string{"x"}
		return &http.Response{StatusCode: 200, ContentLength: 100, Header: h}
	}
	head := headHash(first())
	assert.Equal(t, head, headHash(first()))
	for name, values := range first().Header {
		for change, values := range map[string][]string{"another": {"y"}, "absent": nil, "two": {values[0], "y"}} {
			second := first()
			if values == nil {
				delete(second.Header, name)
			} else {
				second.Header[name] = values
			}
			assert.Equal(t, mayDiffer[name] != nil, head == headHash(second), "%s: %s", name, change)
		}
	}
	for name, change := range map[string]func(*http.Response){
		"status":       func(r *http.Response) { r.StatusCode = 203 },
		"length":       func(r *http.Response) { r.ContentLength = 101 },
		"no length":    func(r *http.Response) { r.ContentLength = -1 },
		"decompressed": func(r *http.Response) { r.Uncompressed = true },
		"swapped": func(r *http.Response) {
			r.Header["Digest"], r.Header["Content-Md5"] = []string{"Content-Md5"}, []string{"Digest"}
		},
		"a new field": func(r *http.Response) { r.Header["X-New"] = []string{""} },
		"one for two": func(r *http.Response) { r.Header["Link"] = []string{"Link", ""} },
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
