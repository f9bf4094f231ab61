// Package host keeps what a Transport knows about each host it talks to, in a
// table that is bounded and that a request on its first try reads without a
// lock, a clock or an allocation.
//
// Nothing here sleeps, starts a goroutine or reads a clock: a method takes now
// and answers grant, wait until, or refuse. Only the transport's loop waits.
// The same machines can therefore be driven by a simulation in virtual time.
//
// The files:
//
//	key.go    which host is this request for?
//	table.go  the state of that host, found without a lock; eviction
//	state.go  what is kept per host
//	rate.go   client-side rate limit
package host
