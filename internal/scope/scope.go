// Package scope tells the scopes apart to which a server's "try later" applies.
package scope

import (
	"hash/maphash"
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/internal/auth"
)

// Key returns a number for the credentials in a request's header. Servers keep
// rate limits per client, so a wait that they ask for applies to a single client.
// Credentials are not stored but hashed with the owner's seed. Key allocates
// nothing. The rules:
//
//   - Authorization counts whole, unless its scheme is known to change its value
//     with every request. Then only the part that stays the same counts. That is
//     the Credential of signatures such as AWS4-HMAC-SHA256, the key id before the
//     signature of schemes such as AWS and SharedKey, and the user name of Digest.
//     If there is no such part, as in Negotiate, Hawk, Signature and OAuth 1.0,
//     the name of the scheme counts.
//   - If there is no Authorization, the first of the headers that is there in which services take a key counts
//     whole.
//   - If there is none of these, the number is zero.
//
// Cookies and keys in the URL do not count. Headers that a layer below adds are not
// seen.
func Key(seed maphash.Seed, h http.Header) uint64 {
	kind, value := auth.Credentials(h)
	if kind == "" {
		return 0
	}
	var sum maphash.Hash
	sum.SetSeed(seed)
	for i := range len(kind) {
		c := kind[i] // whose case does not matter
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		_ = sum.WriteByte(c)
	}
	_ = sum.WriteByte(0) // no kind has it
	_, _ = sum.WriteString(value)
	return sum.Sum64()
}

// Text returns the part of the credentials that counts for Key, as a text. It is
// empty if Key is zero. It is a secret.
func Text(h http.Header) string {
	kind, value := auth.Credentials(h)
	if kind == "" {
		return ""
	}
	return strings.ToLower(kind) + "\x00" + value
}
