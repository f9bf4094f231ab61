// The digests that the server named (RFC 9530).

package get

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// algorithms are the algorithms that RFC 9530 §5 has not retired.
var algorithms = map[string]func() hash.Hash{"sha-256": sha256.New, "sha-512": sha512.New}

// reprDigest returns the field about the whole file, even if the response
// brings only a part of it. Content-Digest is about that part only.
func reprDigest(h http.Header) string { return strings.Join(h.Values("Repr-Digest"), ", ") }

// digests reads a dictionary of byte sequences, "sha-256=:base64:, …". A field
// with a mistake is ignored (RFC 9651 §4.2), and so are unknown algorithms.
func digests(field string) map[string][]byte {
	found := make(map[string][]byte)
	for member := range strings.SplitSeq(field, ",") {
		name, value, ok1 := strings.Cut(strings.Trim(member, " \t"), "=:")
		value, ok2 := strings.CutSuffix(value, ":")
		sum, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
		if !ok1 || !ok2 || err != nil {
			return nil
		}
		if create := algorithms[name]; create != nil && create().Size() == len(sum) {
			found[name] = sum
		}
	}
	return found
}

// both returns a field with the digests of two fields.
func both(a, b string) string {
	switch {
	case a == b, len(digests(b)) == 0:
		return a
	case len(digests(a)) == 0: // a mistake in it must not spoil b
		return b
	}
	return a + ", " + b
}

// compared compares two fields by the algorithms that both have. agree reports that at
// least one digest is equal and none differs.
func compared(a, b string) (agree, differ bool) {
	x, y := digests(a), digests(b)
	for name, sum := range x {
		if other, ok := y[name]; ok {
			agree = true
			differ = differ || !bytes.Equal(sum, other)
		}
	}
	return agree && !differ, differ
}

// sums computes the digests that the server named.
type sums struct {
	want   map[string][]byte
	hashes map[string]hash.Hash
}

func newSums(field string) *sums {
	s := &sums{want: digests(field), hashes: make(map[string]hash.Hash)}
	for name := range s.want {
		s.hashes[name] = algorithms[name]()
	}
	return s
}

func (s *sums) Write(b []byte) (int, error) {
	for _, h := range s.hashes {
		_, _ = h.Write(b) // a hash returns no error
	}
	return len(b), nil
}

// compare returns the names of the digests, or "" if there is none. If a digest
// differs, the error is an errAltered.
func (s *sums) compare() (string, error) {
	names := slices.Sorted(maps.Keys(s.want))
	for _, name := range names {
		if got := s.hashes[name].Sum(nil); !bytes.Equal(got, s.want[name]) {
			return "", altered(name, fmt.Sprintf("%x", got), fmt.Sprintf("%x", s.want[name]))
		}
	}
	return strings.Join(names, " and "), nil
}

// check reads the file from its beginning, including the bytes of an earlier
// run, and compares it with each digest in the field. It returns the names of
// the digests that agree, or "" if there is none. It reads the bytes on the
// disk, because these will get the final name.
func check(ctx context.Context, file io.ReaderAt, size int64, field string) (string, error) {
	s := newSums(field)
	if len(s.want) == 0 {
		return "", nil
	}
	if _, err := io.Copy(s, untilDone{ctx, io.NewSectionReader(file, 0, size)}); err != nil {
		return "", err
	}
	return s.compare()
}

// altered returns an errAltered that says which digest differs, as far as a
// line has room.
func altered(what, got, want string) error {
	return fmt.Errorf("%w: its %s is %s instead of %s", errAltered, what, abridged(got), abridged(want))
}

func abridged(s string) string {
	if len(s) <= 20 {
		return s
	}
	return s[:16] + "…"
}

// An untilDone is a reader that ends with its context.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}
