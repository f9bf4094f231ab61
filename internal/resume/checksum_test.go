package resume

import (
	"encoding/base64"
	"encoding/hex"
	"hash/crc64"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The check values are those of the catalogue of parametrised CRC algorithms.
func TestChecksums(t *testing.T) {
	for name, want := range map[string]string{"crc32c": "e3069283", "crc32": "cbf43926", "crc64nvme": "ae8b14860a799888"} {
		h := newHash(name)
		for _, part := range []string{"1", "2345678", "9"} {
			_, _ = h.Write([]byte(part))
		}
		assert.Equal(t, want, hex.EncodeToString(h.Sum(nil)), name)
		assert.Equal(t, len(want)/2, h.Size())
		h.Reset()
		_, _ = h.Write([]byte("123456789"))
		assert.Equal(t, want, hex.EncodeToString(h.Sum(nil)), name)
	}
	table := crc64.MakeTable(nvmePolynomial)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := make([]byte, r.IntN(100))
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		h := newHash("crc64nvme").(*crc64nvme)
		at := r.IntN(len(p) + 1)
		_, _ = h.Write(p[:at])
		_, _ = h.Write(p[at:])
		assert.Equal(t, crc64.Checksum(p, table), h.sum)
	}
}

func TestStoreDigest(t *testing.T) {
	text := func(name string) string {
		h := newHash(name)
		_, _ = h.Write([]byte("text"))
		return base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	crc32c, crc32, nvme := text("crc32c"), text("crc32"), text("crc64nvme")
	for name, tt := range map[string]struct {
		want   string // "": none
		header http.Header
	}{
		"Google":                     {"crc32c", http.Header{"X-Goog-Hash": {"crc32c=" + crc32c + ",md5=AAAA"}}},
		"Google, two lines":          {"crc32c", http.Header{"X-Goog-Hash": {"md5=AAAA", "crc32c=" + crc32c}}},
		"Google, spaces":             {"crc32c", http.Header{"X-Goog-Hash": {"md5=AAAA, crc32c=" + crc32c}}},
		"Google, two of them":        {"", http.Header{"X-Goog-Hash": {"crc32c=" + crc32c + ",crc32c=" + crc32c}}},
		"Google, only MD5":           {"", http.Header{"X-Goog-Hash": {"md5=AAAA"}}},
		"Google, odd":                {"", http.Header{"X-Goog-Hash": {"crc32c=AAAA"}}},
		"Google, stored as it is":    {"crc32c", http.Header{"X-Goog-Hash": {"crc32c=" + crc32c}, "X-Goog-Stored-Content-Encoding": {"identity"}}},
		"Google, gzip":               {"crc32c", http.Header{"X-Goog-Hash": {"crc32c=" + crc32c}, "X-Goog-Stored-Content-Encoding": {"gzip"}, "Content-Encoding": {"gzip"}}},
		"Google, decompressed":       {"", http.Header{"X-Goog-Hash": {"crc32c=" + crc32c}, "X-Goog-Stored-Content-Encoding": {"gzip"}}},
		"Google, compressed":         {"", http.Header{"X-Goog-Hash": {"crc32c=" + crc32c}, "X-Goog-Stored-Content-Encoding": {"identity"}, "Content-Encoding": {"gzip"}}},
		"S3, CRC32C":                 {"crc32c", http.Header{"X-Amz-Checksum-Crc32c": {crc32c}}},
		"S3, CRC32":                  {"crc32", http.Header{"X-Amz-Checksum-Crc32": {crc32}}},
		"S3, CRC64NVME":              {"crc64nvme", http.Header{"X-Amz-Checksum-Crc64nvme": {nvme}, "X-Amz-Checksum-Type": {"FULL_OBJECT"}}},
		"S3, composite":              {"", http.Header{"X-Amz-Checksum-Crc32c": {crc32c + "-3"}, "X-Amz-Checksum-Type": {"COMPOSITE"}}},
		"S3, composite without type": {"", http.Header{"X-Amz-Checksum-Crc32c": {crc32c + "-3"}}},
		"S3, composite by type":      {"", http.Header{"X-Amz-Checksum-Crc32c": {crc32c}, "X-Amz-Checksum-Type": {"COMPOSITE"}}},
		"S3, a part that is odd":     {"crc32", http.Header{"X-Amz-Checksum-Crc32c": {"AAAA"}, "X-Amz-Checksum-Crc32": {crc32}}},
		"S3, two of them":            {"", http.Header{"X-Amz-Checksum-Crc32c": {crc32c, crc32c}}},
		"S3, SHA-1":                  {"", http.Header{"X-Amz-Checksum-Sha1": {"AAAA"}}},
		"weak ETag":                  {"", http.Header{"X-Amz-Checksum-Crc32c": {crc32c}, "Etag": {`W/"a"`}}},
		"none":                       {"", http.Header{}},
	} {
		d := storeDigest(tt.header)
		assert.Equal(t, tt.want, d.name, name)
		if s := newSum(d); s != nil {
			s.add([]byte("text"))
			assert.Nil(t, s.check(), name)
			s.add([]byte("more"))
			assert.NotNil(t, s.check(), name)
		} else {
			assert.Empty(t, tt.want, name)
		}
	}
}

func FuzzStoreDigest(f *testing.F) {
	f.Add("crc32c=n03x6A==,md5=AAAA", "n03x6A==", "FULL_OBJECT")
	f.Add("crc32c=", "n03x6A==-3", "")
	f.Fuzz(func(t *testing.T, google, amazon, kind string) {
		d := storeDigest(http.Header{"X-Goog-Hash": {google}, "X-Amz-Checksum-Crc32c": {amazon}, "X-Amz-Checksum-Type": {kind}})
		assert.Equal(t, d.name != "", d.size > 0)
		newSum(d).add([]byte("text"))
	})
}

// BenchmarkDigest is the cost of each hash that may run over a body.
func BenchmarkDigest(b *testing.B) {
	data := make([]byte, 64<<10)
	for _, name := range []string{"crc32c", "crc32", "crc64nvme", "sha-256", "sha-512"} {
		b.Run(name, func(b *testing.B) {
			s := newSum(digest{name: name})
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				s.add(data)
			}
		})
	}
	b.Run("prefix", func(b *testing.B) {
		b.SetBytes(1 << 20)
		for b.Loop() {
			body := &Body{end: unknown, total: unknown, stop: unknown, left: 1 << 20, keeps: true}
			for range (1 << 20) / len(data) {
				body.take(data, nil)
			}
		}
	})
}
