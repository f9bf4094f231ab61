// Are the bytes that arrived those that the server meant (RFC 9530)?

package resume

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strings"
)

// maxDigestField bounds how much of a digest field is read; two digests with
// their names take a tenth of it.
const maxDigestField = 4 << 10

// A digest is what a body is to hash to.
type digest struct {
	name string // sha-256 or sha-512; "": none
	want [sha512.Size]byte
	size int
}

// digestOf returns the digest in a header field, Repr-Digest or Content-Digest.
// A field with any mistake in it counts as absent, as structured fields demand
// (RFC 9651 §4.2), and so do the algorithms that RFC 9530 §5 retires. Of two
// digests it takes sha-256, which processors compute by themselves.
func digestOf(h http.Header, field string) digest {
	lines := h[field]
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
			d = digest{} // the last of a name counts, and this one is no digest
		}
	})
	if !ok {
		return digest{}
	}
	return d
}

// eachDigest calls f for each member of a dictionary of byte sequences. It
// reports false for anything else. Digest fields have no parameters; one that
// has some is not understood.
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

// isKey knows the keys of RFC 9651 §3.1.2.
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

// decodeBytes reads a byte sequence between its colons, with or without
// padding (RFC 9651 §4.2.7).
func decodeBytes(s string) ([]byte, bool) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, false // which Go's decoder would skip
	}
	value, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	return value, err == nil
}

// A sum computes a digest while the bytes pass. A nil sum does nothing.
type sum struct {
	digest
	hash.Hash
}

// newSum returns nil where there is nothing to compute.
func newSum(d digest) *sum {
	switch d.name {
	case "sha-256":
		return &sum{d, sha256.New()}
	case "sha-512":
		return &sum{d, sha512.New()}
	}
	return nil
}

func (s *sum) add(p []byte) {
	if s != nil {
		_, _ = s.Write(p) // a hash takes everything
	}
}

// A difference is a digest that is not the announced one, both in hexadecimal.
type difference struct{ name, want, got string }

// check says what is wrong once all bytes have passed; nil where nothing is.
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

// A lateSum computes the digests that a trailer may carry. Which algorithm it
// names is known at the end only. A nil lateSum does nothing.
type lateSum struct {
	field string
	sums  [2]*sum
}

// newLateSum returns nil if the trailer is not announced to have the field.
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

// check is that of sum, for the digest in the trailer of a response that has
// been read to its end.
func (l *lateSum) check(resp *http.Response) *difference {
	if l == nil {
		return nil
	}
	d := digestOf(resp.Trailer, l.field)
	for _, s := range l.sums {
		if s.name == d.name {
			return (&sum{d, s.Hash}).check()
		}
	}
	return nil
}
