// What travels in the context of a request.

package flight

import "context"

// CarriedKey is the key of a *Carried in a context.
type CarriedKey struct{}

// A Carried is what the context of a request carries. It never changes once it is in a context.
type Carried struct {
	Number  int // of an attempt; 0 in the context of a caller
	Options any // what the caller asked for
}

// CarriedBy returns what a context carries, or nil if that is nothing.
func CarriedBy(ctx context.Context) *Carried {
	c, _ := ctx.Value(CarriedKey{}).(*Carried)
	return c
}
