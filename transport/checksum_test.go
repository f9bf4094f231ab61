package transport

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
)

func crc32cOf(text string) string {
	sum := crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// A body that is continued is checked against the checksum of the object store, if the
// rule says so.
func TestChecksumsOfObjectStores(t *testing.T) {
	const google, amazon = "X-Goog-Hash: crc32c=", "X-Amz-Checksum-Crc32c: "
	const etag = `ETag: "v1"`
	for name, tt := range map[string]struct {
		rule   policy.Rule
		first  []string
		header string // of the request
		code   int
		again  bool // there is no validator
		bad    bool
	}{
		"Google, right":                {rule: profile.GoogleCloud(), first: []string{etag, google + crc32cOf("right!")}},
		"Google, wrong":                {rule: profile.GoogleCloud(), first: []string{etag, google + crc32cOf("wrong!")}, bad: true},
		"Google, wrong, decompressed":  {rule: profile.GoogleCloud(), first: []string{etag, google + crc32cOf("wrong!"), "X-Goog-Stored-Content-Encoding: gzip"}},
		"Google, wrong, fetched again": {rule: profile.GoogleCloud(), first: []string{google + crc32cOf("wrong!")}, again: true, bad: true},
		"Google, right, fetched again": {rule: profile.GoogleCloud(), first: []string{google + crc32cOf("right!")}, again: true},
		"AWS, right":                   {rule: profile.AWS(), first: []string{etag, amazon + crc32cOf("right!")}},
		"AWS, wrong":                   {rule: profile.AWS(), first: []string{etag, amazon + crc32cOf("wrong!"), "X-Amz-Checksum-Type: FULL_OBJECT"}, bad: true},
		"AWS, composite":               {rule: profile.AWS(), first: []string{etag, amazon + crc32cOf("wrong!"), "X-Amz-Checksum-Type: COMPOSITE"}},
		"AWS, a range was asked":       {rule: profile.AWS(), first: []string{etag, amazon + crc32cOf("wrong!"), "Content-Range: bytes 0-5/6"}, header: "bytes=0-5", code: 206},
		"another rule":                 {rule: policy.Rule{}, first: []string{etag, amazon + crc32cOf("wrong!"), google + crc32cOf("wrong!")}},
		"off":                          {rule: policy.Rule{Resume: policy.Resume{Checksums: policy.Off}}.Or(profile.AWS()), first: []string{etag, amazon + crc32cOf("wrong!")}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				code := max(tt.code, 200)
				first := func(req *http.Request) (*http.Response, error) {
					return newResponse(req, code, cutAt("rig", io.ErrUnexpectedEOF), tt.first...), nil
				}
				second := func(req *http.Request) (*http.Response, error) {
					if tt.again {
						return newResponse(req, code, io.NopCloser(strings.NewReader("right!")), tt.first...), nil
					}
					// S3 may send the checksum of a part with a range.
					return newResponse(req, 206, io.NopCloser(strings.NewReader("ht!")), etag, "Content-Range: bytes 3-5/6", amazon+crc32cOf("ht!")), nil
				}
				tt.rule.Download.Memory = policy.Off
				req := newRequest(t, http.MethodGet, "http://example.test/", nil)
				if tt.header != "" {
					req.Header.Set("Range", tt.header)
				}
				resp, err := over(t, Config{Rule: tt.rule}, script(first, second)).RoundTrip(req)
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				assert.Equal(t, "right!", string(got))
				if !tt.bad {
					require.NoError(t, err)
					return
				}
				var e *IntegrityError
				require.ErrorAs(t, err, &e)
				assert.Equal(t, "crc32c", e.Field)
			})
		})
	}
}
