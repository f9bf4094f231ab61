// Digests that the server announced, and their check (RFC 9530).
//
// The field is parsed here and not by httpsfv, since httpsfv refuses byte
// sequences without padding, which RFC 9651 §4.2.7 asks parsers to accept.

package resume

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strings"
)

// maxDigestField is the longest digest field that is read, in bytes. Two digests
// with their names need a tenth of it.
const maxDigestField = 4 << 10

// A digest is an announced hash.
type digest struct {
	name string // sha-256, sha-512 or the name of a checksum; empty if there is no digest
	want [sha512.Size]byte
	size int
}

// digestOf returns the digest in the lines of a header field, Repr-Digest or Content-Digest. A
// field with any mistake counts as absent (RFC 9651 §4.2). So does an algorithm
// that RFC 9530 §5 retires. If there are two digests, digestOf returns the sha-256,
// because many processors have instructions for it.
func digestOf(lines []string) digest {
	if len(lines) == 0 {
		return digest{}
	}
	var d digest
	ok := eachDigest(strings.Join(lines, ", "), func(name string, value []byte) {
		switch {
		case name == "sha-256" && len(value) == sha256.Size,
			name == "sha-512" && len(value) == sha512.Size && d.name != "sha-256":
			d = digest{name: name, size: len(value)}
			copy(d.want[:], value)
		case name == d.name:
			d = digest{} // the last value of a name counts, and this value is not a digest
		}
	})
	if !ok {
		return digest{}
	}
	return d
}

// eachDigest calls f for each member of a dictionary of byte sequences. It reports
// false if s is anything else. Digest fields have no parameters, so a field with
// parameters is refused.
func eachDigest(s string, f func(name string, value []byte)) bool {
	if len(s) > maxDigestField {
		return false
	}
	s = strings.Trim(s, " ")
	for s != "" {
		key, rest, ok := strings.Cut(s, "=:")
		if !ok || !isKey(key) {
			return false
		}
		text, rest, ok := strings.Cut(rest, ":")
		value, valid := decodeBytes(text)
		if !ok || !valid {
			return false
		}
		f(key, value)
		if s = strings.TrimLeft(rest, " \t"); s == "" {
			return true
		}
		if s, ok = strings.CutPrefix(s, ","); !ok {
			return false
		}
		if s = strings.TrimLeft(s, " \t"); s == "" {
			return false // a comma at the end
		}
	}
	return true
}

// isKey reports whether s is a key of a dictionary (RFC 9651 §3.1.2).
func isKey(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', c == '*':
		case i > 0 && ('0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return s != ""
}

// decodeBytes decodes the text between the colons of a byte sequence, with or
// without padding (RFC 9651 §4.2.7).
func decodeBytes(s string) ([]byte, bool) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, false // Go's decoder would skip a line break
	}
	value, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	return value, err == nil
}

// A sum computes a digest while the bytes pass. The methods of a nil sum do
// nothing.
type sum struct {
	digest
	hash.Hash
}

// newSum returns nil if there is no digest to check.
func newSum(d digest) *sum {
	if d.name == "" {
		return nil
	}
	return &sum{d, newHash(d.name)}
}

func (s *sum) add(p []byte) {
	if s != nil {
		_, _ = s.Write(p) // a hash takes everything
	}
}

// A difference tells an announced digest and the actual digest, in hexadecimal.
type difference struct{ name, want, got string }

// check compares the digests after all bytes have passed. It returns nil if they
// agree.
func (s *sum) check() *difference {
	if s == nil {
		return nil
	}
	got := s.Sum(nil)
	if want := s.want[:s.size]; !bytes.Equal(got, want) {
		return &difference{s.name, hex.EncodeToString(want), hex.EncodeToString(got)}
	}
	return nil
}

// A lateSum computes both digests that a trailer may carry, since the trailer
// names its algorithm only at the end. The methods of a nil lateSum do nothing.
type lateSum struct {
	field string
	sums  [2]*sum
}

// newLateSum returns nil if the response does not announce the field for its
// trailer.
func newLateSum(resp *http.Response, field string) *lateSum {
	if _, announced := resp.Trailer[field]; !announced {
		return nil
	}
	return &lateSum{field, [2]*sum{newSum(digest{name: "sha-256"}), newSum(digest{name: "sha-512"})}}
}

