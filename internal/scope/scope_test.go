package scope

import (
	"hash/maphash"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Two headers are of the same scope if their credentials are the same. The text says the same as the number.
func TestKey(t *testing.T) {
	const digest = `Digest username="ann", realm="r", nonce="1", response="x"`
	auth := func(v string) http.Header { return http.Header{"Authorization": {v}} }
	seed := maphash.MakeSeed()
	for name, row := range map[string]struct {
		a, b http.Header
		same bool
	}{
		"no credentials":                    {nil, http.Header{"Accept": {"x"}}, true},
		"some, and none":                    {nil, auth("Basic eDp5"), false},
		"the case of the kind":              {auth("Basicz eDp5"), auth("bASICZ eDp5"), true},
		"the sign before the letters":       {auth("a@ x"), auth("a` x"), false},
		"the sign after the letters":        {auth("a[ x"), auth("a{ x"), false},
		"where the kind ends":               {auth("ab c"), auth("a bc"), false},
		"the part that stays the same":      {auth(digest), auth(`digest nonce="2", username="ann"`), true},
		"a kind whose value always changes": {auth("Negotiate YII1"), auth("negotiate YII2"), true},
	} {
		assert.Equal(t, row.same, Key(seed, row.a) == Key(seed, row.b), name)
		assert.Equal(t, row.same, Text(row.a) == Text(row.b), "%s: %q and %q", name, Text(row.a), Text(row.b))
		assert.Equal(t, Key(seed, row.a) == 0, Text(row.a) == "", "%s: no text, as there is no key", name)
	}
	assert.NotEqual(t, Key(seed, auth("Basic x")), Key(maphash.MakeSeed(), auth("Basic x")), "another owner")
	for _, v := range []string{digest, "Bearer a.b.c", "abc"} {
		h := auth(v)
		assert.Zero(t, testing.AllocsPerRun(100, func() { Key(seed, h) }), "%s allocations", v)
	}
}

// Whatever a header holds, the same header is the same scope, and nothing
// panics.
func FuzzKey(f *testing.F) {
	f.Add(`Digest username="a\"b", x=y`)
	f.Add("AWS4-HMAC-SHA256 Credential=")
	f.Add("=,=\"\\")
	seed := maphash.MakeSeed()
	f.Fuzz(func(t *testing.T, v string) {
		h := http.Header{"Authorization": {v}}
		assert.Equal(t, Key(seed, h.Clone()), Key(seed, h), "two scopes")
		assert.True(t, Text(h) == Text(h.Clone()) && (Text(h) == "") == (Key(seed, h) == 0), "the text says something else")
	})
}
