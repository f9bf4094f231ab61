// How are HTTP/2 header fields read and written (HPACK, RFC 7541)? Reading is
// complete, since clients use all of it; writing uses literals only, which need
// no state and which every client understands.

package testserver

import (
	"errors"
	"strings"
)

// A field is one header field.
type field struct{ name, value string }

// size is what a field counts in the dynamic table, RFC 7541 section 4.1.
func (f field) size() int { return len(f.name) + len(f.value) + 32 }

var errHPACK = errors.New("testserver: malformed header block")

// tableLimit is the default size of the dynamic table. Our SETTINGS leave it.
const tableLimit = 4096

// A hpackDecoder reads header blocks, in the order of one connection.
type hpackDecoder struct {
	dynamic []field // the newest is the last
	size    int
	limit   int
}

func newHPACKDecoder() *hpackDecoder { return &hpackDecoder{limit: tableLimit} }

// decode reads a whole block. After an error the decoder is of no more use.
func (d *hpackDecoder) decode(block []byte) ([]field, error) {
	var fields []field
	for len(block) > 0 {
		f, rest, err := d.next(block)
		switch {
		case err != nil:
			return nil, err
		case f.name != "":
			fields = append(fields, f)
		}
		block = rest
	}
	return fields, nil
}

// next reads one representation, RFC 7541 section 6. A change of the table's
// size gives a field without a name.
func (d *hpackDecoder) next(p []byte) (field, []byte, error) {
	b := p[0]
	switch {
	case b&0x80 != 0: // indexed
		i, rest, err := readInt(p, 7)
		if err != nil {
			return field{}, nil, err
		}
		f, err := d.at(i)
		return f, rest, err
	case b&0xc0 == 0x40: // literal, to be remembered
		f, rest, err := d.literal(p, 6)
		if err == nil {
			d.add(f)
		}
		return f, rest, err
	case b&0xe0 == 0x20: // size of the dynamic table
		n, rest, err := readInt(p, 5)
		if err != nil || n > tableLimit {
			return field{}, nil, errHPACK
		}
		d.limit = n
		d.evict()
		return field{}, rest, nil
	}
	return d.literal(p, 4) // not to be remembered, or never
}

// literal reads a value, and a name by index or by text.
func (d *hpackDecoder) literal(p []byte, prefix int) (f field, rest []byte, err error) {
	i, rest, err := readInt(p, prefix)
	if err != nil {
		return field{}, nil, err
	}
	if i > 0 {
		f, err = d.at(i)
	} else {
		f.name, rest, err = readString(rest)
	}
	if err != nil || f.name == "" {
		return field{}, nil, errHPACK
	}
	f.value, rest, err = readString(rest)
	return f, rest, err
}

// at looks an index up: first the static table, then the dynamic one, newest
// first.
func (d *hpackDecoder) at(i int) (field, error) {
	switch n := len(staticTable); {
	case i < 1 || i > n+len(d.dynamic):
		return field{}, errHPACK
	case i <= n:
		return staticTable[i-1], nil
	default:
		return d.dynamic[len(d.dynamic)-(i-n)], nil
	}
}

func (d *hpackDecoder) add(f field) {
	d.dynamic = append(d.dynamic, f)
	d.size += f.size()
	d.evict()
}

func (d *hpackDecoder) evict() {
	for d.size > d.limit {
		d.size -= d.dynamic[0].size()
		d.dynamic = d.dynamic[1:]
	}
}

// readInt reads an integer with a prefix of so many bits, section 5.1.
func readInt(p []byte, prefix int) (int, []byte, error) {
	if len(p) == 0 {
		return 0, nil, errHPACK
	}
	mask := 1<<prefix - 1
	n := int(p[0]) & mask
	p = p[1:]
	if n < mask {
		return n, p, nil
	}
	for shift := 0; len(p) > 0 && shift <= 21; shift += 7 { // nothing sane is larger
		b := p[0]
		p = p[1:]
		n += int(b&0x7f) << shift
		if b&0x80 == 0 {
			return n, p, nil
		}
	}
	return 0, nil, errHPACK
}

// readString reads a string, section 5.2.
func readString(p []byte) (string, []byte, error) {
	n, rest, err := readInt(p, 7)
	if err != nil || n > len(rest) {
		return "", nil, errHPACK
	}
	text, rest := rest[:n], rest[n:]
	if p[0]&0x80 == 0 {
		return string(text), rest, nil
	}
	s, err := unHuffman(text)
	return s, rest, err
}

