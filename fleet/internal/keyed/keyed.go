// Package keyed has the hash by which members name the scopes of requests.
package keyed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// A Hash returns the HMAC-SHA256 of a text. It is a closure and the only thing that knows the
// key, so that no format prints the key.
type Hash func(text string) []byte

// New returns the Hash with a key.
func New(key []byte) Hash {
	key = append([]byte(nil), key...)
	return func(text string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
}

// Scope returns the first 64 bits of the hash of a text, and 0 for no text.
func (h Hash) Scope(text string) uint64 {
	if text == "" {
		return 0
	}
	return max(1, binary.BigEndian.Uint64(h(text)))
}
