// What a body keeps of the bytes that it has delivered, to find them again in a second
// response.

package resume

import (
	"hash/maphash"
	"io"
	"math/bits"
	"net/http"

	"github.com/aplomb-go/aplomb/internal/counted"
)

const (
	// firstMark is the first offset at which the digests are compared on the way. The
	// following offsets double, so that a difference shows early.
	firstMark = 512
	marks     = 11 // up to 512 KiB

	// tooLong is the size of a prefix that may not be fetched a second time.
	tooLong = unknown

	// matchBuffer bounds the memory for comparing.
	matchBuffer = 32 << 10
)

// A Prefix is a keyed digest of the bytes that a body has delivered, and of the headers
// of its response. The two hashes have random seeds of their own, and are 128 bits
// together. So a server cannot make two bodies with the same digest.
type Prefix struct {
	size     int64 // of the delivered bytes, or tooLong
	hash     [2]maphash.Hash
	marks    [marks]uint16 // of its beginnings; the hashes decide in the end
	head     uint32        // of the parts of a response that have to be the same
	tag      uint32        // of the ETag; 0: none
	modified uint32        // of the Last-Modified; 0: none
}

// sameFields are the header fields in which a second response has to agree. Its ETag
// and its Last-Modified have to agree as well if the first response had them.
var sameFields = [...]string{"Content-Type", "Content-Encoding", "Content-Range", "Repr-Digest", "Content-Digest", "Digest", "Content-Md5"}

// begin notes the header of the first response.
func (p *Prefix) begin(resp *http.Response) {
	p.head, p.tag, p.modified = p.print(resp)
}

// agrees reports whether the header of a second response fits that of the first. The
// caller has the first header, so that of the second must say the same.
func (p *Prefix) agrees(resp *http.Response) bool {
	head, tag, modified := p.print(resp)
	return head == p.head && (p.tag == 0 || tag == p.tag) && (p.modified == 0 || modified == p.modified)
}

func (p *Prefix) print(resp *http.Response) (head, tag, modified uint32) {
	seed := p.hash[0].Seed()
	sum := uint64(resp.StatusCode)<<48 ^ uint64(resp.ContentLength)
	if resp.Uncompressed {
		sum ^= 1 << 47
	}
	for _, name := range sameFields {
		sum = bits.RotateLeft64(sum, 7) ^ printOf(seed, resp.Header[name])
	}
	return fold(sum), fold(printOf(seed, resp.Header["Etag"])), fold(printOf(seed, resp.Header["Last-Modified"]))
}

// printOf returns 0 if there are no values.
func printOf(seed maphash.Seed, values []string) (sum uint64) {
	for _, v := range values {
		sum = bits.RotateLeft64(sum, 7) ^ maphash.String(seed, v)
	}
	return sum
}

func fold(sum uint64) uint32 { return uint32(sum) ^ uint32(sum>>32) }

// add takes bytes that were delivered. A prefix of more than limit bytes is too long.
func (p *Prefix) add(b []byte, limit int64) {
	if int64(len(b)) > limit-p.size { // also if it is too long already
		p.size = tooLong
		return
	}
	for len(b) > 0 {
		mark := bits.Len64(uint64(p.size / firstMark))
		n := int(min(int64(len(b)), firstMark<<mark-p.size))
		_, _ = p.hash[0].Write(b[:n]) // a hash takes everything
		_, _ = p.hash[1].Write(b[:n])
		p.size, b = p.size+int64(n), b[n:]
		if mark < marks && p.size == firstMark<<mark {
			p.marks[mark] = uint16(p.hash[0].Sum64())
		}
	}
}

// match reads the prefix from a second response, and compares it on the way. It returns
// how many bytes it has read, errDiffers if they are others, and otherwise the error of
// the response.
func (p *Prefix) match(r io.Reader) (n int64, err error) {
	var q Prefix
	q.hash[0].SetSeed(p.hash[0].Seed())
	q.hash[1].SetSeed(p.hash[1].Seed())
	n, err = skip(r, p.size, func(b []byte) (differs bool) {
		q.add(b, p.size)
		return !p.sameMarks(&q)
	})
	if err == nil && (p.hash[0].Sum64() != q.hash[0].Sum64() || p.hash[1].Sum64() != q.hash[1].Sum64()) {
		err = errDiffers
	}
	return n, err
}

// sameMarks compares the marks as far as the shorter prefix goes.
func (p *Prefix) sameMarks(short *Prefix) bool {
	for i := range marks {
		if firstMark<<i > short.size {
			break
		}
		if p.marks[i] != short.marks[i] {
			return false
		}
	}
	return true
}

// skip reads n bytes, until differs says that they are others. A nil function says that of none.
func skip(r io.Reader, n int64, differs func([]byte) bool) (read int64, err error) {
	buf := make([]byte, min(n, matchBuffer))
	for read < n {
		m, err := counted.Read(r, buf[:min(int64(len(buf)), n-read)])
		read += int64(m)
		switch {
		case differs != nil && differs(buf[:m]), err == io.EOF && read < n:
			return read, errDiffers
		case err != nil && read < n:
			return read, err
		}
	}
	return read, nil
}