// appendField writes a literal that is not to be remembered, in plain bytes.
func appendField(p []byte, name, value string) []byte {
	p = append(p, 0)
	p = appendString(p, strings.ToLower(name))
	return appendString(p, value)
}

func appendString(p []byte, s string) []byte {
	if len(s) < 127 {
		p = append(p, byte(len(s)))
	} else {
		p = append(p, 127)
		n := len(s) - 127
		for ; n >= 128; n >>= 7 {
			p = append(p, byte(n)|0x80)
		}
		p = append(p, byte(n))
	}
	return append(p, s...)
}

// A huffmanLevel is what a canonical code knows about one length: its codes are
// the count numbers from first on, and stand for symbols[start:].
type huffmanLevel struct{ first, count, start int }

const (
	huffmanLongest = 30
	huffmanEnd     = 256 // the symbol that must not appear
)

var huffmanLevels, huffmanSymbols = buildHuffman()

// buildHuffman computes the code from its lengths: within RFC 7541's appendix B
// codes count upward by length, then by symbol.
func buildHuffman() (levels [huffmanLongest + 1]huffmanLevel, symbols []int) {
	code := 0
	for length := 1; length <= huffmanLongest; length++ {
		code <<= 1
		levels[length] = huffmanLevel{first: code, start: len(symbols)}
		for symbol, l := range huffmanLengths {
			if int(l) == length {
				symbols = append(symbols, symbol)
				code++
			}
		}
		levels[length].count = len(symbols) - levels[length].start
	}
	return levels, symbols
}

// unHuffman decodes a string. What is left at its end must be fewer than eight
// ones.
func unHuffman(p []byte) (string, error) {
	var out strings.Builder
	code, length := 0, 0
	for i := range len(p) * 8 {
		code = code<<1 | int(p[i/8]>>(7-i%8))&1
		length++
		if length > huffmanLongest {
			return "", errHPACK
		}
		l := huffmanLevels[length]
		if code < l.first || code >= l.first+l.count {
			continue
		}
		symbol := huffmanSymbols[l.start+code-l.first]
		if symbol == huffmanEnd {
			return "", errHPACK
		}
		out.WriteByte(byte(symbol))
		code, length = 0, 0
	}
	if length > 7 || code != 1<<length-1 {
		return "", errHPACK
	}
	return out.String(), nil
}

// huffmanLengths are the lengths of the codes of all bytes and of the end, from
// RFC 7541 appendix B.
var huffmanLengths = [257]uint8{
	13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
	28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
	6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
	5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
	13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
	7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
	15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
	6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
	20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
	24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
	22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
	21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
	26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
	19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
	20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
	26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
	30,
}

// staticTable is RFC 7541 appendix A.
var staticTable = [...]field{
	{":authority", ""}, {":method", "GET"}, {":method", "POST"}, {":path", "/"},
	{":path", "/index.html"}, {":scheme", "http"}, {":scheme", "https"}, {":status", "200"},
	{":status", "204"}, {":status", "206"}, {":status", "304"}, {":status", "400"},
	{":status", "404"}, {":status", "500"}, {"accept-charset", ""}, {"accept-encoding", "gzip, deflate"},
	{"accept-language", ""}, {"accept-ranges", ""}, {"accept", ""}, {"access-control-allow-origin", ""},
	{"age", ""}, {"allow", ""}, {"authorization", ""}, {"cache-control", ""},
	{"content-disposition", ""}, {"content-encoding", ""}, {"content-language", ""}, {"content-length", ""},
	{"content-location", ""}, {"content-range", ""}, {"content-type", ""}, {"cookie", ""},
	{"date", ""}, {"etag", ""}, {"expect", ""}, {"expires", ""},
	{"from", ""}, {"host", ""}, {"if-match", ""}, {"if-modified-since", ""},
	{"if-none-match", ""}, {"if-range", ""}, {"if-unmodified-since", ""}, {"last-modified", ""},
	{"link", ""}, {"location", ""}, {"max-forwards", ""}, {"proxy-authenticate", ""},
	{"proxy-authorization", ""}, {"range", ""}, {"referer", ""}, {"refresh", ""},
	{"retry-after", ""}, {"server", ""}, {"set-cookie", ""}, {"strict-transport-security", ""},
	{"transfer-encoding", ""}, {"user-agent", ""}, {"vary", ""}, {"via", ""},
	{"www-authenticate", ""},
}
