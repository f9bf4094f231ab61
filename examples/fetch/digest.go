// The digests that the server named (RFC 9530).

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
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

// check reads the file from its beginning, including the bytes of an earlier
// run, and compares it with each digest in the field. It returns the names of
// the digests that agree, or "" if there is none. It reads the bytes on the
// disk, because these will get the final name.
func check(ctx context.Context, file io.ReaderAt, size int64, field string) (string, error) {
	want := digests(field)
	if len(want) == 0 {
		return "", nil
	}
	var sums []io.Writer
	var names []string
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		sums = append(sums, algorithms[name]())
	}
	if _, err := io.Copy(io.MultiWriter(sums...), untilDone{ctx, io.NewSectionReader(file, 0, size)}); err != nil {
		return "", err
	}
	for i, name := range names {
		if got := sums[i].(hash.Hash).Sum(nil); !bytes.Equal(got, want[name]) {
			return "", altered(name, fmt.Sprintf("%x", got), fmt.Sprintf("%x", want[name]))
		}
	}
	return strings.Join(names, " and "), nil
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
