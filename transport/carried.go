// What travels in the context of a request.

package transport

import "context"

type carriedKey struct{}

// A carried is what the context of a request carries. It never changes once it is in a context.
type carried struct {
	Number  int // of an attempt; 0 in the context of a caller
	Options any // what the caller asked for
}

func carriedBy(ctx context.Context) *carried {
	c, _ := ctx.Value(carriedKey{}).(*carried)
	return c
}
