package host

import (
	"net/url"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/soak"
)

func TestCanonical(t *testing.T) {
	for _, row := range []struct{ scheme, host, want string }{
		{"https", "example.com", "example.com"},
		{"https", "EXAMPLE.com", "example.com"},
		{"https", "example.com.", "example.com"},
		{"https", "example.com:443", "example.com"},
		{"https", "Example.COM.:443", "example.com"},
		{"https", "example.com:80", "example.com:80"},
		{"http", "example.com:80", "example.com"},
		{"http", "example.com:443", "example.com:443"},
		{"http", "example.com:8080", "example.com:8080"},
		{"http", "example.com.:8080", "example.com:8080"},
		{"http", "example.com:", "example.com"},
		{"http", "127.0.0.1:80", "127.0.0.1"},
		{"http", "[::1]", "[::1]"},
		{"http", "[::1]:80", "[::1]"},
		{"http", "[::1]:8080", "[::1]:8080"},
		{"http", "[FE80::1%25en0]:8080", "[fe80::1%25en0]:8080"},
		{"http", "[::1]:", "[::1]"},
		{"ftp", "example.com:21", "example.com:21"},
		{"http", "BÜCHER.example", "bücher.example"},
		{"http", "", ""},
		{"http", ".", ""},
		{"http", ":80", ""},
		{"http", ":8080", ":8080"},
		{"http", "[", "["},
		{"http", "0::80", "0::80"},
		{"https", "::443", "::443"},
		{"http", "FE80::1:", "fe80::1:"},
		{"http", "a::B:8080", "a::b:8080"},
		{"http", "[::1]X", "[::1]x"},
		{"http", "a]", "a]"},
		{"http", "example.com:08080", "example.com:8080"},
		{"http", "example.com:0036203", "example.com:36203"},
		{"http", "example.com:0080", "example.com"},
		{"https", "example.com:0080", "example.com:80"},
		{"https", "EXAMPLE.com:00443", "example.com"},
		{"http", "[::1]:080", "[::1]"},
		{"http", "[::1]:08080", "[::1]:8080"},
		{"http", "example.com:000", "example.com:0"},
		{"http", "example.com:0", "example.com:0"},
	} {
		assert.Equal(t, row.want, Canonical(row.scheme, row.host), "%s %q", row.scheme, row.host)
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add("https", "Example.com.:443")
	f.Add("http", "[::1]:80")
	f.Add("http", "a:080")
	f.Add("http", "0::80")
	f.Add("https", "a:B")
	f.Fuzz(func(t *testing.T, scheme, host string) {
		once := Canonical(scheme, host)
		assert.Equal(t, once, strings.ToLower(once), "of %q", host)
		if isCanonical(host) {
			assert.Equal(t, host, once)
			// The fast path must not accept a host that the slow path would change.
			name, port := SplitPort(host)
			if port == DefaultPort(scheme) && port != "" {
				assert.Empty(t, port, "a default port is left in %q", host)
			}
			assert.False(t, len(port) > 1 && port[0] == '0', "a leading zero is left in %q", host)
			assert.NotEqual(t, ".", name[max(0, len(name)-1):], "a trailing dot is left in %q", host)
		}
	})
}

func TestKeyAllocatesNothing(t *testing.T) {
	u, err := url.Parse("https://api.example.com:8443/path")
	assert.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(100, func() { KeyOf(u) }))
}

// Names of any length cost a bounded number of bytes, and stay apart.
func TestKeyIsBounded(t *testing.T) {
	long := strings.Repeat("a", soak.Size(256<<10, 4<<20))
	keys := map[Key]bool{}
	for _, u := range []url.URL{
		{Scheme: "http", Host: long + ".example.com:8080"},
		{Scheme: "http", Host: "b" + long + ".example.com:8080"},
		{Scheme: "https", Host: long + ".example.com:8080"},
		{Scheme: long, Host: "example.com"},
		{Scheme: "b" + long, Host: "example.com"},
	} {
		k := KeyOf(&u)
		assert.LessOrEqual(t, len(k.Host), maxHostLen)
		assert.LessOrEqual(t, len(k.Scheme), maxSchemeLen)
		_, end, long := strings.Cut(k.Host, "~")
		assert.True(t, !long || len(end) > 200 && strings.HasSuffix(u.Host, end), "the end stays")
		keys[k] = true
		assert.Equal(t, k, KeyOf(&url.URL{Scheme: u.Scheme, Host: strings.ToUpper(u.Host)}))
	}
	assert.Len(t, keys, 5)
	name := strings.Repeat("a.", 150)
	assert.Equal(t, name+"test", KeyOf(&url.URL{Scheme: "http", Host: name + "test"}).Host, "no shorter name is touched")
}

func TestStateFillsOneCacheLine(t *testing.T) {
	assert.EqualValues(t, 64, unsafe.Sizeof(State[int]{}))
}

func TestStateKnowsItsKey(t *testing.T) {
	table := NewTable[int](0)
	for _, u := range []string{"http://a.test:81", "https://a.test", "ftp://a.test", "x://[::1]:5"} {
		key := table.Acquire(urlOf(u)).Key()
		assert.Equal(t, u, key.Scheme+"://"+key.Host)
	}
}
