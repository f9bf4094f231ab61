package transport_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
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
		inBubble(t, name, func(t *testing.T) {
			code := max(tt.code, 200)
			first := func(req *http.Request) (*http.Response, error) {
				return newResponse(req, code, testkit.CutAt("rig", io.ErrUnexpectedEOF), tt.first...), nil
			}
			second := func(req *http.Request) (*http.Response, error) {
				if tt.again {
					return newResponse(req, code, io.NopCloser(strings.NewReader("right!")), tt.first...), nil
				}
				// S3 may send the checksum of a part with a range.
				return newResponse(req, 206, io.NopCloser(strings.NewReader("ht!")), etag, "Content-Range: bytes 3-5/6", amazon+crc32cOf("ht!")), nil
			}
			req := newRequest(t, http.MethodGet, "http://example.test/", nil)
			if tt.header != "" {
				req.Header.Set("Range", tt.header)
			}
			resp, err := over(t, transport.Config{Rule: tt.rule}, script(first, second)).RoundTrip(req)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, "right!", string(got))
			if !tt.bad {
				require.NoError(t, err)
				return
			}
			e := errorAs[*transport.IntegrityError](t, err)
			assert.Equal(t, "crc32c", e.Field)
		})
	}
}

// A base transport may have a body in memory that nothing can cut.
func TestDigestOfABodyInMemory(t *testing.T) {
	for text, bad := range map[string]bool{"right!": false, "wrong!": true} {
		base := rt(func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 200, io.NopCloser(strings.NewReader("right!")), "Repr-Digest: "+field256(text)), nil
		})
		resp, err := get(t, mustNew(t, transport.Config{Base: base}), t.Context())
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		assert.Equal(t, bad, errors.As(err, new(*transport.IntegrityError)))
	}
}

// The checksum of an object store and a Repr-Digest in the response to a PUT are those of the
// object, and not of the response's body, as in MinIO's response to CopyObject.
func TestChecksumOfAnotherThing(t *testing.T) {
	for _, header := range []string{"X-Amz-Checksum-Crc32c: " + crc32cOf("object"), "Repr-Digest: " + field256("object"), "Trailer: Repr-Digest"} {
		for _, repeatable := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s/repeatable=%v", header, repeatable), func(t *testing.T) {
				base := script(func(req *http.Request) (*http.Response, error) {
					resp := newResponse(req, 200, io.NopCloser(struct{ io.Reader }{strings.NewReader("<CopyObjectResult/>")}), header)
					if strings.HasPrefix(header, "Trailer") {
						resp.Trailer = http.Header{"Repr-Digest": {field256("object")}}
					}
					return resp, nil
				})
				req := newRequest(t, http.MethodPut, "http://example.test/", nil)
				if repeatable {
					req = req.WithContext(transport.Repeatable(req.Context()))
				}
				got := do(over(t, transport.Config{Rule: profile.AWS()}, base), req)
				require.NoError(t, got.err)
				assert.Equal(t, "<CopyObjectResult/>", got.body)
				assert.Equal(t, 1, base.attempts())
			})
		}
	}
}
