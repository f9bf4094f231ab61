// Decodes the beginning of a body that has a Content-Encoding.

package peek

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
)

// decoders are the codings that Peek decodes (RFC 9110 §8.4.1). They are those of the
// standard library.
var decoders = map[string]func(io.Reader) (io.Reader, error){
	"gzip":    gunzip,
	"x-gzip":  gunzip,
	"deflate": inflate,
}

func gunzip(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// inflate reads a zlib stream. Some servers send its content without the frame (RFC 9110
// §8.4.1.2).
func inflate(r io.Reader) (io.Reader, error) {
	coded, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if framed, err := zlib.NewReader(bytes.NewReader(coded)); err == nil {
		return framed, nil
	}
	return flate.NewReader(bytes.NewReader(coded)), nil
}

// decoded returns up to n bytes of the content of a body whose beginning is head. A body that is
// not coded as it says is returned as it is, and nil stays nil.
func decoded(head []byte, n int, decode func(io.Reader) (io.Reader, error)) []byte {
	if len(head) == 0 {
		return head
	}
	r, err := decode(bytes.NewReader(head))
	if err != nil {
		return head[:min(n, len(head))]
	}
	content, _ := io.ReadAll(io.LimitReader(r, int64(n))) // the head may end anywhere
	return content
}
