package resume

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
)

// deliver tells the body of bytes that a Read delivered with err.
func (b *Body) deliver(p []byte, err error) {
	b.pos += int64(len(p))
	if b.keeps = b.keeps && !b.isWhole(); b.keeps {
		b.keep(p, err)
	}
}

// delivered returns a body that has delivered data in Reads of so many bytes.
func delivered(data []byte, read int, again int32) *Body {
	b := &Body{Plan: Plan{end: unknown, total: unknown, stop: unknown, left: again, keeps: true}}
	for len(data) > 0 {
		n := min(len(data), read)
		b.deliver(data[:n], nil)
		data = data[n:]
	}
	return b
}

// A prefix above the limit is of no use from then on.
func TestPrefixThatIsTooLong(t *testing.T) {
	b := delivered(make([]byte, 1000), 600, 1000)
	assert.True(t, b.unmatched() == nil)
	b.deliver(make([]byte, 1), nil)
	assert.False(t, b.unmatched() == nil)
	b.deliver(make([]byte, 1), nil)
	assert.False(t, b.unmatched() == nil)
	b = delivered(make([]byte, 1001), 1001, 1000)
	assert.Zero(t, b.prefix.first, "it is not hashed")
	assert.False(t, b.unmatched() == nil)
}

// The first Read that leaves something to come needs no memory, and the last Read is not hashed.
func TestPrefixIsKeptForWhatIsToCome(t *testing.T) {
	part := make([]byte, 1000)
	first := delivered(part, 1000, 1<<20)
	assert.True(t, first.prefix.first != 0 && first.later == nil)
	second := delivered(part, 600, 1<<20)
	assert.NotNil(t, second.later)
	for name, b := range map[string]*Body{
		"the promised end":  {Plan: Plan{end: 1000, total: 1000, stop: 1000, left: 1 << 20, keeps: true, validator: `"v1"`}},
		"the announced end": {Plan: Plan{end: unknown, total: 1000, stop: unknown, left: 1 << 20, keeps: true}},
		"nobody compares":   {Plan: Plan{end: unknown, total: unknown, stop: unknown, left: 1 << 20}},
	} {
		b.deliver(part, nil)
		assert.True(t, b.prefix.first == 0 && b.later == nil && b.unmatched() != nil, name)
	}
	ended := &Body{Plan: Plan{end: unknown, total: unknown, stop: unknown, left: 1 << 20, keeps: true}}
	ended.deliver(part, io.EOF)
	assert.True(t, ended.prefix.first == 0 && ended.later == nil)
}

// match reads just the prefix, and finds each difference as soon as a mark or the end is
// reached, whatever the Reads were that brought the prefix.
func TestPrefixMatch(t *testing.T) {
	data := make([]byte, 300_000)
	for i := range data {
		data[i] = byte(i*7 ^ i>>8)
	}
	for _, read := range []int{1, 511, 512, 513, 5000, 32 << 10, len(data)} {
		for _, size := range []int{1, 511, 512, 513, 4096, 40_000, 299_999} {
			b := delivered(data[:size], read, 1<<20)
			r := bytes.NewReader(data)
			n, err := b.match(r)
			assert.NoError(t, err)
			assert.EqualValues(t, size, n)
			assert.Equal(t, len(data)-size, r.Len(), "the rest is for the reader")
			for _, at := range []int{0, 100, size / 2, size - 1} {
				if at < 0 || at >= size {
					continue
				}
				other := bytes.Clone(data)
				other[at]++
				n, err = b.match(iotest.HalfReader(bytes.NewReader(other)))
				assert.Equal(t, errDiffers, err, "size %d, at %d, Reads of %d", size, at, read)
				assert.LessOrEqual(t, n, max(8*int64(at), firstMark)+matchBuffer, "size %d, at %d, Reads of %d", size, at, read)
				_, err = b.match(bytes.NewReader(data[:at]))
				assert.Equal(t, errDiffers, err, "a shorter body")
				_, err = b.match(io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(io.ErrUnexpectedEOF)))
				assert.Equal(t, io.ErrUnexpectedEOF, err, "it is cut as well")
			}
			_, err = b.match(iotest.DataErrReader(bytes.NewReader(data[:size])))
			assert.NoError(t, err, "the end comes with the last byte")
		}
	}
	b := delivered(data, 5000, 1<<20)
	other := bytes.Clone(data)
	other[600]++
	n, err := b.match(iotest.OneByteReader(bytes.NewReader(other)))
	assert.Equal(t, errDiffers, err)
	assert.EqualValues(t, 8*firstMark, n)
}
