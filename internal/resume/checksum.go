// Checksums of the whole object that object stores announce in fields of their own.
//
// They are read only if the rule says so, because another server may give these fields
// another meaning. MD5 is left out, because it would slow down a download.

package resume

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"hash/crc32"
	"net/http"
	"strings"
	"sync"
)

// storeDigest returns the checksum of a response that carries a whole object. It is
// empty if the checksum is not one of the bytes that come:
//
//   - The store has decompressed the object on the way, so that its Content-Encoding is
//     not the stored one.
//   - Something on the way has changed the bytes, and the ETag is weak for that reason.
//   - The checksum is made of the checksums of parts.
func storeDigest(h http.Header) digest {
	if etag := h["Etag"]; len(etag) > 0 && strings.HasPrefix(etag[0], "W/") {
		return digest{}
	}
	if d := googleDigest(h); d.name != "" {
		return d
	}
	if kind := h["X-Amz-Checksum-Type"]; len(kind) > 0 && kind[0] != "FULL_OBJECT" {
		return digest{}
	}
	for _, c := range [...]struct{ field, name string }{
		{"X-Amz-Checksum-Crc32c", "crc32c"}, {"X-Amz-Checksum-Crc32", "crc32"}, {"X-Amz-Checksum-Crc64nvme", "crc64nvme"},
	} {
		if values := h[c.field]; len(values) == 1 {
			if d := checksumOf(c.name, values[0]); d.name != "" {
				return d
			}
		}
	}
	return digest{}
}

// googleDigest returns the CRC32C of X-Goog-Hash, which is a list such as
// "crc32c=n03x6A==,md5=…", in one line or in several.
func googleDigest(h http.Header) (d digest) {
	lines := h["X-Goog-Hash"]
	if len(lines) == 0 || coded(h["Content-Encoding"]) != coded(h["X-Goog-Stored-Content-Encoding"]) {
		return digest{}
	}
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			if text, ok := strings.CutPrefix(strings.Trim(item, " \t"), "crc32c="); ok {
				if d.name != "" {
					return digest{} // two are none
				}
				d = checksumOf("crc32c", text)
			}
		}
	}
	return d
}

// coded returns a Content-Encoding in a form that can be compared.
func coded(values []string) string {
	coding := strings.ToLower(strings.Join(values, ","))
	if coding == "identity" {
		return ""
	}
	return coding
}

// checksumOf decodes a checksum. A checksum of checksums ends with a dash and the number
// of parts, which is no base64.
func checksumOf(name, text string) digest {
	value, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(value) != newHash(name).Size() {
		return digest{}
	}
	d := digest{name: name, size: len(value)}
	copy(d.want[:], value)
	return d
}

// newHash returns the hash of a digest or a checksum.
func newHash(name string) hash.Hash {
	switch name {
	case "sha-256":
		return sha256.New()
	case "sha-512":
		return sha512.New()
	case "crc32c":
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case "crc32":
		return crc32.NewIEEE()
	}
	return &crc64nvme{tables: nvmeTables()}
}

// isChecksum reports whether a digest comes from a field of an object store.
func (d *digest) isChecksum() bool { return strings.HasPrefix(d.name, "crc") }

// A crc64nvme computes the CRC-64 of the NVM Express specification. Package hash/crc64
// would make the tables of its polynomial anew in each Write.
type crc64nvme struct {
	tables *[8][256]uint64
	sum    uint64
}

const nvmePolynomial = 0x9a6c9329ac4bc9b5 // reversed

// nvmeTables makes the tables for eight bytes at a time, once.
var nvmeTables = sync.OnceValue(func() *[8][256]uint64 {
	t := new([8][256]uint64)
	for i := range uint64(256) {
		sum := i
		for range 8 {
			sum = sum>>1 ^ nvmePolynomial&-(sum&1)
		}
		t[0][i] = sum
	}
	for i := range 256 {
		for k := 1; k < 8; k++ {
			before := t[k-1][i]
			t[k][i] = t[0][before&0xff] ^ before>>8
		}
	}
	return t
})

func (c *crc64nvme) Write(p []byte) (int, error) {
	n, t, sum := len(p), c.tables, ^c.sum
	for ; len(p) >= 8; p = p[8:] {
		sum ^= binary.LittleEndian.Uint64(p)
		sum = t[7][sum&0xff] ^ t[6][sum>>8&0xff] ^ t[5][sum>>16&0xff] ^ t[4][sum>>24&0xff] ^
			t[3][sum>>32&0xff] ^ t[2][sum>>40&0xff] ^ t[1][sum>>48&0xff] ^ t[0][sum>>56]
	}
	for _, b := range p {
		sum = t[0][byte(sum)^b] ^ sum>>8
	}
	c.sum = ^sum
	return n, nil
}

func (c *crc64nvme) Sum(b []byte) []byte { return binary.BigEndian.AppendUint64(b, c.sum) }
func (c *crc64nvme) Reset()              { c.sum = 0 }
func (c *crc64nvme) Size() int           { return 8 }
func (c *crc64nvme) BlockSize() int      { return 1 }
