package resume

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
)

// A second response has to agree in all that the caller has seen of the first.
func TestPrefixAgrees(t *testing.T) {
	first := func() *http.Response {
		return &http.Response{StatusCode: 200, ContentLength: 100, Header: http.Header{
			"Content-Type": {"a/b"}, "Content-Encoding": {"br"}, "Content-Range": {"bytes 0-99/200"}, "Repr-Digest": {"a"},
			"Content-Digest": {"b"}, "Digest": {"c"}, "Content-Md5": {"d"}, "Etag": {"W/e"}, "Last-Modified": {"f"}, "Date": {"g"},
		}}
	}
	var p Prefix
	p.begin(first())
	assert.True(t, p.agrees(first()))
	for name := range first().Header {
		for change, values := range map[string][]string{"another": {"x"}, "absent": nil, "two": {first().Header[name][0], "x"}} {
			second := first()
			second.Header[name] = values
			assert.Equal(t, name == "Date", p.agrees(second), "%s: %s", name, change)

			var without Prefix
			bare := first()
			delete(bare.Header, name)
			without.begin(bare)
			mayCome := name == "Date" || name == "Etag" || name == "Last-Modified" || values == nil
			assert.Equal(t, mayCome, without.agrees(second), "%s comes: %s", name, change)
		}
	}
	for name, change := range map[string]func(*http.Response){
		"status":       func(r *http.Response) { r.StatusCode = 203 },
		"length":       func(r *http.Response) { r.ContentLength = 101 },
		"no length":    func(r *http.Response) { r.ContentLength = -1 },
		"decompressed": func(r *http.Response) { r.Uncompressed = true },
		"swapped":      func(r *http.Response) { r.Header["Digest"], r.Header["Content-Md5"] = []string{"d"}, []string{"c"} },
	} {
		second := first()
		change(second)
		assert.False(t, p.agrees(second), name)
	}
}

// The digest stops at the limit, and is of no use from then on.
func TestPrefixThatIsTooLong(t *testing.T) {
	var p Prefix
	p.add(make([]byte, 600), 1000)
	p.add(make([]byte, 400), 1000)
	assert.EqualValues(t, 1000, p.size)
	p.add(make([]byte, 1), 1000)
	assert.EqualValues(t, tooLong, p.size)
	p.add(nil, 1000)
	assert.EqualValues(t, tooLong, p.size)
}

// match reads just the prefix, and finds each difference as soon as a mark or the end is
// reached.
func TestPrefixMatch(t *testing.T) {
	data := make([]byte, 100_000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for _, size := range []int{0, 1, 511, 512, 513, 1024, 40_000, 99_999} {
		var p Prefix
		p.add(data[:size], 1<<20)
		r := bytes.NewReader(data)
		n, err := p.match(r)
		assert.NoError(t, err)
		assert.EqualValues(t, size, n)
		assert.Equal(t, len(data)-size, r.Len(), "the rest is for the reader")
		for _, at := range []int{0, 100, size / 2, size - 1} {
			if at < 0 || at >= size {
				continue
			}
			other := bytes.Clone(data)
			other[at]++
			n, err = p.match(iotest.OneByteReader(bytes.NewReader(other)))
			assert.Equal(t, errDiffers, err, "size %d, at %d", size, at)
			assert.LessOrEqual(t, n, max(2*int64(at), firstMark), "size %d, at %d", size, at)
			_, err = p.match(bytes.NewReader(data[:at]))
			assert.Equal(t, errDiffers, err, "a shorter body")
			_, err = p.match(io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(io.ErrUnexpectedEOF)))
			assert.Equal(t, io.ErrUnexpectedEOF, err, "it is cut as well")
		}
		_, err = p.match(iotest.DataErrReader(bytes.NewReader(data[:size])))
		assert.NoError(t, err, "the end comes with the last byte")
	}
}
