package resume

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
		got, ok := parseContentRange(s)
		assert.False(t, ok, s)
		assert.Zero(t, got, s)
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
			assert.Zero(t, r)
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
		{"strong tag", http.Header{"Etag": {`"v1"`}}, `"v1"`},
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
		{"control character", http.Header{"Etag": {"\"v\t1\""}}, ""},
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