func (l *lateSum) add(p []byte) {
	if l != nil {
		l.sums[0].add(p)
		l.sums[1].add(p)
	}
}

// check compares the digest in the trailer of resp, which has been read to its
// end. It returns nil if the digests agree, or if the trailer has none.
func (l *lateSum) check(resp *http.Response) *difference {
	if l == nil {
		return nil
	}
	d := digestOf(resp.Trailer[l.field])
	for _, s := range l.sums {
		if s.name == d.name {
			return (&sum{d, s.Hash}).check()
		}
	}
	return nil
}

// sums are the digests of a body that are computed while it is read. If there is
// none, the sums are nil, which all methods but add allow.
type sums struct {
	whole       *sum     // of the whole body
	wholeLate   *lateSum // for a digest in the trailer
	segment     *sum     // of the current segment
	segmentLate *lateSum
	rest        bool // the current segment has not all of the body
}

// firstSums returns the sums for the first response. Content-Digest covers the bytes of that
// response, even if later segments bring some of them. Repr-Digest covers the whole
// representation, so it is of no use for a part of it. In the response to any other method than
// GET it may cover the resource that was changed (RFC 9530 §3). The same holds for the checksum
// of an object store, which is read only if stores says so.
func firstSums(req *http.Request, resp *http.Response, f *fields, stores bool) *sums {
	if resp.Uncompressed {
		return nil // a digest is one of the compressed bytes
	}
	object := (req.Method == http.MethodGet || req.Method == "") && resp.StatusCode != http.StatusPartialContent
	d := digestOf(f[contentDigest])
	if d.name == "" && object {
		d = digestOf(f[reprDigest])
	}
	if d.name == "" && object && stores {
		d = storeDigest(resp.Header)
	}
	if d.name == "" && len(resp.Trailer) == 0 {
		return nil
	}
	s := &sums{whole: newSum(d), segmentLate: newLateSum(resp, "Content-Digest")}
	if object {
		s.wholeLate = newLateSum(resp, "Repr-Digest")
	}
	return s
}

// Verify compares the digests of a response that was read to its end. It returns an empty
// name if they agree, or if there is none.
func Verify(req *http.Request, resp *http.Response, data []byte, stores bool) (name, want, got string) {
	s := firstSums(req, resp, &fields{contentDigest: resp.Header["Content-Digest"], reprDigest: resp.Header["Repr-Digest"]}, stores)
	if s == nil {
		return "", "", ""
	}
	s.add(data)
	d := cmp.Or(s.checkSegment(resp, true), s.checkWhole(resp, true), &difference{})
	return d.name, d.want, d.got
}

// after returns the sums after a reconnect. resp brings the next segment. whole says that it
// brings all of the body again. If all responses before it did so, the sums of the first go on,
// because what they cover comes from resp as well.
func (s *sums) after(resp *http.Response, whole bool) *sums {
	if whole && (s == nil || !s.rest) {
		return s
	}
	if s == nil {
		s = new(sums)
	}
	s.segment, s.segmentLate, s.rest = nil, nil, !whole
	if !whole {
		s.segment = newSum(digestOf(resp.Header["Content-Digest"]))
		s.segmentLate = newLateSum(resp, "Content-Digest")
	}
	return s
}

func (s *sums) add(p []byte) {
	s.whole.add(p)
	s.wholeLate.add(p)
	s.segment.add(p)
	s.segmentLate.add(p)
}

// checkWhole compares the digests of the whole body, whose last segment came with
// resp. ended reports whether the trailer of resp is complete.
func (s *sums) checkWhole(resp *http.Response, ended bool) *difference {
	if s == nil {
		return nil
	}
	if ended {
		if d := s.wholeLate.check(resp); d != nil {
			return d
		}
	}
	return s.whole.check()
}

// checkSegment compares the digests of a segment, in the same way.
func (s *sums) checkSegment(resp *http.Response, ended bool) *difference {
	if s == nil {
		return nil
	}
	if d := s.segment.check(); d != nil || !ended {
		return d
	}
	return s.segmentLate.check(resp)
}
