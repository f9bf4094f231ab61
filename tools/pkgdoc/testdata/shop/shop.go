// Package shop sells things.
package shop

import "errors"

const Bare = 1

// These need no comments of their own.
const (
	Red  Colour = 1
	Blue Colour = 2
)

// A Colour is an enumeration, so nobody starts from it.
type Colour int

// Order is what a user starts from. Count is explained here.
type Order struct {
	Count int
	Name  string
	Extra Extra
	// Done hands a Receipt to the user.
	Done func(Receipt)
}

// Extra belongs to an Order, so a user starts from it, too. Gift is a field.
type Extra struct{ Gift bool }

// Receipt is only handed out. Total is a field.
type Receipt struct{ Total int }

// Stock is opaque, and Open makes it.
type Stock struct{ n int }

// Open has an example, and so has Stock.
func Open() *Stock { return &Stock{1} }

// Pack makes its argument empty.
func (s *Stock) Pack() { s.n = 0 }

func (s *Stock) Count() int { return s.n }

// Buy takes an Order.
func Buy(o Order) (Receipt, error) { return Receipt{o.Count}, nil }

// Sell is in the example of Open.
func Sell(s *Stock) { s.Pack() }

// Failure is an error, so nobody starts from it.
type Failure struct{}

func (Failure) Error() string { return "sold out" }

// ErrClosed needs no example.
var ErrClosed = errors.New("closed")

// Counter has a single method, which this comment explains.
type Counter interface{ Count() int }
