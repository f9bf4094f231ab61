// Does the decoder read what clients write, and survive what they do not?

package testserver

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHPACKExamples decodes RFC 7541, appendix C.4: three requests on one
// connection, with Huffman coding and the dynamic table.
func TestHPACKExamples(t *testing.T) {
	d := newHPACKDecoder()
	base := []field{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "www.example.com"}}
	for _, c := range []struct {
		block string
		want  []field
		size  int
	}{
		{"828684418cf1e3c2e5f23a6ba0ab90f4ff", base, 57},
		{"828684be5886a8eb10649cbf", append(base[:4:4], field{"cache-control", "no-cache"}), 110},
		{"828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", []field{
			{":method", "GET"}, {":scheme", "https"}, {":path", "/index.html"},
			{":authority", "www.example.com"}, {"custom-key", "custom-value"},
		}, 164},
	} {
		block, err := hex.DecodeString(c.block)
		require.NoError(t, err)
		got, err := d.decode(block)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
		assert.Equal(t, c.size, d.size)
	}
}

func TestHPACKRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 126, 127, 128, 254, 255, 256, 16511, 100_000} {
		value := strings.Repeat("v", n)
		got, err := newHPACKDecoder().decode(appendField(nil, "X-Name", value))
		require.NoError(t, err)
		assert.Equal(t, []field{{"x-name", value}}, got)
	}
}

func TestHPACKEvicts(t *testing.T) {
	d := newHPACKDecoder()
	for range 200 {
		_, err := d.decode(append([]byte{0x40, 1, 'a', 100}, make([]byte, 100)...))
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, d.size, tableLimit)
	assert.Len(t, d.dynamic, tableLimit/(1+100+32))
	_, err := d.decode([]byte{0x20}) // size 0
	require.NoError(t, err)
	assert.Empty(t, d.dynamic)
}

func FuzzHPACK(f *testing.F) {
	for _, seed := range []string{
		"828684418cf1e3c2e5f23a6ba0ab90f4ff", "80", "be", "ffffffffffff", "3fe21f", "408825a8",
		"0001", "00817f0161", "0084ffffffff00",
	} {
		block, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(block)
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		d := newHPACKDecoder()
		fields, err := d.decode(block)
		if err != nil && fields != nil {
			t.Error("fields beside an error")
		}
		if d.size < 0 || d.size > tableLimit {
			t.Error("table of size", d.size)
		}
	})
}
