package resume

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// field256 and field512 write a digest field.
func field256(s string) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(of256(s)) + ":"
}
func field512(s string) string {
	d := sha512.Sum512([]byte(s))
	return "sha-512=:" + base64.StdEncoding.EncodeToString(d[:]) + ":"
}

func of256(s string) []byte {
	d := sha256.Sum256([]byte(s))
	return d[:]
}

func TestDigestOf(t *testing.T) {
	a, b := field256("a"), field256("b")
	for _, row := range []struct {
		name  string
		lines []string
		want  string // the hash's beginning; "": none
	}{
		{"absent", nil, ""},
		{"empty", []string{""}, ""},
		{"sha-256", []string{a}, "sha-256 ca978112"},
		{"sha-512", []string{field512("a")}, "sha-512 1f40fc92"},
		{"sha-512 and sha-256", []string{field512("a") + ", " + a}, "sha-256 ca978112"},
		{"sha-256 and sha-512", []string{a + " ,\t" + field512("a")}, "sha-256 ca978112"},
		{"two lines", []string{"md5=:AAAA:", a}, "sha-256 ca978112"},
		{"the last one counts", []string{b + "," + a}, "sha-256 ca978112"},
		{"the last one counts, and is too short", []string{a + ", sha-256=:AAAA:"}, ""},
		{"spaces around", []string{"  " + a + "  "}, "sha-256 ca978112"},
		{"without padding", []string{"sha-256=:ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs:"}, "sha-256 ca978112"},
		{"RFC 9530 appendix D", []string{"sha-256=:d435Qo+nKZ+gLcUHn7GQtQ72hiBVAgqoLsZnZPiTGPk=:"}, "sha-256 77"},
		{"unknown algorithm", []string{"blake3=:" + a[9:]}, ""},
		{"too short", []string{"sha-256=:AAAA:"}, ""},
		{"sha-512 of the length of sha-256", []string{"sha-512=:" + a[9:]}, ""},
		{"upper case", []string{"SHA-256=:" + a[9:]}, ""},
		{"no byte sequence", []string{`sha-256="ypeB"`}, ""},
		{"no colon at the end", []string{a[:len(a)-1]}, ""},
		{"no base64", []string{"sha-256=:!!!!:"}, ""},
		{"line break inside", []string{"sha-256=:ypeB\nEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs=:"}, ""},
		{"a mistake elsewhere", []string{a + ", x"}, ""},
		{"comma at the end", []string{a + ","}, ""},
		{"two commas", []string{a + ",," + a}, ""},
		{"parameter", []string{a + ";x=1"}, ""},
	} {
		d := digestOf(row.lines)
		got := ""
		if d.name != "" {
			got = d.name + " " + hex.EncodeToString(d.want[:d.size])
		}
		if row.want == "" {
			assert.Empty(t, got, row.name)
			assert.Nil(t, newSum(d), row.name)
		} else {
			assert.Contains(t, got, row.want, row.name)
		}
	}
}

func TestSum(t *testing.T) {
	for _, field := range []string{field256("some text"), field512("some text")} {
		d := digestOf([]string{field})
		s := newSum(d)
		s.add([]byte("some "))
		s.add([]byte("text"))
		assert.Nil(t, s.check())
		s.add([]byte("!"))
		bad := s.check()
		require.NotNil(t, bad)
		assert.Equal(t, d.name, bad.name)
		assert.Equal(t, hex.EncodeToString(d.want[:d.size]), bad.want)
	}
	assert.Nil(t, (*sum)(nil).check())
}

func FuzzDigest(f *testing.F) {
	f.Add(field256("a"))
	f.Add(field512("a") + ", " + field256("b"))
	f.Add("sha-256=:AAAA:, x=:")
	f.Add("sha-256=::, *a.b-c_1=:=:")
	f.Fuzz(func(t *testing.T, s string) {
		d := digestOf([]string{s})
		switch d.name {
		case "":
			assert.Zero(t, d)
		case "sha-256":
			assert.Equal(t, sha256.Size, d.size)
		case "sha-512":
			assert.Equal(t, sha512.Size, d.size)
		default:
			t.Fatal(d.name)
		}
		if d.name != "" { // what was understood reads the same when written anew
			again := digestOf([]string{d.name + "=:" + base64.StdEncoding.EncodeToString(d.want[:d.size]) + ":"})
			assert.Equal(t, d, again)
		}
	})
}
